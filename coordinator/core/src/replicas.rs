//! Subprograms that run several times, because a workstation's owner can lie.
//!
//! A replica is a run like any other: it has a turn in the queue, attempts,
//! retries and a history of its own, under a [`Position`] beyond those of the
//! job's subprograms, so that the rest of the core need not know of it. What it
//! comes to is a vote. Here is what only replicas have: where each has been, how
//! they voted, and what follows from that.
//!
//! ```text
//! begun ──► votes ──► a quorum agrees ──────────► the result counts
//!             │ ├──► none can any more ─► one more replica, up to twice as many
//!             │ └──► nor with those ────► held: who gave different outputs
//! ```
//!
//! The promise: of two votes that agree no workstation had a hand in both, and
//! nothing counts that fewer than a quorum came to. Knows nothing of leases and
//! queues.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{ContentHash, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::wire::{Finished, Printed};

use crate::job::Position;
use crate::record::History;

/// One replica of a subprogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    /// The workstations that had a hand in what it has come to so far.
    trail: Vec<WorkstationId>,
    place: Option<Stand>,
    vote: Option<Vote>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Runs,
    Suspended,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Vote {
    answer: ContentHash,
    history: History,
}

/// A subprogram that was begun and is not decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seat {
    runs: Vec<Run>,
}

impl Seat {
    /// `None`: nothing of it is placed. A subprogram is suspended if all is that
    /// is placed of it.
    fn stand(&self) -> Option<Stand> {
        let placed = || self.runs.iter().filter_map(|run| run.place);
        if placed().any(|stand| stand == Stand::Runs) { Some(Stand::Runs) } else { placed().next() }
    }
}

/// What follows from the votes on a subprogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wait,
    /// So many more replicas are to run.
    More(u8),
    /// A quorum came to this.
    Agreed(ContentHash),
    /// No quorum is to be had: these gave different outputs.
    Differ(Vec<WorkstationId>),
}

/// The replicas of all subprograms of a job that are under way.
#[derive(Debug)]
pub(crate) struct Replicas {
    wanted: u8,
    /// How many subprograms the job has: replica 1 of the first one comes at
    /// this position.
    subprograms: u32,
    begun: BTreeMap<Position, Seat>,
    /// Subprograms of which something is placed, and of those the suspended.
    pub(crate) placed: u32,
    pub(crate) suspended: u32,
}

impl Replicas {
    pub(crate) fn new(wanted: u8, subprograms: u32) -> Self {
        Self { wanted, subprograms, begun: BTreeMap::new(), placed: 0, suspended: 0 }
    }

    pub(crate) fn wanted(&self) -> u32 {
        self.wanted.into()
    }

    /// How many of them make a result count.
    fn quorum(&self) -> usize {
        usize::from(self.wanted) / 2 + 1
    }

    /// More are not tried. Without lies as many as there are quorums decide it.
    fn most(&self) -> usize {
        usize::from(self.wanted) * 2
    }

    /// The first position of the same subprogram.
    pub(crate) fn subprogram(&self, position: Position) -> Position {
        position % self.subprograms
    }

    pub(crate) fn number(&self, position: Position) -> u8 {
        u8::try_from(position / self.subprograms).unwrap_or(u8::MAX)
    }

    pub(crate) fn position(&self, subprogram: Position, number: u8) -> Position {
        u32::from(number) * self.subprograms + subprogram
    }

