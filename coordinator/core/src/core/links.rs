//! The agents' frames, and what follows when an agent falls silent.

use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, JobId, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::time::Moment;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, Blame, CoordinatorFrame, Facts, Finished, GuestState, Presence,
    Printed,
};
use std::collections::BTreeSet;

use super::{Core, Draft, Outdated};
use crate::attempt::{Return, Stage};
use crate::event::Link;
use crate::generation;
use crate::record::Change;
use crate::speaker::{Speaker, Verdict};
use crate::step::Effect;
use crate::workstation::{Session, Standing, Workstation};

/// The contents of an agent's first frame on a connection.
struct Hello {
    incarnation: Incarnation,
    boot: BootId,
    facts: Facts,
    presence: Presence,
    held: Vec<(Fence, GuestState)>,
    seen: Fence,
}

/// Of so many unknown attempts each workstation's are named.
const UNKNOWN_MAX: usize = 256;

/// So many attempts at jobs are remembered that the store does not know.
const LATER_MAX: usize = 1 << 16;

impl Core {
    /// Does this set something going that is not wanted any more? It waited for the
    /// disk meanwhile, and must not leave: what took its place may run already.
    pub fn is_overtaken(&self, frame: &CoordinatorFrame) -> bool {
        let sets_going = if let CoordinatorFrame::Offer(offer) = frame {
            offer.fence
        } else if let CoordinatorFrame::GoOn { fence } | CoordinatorFrame::Stay { fence } = frame {
            *fence
        } else {
            return false;
        };
        !self.attempts.contains_key(&sets_going)
    }

    pub(super) fn heard(&mut self, draft: &mut Draft, from: Link, frame: AgentFrame) {
        let id = from.workstation;
        if let AgentFrame::Hello { incarnation, boot, facts, presence, held, seen } = frame {
            let hello = Hello { incarnation, boot, facts: *facts, presence, held, seen };
            return self.greeted(draft, from, hello);
        }
        if self.link(id) != Some(from) {
            // The frame is of an old connection, or came without a hello: the
            // agent says what matters again on the new one.
            return;
        }
        let (now, lease) = (draft.now, self.config.lease);
        match frame {
            AgentFrame::Hello { .. } => unreachable!("a hello was heard above"),
            AgentFrame::Heartbeat { sequence, slots, load } => {
                self.change_workstation(now, id, |w| {
                    w.renew(now, lease);
                    w.learn_load(slots, load);
                });
                draft.send(from, CoordinatorFrame::HeartbeatAck { sequence });
            }
            AgentFrame::Presence(presence) => {
                if !presence.busy {
                    // An attempt that waits to leave may stay now.
                    self.moves_looked_at = None;
                }
                self.change_workstation(now, id, |w| w.learn_presence(now, presence));
            }
            AgentFrame::Attempt(event) => self.attempt_event(draft, from, event),
            AgentFrame::Stopped { fence } => self.has_stopped(id, fence),
            AgentFrame::Unknown(attempts) => {
                for (fence, subprogram) in attempts {
                    self.note_later_job(id, fence, subprogram.job);
                }
            }
            // The agent has stopped its guests. It tells itself what becomes of
            // them, or the end of its lease does.
            AgentFrame::Leaving { reason } => {
                self.change_workstation(now, id, |w| w.leave(reason));
            }
            // The shell passes on what agents hand each other: the core has no
            // part in it.
            AgentFrame::Relay { .. } => {}
            AgentFrame::Missing(missing) => {
                self.change_workstation(now, id, |w| w.learn_missing(missing));
            }
            AgentFrame::Unready(why) => {
                self.change_workstation(now, id, |w| w.learn_unready(why));
            }
            AgentFrame::FromRank { fence, life, bytes } => {
                self.rank_message(draft, from, (fence, life), &bytes);
            }
        }
    }

