//! One job that has not ended: its queue, and what is known of its
//! subprograms.
//!
//! The promise: every subprogram is in exactly one place: never tried, waiting
//! to be tried again, placed, or ended. The subprograms that were never tried
//! are one number and those that have ended are the store's, so memory is spent
//! on what is under way. Knows nothing of workstations but their ids.
//!
//! ```text
//! untried ──► placed ──► ended
//!               │ ▲
//!               ▼ │
//!     returned (first) / failed (last)
//! ```

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::JobSpec;
use gleaner_common::report::{JobState, JobSummary, SubprogramState};
use gleaner_common::time::WallTime;
use gleaner_common::wire::Finished;
use gleaner_program_core::address::Rank;

use crate::needs::Needs;
use crate::pool::AHEAD;
use crate::program::Program;
use crate::record::{
    Change, History, JobProgress, JobRecord, LastAttempt, ReplicaRecord, SubprogramRecord,
};
use crate::replicas::{Replicas, Verdict};

/// How many subprograms that were tried before are looked at for one that may go
/// where there is room: the others wait for a choice of workstation.
const LOOKED_AT: usize = 8;

/// And how many replicas, which have less of a choice.
const REPLICAS_LOOKED_AT: usize = 64;

/// With so many replicas waiting, no more subprograms are begun: what is begun
/// and not decided takes memory.
const REPLICAS_WAITING_MAX: usize = 1_000;

/// How many notes of a job are kept: the newest.
const NOTES_MAX: usize = 20;

/// A subprogram's position in its job: 0 for the first. After the last one come
/// the positions of second replicas in the same order, then those of third ones.
pub(crate) type Position = u32;

/// Where a subprogram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whereabouts {
    Placed(Fence),
    /// `before` others of its job go first.
    Queued {
        before: u32,
    },
    Ended,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Returned(usize),
    Untried,
    Failed(usize),
}

/// Where a subprogram is not to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Avoided {
    /// Only if there is no choice: then the first of them.
    pub(crate) rather: Vec<WorkstationId>,
    /// Not in any case.
    pub(crate) never: Vec<WorkstationId>,
}

impl Avoided {
    /// Nor there, where others of its job or user have failed: before where it has
    /// failed itself.
    pub(crate) fn and_rather(mut self, suspected: &[WorkstationId]) -> Self {
        let new = suspected.iter().filter(|id| !self.rather.contains(id));
        let new: Vec<_> = new.copied().collect();
        self.rather.splice(..0, new);
        self
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    /// The job as it was submitted, and its progress.
    record: JobRecord,
    /// Subprograms at positions below this were placed at least once.
    tried: u32,
    /// Subprograms that came back through no fault of their own: they go first.
    returned: VecDeque<Position>,
    /// Subprograms that failed and have retries left: they go last.
    failed: VecDeque<Position>,
    placed: BTreeMap<Position, Fence>,
    history: BTreeMap<Position, History>,
    /// If each subprogram is to run several times.
    replicas: Option<Replicas>,
    /// How many of those placed are suspended.
    suspended: u32,
    /// How many of those placed share another's place, and are not suspended.
    riding: u32,
    /// How many are on their way to a place of their own, beside those placed.
    coming: u32,
    /// Suspensions of the open attempts; they are added to the counts when
    /// these end.
    pub(crate) open_suspensions: u64,
    /// How long a subprogram takes its place: the longest seen of late.
    expected: Option<Duration>,
    /// Workstations that were sent the job's spec.
    pub(crate) spec_sent_to: BTreeSet<WorkstationId>,
    /// The program, if the job is one of ranks.
    pub(crate) program: Option<Box<Program>>,
    /// Ranks that have ended, as far as this life of the program goes.
    ended_ranks: BTreeMap<Position, History>,
    /// Ranks that an earlier life had spawned, and this one may again.
    shelved: BTreeMap<Position, History>,
    /// The pool's version when no free workstation had what the job needs.
    pub(crate) fits_nowhere_since: Cell<Option<u64>>,
}

impl Job {
    pub(crate) fn new(record: JobRecord) -> Self {
        let (wanted, subprograms) = (record.spec.replicas, record.indexes().len());
        Self {
            record,
            replicas: (wanted > 1).then(|| Replicas::new(wanted, subprograms)),
            tried: 0,
            returned: VecDeque::new(),
            failed: VecDeque::new(),
            placed: BTreeMap::new(),
            history: BTreeMap::new(),
            suspended: 0,
            riding: 0,
            coming: 0,
            open_suspensions: 0,
            expected: None,
            spec_sent_to: BTreeSet::new(),
            program: None,
            ended_ranks: BTreeMap::new(),
            shelved: BTreeMap::new(),
            fits_nowhere_since: Cell::new(None),
        }
    }

