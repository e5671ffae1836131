//! The coordinator of a lab: its core, its store, and what leaves once that has
//! kept it.

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::wire::CoordinatorFrame;
use gleaner_coordinator_core::directory::DirectoryRecord;
use gleaner_coordinator_core::{Answer, Change, Core, Effect, Event, Step};
use rand::Rng;

use super::copies::check_greeting;
use super::enrolment::Reply;
use super::invariant::holds;
use super::{Happening, Lab, index_of};

/// After how many steps the scheduler's counts are compared with the pool's.
const CHECK_PLACES_EVERY: u64 = 16;

/// What waits for the disk, and what leaves when it is there.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) step: Step,
    pub(crate) records: Vec<DirectoryRecord>,
    pub(crate) reply: Option<Reply>,
}

impl Lab {
    pub(super) fn coordinator_starts(&mut self) {
        self.look_at_the_clock();
        let mut restored = self.store.restored();
        let change = restored.begin_generation(self.wall());
        self.copies.began(restored.fences_below);
        self.store.commit(&Step { changes: vec![change], ..Step::default() }, self.calm);
        let own = self.clock.reads(self.now);
        let core = Core::restore(own, self.wall(), self.setting.config.clone(), restored);
        self.witness.check_restored(own, &core, &self.store);
        self.core = Some(core);
        self.enrolment.coordinator_starts(self.store.directory().cloned());
        self.commits_from = self.now;
    }

    pub(super) fn handle(&mut self, event: Event) {
        let (now, wall) = (self.clock.reads(self.now), self.wall());
        let greeting = self.copies.restored > 0 && matches!(event, Event::Heard { .. });
        let greeting = if greeting { self.greeting(&event) } else { None };
        let said = self.said_by_one_of_two(&event);
        let Some(core) = &mut self.core else { return };
        let step = core.handle(now, wall, event);
        if let Some(said) = said {
            self.check_speaker(said, &step);
        }
        if let Some(greeting) = greeting {
            check_greeting(greeting, &step);
        }
        self.take_step(step);
    }

    pub(super) fn coordinator_wakes(&mut self) {
        let (own, wall) = (self.clock.reads(self.now), self.wall());
        let step = self.core.as_mut().expect("it has a deadline").wake(own, wall);
        self.check_gives_up(&step);
        self.take_step(step);
    }

    /// What the core has just decided is as it may be.
    pub(super) fn check_step(&mut self, step: &Step) {
        let core = self.core.as_ref().expect("somebody made this step");
        let own = self.clock.reads(self.now);
        self.witness.check_placements(own, core, &self.store, step);
        self.witness.check_waits(self.now, self.setting.config.lease, step);
        // What it hears before it has looked at its clock finds rests that are long over.
        let is_late = self.went_on.0 == self.now;
        if self.history.steps.is_multiple_of(CHECK_PLACES_EVERY) && !is_late {
            let agree = core.check_places();
            holds!(CountersAgree, agree.is_ok(), "the scheduler and the pool: {agree:?}");
        }
        let rests = core.has_come_to_rest();
        holds!(ComesToRest, rests, "the scheduler decides without end: {}", self.left());
        self.count_turns(step);
    }