    fn greeted(&mut self, draft: &mut Draft, from: Link, hello: Hello) {
        let id = from.workstation;
        let Some(workstation) = self.pool.get(id).filter(|known| !known.removed) else {
            let reason = format!("workstation {id} is not enrolled here");
            return draft.effect(Effect::Refuse { link: from, reason });
        };
        let before = workstation.speakers.holder();
        match self.link(id) {
            Some(present) if present == from => {
                let reason = "a second hello on one connection".to_owned();
                return draft.effect(Effect::Refuse { link: from, reason });
            }
            // A newer connection has overtaken this one.
            Some(present) if present.serial > from.serial => {
                return draft.effect(Effect::Replace(from));
            }
            Some(_) | None => {}
        }
        if let Some(reason) = self.may_not_speak(draft, id, &hello) {
            return draft.effect(Effect::Refuse { link: from, reason });
        }
        if let Err(reason) = self.meet_later_self(draft, id, hello.seen) {
            return draft.effect(Effect::Refuse { link: from, reason });
        }
        if let Some(present) = self.link(id) {
            draft.effect(Effect::Replace(present));
        }
        if before != Some(hello.incarnation) {
            let incarnation = hello.incarnation;
            draft.change(Change::Incarnation { workstation: id, incarnation });
        }
        self.forget_session(draft.now, id);
        if before.is_some_and(|known| known != hello.incarnation) {
            let why = "the agent died, and its guests with it";
            self.give_up_all(draft, id, why);
            self.lose_undelivered(draft, id);
        }
        let (now, lease) = (draft.now, self.config.lease);
        self.change_workstation(now, id, |w| {
            w.session =
                Some(Session { serial: from.serial, specs_sent: [].into(), ranks_sent: [].into() });
            w.since = Some(now);
            w.speakers.let_in(hello.incarnation);
            w.learn_facts(hello.facts);
            w.learn_presence(now, hello.presence);
            w.renew(now, lease);
        });
        let held = hello.held.iter().map(|(fence, _)| *fence).collect();
        self.holds_only(id, &held);
        let mut missing = self.attempts_at(id);
        missing.retain(|fence| !held.contains(fence));
        let (mut keep, mut returned) = (vec![], vec![]);
        let settles = self.settling.everything();
        for (fence, state) in hello.held {
            let is_placed = self.is_placed_at(fence, id);
            if is_placed && settles && state == GuestState::Waiting {
                // It would begin beside what the later self gave out.
                returned.push(fence);
            } else if is_placed {
                self.set_stage(draft, fence, Stage::Held(state));
                if state != GuestState::Leaving {
                    self.stop_move(draft, fence, "it does not leave any more");
                }
                keep.push(fence);
            } else {
                self.note_unknown(draft, id, fence);
            }
        }
        let name = self.pool.get(id).map(|w| w.name.clone()).unwrap_or_default();
        draft.send(
            from,
            CoordinatorFrame::Welcome {
                workstation: id,
                name,
                lease: self.config.lease,
                heartbeat: self.config.heartbeat,
                heartbeat_without_guests: self.quiet_beat(),
                keep,
                generation: self.fences.generation(),
                newest: self.fences.earlier(),
            },
        );
        self.share_again(draft, id);
        if self.pool.get(id).is_some_and(|it| it.riders().len() > 0) {
            self.send_riders(draft, id);
        }
        for fence in returned {
            self.returns_unkept(draft, fence);
        }
        for fence in missing {
            if settles {
                // It is offered again when nothing unknown runs any more.
                self.set_stage(draft, fence, Stage::Offered);
            } else {
                self.offer_again(draft, from, fence);
            }
        }
        self.resend_to_ranks(draft, id);
    }

    /// The agent lets go of what waits there, as its welcome says, and takes no attempt
    /// twice: whatever it says of this one, another is made.
    fn returns_unkept(&mut self, draft: &mut Draft, fence: Fence) {
        let why = "the coordinator's store went back before it began";
        let comes = self.attempts.get(&fence).is_some_and(|attempt| attempt.coming.is_some());
        let how = if comes { Return::Lost(why) } else { Return::Refused(why.to_owned()) };
        self.came_back(draft, fence, &how);
    }

    /// How often agents without guests are heard: the more often the fewer there
    /// are. One hears nothing of a coordinator that died until it says something.
    fn quiet_beat(&self) -> Duration {
        let agents = u32::try_from(self.pool.len()).unwrap_or(u32::MAX);
        let fair = self.config.quiet_beats_apart.saturating_mul(agents);
        fair.max(self.config.heartbeat).min(self.config.heartbeat_without_guests)
    }

