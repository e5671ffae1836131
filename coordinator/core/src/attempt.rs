//! One placement of a subprogram on a workstation that has not ended, and the
//! numbers that name placements.

use std::time::Duration;

use gleaner_common::id::{Fence, Generation, JobId, WorkstationId};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::GuestState;

use crate::generation;
use crate::job::{Job, Position};
use crate::record::{AttemptRecord, Change, Coming};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) job: JobId,
    pub(crate) position: Position,
    pub(crate) workstation: WorkstationId,
    pub(crate) placed: WallTime,
    pub(crate) stage: Stage,
    /// The suspensions that its agent has told of; the attempt's end tells the
    /// sum.
    pub(crate) suspensions: u32,
    /// Its state is being carried here. Nothing of the attempt runs here before
    /// that has arrived.
    pub(crate) coming: Option<Coming>,
    /// Its state has arrived. To begin the attempt anew, whatever its agent
    /// says of it, would be a step back.
    pub(crate) arrived: bool,
    /// It shares the place of another rank of its program that is there.
    pub(crate) rides: bool,
    /// It could not leave, and is not asked to before then.
    pub(crate) stuck_until: Option<Moment>,
}

impl Attempt {
    /// An attempt that is offered, and that brings nothing from elsewhere.
    pub(crate) fn new(
        job: JobId,
        position: Position,
        workstation: WorkstationId,
        placed: WallTime,
    ) -> Self {
        let (stage, suspensions, coming) = (Stage::Offered, 0, None);
        let (arrived, rides, stuck_until) = (false, false, None);
        Self {
            job,
            position,
            workstation,
            placed,
            stage,
            suspensions,
            coming,
            arrived,
            rides,
            stuck_until,
        }
    }

    /// It is here, and has run.
    pub(crate) fn has_begun(&self) -> bool {
        self.coming.is_none() && self.stage.has_started()
    }

    /// Does it hold a place of its own, where it is placed?
    pub(crate) fn holds_place(&self) -> bool {
        !self.rides && !self.stage.is_suspended()
    }

    /// How the attempt's row looks from now on.
    pub(crate) fn change(
        &self,
        fence: Fence,
        job: &Job,
        end: Option<(WallTime, String)>,
    ) -> Change {
        Change::Attempt(AttemptRecord {
            fence,
            subprogram: job.subprogram(self.position),
            replica: job.replica(self.position),
            workstation: self.workstation,
            placed: self.placed,
            end,
            coming: self.coming,
            arrived: self.arrived,
        })
    }
}

/// How far an attempt is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The attempt was offered, and nothing was heard of it yet.
    Offered,
    Held(GuestState),
}

impl Stage {
    pub(crate) fn is_suspended(self) -> bool {
        matches!(self, Self::Held(GuestState::Suspended | GuestState::Leaving))
    }

    /// Has the attempt run, as far as is known?
    pub(crate) fn has_started(self) -> bool {
        match self {
            Self::Offered | Self::Held(GuestState::Waiting) => false,
            Self::Held(
                GuestState::Running
                | GuestState::Suspended
                | GuestState::Demoted
                | GuestState::Leaving,
            ) => true,
        }
    }
}

/// How an attempt came to its end without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The guest made room for the owner, which is never a failure.
    Retreated { reason: String, suspensions: u32 },
    /// The agent never started the guest.
    Refused(String),
    /// The attempt ended with its agent, or with that agent's lease.
    Lost(&'static str),
    /// The guest is gone, and its agent does not know how it ended.
    Orphaned { reason: String, suspensions: u32 },
}

/// No guest runs longer than this; what an agent says beyond it is nonsense.
const SPAN_MAX: Duration = Duration::from_secs(1_000_000_000);

/// How long an attempt took its place.
pub(crate) fn span(ran: Duration, suspended: Duration) -> Duration {
    ran.saturating_add(suspended).min(SPAN_MAX)
}

