//! Placing: which queued subprogram goes to which workstation.
//!
//! Jobs are served in the order of their submission: a lab's researchers talk
//! to each other, and fair shares are for another day. A job that cannot use
//! what is free is passed over.

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::wire::CoordinatorFrame;

use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::event::Link;
use crate::job::Turn;

/// The most that one step places, so that ten thousand free workstations and a
/// large job do not keep heartbeats waiting. The next step places the rest at
/// once.
const PLACEMENTS_MAX: u32 = 64;

/// How many jobs are looked at for one that may use what is free. Only jobs
/// whose every remaining subprogram avoids it are passed over.
const JOBS_LOOKED_AT: usize = 32;

/// A subprogram and where it is to go.
struct Match {
    job: JobId,
    turn: Turn,
    workstation: WorkstationId,
}

impl Core {
    /// Fills the free places, then sends ahead to places that are about to
    /// become free.
    pub(super) fn place(&mut self, draft: &mut Draft) {
        self.more_to_place = false;
        while let Some(found) = self.free_match().or_else(|| self.ahead_match()) {
            if draft.step.placed == PLACEMENTS_MAX {
                self.more_to_place = true;
                return;
            }
            self.assign(draft, &found);
        }
    }

    fn free_match(&self) -> Option<Match> {
        if !self.pool.has_free() {
            return None;
        }
        let jobs = self.queued.iter().take(JOBS_LOOKED_AT);
        jobs.filter_map(|id| self.jobs.get(id)).find_map(|job| {
            job.turns().find_map(|(turn, avoided)| {
                let workstation = self.pool.choose(avoided)?;
                Some(Match { job: job.id(), turn, workstation })
            })
        })
    }

    /// Only the first short job is sent ahead: its turn comes first anyway.
    fn ahead_match(&self) -> Option<Match> {
        let job = self.jobs.get(self.short.first()?)?;
        job.turns().find_map(|(turn, avoided)| {
            let workstation = self.pool.choose_ahead(avoided)?;
            Some(Match { job: job.id(), turn, workstation })
        })
    }

    fn assign(&mut self, draft: &mut Draft, found: &Match) {
        let Match { job: id, turn, workstation } = *found;
        let Some(to) = self.link(workstation) else {
            unreachable!("a workstation without a connection among the free ones")
        };
        let fence = self.next_fence(draft);
        let job = self.jobs.get_mut(&id).expect("a queued job is a job");
        let position = job.place(turn, fence);
        self.open(draft, fence, Attempt::new(id, position, workstation, draft.wall));
        self.offer(draft, to, fence);
        draft.job_changed(id);
        self.requeue(id);
    }

    /// A job's spec goes before its first offer on a connection.
    pub(super) fn send_spec(&mut self, draft: &mut Draft, to: Link, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("a placed job is a job");
        job.spec_sent_to.insert(to.workstation);
        let spec = Box::new(job.spec().clone());
        draft.send(to, CoordinatorFrame::Job { job: id, spec });
    }
}