    /// An agent has seen a fence that this store never gave out, or has forgotten:
    /// the store went back in time. What it gives out from now on is later.
    fn meet_later_self(
        &mut self,
        draft: &mut Draft,
        id: WorkstationId,
        seen: Fence,
    ) -> Result<(), String> {
        if !self.fences.is_past(seen) {
            if !generation::is_credible(seen, draft.wall) {
                return Err(format!(
                    "it has seen an attempt of generation {}, which is far in the future: \
                     restart its agent, and look at the clocks",
                    seen.generation
                ));
            }
            let below = self.fences.begin_after(seen, draft.wall);
            draft.change(Change::FencesReserved { below });
            draft.change(Change::WentBack(true));
            self.settle_everything(draft.now);
            let programs = self.jobs.iter().filter(|(_, job)| job.program.is_some());
            self.outdated.extend(programs.map(|(id, _)| (*id, Outdated::WentBack)));
        }
        if self.fences.is_forgotten(seen) {
            if self.later_self.is_none_or(|(_, known)| known < seen) {
                self.later_self = Some((id, seen));
            }
            let generation = self.fences.generation();
            draft.effect(Effect::WentBack { workstation: id, seen, generation });
        }
        Ok(())
    }

    /// The store does not know this attempt: has it ever?
    fn note_unknown(&mut self, draft: &mut Draft, workstation: WorkstationId, fence: Fence) {
        if !self.fences.is_forgotten(fence) {
            return;
        }
        let is_news = self.change_workstation(draft.now, workstation, |w| {
            w.unknown.len() < UNKNOWN_MAX && w.unknown.insert(fence)
        });
        if is_news == Some(true) {
            draft.effect(Effect::Unknown { workstation, fence });
        }
    }

    /// Of a job that the store may have forgotten, this one has run there.
    fn note_later_job(&mut self, workstation: WorkstationId, fence: Fence, job: JobId) {
        let is_known = self.jobs.contains_key(&job) || !self.fences.is_forgotten(fence);
        let known = self.later_jobs.values().map(BTreeSet::len).sum::<usize>();
        if !is_known && known < LATER_MAX {
            self.later_jobs.entry(job).or_default().insert((fence, workstation));
        }
    }

    /// What workstations say of a job that the store does not know: it went back in time,
    /// and its later self had the job done, in whole or in part.
    pub fn later_job(&self, job: JobId) -> Option<String> {
        let attempts = self.later_jobs.get(&job)?;
        let at: BTreeSet<_> =
            attempts.iter().filter_map(|(_, id)| self.workstation_name(*id)).collect();
        let at: Vec<_> = at.into_iter().collect();
        let (count, at) = (attempts.len(), at.join(", "));
        Some(format!(
            "job {job} is later than the coordinator's store, which went back to an earlier time: \
             it was tried at {at} (attempts: {count}), and what came of that is not known here: \
             submit it again"
        ))
    }

    /// A workstation that has seen what the store does not know, and what: the
    /// store went back in time.
    pub fn later_self(&self) -> Option<(&str, Fence)> {
        let (id, seen) = self.later_self?;
        Some((self.workstation_name(id)?, seen))
    }