    /// Puts back what a store kept: first those that were tried, then those
    /// that are placed, then [`Job::recount`].
    pub(crate) fn restore_tried(&mut self, record: SubprogramRecord) {
        let history = record.history;
        match self.position(record.subprogram.index) {
            Some(position) if record.state != SubprogramState::Queued => {
                self.ended_ranks.insert(position, history);
            }
            Some(position) => drop(self.history.insert(position, history)),
            None => drop(self.shelved.insert(record.subprogram.index, history)),
        }
    }

    pub(crate) fn restore_replica(&mut self, record: ReplicaRecord) {
        let position = self.position_of(record.subprogram.index, record.replica);
        let (Some(position), Some(replicas)) = (position, &mut self.replicas) else { return };
        replicas.restore(position, record.trail);
        match record.answer {
            Some(answer) => replicas.vote(position, answer, record.history),
            None => drop(self.history.insert(position, record.history)),
        }
    }

    pub(crate) fn restore_placed(&mut self, position: Position, fence: Fence) {
        self.placed.insert(position, fence);
        if let Some(replicas) = &mut self.replicas {
            replicas.place(position);
        }
    }

    /// How many were tried follows from the rest: untried ones are placed in
    /// order, and every other one has ended, is placed or has a history.
    pub(crate) fn recount(&mut self) {
        if self.replicas.is_some() {
            return self.recount_replicas();
        }
        for (position, history) in &self.history {
            if self.placed.contains_key(position) {
                continue;
            }
            if history.failed_last() {
                self.failed.push_back(*position);
            } else {
                self.returned.push_back(*position);
            }
        }
        let waiting = self.returned.len() + self.failed.len() + self.placed.len();
        self.tried = u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(self.ended());
    }

    /// Replicas that were never placed are in no record: they are those that the
    /// votes ask for.
    fn recount_replicas(&mut self) {
        let Some(replicas) = &mut self.replicas else { return };
        let begun: Vec<Position> = replicas.begun().collect();
        for subprogram in &begun {
            if let Verdict::More(count) = replicas.verdict(*subprogram) {
                replicas.more(*subprogram, count);
            }
        }
        let all = begun.iter().flat_map(|subprogram| replicas.of(*subprogram));
        let is_placed = |position: &Position| self.placed.contains_key(position);
        for position in all.filter(|it| !is_placed(it) && replicas.answer(*it).is_none()) {
            if self.history.get(&position).is_some_and(History::failed_last) {
                self.failed.push_back(position);
            } else {
                self.returned.push_back(position);
            }
        }
        let begun = u32::try_from(begun.len()).unwrap_or(u32::MAX);
        self.tried = begun.saturating_add(self.ended());
    }

    pub(crate) fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_ref()
    }

    pub(crate) fn replicas_mut(&mut self) -> Option<&mut Replicas> {
        self.replicas.as_mut()
    }

    pub(crate) fn id(&self) -> JobId {
        self.record.job
    }