/// How many fences are reserved in the store at a time. A restart skips those
/// that were not given out; a generation has enough for ten thousand placements
/// a second over days, and the next begins at every start.
const RESERVED_AT_ONCE: u64 = 10_000;

/// Gives out every fence once, also over restarts.
#[derive(Debug)]
pub(crate) struct Fences {
    next: Fence,
    below: Fence,
    /// The newest of earlier generations, as far as the store knows.
    earlier: Fence,
    /// What this life has given out in generations that it has left: from here to there.
    left: Vec<(Fence, Fence)>,
    /// Where its present generation begins.
    first: Fence,
}

impl Default for Fences {
    fn default() -> Self {
        Self::new(Fence::default(), Fence::default())
    }
}

impl Fences {
    /// Goes on after all fences that earlier lives may have given out.
    pub(crate) fn new(below: Fence, earlier: Fence) -> Self {
        let next = below.max(Fence::of(1));
        Self { next, below: next, earlier, left: vec![], first: next }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.next.generation
    }

    /// The newest of earlier generations, as far as the store knows.
    pub(crate) fn earlier(&self) -> Fence {
        self.earlier
    }

    /// May this one have been given out in this generation, or in one before?
    pub(crate) fn is_past(&self, fence: Fence) -> bool {
        fence < self.next
    }

    /// Was this one given out before this generation, without the store's
    /// knowing? Then the store went back in time since.
    pub(crate) fn is_forgotten(&self, fence: Fence) -> bool {
        let is_own = |(first, end): &(Fence, Fence)| (*first..*end).contains(&fence);
        self.earlier < fence
            && fence.generation < self.next.generation
            && !self.left.iter().any(is_own)
    }

    /// Goes on in a generation after what was seen; gives the reservation.
    pub(crate) fn begin_after(&mut self, seen: Fence, wall: WallTime) -> Fence {
        if self.first < self.next {
            self.left.push((self.first, self.next));
        }
        let generation = generation::next(self.generation().max(seen.generation), wall);
        let number = self.next.number.max(seen.number.saturating_add(1));
        self.next = Fence { generation, number };
        (self.first, self.below) = (self.next, self.next);
        self.below
    }

    /// The lowest fence that may be given out from now on.
    pub(crate) fn floor(&self) -> Fence {
        self.next
    }

    /// The next fence, and the new reservation if one was needed.
    pub(crate) fn next(&mut self) -> (Fence, Option<Fence>) {
        let fence = self.next;
        self.next = fence.next();
        if fence < self.below {
            return (fence, None);
        }
        self.below = fence.plus(RESERVED_AT_ONCE);
        (fence, Some(self.below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what came before an agent knew better only its own was known.
    #[test]
    fn what_a_store_lost_stays_forgotten_when_it_goes_on_after_what_was_seen() {
        let of = |generation, number| Fence { generation: Generation(generation), number };
        let mut fences = Fences::new(of(5, 40), of(4, 39));
        let (own, _) = fences.next();
        fences.begin_after(of(9, 70), WallTime(0));
        for (fence, is_forgotten) in [
            (of(4, 39), false),
            (of(4, 40), true),
            (own, false),
            (of(5, 41), true),
            (of(9, 70), true),
        ] {
            assert_eq!(fences.is_forgotten(fence), is_forgotten, "{fence:?}");
        }
        assert_eq!(fences.earlier(), of(4, 39));
        assert!(fences.next().0 > of(9, 70));
    }

    #[test]
    fn no_fence_is_given_out_before_it_is_reserved_or_twice() {
        let mut reserved = Fence::of(0);
        let mut last = Fence::of(0);
        for life in 0..3 {
            let mut fences = Fences::new(reserved, Fence::default());
            for _ in 0..25_000 + life {
                let (fence, reservation) = fences.next();
                reserved = reservation.unwrap_or(reserved);
                assert!(last < fence && fence < reserved);
                last = fence;
            }
        }
    }
}
