//! Where the scheduler and the negotiations of jobs meet.
//!
//! What the scheduler decides about a running job goes in by
//! [`Core::negotiate`], and what comes of it goes out by [`Core::negotiated`],
//! as one of the scheduler's own facts.

use gleaner_common::id::JobId;

use super::{Core, Draft};
use crate::negotiation::Clock;
use crate::scheduler::{Decision, Fact, Obligation};

impl Core {
    pub(super) fn clock(&self, draft: &Draft) -> Clock {
        let wall_ns = u64::try_from(draft.wall.0).unwrap_or(0);
        Clock { now: draft.now, wall_ns, prices: self.config.prices }
    }

    /// Negotiates with a job about what was decided. It is answered in the end,
    /// by [`Core::negotiated`]; at once and with nothing, if the job has a
    /// program that does not negotiate.
    pub(super) fn negotiate(&mut self, draft: &mut Draft, id: JobId, decision: &Decision) {
        let clock = self.clock(draft);
        let Some(program) = self.jobs.get_mut(&id).and_then(|job| job.program.as_mut()) else {
            return;
        };
        program.decided(clock, decision);
        self.obey_program(draft, id);
    }

    /// Is the job asked about its size? Its ranks that were agreed about and have
    /// no place yet, and those that stand still for owners, get what is free
    /// before anybody is asked.
    pub(super) fn negotiates(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| {
            let program = job.program.as_ref();
            program.is_some_and(|program| program.negotiator().is_some())
                && job.queued() <= self.schedule.unfilled(id)
                && self.frozen(job).next().is_none()
        })
    }

    /// What a negotiation has come to, or what a job asks for, in ranks.
    pub(super) fn negotiated(&mut self, draft: &mut Draft, fact: &Fact) {
        if let Fact::Answered { job, by } = *fact {
            let each = self.each(job);
            self.tell(draft.now, Fact::Answered { job, by: by.saturating_mul(each) });
            return self.schedule.changed(job);
        }
        let Fact::Asked { job, more: more @ 1.., .. } = *fact else { return };
        let free = self.room_for(draft.now, job);
        let obligation = Obligation::Mandatory;
        let decision = if more <= free {
            Decision::Grow { job, by: more, obligation }
        } else {
            Decision::Offer { job, up_to: free }
        };
        self.negotiate(draft, job, &decision);
    }
}