    pub(crate) fn spec(&self) -> &JobSpec {
        &self.record.spec
    }

    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs::of(self.spec())
    }

    /// How many processors each of its subprograms takes.
    pub(crate) fn each(&self) -> u32 {
        u32::from(self.spec().cores.max(1))
    }

    pub(crate) fn record(&self) -> &JobRecord {
        &self.record
    }

    pub(crate) fn progress(&self) -> &JobProgress {
        &self.record.progress
    }

    pub(crate) fn progress_mut(&mut self) -> &mut JobProgress {
        &mut self.record.progress
    }

    pub(crate) fn total(&self) -> u32 {
        self.record.indexes().len()
    }

    pub(crate) fn note(&mut self, note: String) {
        let notes = &mut self.record.notes;
        if notes.len() >= NOTES_MAX {
            notes.remove(0);
        }
        notes.push(note);
    }

    fn ended(&self) -> u32 {
        self.progress().counts.ended()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended() == self.total()
    }

    pub(crate) fn queued(&self) -> u32 {
        let again = u32::try_from(self.returned.len() + self.failed.len()).unwrap_or(u32::MAX);
        let each = self.replicas.as_ref().map_or(1, Replicas::wanted);
        self.untried().saturating_mul(each).saturating_add(again)
    }

    fn untried(&self) -> u32 {
        self.total().saturating_sub(self.tried)
    }

    /// How many places its guests have: those that stand still for an owner
    /// have none, and those that share one have none of their own.
    pub(crate) fn held(&self) -> u32 {
        let placed = u32::try_from(self.placed.len()).unwrap_or(u32::MAX);
        placed.saturating_sub(self.suspended + self.riding).saturating_add(self.coming)
    }

    pub(crate) fn riding(&self) -> u32 {
        self.riding
    }

    /// One that is placed shares another's place from now on, or does not any
    /// more; nothing, if it does not count.
    pub(crate) fn count_riding(&mut self, counts: bool, rides: bool) {
        if counts && rides {
            self.riding += 1;
        } else if counts {
            self.riding -= 1;
        }
    }

    /// One of its guests is on its way somewhere, beside the one placed.
    pub(crate) fn sets_out(&mut self) {
        self.coming += 1;
    }

    /// It has come there, or never will.
    pub(crate) fn no_more_coming(&mut self) {
        self.coming = self.coming.saturating_sub(1);
    }

    pub(crate) fn placed(&self) -> impl ExactSizeIterator<Item = (Position, Fence)> + '_ {
        self.placed.iter().map(|(position, fence)| (*position, *fence))
    }

    pub(crate) fn position(&self, index: u32) -> Option<Position> {
        self.record.indexes().position(index)
    }

    /// The position of a subprogram's replica.
    pub(crate) fn position_of(&self, index: u32, replica: u8) -> Option<Position> {
        let subprogram = self.position(index)?;
        match &self.replicas {
            Some(replicas) => Some(replicas.position(subprogram, replica)),
            None => (replica == 0).then_some(subprogram),
        }
    }

    /// Where its subprogram's own record would be.
    pub(crate) fn first_position(&self, position: Position) -> Position {
        self.replicas.as_ref().map_or(position, |replicas| replicas.subprogram(position))
    }

    pub(crate) fn replica(&self, position: Position) -> u8 {
        self.replicas.as_ref().map_or(0, |replicas| replicas.number(position))
    }

    pub(crate) fn subprogram(&self, position: Position) -> SubprogramId {
        let index = self.record.indexes().at(self.first_position(position));
        SubprogramId { job: self.id(), index: index.expect("a position of this job") }
    }

    /// What is known of a subprogram that was tried, of all its replicas
    /// together.
    pub(crate) fn known(&self, subprogram: Position) -> Option<History> {
        let Some(replicas) = &self.replicas else { return self.history.get(&subprogram).cloned() };
        let of = |position| replicas.voted(position).or_else(|| self.history.get(&position));
        History::sum(replicas.of(subprogram).filter_map(of))
    }

    /// The replica is at this workstation, or on its way to it.
    pub(crate) fn touch(&mut self, position: Position, at: WorkstationId) {
        if let Some(replicas) = &mut self.replicas {
            replicas.touch(position, at);
        }
    }

    /// It never came there.
    pub(crate) fn untouch(&mut self, position: Position, at: WorkstationId) {
        if let Some(replicas) = &mut self.replicas {
            replicas.untouch(position, at);
        }
    }

    /// What the subprogram has done is lost.
    pub(crate) fn begin_anew(&mut self, position: Position) {
        if let Some(replicas) = &mut self.replicas {
            replicas.begin_anew(position);
        }
    }

    /// Where it is not to go.
    pub(crate) fn avoided(&self, position: Position) -> Avoided {
        let rather = self.history.get(&position).map(|history| history.avoided.clone());
        let never = self.replicas.as_ref().map_or_else(Vec::new, |it| it.barred(position));
        Avoided { rather: rather.unwrap_or_default(), never }
    }

    /// One that is placed is suspended from now on, or is not any more.
    pub(crate) fn set_suspended(&mut self, position: Position, (before, after): (bool, bool)) {
        self.suspended -= u32::from(before);
        self.suspended += u32::from(after);
        if let Some(replicas) = &mut self.replicas {
            replicas.suspend(position, after);
        }
    }

    /// More replicas of a subprogram are to run, before all others.
    pub(crate) fn queue_more(&mut self, subprogram: Position, count: u8) {
        let Some(replicas) = &mut self.replicas else { return };
        let more = replicas.more(subprogram, count);
        more.into_iter().rev().for_each(|position| self.returned.push_front(position));
    }

    /// What is known of a replica that is not needed any more.
    pub(crate) fn keep(&mut self, position: Position, history: History) {
        self.history.insert(position, history);
    }

    /// A replicated subprogram is decided; what its replicas have come to.
    pub(crate) fn decided(&mut self, subprogram: Position) -> History {
        let history = self.known(subprogram).unwrap_or_default();
        let Some(replicas) = &mut self.replicas else { return history };
        let is_other = |position: &Position| replicas.subprogram(*position) != subprogram;
        self.returned.retain(is_other);
        self.failed.retain(is_other);
        for position in replicas.of(subprogram) {
            self.history.remove(&position);
        }
        replicas.remove(subprogram);
        history
    }

    pub(crate) fn history(&self, position: Position) -> Option<&History> {
        self.history.get(&position)
    }

    /// The store is to know this of a subprogram from now on.
    pub(crate) fn subprogram_change(
        &self,
        position: Position,
        history: &History,
        state: SubprogramState,
    ) -> Change {
        if self.replicas.is_some() {
            return self.replica_change(position, history, None);
        }
        self.record_change(position, history, state)
    }

    /// The store is to know this of a replica.
    pub(crate) fn replica_change(
        &self,
        position: Position,
        history: &History,
        finished: Option<Box<Finished>>,
    ) -> Change {
        let known = self.replicas.as_ref();
        let record = ReplicaRecord {
            subprogram: self.subprogram(position),
            replica: self.replica(position),
            history: history.clone(),
            trail: known.map_or_else(Vec::new, |it| it.trail(position).to_vec()),
            answer: known.and_then(|it| it.answer(position)),
        };
        Change::Replica { record: Box::new(record), finished }
    }

    /// The same of a subprogram as a whole.
    pub(crate) fn record_change(
        &self,
        position: Position,
        history: &History,
        state: SubprogramState,
    ) -> Change {
        let subprogram = self.subprogram(position);
        Change::Subprogram(SubprogramRecord { subprogram, state, history: history.clone() })
    }

    /// The open attempt of a subprogram.
    pub(crate) fn fence(&self, position: Position) -> Option<Fence> {
        self.placed.get(&position).copied()
    }

    /// The ranks that have ended in this life of the program.
    pub(crate) fn ended_ranks(&self) -> &BTreeMap<Position, History> {
        &self.ended_ranks
    }

    /// A rank has ended; its program has not.
    pub(crate) fn end_rank(&mut self, position: Position, history: History) {
        self.ended_ranks.insert(position, history);
    }

    /// The ranks of which it is known what they have come to.
    pub(crate) fn finished_ranks(&self) -> BTreeSet<Rank> {
        self.ended_ranks.keys().map(|position| Rank(*position)).collect()
    }

    /// A subprogram goes on as another attempt, elsewhere.
    pub(crate) fn go_on(&mut self, position: Position, history: History, fence: Fence) {
        self.history.insert(position, history);
        self.restore_placed(position, fence);
    }

    /// All of a program begins again with so many ranks, but for those that had
    /// ended where it begins. Returns the ranks whose record is to be written
    /// anew.
    pub(crate) fn begin_again(
        &mut self,
        ranks: u32,
        stays_over: impl Fn(Position) -> bool,
    ) -> Vec<(Position, History)> {
        let over = std::mem::take(&mut self.ended_ranks);
        let mut again = vec![];
        for (position, history) in over {
            if stays_over(position) {
                self.ended_ranks.insert(position, history);
            } else {
                self.history.insert(position, history.clone());
                again.push((position, history));
            }
        }
        let beyond = self.history.split_off(&ranks);
        self.shelved.extend(beyond);
        self.tried = self.tried.min(ranks);
        self.failed.clear();
        let over = &self.ended_ranks;
        self.returned = (0..self.tried).filter(|p| !over.contains_key(p)).collect();
        let first = self.record.spec.indexes.len();
        let ended = u32::try_from(self.ended_ranks.len()).unwrap_or(u32::MAX);
        let progress = self.progress_mut();
        progress.counts.succeeded = ended;
        progress.spawned = ranks.saturating_sub(first);
        again
    }

    pub(crate) fn summary(&self) -> JobSummary {
        let (placed, suspended) = match &self.replicas {
            Some(replicas) => (replicas.placed, replicas.suspended),
            None => (u32::try_from(self.placed.len()).unwrap_or(u32::MAX), self.suspended),
        };
        let mut summary = self.progress().summary(self.total(), placed, suspended);
        summary.counts.suspensions += self.open_suspensions;
        summary
    }

    pub(crate) fn whereabouts(&self, position: Position) -> Whereabouts {
        match &self.replicas {
            Some(replicas) if replicas.is_begun(position) => {
                let of = replicas.of(position).map(|replica| self.whereabouts_of(replica));
                of.min().unwrap_or(Whereabouts::Ended)
            }
            Some(_) | None => self.whereabouts_of(position),
        }
    }

    /// Where a replica is; one that has voted is nowhere.
    pub(crate) fn whereabouts_of(&self, position: Position) -> Whereabouts {
        if let Some(fence) = self.placed.get(&position) {
            return Whereabouts::Placed(*fence);
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let returned = count(self.returned.len());
        if position >= self.tried && position < self.total() {
            return Whereabouts::Queued { before: returned + position - self.tried };
        }
        if let Some(at) = self.returned.iter().position(|p| *p == position) {
            return Whereabouts::Queued { before: count(at) };
        }
        match self.failed.iter().position(|p| *p == position) {
            Some(at) => Whereabouts::Queued { before: returned + self.untried() + count(at) },
            None => Whereabouts::Ended,
        }
    }

    /// The subprograms that may be placed next, the preferred one first, each
    /// with the workstation that it had better avoid.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (Turn, Avoided)> + '_ {
        let looked_at = if self.replicas.is_some() { REPLICAS_LOOKED_AT } else { LOOKED_AT };
        let returned = self.returned.iter().take(looked_at).enumerate();
        let returned = returned.map(|(at, p)| (Turn::Returned(at), self.avoided(*p)));
        let may_begin = self.replicas.is_none() || self.returned.len() < REPLICAS_WAITING_MAX;
        let untried = self.untried() > 0 && may_begin;
        let untried = untried.then(|| (Turn::Untried, Avoided::default()));
        let failed = self.failed.iter().take(looked_at).enumerate();
        let failed = failed.map(|(at, p)| (Turn::Failed(at), self.avoided(*p)));
        returned.chain(untried).chain(failed)
    }

    /// A subprogram's turn has come: it leaves the queue for a workstation.
    pub(crate) fn place(&mut self, turn: Turn, fence: Fence) -> Position {
        let position = match turn {
            Turn::Returned(at) => self.returned.remove(at).expect("a turn of this queue"),
            Turn::Untried => self.begin_next(),
            Turn::Failed(at) => self.failed.remove(at).expect("a turn of this queue"),
        };
        self.restore_placed(position, fence);
        position
    }

    /// Begins the first that was never tried: its replicas wait from now on.
    fn begin_next(&mut self) -> Position {
        let position = self.tried;
        self.tried += 1;
        if let Some(replicas) = &mut self.replicas {
            replicas.begin_anew(position);
            self.returned.extend(replicas.of(position).skip(1));
        }
        position
    }

    /// An attempt ended. Returns what is known of its subprogram, with `last`
    /// added.
    pub(crate) fn take_back(&mut self, position: Position, last: LastAttempt) -> History {
        self.placed.remove(&position);
        if let Some(replicas) = &mut self.replicas {
            replicas.take_back(position);
        }
        let known = self.history.remove(&position).or_else(|| self.shelved.remove(&position));
        let history = known.unwrap_or_default();
        History { attempts: history.attempts + 1, last, ..history }
    }

    /// Queues a subprogram to go first: it came back through no fault of its
    /// own.
    pub(crate) fn return_first(&mut self, position: Position, history: History) {
        self.returned.push_back(position);
        self.history.insert(position, history);
    }

    /// Queues a subprogram to go last: whatever made it fail may have passed by
    /// then.
    pub(crate) fn retry_last(&mut self, position: Position, history: History) {
        self.failed.push_back(position);
        self.history.insert(position, history);
    }

    /// A failure of a subprogram that is to be tried again does not count after all.
    pub(crate) fn excuse(&mut self, index: u32) -> Option<(Position, &History)> {
        let position = self.position(index)?;
        let history = self.history.get_mut(&position).filter(|history| history.failures > 0)?;
        history.failures -= 1;
        Some((position, history))
    }

    /// The queued subprograms that were tried before, with what is known of
    /// them: also ranks that an earlier life of their program tried.
    pub(crate) fn tried_before(&self) -> impl Iterator<Item = (Position, &History)> {
        let queued = |(position, _): &(&Position, _)| !self.placed.contains_key(position);
        let shelved = self.shelved.range(self.tried.min(self.total())..self.total());
        let all = self.history.iter().filter(queued).chain(shelved);
        all.map(|(position, history)| (*position, history))
    }

    /// Cancels all subprograms that have not ended.
    pub(crate) fn cancel(&mut self, at: WallTime) {
        let total = self.total();
        let progress = self.progress_mut();
        progress.counts.cancelled = total - progress.counts.succeeded - progress.counts.failed;
        progress.state = JobState::Cancelled;
        progress.ended = Some(at);
        self.tried = total;
        self.returned.clear();
        self.failed.clear();
        self.placed.clear();
        self.history.clear();
        self.ended_ranks.clear();
        (self.suspended, self.riding) = (0, 0);
        let wanted = self.spec().replicas;
        self.replicas = self.replicas.take().map(|_| Replicas::new(wanted, total));
    }

    /// A rank has failed for good, and the program with it.
    pub(crate) fn fail(&mut self, at: WallTime) {
        self.cancel(at);
        let progress = self.progress_mut();
        progress.counts.cancelled -= 1;
        progress.counts.failed += 1;
        progress.state = JobState::Failed;
    }

    /// An attempt of this job took its place for so long.
    pub(crate) fn learn_span(&mut self, span: Duration) {
        self.expected = Some(match self.expected {
            Some(before) if span < before => (before * 3 + span) / 4,
            Some(_) | None => span,
        });
    }

    pub(crate) fn expected(&self) -> Option<Duration> {
        self.expected
    }

    /// Are the subprograms so short that places would wait for the network if
    /// none were sent ahead?
    pub(crate) fn is_short(&self) -> bool {
        self.expected.is_some_and(|span| span <= AHEAD)
    }
}
