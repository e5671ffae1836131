//! Programs of ranks: what is sent to their agents and heard from them, and how
//! a program begins again or ends as a whole.
//!
//! The promise: all ranks of a program are of one life; what a rank comes to
//! counts when the program does; and when anything of it is lost, either the
//! whole program goes back to what is kept or the user is told why not.

use std::collections::BTreeSet;

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::program::{Life, RankAt, RankOffer};
use gleaner_common::report::SubprogramState;
use gleaner_common::time::Moment;
use gleaner_common::wire::{CoordinatorFrame, Finished, Printed};
use gleaner_program_core::address::Rank;
use gleaner_program_core::wire::{Ask, FromRank, ToRank};

use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::event::Link;
use crate::job::{Job, Position};
use crate::program::{Order, Program};
use crate::record::{Change, History, SubprogramRecord};
use crate::scheduler::Fact;
use crate::step::Effect;
use crate::workstation::Workstation;

/// One frame has at most so many ranks' places, and stays far below a frame's
/// limit.
const PLACES_AT_ONCE: usize = 1_000;
const NOTE_BYTES_MAX: usize = 300;

impl Core {
    // ── what is sent ───────────────────────────────────────────────────────

    /// What an offered rank needs to know of its program.
    pub(super) fn rank_offer(&self, id: JobId, position: Position) -> Option<Box<RankOffer>> {
        let program = self.jobs.get(&id)?.program.as_ref()?;
        let past = program.past();
        let group = past.group(Rank(position))?;
        Some(Box::new(RankOffer {
            life: program.life(),
            ranks: past.ranks(),
            first: group.first,
            members: group.count,
            parent: group.parent.map(|rank| rank.0),
            snapshot: past.state.newest.0,
            floor: past.state.floor,
            cut: program.part(Rank(position)),
        }))
    }

    /// A rank is at another workstation than before, or its agent has connected
    /// anew.
    pub(super) fn rank_is_at(&self, draft: &mut Draft, id: JobId, position: Option<Position>) {
        if self.program(id).is_some() {
            draft.moved_ranks.entry(id).or_default().extend(position);
        }
    }

    /// Tells every agent that has a rank of a program where others are: all
    /// that is known at first, and then what has changed.
    pub(super) fn send_places(&mut self, draft: &mut Draft) {
        for (id, changed) in std::mem::take(&mut draft.moved_ranks) {
            let Some(life) = self.program(id).map(Program::life) else { continue };
            let changed: Vec<RankAt> =
                changed.into_iter().filter_map(|position| self.place_of(id, position)).collect();
            let mut all = None;
            let hosts = self.hosts_of(id);
            if !changed.is_empty() {
                self.note_who_misses_it(id, &hosts);
            }
            for workstation in hosts {
                let Some(to) = self.link(workstation) else { continue };
                let knew = self.change_workstation(draft.now, workstation, |w| {
                    w.session.as_mut().and_then(|session| session.ranks_sent.insert(id, life))
                });
                let program = self.jobs.get_mut(&id).and_then(|job| job.program.as_mut());
                let missed = program.is_some_and(|it| it.missed_places.remove(&workstation));
                let at = if knew.flatten() == Some(life) && !missed {
                    changed.clone()
                } else {
                    all.get_or_insert_with(|| self.all_places(id)).clone()
                };
                for at in at.chunks(PLACES_AT_ONCE) {
                    let frame = CoordinatorFrame::Ranks { job: id, life, at: at.to_vec() };
                    draft.send(to, frame);
                }
            }
        }
    }

    /// Who has no rank of a program any more misses what changes, and is told all of
    /// it when one comes again.
    fn note_who_misses_it(&mut self, id: JobId, hosts: &BTreeSet<WorkstationId>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(program) = &mut job.program else { return };
        program.missed_places.extend(job.spec_sent_to.difference(hosts));
    }

    fn program(&self, id: JobId) -> Option<&Program> {
        self.jobs.get(&id)?.program.as_deref()
    }

    fn all_places(&self, id: JobId) -> Vec<RankAt> {
        let total = self.jobs.get(&id).map_or(0, Job::total);
        (0..total).filter_map(|position| self.place_of(id, position)).collect()
    }

    /// Where a rank's endpoint is, whether or not the rank has ended.
    fn place_of(&self, id: JobId, position: Position) -> Option<RankAt> {
        let (fence, at) = self.whereabouts_of(self.jobs.get(&id)?, position)?;
        let workstation = self.pool.get(at)?;
        Some(rank_at(position, fence, (at, workstation)))
    }