    /// The positions of a subprogram's replicas; none if it is not under way.
    pub(crate) fn of(&self, subprogram: Position) -> impl Iterator<Item = Position> + use<'_> {
        let runs = self.begun.get(&subprogram).map_or(0, |seat| seat.runs.len());
        let runs = u8::try_from(runs).unwrap_or(u8::MAX);
        (0..runs).map(move |number| self.position(subprogram, number))
    }

    pub(crate) fn begun(&self) -> impl Iterator<Item = Position> + '_ {
        self.begun.keys().copied()
    }

    pub(crate) fn is_begun(&self, subprogram: Position) -> bool {
        self.begun.contains_key(&subprogram)
    }

    fn run(&self, position: Position) -> Option<&Run> {
        let seat = self.begun.get(&self.subprogram(position))?;
        seat.runs.get(usize::from(self.number(position)))
    }

    /// Changes a replica, which is made if there is none, and keeps the counts.
    fn change(&mut self, position: Position, change: impl FnOnce(&mut Run)) {
        let (wanted, number) = (usize::from(self.wanted), usize::from(self.number(position)));
        let seat = self.begun.entry(position % self.subprograms).or_default();
        let before = seat.stand();
        let runs = seat.runs.len().max(wanted).max(number + 1);
        seat.runs.resize_with(runs, Run::default);
        change(&mut seat.runs[number]);
        let after = seat.stand();
        self.placed = self.placed + u32::from(after.is_some()) - u32::from(before.is_some());
        let is_suspended = |stand| u32::from(stand == Some(Stand::Suspended));
        self.suspended = self.suspended + is_suspended(after) - is_suspended(before);
    }

    pub(crate) fn place(&mut self, position: Position) {
        self.change(position, |run| run.place = Some(Stand::Runs));
    }

    pub(crate) fn suspend(&mut self, position: Position, suspended: bool) {
        let stand = if suspended { Stand::Suspended } else { Stand::Runs };
        self.change(position, |run| run.place = run.place.map(|_| stand));
    }

    pub(crate) fn take_back(&mut self, position: Position) {
        self.change(position, |run| run.place = None);
    }

    /// The replica is at this workstation, or on its way to it.
    pub(crate) fn touch(&mut self, position: Position, at: WorkstationId) {
        self.change(position, |run| run.trail.push(at));
    }

    /// It never came there.
    pub(crate) fn untouch(&mut self, position: Position, at: WorkstationId) {
        self.change(position, |run| {
            if let Some(last) = run.trail.iter().rposition(|id| *id == at) {
                run.trail.remove(last);
            }
        });
    }

    /// What it has done is lost: it has been nowhere.
    pub(crate) fn begin_anew(&mut self, position: Position) {
        self.change(position, |run| run.trail.clear());
    }

    pub(crate) fn trail(&self, position: Position) -> &[WorkstationId] {
        self.run(position).map_or(&[], |run| &run.trail)
    }

    /// The replica has come to something.
    pub(crate) fn vote(&mut self, position: Position, answer: ContentHash, history: History) {
        self.change(position, |run| run.vote = Some(Vote { answer, history }));
    }

    pub(crate) fn answer(&self, position: Position) -> Option<ContentHash> {
        Some(self.run(position)?.vote.as_ref()?.answer)
    }

    pub(crate) fn voted(&self, position: Position) -> Option<&History> {
        Some(&self.run(position)?.vote.as_ref()?.history)
    }

    /// Puts a replica back as a store kept it.
    pub(crate) fn restore(&mut self, position: Position, trail: Vec<WorkstationId>) {
        self.change(position, |run| run.trail = trail);
    }

    /// Where this replica may not go: where another of its subprogram is, or had
    /// come to what it has.
    pub(crate) fn barred(&self, position: Position) -> Vec<WorkstationId> {
        let others = self.of(self.subprogram(position)).filter(|other| *other != position);
        let barred: BTreeSet<_> = others.flat_map(|other| self.trail(other)).copied().collect();
        barred.into_iter().collect()
    }

    /// Where none of the subprogram's replicas has been, those that have been nowhere
    /// are still to run: how many are these, and which workstations do not count?
    pub(crate) fn unbegun(&self, position: Position) -> (usize, BTreeSet<WorkstationId>) {
        let trails = || self.of(self.subprogram(position)).map(|of| self.trail(of));
        let nowhere = trails().filter(|trail| trail.is_empty()).count();
        (nowhere, trails().flatten().copied().collect())
    }

    pub(crate) fn verdict(&self, subprogram: Position) -> Verdict {
        let Some(seat) = self.begun.get(&subprogram) else { return Verdict::Wait };
        let votes = || seat.runs.iter().filter_map(|run| Some((run.vote.as_ref()?.answer, run)));
        let mut tally: BTreeMap<ContentHash, usize> = BTreeMap::new();
        for (answer, _) in votes() {
            *tally.entry(answer).or_default() += 1;
        }
        let leader = tally.into_iter().max_by_key(|(_, count)| *count);
        let best = leader.map_or(0, |(_, count)| count);
        if let Some((answer, _)) = leader.filter(|_| best >= self.quorum()) {
            return Verdict::Agreed(answer);
        }
        let open = seat.runs.len() - votes().count();
        let short = self.quorum().saturating_sub(best + open);
        if short == 0 {
            return Verdict::Wait;
        }
        if seat.runs.len() + short <= self.most() {
            return Verdict::More(u8::try_from(short).unwrap_or(u8::MAX));
        }
        Verdict::Differ(votes().filter_map(|(_, run)| run.trail.last().copied()).collect())
    }

    /// Begins more replicas of a subprogram; their positions.
    pub(crate) fn more(&mut self, subprogram: Position, count: u8) -> Vec<Position> {
        let begun = self.of(subprogram).count();
        let first = u8::try_from(begun).unwrap_or(u8::MAX);
        let more: Vec<_> =
            (first..first.saturating_add(count)).map(|it| self.position(subprogram, it)).collect();
        for position in &more {
            self.change(*position, |_| {});
        }
        more
    }

    /// Those that have voted for this answer, and those for another.
    pub(crate) fn sides(
        &self,
        subprogram: Position,
        answer: ContentHash,
    ) -> (Vec<WorkstationId>, Vec<WorkstationId>) {
        let voted = self
            .of(subprogram)
            .filter_map(|position| Some((self.answer(position)?, *self.trail(position).last()?)));
        let (agree, differ): (Vec<_>, Vec<_>) = voted.partition(|(it, _)| *it == answer);
        let at = |side: Vec<(_, WorkstationId)>| side.into_iter().map(|(_, at)| at).collect();
        (at(agree), at(differ))
    }

    /// A subprogram is decided.
    pub(crate) fn remove(&mut self, subprogram: Position) {
        let stand = self.begun.remove(&subprogram).and_then(|seat| seat.stand());
        self.placed -= u32::from(stand.is_some());
        self.suspended -= u32::from(stand == Some(Stand::Suspended));
    }
}