    /// A cloned image has the identity of the machine that it was made from. Why
    /// this one is refused, if it is.
    fn may_not_speak(
        &mut self,
        draft: &mut Draft,
        id: WorkstationId,
        hello: &Hello,
    ) -> Option<String> {
        let (now, config) = (draft.now, &self.config);
        let new = Speaker {
            incarnation: hello.incarnation,
            boot: Some(hello.boot),
            machine: hello.facts.machine_id,
            host: hello.facts.machine.hostname.clone(),
        };
        let beats = (config.heartbeat, self.quiet_beat());
        let stops = !self.settling.at(id).is_empty();
        let (verdict, name, other, others) = self.pool.update(now, config, id, |w| {
            let before = w.speakers.others().clone();
            let other = w.speakers.present().map(|it| it.host.clone()).unwrap_or_default();
            let verdict = w.speakers.judge(now, w.contact(now, beats, stops), config.lease, &new);
            match verdict {
                Verdict::InUse => w.see_copy(now, new.host.clone()),
                Verdict::Returns => w.see_copy(now, other.clone()),
                Verdict::GoesOn | Verdict::TakesOver | Verdict::NotYet => {}
            }
            let others = (*w.speakers.others() != before).then(|| w.speakers.others().to_bytes());
            (verdict, w.name.clone(), other, others)
        })?;
        if let Some(bytes) = others {
            draft.change(Change::Others { workstation: id, bytes });
        }
        let advice = "expected an identity of its own: `glean agent install` with a new token \
                      gives it one";
        let host = &new.host;
        match verdict {
            Verdict::GoesOn | Verdict::TakesOver => None,
            Verdict::InUse => Some(format!(
                "{name} is in use on another machine, {other}, and this is {host}: {advice}"
            )),
            Verdict::Returns => {
                let reason = format!(
                    "{name} is in use on another machine, {host}, that had it before this one, \
                     {other}: {advice}"
                );
                self.end_session(draft, id, reason);
                // Its lease runs on, and with it what it was given, also what it was to
                // stop and has not said that it did.
                let is_given = self.pool.get(id).is_some_and(|w| w.attempts().len() > 0);
                (is_given || stops).then(|| not_yet(&name))
            }
            Verdict::NotYet => Some(not_yet(&name)),
        }
    }

    /// An admin has taken a workstation away. What runs there is lost when its
    /// lease ends, for its agent is not heard any more.
    pub(super) fn removed(&mut self, draft: &Draft, id: WorkstationId) {
        self.forget_session(draft.now, id);
        self.change_workstation(draft.now, id, |w| w.removed = true);
        self.pool.free_name(id);
        self.pool.forget(id);
    }

    /// Sends again what ranks here may have missed with the old connection, and
    /// which attempts are to leave. The agent may be reached at other addresses
    /// now.
    fn resend_to_ranks(&mut self, draft: &mut Draft, id: WorkstationId) {
        let Some(workstation) = self.pool.get(id) else { return };
        let undelivered = workstation.undelivered.clone();
        for fence in self.attempts_at(id) {
            let Some(attempt) = self.attempts.get(&fence) else { continue };
            let (job, position) = (attempt.job, attempt.position);
            let is_here = self.jobs.get(&job).is_some_and(|j| j.fence(position) == Some(fence));
            self.rank_is_at(draft, job, is_here.then_some(position));
            if is_here && attempt.stage.has_started() {
                self.send_past(draft, job, position);
            }
            self.send_depart(draft, fence);
        }
        for (job, position) in undelivered {
            self.rank_is_at(draft, job, Some(position));
            self.send_past(draft, job, position);
        }
        self.moves_looked_at = None;
    }

    /// The agent should hold this attempt and does not. Either the offer never
    /// arrived, or the news of the attempt's end is under way: the agent tells
    /// ends again after every hello, and ignores an offer that it has answered.
    pub(super) fn offer_again(&mut self, draft: &mut Draft, to: Link, fence: Fence) {
        self.set_stage(draft, fence, Stage::Offered);
        self.offer(draft, to, fence);
    }