    fn whereabouts_of(&self, job: &Job, position: Position) -> Option<(Fence, WorkstationId)> {
        if let Some(fence) = job.fence(position) {
            return Some((fence, self.attempts.get(&fence)?.workstation));
        }
        let last = &job.ended_ranks().get(&position)?.last;
        Some((last.fence, last.workstation))
    }

    /// The workstations with a rank of this program, or with what is left of
    /// one.
    fn hosts_of(&self, id: JobId) -> BTreeSet<WorkstationId> {
        let Some(job) = self.jobs.get(&id) else { return BTreeSet::new() };
        let placed = (0..job.total()).filter_map(|position| self.whereabouts_of(job, position));
        let coming = self.moves.values().filter_map(|moving| {
            let attempt = self.attempts.get(&moving.new?)?;
            (attempt.job == id).then_some(attempt.workstation)
        });
        placed.map(|(_, at)| at).chain(coming).collect()
    }

    fn send_to_rank(&self, draft: &mut Draft, id: JobId, rank: Rank, what: &ToRank) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some((fence, at)) = self.whereabouts_of(job, rank.0) else { return };
        self.send_to_attempt(draft, id, (fence, at), what);
    }

    fn send_to_attempt(
        &self,
        draft: &mut Draft,
        id: JobId,
        (fence, at): (Fence, WorkstationId),
        what: &ToRank,
    ) {
        let (Some(to), Some(program)) = (self.link(at), self.program(id)) else { return };
        let written = postcard::to_stdvec(what);
        let bytes =
            written.unwrap_or_else(|error| unreachable!("a word that does not serialise: {error}"));
        draft.send(to, CoordinatorFrame::ToRank { fence, life: program.life(), bytes });
    }

    /// Sends what a rank that begins, has arrived or is connected again must
    /// know.
    pub(super) fn send_past(&self, draft: &mut Draft, id: JobId, position: Position) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(at) = self.whereabouts_of(job, position) else { return };
        let Some(program) = &job.program else { return };
        if program.past().ranks() != job.record().spec.indexes.len() {
            self.send_to_attempt(draft, id, at, &ToRank::Ranks(program.past().ranks()));
        }
        for what in program.past_for(Rank(position)) {
            self.send_to_attempt(draft, id, at, &what);
        }
    }

    // ── what is heard ──────────────────────────────────────────────────────

    pub(super) fn rank_message(
        &mut self,
        draft: &mut Draft,
        from: Link,
        (fence, life): (Fence, Life),
        bytes: &[u8],
    ) {
        let Some((id, position)) = self.rank_of(fence, from.workstation) else { return };
        // The frame is of a life that is over.
        if self.program(id).map(Program::life) != Some(life) {
            return;
        }
        let Ok((said, [])) = postcard::take_from_bytes::<FromRank>(bytes) else {
            let reason = format!("what it says of rank {position} of job {id} does not read");
            self.forget_session(draft.now, from.workstation);
            return draft.effect(Effect::Refuse { link: from, reason });
        };
        let (now, clock, rank) = (draft.now, self.clock(draft), Rank(position));
        let asks_for_room =
            matches!(said, FromRank::Ask { ask: Ask::Spawn { .. } | Ask::Processors, .. });
        let free = if asks_for_room { self.room_for(draft.now, id) } else { 0 };
        let tells_facts = matches!(said, FromRank::Facts { .. });
        let awake = if tells_facts { self.live_ranks(id) } else { BTreeSet::new() };
        let is_placed = self.attempts.contains_key(&fence);
        if matches!(said, FromRank::Ask { .. }) {
            // There may be tasks for more ranks now.
            self.schedule.changed(id);
        }
        if said == FromRank::Drained {
            self.drop_undelivered(draft, id, position);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(program) = &mut job.program else { return };
        match said {
            FromRank::Ask { request, ask } if is_placed => {
                program.asked(clock, rank, (request, ask), free);
            }
            FromRank::Facts { asked, mut facts } => {
                facts.rank = rank;
                program.facts(now, asked, facts, &awake);
            }
            FromRank::Ended { end, snapshot, sent } => {
                program.ended(clock, rank, (end, snapshot), sent);
            }
            FromRank::Drained => program.drained(now, rank),
            FromRank::Complain(complaint) if program.is_news(&complaint) => {
                self.note(draft, id, complaint.to_string());
            }
            // The rank asked after its end, or complained of this before.
            FromRank::Ask { .. } | FromRank::Complain(_) => {}
            FromRank::Negotiate(said) => program.said(clock, rank, &said),
            FromRank::Cut { snapshot, part, .. } => program.has_part(now, rank, snapshot, part),
            FromRank::NoCut(snapshot) => program.has_no_part(now, rank, snapshot),
            FromRank::WhereIs(rank) => {
                let at = self.place_of(id, rank.0).into_iter().collect();
                draft.send(from, CoordinatorFrame::Ranks { job: id, life, at });
            }
        }
        self.obey_program(draft, id);
    }

    /// The rank whose attempt this is at this workstation: an open one, or the
    /// last one of a rank that has ended.
    fn rank_of(&self, fence: Fence, at: WorkstationId) -> Option<(JobId, Position)> {
        if let Some(attempt) = self.attempts.get(&fence) {
            return (attempt.workstation == at).then_some((attempt.job, attempt.position));
        }
        let (id, position) = *self.ended_ranks.get(&fence)?;
        let last = &self.jobs.get(&id)?.ended_ranks().get(&position)?.last;
        (last.fence == fence && last.workstation == at).then_some((id, position))
    }

    /// How many subprograms more of this job would find a place now, after all
    /// that come before.
    pub(super) fn room_for(&self, now: Moment, id: JobId) -> u32 {
        let Some(job) = self.jobs.get(&id) else { return 0 };
        let claim = self.shares.claim(now, &job.record().user);
        let others = self.waiting(now).into_iter().take_while(|next| next.is_before(&claim));
        let others = others.filter(|next| next.user != job.record().user);
        let own = self.queues.of(&job.record().user).into_iter().flat_map(|own| own.before(job));
        let before = others.flat_map(|next| next.queue.jobs()).chain(own);
        let before = before.filter_map(|id| self.jobs.get(&id)).chain([job]);
        let waits = |job: &Job| job.queued().saturating_mul(job.each());
        let waiting = before.map(waits).fold(0, u32::saturating_add);
        let room = self.pool.room().saturating_sub(waiting) / job.each();
        if job.needs().are_none() { room } else { self.pool.room_for(room, job.needs()) }
    }

    /// The ranks that can answer: they have begun, and are not being carried.
    fn live_ranks(&self, id: JobId) -> BTreeSet<Rank> {
        let placed = self.jobs.get(&id).into_iter().flat_map(Job::placed);
        let live = placed.filter(|(_, fence)| {
            let attempt = self.attempts.get(fence);
            attempt.is_some_and(|attempt| attempt.stage.has_started() && attempt.coming.is_none())
                && self.moves.get(fence).is_none_or(|moving| moving.new.is_none())
        });
        live.map(|(position, _)| Rank(position)).collect()
    }

    /// Carries out what a program has decided.
    pub(super) fn obey_program(&mut self, draft: &mut Draft, id: JobId) {
        while let Some(program) = self.jobs.get_mut(&id).and_then(|job| job.program.as_mut())
            && let Some(order) = program.next_order()
        {
            let life = program.life();
            match order {
                Order::Journal { sequence, bytes } => {
                    draft.change(Change::ProgramEvent { job: id, life, sequence, bytes });
                }
                Order::Send { rank, what } => self.send_to_rank(draft, id, rank, &what),
                Order::SendAll(what) => {
                    let total = self.jobs.get(&id).map_or(0, Job::total);
                    for rank in (0..total).map(Rank) {
                        self.send_to_rank(draft, id, rank, &what);
                    }
                }
                Order::Spawned { count } => self.spawned(draft, id, count),
                Order::Note(note) => self.note(draft, id, note),
                Order::Cuts(parts) => draft.change(Change::Cuts { job: id, parts }),
                Order::Unneeded(parts) => draft.effect(Effect::Unneeded(parts)),
                Order::Asked { more, is_answer } => {
                    self.negotiated(draft, &Fact::Asked { job: id, more, is_answer });
                }
                Order::Answered { by } => self.negotiated(draft, &Fact::Answered { job: id, by }),
                Order::Enforce { by } => self.enforce(draft, id, by),
            }
        }
        self.set_timer(id);
    }

    fn spawned(&mut self, draft: &mut Draft, id: JobId, count: u32) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let first = job.total();
        job.progress_mut().spawned += count;
        if let Some(program) = &mut job.program {
            program.began(draft.now, (first..first + count).map(Rank));
        }
        draft.job_record_changed(id);
        self.requeue(id);
    }

    /// Something that the job's user should know.
    pub(super) fn note(&mut self, draft: &mut Draft, id: JobId, mut note: String) {
        note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX));
        // A note is one line.
        note = note.replace(|c: char| c.is_control(), " ");
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.record().notes.last() == Some(&note) {
            return;
        }
        job.note(note);
        draft.change(Change::Notes { job: id, notes: job.record().notes.clone() });
    }

    pub(super) fn set_timer(&mut self, id: JobId) {
        let at = self.program(id).and_then(Program::deadline);
        let before = match at {
            Some(at) => self.timer_of.insert(id, at),
            None => self.timer_of.remove(&id),
        };
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(at.map(|at| (at, id)));
    }

    pub(super) fn program_is_due(&mut self, draft: &mut Draft, id: JobId) {
        let (live, clock) = (self.live_ranks(id), self.clock(draft));
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let total = job.total() as usize;
        let all = live.len() + job.ended_ranks().len() >= total;
        if let Some(program) = &mut job.program {
            program.wake(clock, &live, all);
        }
        self.obey_program(draft, id);
    }

    // ── ends ───────────────────────────────────────────────────────────────

    /// A rank's process ended: well, or the program begins again or fails.
    pub(super) fn rank_finished(
        &mut self,
        draft: &mut Draft,
        (attempt, mut history): (Attempt, History),
        finished: Finished,
    ) {
        let (id, position) = (attempt.job, attempt.position);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let subprogram = job.subprogram(position);
        history.cpu = finished.cpu;
        let cpu = finished.cpu;
        let outcome = finished.outcome.clone();
        let progress = job.progress_mut();
        if outcome.is_success() {
            progress.cpu = progress.cpu.saturating_add(cpu);
            progress.counts.succeeded += 1;
            draft.change(job.subprogram_change(position, &history, SubprogramState::Succeeded));
            self.ended_ranks.insert(history.last.fence, (id, position));
            let drained = job.program.as_ref().is_some_and(|program| {
                program.past().state.ended.get(&Rank(position)).is_some_and(|ended| ended.drained)
            });
            job.end_rank(position, history);
            if let Some(program) = &mut job.program {
                program.gone(Rank(position));
            }
            if !drained {
                self.keep_undelivered(draft, attempt.workstation, (id, position));
            }
            let finished = Box::new(finished);
            draft.change(Change::Result { subprogram, accepted: false, finished });
            self.rank_is_at(draft, id, Some(position));
            return self.obey_program(draft, id);
        }
        progress.wasted_cpu = progress.wasted_cpu.saturating_add(cpu);
        // No workstation is avoided: its place may be all that the others leave.
        history.failures += 1;
        let name = self.workstation_name(attempt.workstation).unwrap_or("a workstation");
        let mut why = format!("rank {position} on {name}: {outcome}");
        if let Some(word) = last_word(&finished.stderr) {
            why = format!("{why}: {word}");
        }
        let finished = Box::new(finished);
        draft.change(Change::Result { subprogram, accepted: false, finished });
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let failures = job.program.as_ref().map_or(0, |program| program.past().state.failures);
        if matches!(outcome, Outcome::Fault(_)) || failures >= job.spec().retries {
            return self.fail_program(draft, id, (position, &history), why);
        }
        job.progress_mut().counts.retried += 1;
        draft.change(job.subprogram_change(position, &history, SubprogramState::Queued));
        job.return_first(position, history);
        self.begin_again(draft, id, &why, true);
    }

    /// A rank is lost with its state: the whole program goes back.
    pub(super) fn begin_again(&mut self, draft: &mut Draft, id: JobId, why: &str, failed: bool) {
        self.stop_all(draft, id, "its program begins again");
        self.forget_ended(draft.now, id);
        let floor = self.fences.floor();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let finished = job.finished_ranks();
        let Some(program) = &mut job.program else { return };
        program.begin_again(draft.now, floor, failed, &finished);
        let (life, ranks) = (program.life(), program.past().ranks());
        let over: BTreeSet<u32> = program.past().state.ended.keys().map(|rank| rank.0).collect();
        let from = program.past().base().map(|whole| whole.snapshot);
        job.progress_mut().life = life;
        for (index, history) in job.begin_again(ranks, |position| over.contains(&position)) {
            let (subprogram, state) = (SubprogramId { job: id, index }, SubprogramState::Queued);
            draft.change(Change::Subprogram(SubprogramRecord { subprogram, state, history }));
        }
        let told: Vec<WorkstationId> = job.spec_sent_to.iter().copied().collect();
        for workstation in told {
            let frame = CoordinatorFrame::Ranks { job: id, life, at: vec![] };
            self.send(draft, workstation, frame);
        }
        let whence = match from {
            Some(snapshot) => format!("from {snapshot}"),
            None => "from its start".to_owned(),
        };
        self.note(draft, id, format!("begins again {whence}: {why}"));
        draft.job_record_changed(id);
        self.obey_program(draft, id);
        self.requeue(id);
    }

    /// Fails a program: no rank of it runs on, and none begins.
    pub(super) fn fail_program(
        &mut self,
        draft: &mut Draft,
        id: JobId,
        (position, history): (Position, &History),
        why: String,
    ) {
        self.stop_all(draft, id, "its program failed");
        self.forget_ended(draft.now, id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (position, history) in job.tried_before() {
            draft.change(job.subprogram_change(position, history, SubprogramState::Cancelled));
        }
        draft.change(job.subprogram_change(position, history, SubprogramState::Failed));
        job.fail(draft.wall);
        self.note(draft, id, why);
        draft.job_record_changed(id);
        self.requeue(id);
    }

    /// Ends every open attempt of a program, those being carried too.
    fn stop_all(&mut self, draft: &mut Draft, id: JobId, why: &str) {
        let placed: Vec<Fence> =
            self.jobs.get(&id).into_iter().flat_map(Job::placed).map(|(_, fence)| fence).collect();
        for fence in placed {
            let stopped = self.stop(draft, fence, why, SubprogramState::Queued);
            let (Some((attempt, history)), Some(job)) = (stopped, self.jobs.get_mut(&id)) else {
                continue;
            };
            job.return_first(attempt.position, history);
            self.settle(draft.now, fence, id, attempt.workstation);
        }
    }

    // ── what ended ranks have left to deliver ──────────────────────────────

    /// Other ranks may still need messages that this agent has of an ended one.
    pub(super) fn keep_undelivered(
        &mut self,
        draft: &Draft,
        at: WorkstationId,
        rank: (JobId, Position),
    ) {
        self.change_workstation(draft.now, at, |w| w.undelivered.insert(rank));
    }

    pub(super) fn drop_undelivered(&mut self, draft: &Draft, id: JobId, position: Position) {
        let over = self.jobs.get(&id).and_then(|job| job.ended_ranks().get(&position));
        if let Some(at) = over.map(|history| history.last.workstation) {
            self.change_workstation(draft.now, at, |w| w.undelivered.remove(&(id, position)));
        }
    }

    /// The agent is gone, and with it the messages of ended ranks that were not
    /// delivered.
    pub(super) fn lose_undelivered(&mut self, draft: &mut Draft, at: WorkstationId) {
        let undelivered =
            self.change_workstation(draft.now, at, |w| std::mem::take(&mut w.undelivered));
        for (id, position) in undelivered.unwrap_or_default() {
            // The program may have gone back already, for another rank that was
            // there.
            let is_over =
                self.jobs.get(&id).is_some_and(|job| job.ended_ranks().contains_key(&position));
            if is_over {
                let name = self.workstation_name(at).unwrap_or("a workstation").to_owned();
                let why = format!(
                    "rank {position} had ended on {name}, which is gone with messages of it"
                );
                self.begin_again(draft, id, &why, false);
            }
        }
    }

    pub(super) fn forget_ended(&mut self, now: gleaner_common::time::Moment, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let over: Vec<(Position, Fence, WorkstationId)> = job
            .ended_ranks()
            .iter()
            .map(|(position, history)| (*position, history.last.fence, history.last.workstation))
            .collect();
        for (position, fence, at) in over {
            self.ended_ranks.remove(&fence);
            self.change_workstation(now, at, |w| w.undelivered.remove(&(id, position)));
        }
    }
}

/// How agents find a rank.
pub(super) fn rank_at(
    rank: Position,
    fence: Fence,
    (workstation, at): (WorkstationId, &Workstation),
) -> RankAt {
    let (name, addresses) = (at.name.clone(), at.facts.addresses.clone());
    RankAt { rank, fence, workstation, name, addresses }
}

/// The last line that a process wrote: most often why it failed.
fn last_word(stderr: &Printed) -> Option<String> {
    let Printed::Inline(text) = stderr else { return None };
    let line = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).into_owned())
}