/// What a replica came to, as a hash: its exit status, its standard output and
/// its result files. What it printed to standard error is not compared: it is
/// where programs tell of times and places. Of one that did not end by itself
/// only that is compared: how far it had come is chance.
pub(crate) fn answer(finished: &Finished) -> ContentHash {
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    put(ended(&finished.outcome).as_bytes());
    if matches!(finished.outcome, Outcome::Succeeded | Outcome::ExitCode(_)) {
        let (hash, size, truncated) = match &finished.stdout {
            Printed::Inline(bytes) => (*blake3::hash(bytes).as_bytes(), bytes.len() as u64, false),
            Printed::Staged { hash, size_bytes, truncated } => (hash.0, *size_bytes, *truncated),
        };
        put(&hash);
        put(&size.to_le_bytes());
        put(&[u8::from(truncated)]);
        let mut files: Vec<_> = finished.outputs.iter().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in files {
            put(file.path.as_bytes());
            put(&file.hash.0);
            put(&file.size_bytes.to_le_bytes());
            put(&[u8::from(file.executable)]);
        }
    }
    ContentHash(*hasher.finalize().as_bytes())
}

/// How it ended, without an agent's own words.
fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::OverLimit(_) => "over a limit".to_owned(),
        Outcome::CannotStart(_) => "cannot start".to_owned(),
        Outcome::Fault(_) => "fault".to_owned(),
        Outcome::Succeeded | Outcome::ExitCode(_) | Outcome::Signal(_) | Outcome::TimedOut => {
            outcome.to_string()
        }
    }
}

#[cfg(test)]
mod tests;