    fn attempt_event(&mut self, draft: &mut Draft, from: Link, event: AttemptEvent) {
        let (now, id, fence) = (draft.now, from.workstation, event.fence());
        if !self.is_placed_at(fence, id) {
            // The attempt was given up or cancelled, or its end was told
            // before.
            self.note_unknown(draft, id, fence);
            let frame = if event.is_end() {
                CoordinatorFrame::Acknowledge { fence }
            } else {
                CoordinatorFrame::Cancel { fence }
            };
            return draft.send(from, frame);
        }
        if self.attempts.get(&fence).is_some_and(|attempt| attempt.coming.is_some()) {
            return self.coming_event(draft, from, event);
        }
        let state = match event {
            AttemptEvent::Started { .. } => {
                self.set_stage(draft, fence, Stage::Held(GuestState::Running));
                return self.attempt_started(draft, fence);
            }
            AttemptEvent::Resumed { .. } => GuestState::Running,
            AttemptEvent::Stays { .. } => {
                self.stays(draft, fence, "its owner has left");
                GuestState::Running
            }
            AttemptEvent::Arrived { bytes, frozen, .. } => {
                return self.arrived(draft, from, fence, (bytes, frozen));
            }
            AttemptEvent::WantsAway { keep, .. } => return self.wants_away(draft, fence, keep),
            AttemptEvent::CannotLeave { keep, reason, .. } => {
                return self.cannot_leave(draft, fence, keep, &reason);
            }
            AttemptEvent::Suspended { .. } => GuestState::Suspended,
            AttemptEvent::Demoted { .. } => GuestState::Demoted,
            AttemptEvent::Finished(finished) => {
                // To have begun is no proof: an image is fetched and refused after that.
                if self.pool.get(id).is_some_and(Workstation::has_refused) {
                    self.change_workstation(now, id, Workstation::has_finished_something);
                }
                self.finished(draft, finished);
                return draft.send(from, CoordinatorFrame::Acknowledge { fence });
            }
            AttemptEvent::Retreated { reason, suspensions, .. } => {
                if !self.schedule.is_given_back(fence) {
                    self.change_workstation(now, id, |w| w.rest(now, reason.clone()));
                }
                self.came_back(draft, fence, &Return::Retreated { reason, suspensions });
                return draft.send(from, CoordinatorFrame::Acknowledge { fence });
            }
            AttemptEvent::Lost { reason, suspensions, .. } => {
                self.change_workstation(now, id, |w| w.rest(now, reason.clone()));
                self.came_back(draft, fence, &Return::Orphaned { reason, suspensions });
                return draft.send(from, CoordinatorFrame::Acknowledge { fence });
            }
            // What the job asks for nobody may have: its workstations do not
            // rest for it.
            AttemptEvent::Refused { reason, blame: Blame::Job, .. } => {
                self.finished(draft, never_ran(fence, reason));
                return draft.send(from, CoordinatorFrame::Acknowledge { fence });
            }
            AttemptEvent::Refused { reason, blame: Blame::Workstation, .. } => {
                if !self.schedule.is_given_back(fence) {
                    self.change_workstation(now, id, |w| w.rest_from_refusal(now, reason.clone()));
                }
                self.came_back(draft, fence, &Return::Refused(reason));
                return draft.send(from, CoordinatorFrame::Acknowledge { fence });
            }
        };
        self.set_stage(draft, fence, Stage::Held(state));
    }

    /// Content that nobody has seen cannot be looked at, nor compared.
    pub(super) fn unstaged(&mut self, draft: &mut Draft, from: Link, fence: Fence) {
        let (now, id) = (draft.now, from.workstation);
        if self.link(id) != Some(from) {
            return;
        }
        if self.is_placed_at(fence, id) {
            let why = "its result names files that its agent has not staged";
            self.change_workstation(now, id, |w| w.rest(now, why.to_owned()));
            self.came_back(draft, fence, &Return::Lost(why));
        }
        draft.send(from, CoordinatorFrame::Acknowledge { fence });
    }

