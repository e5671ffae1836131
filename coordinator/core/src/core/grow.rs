//! What a program that reacts to increases makes of a workstation that has
//! become free (Phalen 1994, §2.1.2 and Table 1: models 2, 4, 6 and 8).
//!
//! When it may grow, and by how much, the scheduler decides. The places are
//! taken by ranks that are frozen for an owner elsewhere, and then by new ranks,
//! where the program has a bag of tasks for them.

use gleaner_common::id::{Fence, JobId};
use gleaner_common::reaction::{Keep, Step};

use super::moves::Moving;
use super::{Core, Draft};
use crate::job::Job;

impl Core {
    /// Moves one of the job's frozen ranks to a free place, if that suits.
    pub(super) fn move_frozen(&mut self, draft: &mut Draft, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let Some(keep) = keep(job) else { return false };
        let mut frozen: Vec<Fence> = self.frozen(job).collect();
        frozen.sort_unstable();
        for fence in frozen {
            self.moves.insert(fence, Moving::new(keep, None));
            match self.target_for(fence) {
                Some(target) => {
                    self.begin_move(draft, fence, target, false);
                    return true;
                }
                None => drop(self.moves.remove(&fence)),
            }
        }
        false
    }

    /// The program begins ranks for so many places, if it has tasks for them.
    pub(super) fn begin_more(&mut self, draft: &mut Draft, id: JobId, room: u32) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let needs = job.needs();
        let room = self.pool.room_where(room, |it| needs.are_met(it));
        // What waits already found nothing that suits it.
        let may = room > 0 && job.queued() == 0;
        let Some(program) = job.program.as_mut().filter(|it| may && it.could_add() > 0) else {
            return false;
        };
        program.grow(room);
        self.obey_program(draft, id);
        true
    }
}

/// What a frozen rank of the job would take along.
pub(super) fn keep(job: &Job) -> Option<Keep> {
    let on_busy = job.spec().on_busy;
    [on_busy.when_busy(), on_busy.then.step()].into_iter().find_map(|step| match step {
        Step::Move(keep) => Some(keep),
        Step::Stay | Step::Demote | Step::Freeze => None,
    })
}