    pub(super) fn take_step(&mut self, step: Step) {
        self.check_step(&step);
        // A heartbeat is acknowledged whatever the disk does.
        let is_ack = |effect: &Effect| {
            matches!(effect, Effect::Send { frame: CoordinatorFrame::HeartbeatAck { .. }, .. })
        };
        if step.changes.is_empty() && step.effects.iter().all(is_ack) {
            return step.effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
        self.waits_for_the_disk(Pending { step, ..Pending::default() });
    }

    pub(super) fn waits_for_the_disk(&mut self, pending: Pending) {
        if self.pending.is_empty() {
            let gap = Duration::from_micros(self.rng.random_range(200..6_000));
            self.plan(gap, Happening::Commit(self.life));
        }
        self.pending.push_back(pending);
    }

    /// In the order of the changes: of those who wait, each sees the first job's
    /// attempts that begin before its own.
    fn count_turns(&mut self, step: &Step) {
        if self.setting.crowd.is_none() {
            return;
        }
        for change in &step.changes {
            if let Change::Job(record) = change {
                self.waits.insert(record.job);
            }
            // Whoever has been cancelled waits no more.
            if let Change::Progress(progress) = change
                && progress.state.has_ended()
            {
                self.waits.remove(&progress.job);
            }
            let Change::Attempt(attempt) = change else { continue };
            if attempt.end.is_some() || attempt.coming.is_some() {
                continue;
            }
            let job = attempt.subprogram.job;
            self.waits.remove(&job);
            for waits in self.waits.iter().filter(|_| job == JobId(1)) {
                *self.turns_waited.entry(*waits).or_default() += 1;
            }
        }
    }

    /// All steps so far in one go, then what they want to be done.
    pub(super) fn commit(&mut self) {
        if self.now < self.commits_from {
            return self.plan_at(self.commits_from, Happening::Commit(self.life));
        }
        let all = std::mem::take(&mut self.pending);
        for pending in &all {
            self.keep(pending);
        }
        for Pending { step, reply, .. } in all {
            step.effects.into_iter().for_each(|effect| self.carry_out(effect));
            if let Some(reply) = reply {
                self.enrolment_replies(reply);
            }
        }
    }

    /// It is durable.
    fn keep(&mut self, Pending { step, records, .. }: &Pending) {
        self.store.commit(step, self.calm);
        for record in records {
            self.store.record(record.clone());
        }
        for change in &step.changes {
            if let Change::FencesReserved { below } = change {
                self.copies.began(*below);
            }
            // What has ended may run no more.
            if let Change::Attempt(record) = change {
                self.witness.keeps(record.fence);
                self.machines_of(record.workstation).for_each(|index| self.hosts.touch(index));
            }
        }
    }

    /// It dies, while so many of the steps that waited for the disk were kept there:
    /// nobody has heard of those, or of the others.
    pub(super) fn coordinator_crashes(&mut self, away: Duration, kept: f64) {
        if self.core.take().is_none() {
            return;
        }
        let steps = std::mem::take(&mut self.pending);
        let kept = (0..steps.len()).filter(|at| (*at as f64) < kept * steps.len() as f64).count();
        steps.iter().take(kept).for_each(|pending| self.keep(pending));
        self.enrolment.coordinator_dies();
        self.usage.coordinator_dies();
        self.collector_is_cut();
        for link in self.wires.keys().copied().collect::<Vec<_>>() {
            self.cut(link);
        }
        // Nothing that was under way reaches the next life.
        self.life += 1;
        self.wires.clear();
        self.welcomed.clear();
        self.plan(away, Happening::CoordinatorStarts);
        self.halted.take().into_iter().for_each(|halt| self.plan_all(halt.held));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { frame, .. }
                if self.core.as_ref().is_some_and(|core| core.is_overtaken(&frame)) => {}
            Effect::Send { to, frame } => {
                if let CoordinatorFrame::Offer(offer) = &frame {
                    let placed = &self.store.attempts[&offer.fence];
                    assert_eq!(
                        (placed.subprogram, placed.workstation),
                        (offer.subprogram, to.workstation)
                    );
                }
                if let CoordinatorFrame::Riders { fences } = &frame {
                    self.shared += u64::from(!fences.is_empty());
                }
                if matches!(frame, CoordinatorFrame::Welcome { .. }) {
                    self.welcomed.insert(to.workstation, to);
                }
                if let CoordinatorFrame::Cancel { fence } = frame {
                    self.witness.cancels(&self.hosts, &self.store, index_of(to), fence);
                }
                self.send_down(to, frame);
            }
            Effect::Refuse { link, .. } | Effect::Replace(link) => self.cut(link),
            Effect::Answer { answer: Answer::Submitted(job), .. } => {
                let is_kept = self.store.jobs.contains_key(&job);
                holds!(AcknowledgedDurable, is_kept, "job {job} was answered before it was kept");
                self.accepted.insert(job);
            }
            Effect::Progress(summary) => self.witness.progressed(&summary),
            Effect::Answer { answer: Answer::Cancelled(_) | Answer::No(_), .. }
            | Effect::WentBack { .. }
            | Effect::Unknown { .. } => {}
            Effect::Unneeded(parts) => self.cuts.drop(parts, &self.store),
        }
    }
}