    fn attempt_started(&mut self, draft: &mut Draft, fence: Fence) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let (job, position) = (attempt.job, attempt.position);
        self.send_past(draft, job, position);
    }

    /// An event of an attempt whose state is being carried: it has arrived, or
    /// never will.
    fn coming_event(&mut self, draft: &mut Draft, from: Link, event: AttemptEvent) {
        let (now, id, fence) = (draft.now, from.workstation, event.fence());
        let how = match event {
            AttemptEvent::Arrived { bytes, frozen, .. } => {
                return self.arrived(draft, from, fence, (bytes, frozen));
            }
            AttemptEvent::Refused { reason, blame, .. } => {
                // For a moment only, however often: what it refuses may be the image
                // of a source that means harm, and others want to be placed there.
                if blame == Blame::Workstation {
                    self.change_workstation(now, id, |w| w.rest(now, reason.clone()));
                }
                format!("refused: {reason}")
            }
            AttemptEvent::Retreated { reason, .. } => {
                self.change_workstation(now, id, |w| w.rest(now, reason.clone()));
                format!("retreated: {reason}")
            }
            AttemptEvent::Lost { reason, .. } => {
                self.change_workstation(now, id, |w| w.rest(now, reason.clone()));
                format!("lost: {reason}")
            }
            AttemptEvent::Finished(finished) => finished.outcome.to_string(),
            // How the guest does there counts once it has arrived.
            AttemptEvent::Started { .. }
            | AttemptEvent::Suspended { .. }
            | AttemptEvent::Demoted { .. }
            | AttemptEvent::Resumed { .. }
            | AttemptEvent::WantsAway { .. }
            | AttemptEvent::CannotLeave { .. }
            | AttemptEvent::Stays { .. } => return,
        };
        self.move_failed(draft, fence, &how);
        draft.send(from, CoordinatorFrame::Acknowledge { fence });
    }

    pub(super) fn disconnected(&mut self, draft: &Draft, link: Link) {
        if self.link(link.workstation) == Some(link) {
            self.forget_session(draft.now, link.workstation);
        }
    }

    pub(super) fn forget_session(&mut self, now: Moment, id: WorkstationId) {
        self.change_workstation(now, id, |w| {
            w.session = None;
            w.since = Some(now);
            w.leaving = None;
        });
    }

    /// The first deadline passed long ago: every agent gets the time of a
    /// heartbeat to be heard, whatever its lease says.
    pub(super) fn await_heartbeats(&mut self, now: Moment) {
        let until = now + self.config.heartbeat;
        let ids: Vec<WorkstationId> = self.pool.ids().collect();
        for id in ids {
            self.change_workstation(now, id, |w| {
                w.lease_until = w.lease_until.max(until);
                w.heard = w.heard.max(now);
            });
        }
    }

    pub(super) fn workstation_is_due(&mut self, draft: &mut Draft, id: WorkstationId) {
        let now = draft.now;
        let Some(workstation) = self.pool.get(id) else { return };
        let has_attempts = workstation.attempts().len() > 0;
        let is_silent = !has_attempts && now >= workstation.silent_from(&self.config);
        if has_attempts && workstation.lease_has_ended(now) {
            self.end_session(draft, id, "nothing was heard within the lease".to_owned());
            self.give_up_all(draft, id, "the lease ended unheard");
            self.lose_undelivered(draft, id);
        } else if is_silent {
            self.lose_undelivered(draft, id);
        }
        self.change_workstation(now, id, |w| {
            w.silent |= is_silent && w.session.is_some();
            w.rest.take_if(|(until, _)| *until <= now);
            w.blamed.take_if(|(until, _)| *until <= now);
        });
    }

    fn give_up_all(&mut self, draft: &mut Draft, id: WorkstationId, why: &'static str) {
        for fence in self.attempts_at(id) {
            self.came_back(draft, fence, &Return::Lost(why));
        }
    }

    /// Closes a connection that outlived the attempts there: an offer may still
    /// be under way on it, and an acknowledged heartbeat would let that attempt
    /// run beside its successor. The welcome on the next connection does not
    /// keep that attempt.
    fn end_session(&mut self, draft: &mut Draft, id: WorkstationId, reason: String) {
        let Some(link) = self.link(id) else { return };
        self.forget_session(draft.now, id);
        draft.effect(Effect::Refuse { link, reason });
    }

    pub(super) fn attempts_at(&self, id: WorkstationId) -> Vec<Fence> {
        self.pool.get(id).map(|w| w.attempts().collect()).unwrap_or_default()
    }

    fn is_placed_at(&self, fence: Fence, id: WorkstationId) -> bool {
        self.attempts.get(&fence).is_some_and(|attempt| attempt.workstation == id)
    }

    /// How many workstations are connected.
    pub fn connected(&self) -> u32 {
        let away = self.pool.count(Standing::Away);
        u32::try_from(self.pool.len()).unwrap_or(u32::MAX) - away
    }
}

fn not_yet(name: &str) -> String {
    format!(
        "what {name} was given before has to end first, here or on another machine: this one is let in then"
    )
}

/// The end of an attempt that its job's own wishes kept from starting.
fn never_ran(fence: Fence, reason: String) -> Finished {
    Finished {
        fence,
        outcome: Outcome::CannotStart(reason),
        cpu: Duration::ZERO,
        ran: Duration::ZERO,
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::default(),
        stderr: Printed::default(),
        outputs: vec![],
    }
}
