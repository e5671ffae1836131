//! One stage of a cycle: what a policy sees, and the only ways for it to act.
//!
//! The promise: a decision that cannot be is not made: nobody starts on more
//! than is free, on a size that it cannot run on, or is asked for what it does
//! not have. What is decided is in the state at once.

use std::ops::Deref;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use super::reason::Reason;
use super::state::{Changes, State, Turn};
use super::users::User;

/// Must it be done (Buisson et al. 2007, §II.D)?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obligation {
    /// A guideline: the job may take or give less.
    Voluntary,
    /// The processors are needed at once; it is done to the job if it does not
    /// do it itself.
    Mandatory,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    Start {
        job: JobId,
        size: u32,
    },
    /// More processors, set aside until the job has answered.
    Grow {
        job: JobId,
        by: u32,
        obligation: Obligation,
    },
    /// The job is asked for processors; they are its own until it answers.
    Shrink {
        job: JobId,
        by: u32,
        obligation: Obligation,
    },
    /// An evolving job cannot have all that it asked for, and is told how many
    /// can be had, some of which others would have to give
    /// (Ghafoor 2007, §3.1.1.4).
    Offer {
        job: JobId,
        up_to: u32,
    },
    /// The job is promised a start.
    Reserve {
        job: JobId,
        size: u32,
        start: Moment,
    },
    Refuse {
        job: JobId,
        reason: Reason,
    },
}

impl Decision {
    /// The same in parts of a job that take so many processors each.
    pub(crate) fn in_parts(self, each: u32) -> Self {
        match self {
            Self::Start { job, size } => Self::Start { job, size: size / each },
            Self::Grow { job, by, obligation } => Self::Grow { job, by: by / each, obligation },
            Self::Shrink { job, by, obligation } => {
                Self::Shrink { job, by: by.div_ceil(each), obligation }
            }
            Self::Offer { job, up_to } => Self::Offer { job, up_to: up_to / each },
            Self::Reserve { job, size, start } => Self::Reserve { job, size: size / each, start },
            Self::Refuse { .. } => self,
        }
    }
}

#[derive(Debug)]
pub struct Cycle<'a> {
    now: Moment,
    state: &'a mut State,
    changes: Changes,
    pub(super) decisions: Vec<Decision>,
}

impl Deref for Cycle<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl<'a> Cycle<'a> {
    pub(super) fn new(now: Moment, state: &'a mut State) -> Self {
        let changes = std::mem::take(&mut state.changes);
        Self { now, state, changes, decisions: vec![] }
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    /// What has happened since the last stage.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Starts a waiting job; not if it cannot be.
    pub fn start(&mut self, turn: Turn, size: u32) -> bool {
        let job = turn.2;
        let fits = |it: &super::state::Waiting| {
            it.request.sizes.contains(size) && size <= self.places_for(&it.request)
        };
        let found = self.waiting_at(turn).filter(|it| size <= self.free() && fits(it));
        let Some(user) = found.map(|it| it.request.user) else { return false };
        self.state.begin(self.now, job, size);
        self.charge(user, size);
        self.decisions.push(Decision::Start { job, size });
        true
    }

    fn charge(&mut self, user: Option<User>, size: u32) {
        if let Some(user) = user {
            self.state.users.charge(user, size);
        }
    }

    /// Offers a running job more; what it is expected to take.
    pub fn grow(&mut self, job: JobId, by: u32, obligation: Obligation) -> u32 {
        let most = self.most_for(job);
        let offered = self.state.change(job, |it| {
            let may = it.room() > 0 || it.want.is_some() && it.offered == 0;
            let by = if may { it.request.sizes.taken(it.size, by.min(most)) } else { 0 };
            it.offered = by;
            by
        });
        self.offered(job, offered, obligation)
    }

    /// Gives a running job what it has too few, as far as that is free.
    pub(super) fn make_whole(&mut self, job: JobId) -> u32 {
        let most = self.most_for(job);
        let offered = self.state.change(job, |it| {
            it.offered = it.lack().min(most);
            it.offered
        });
        self.offered(job, offered, Obligation::Mandatory)
    }

    /// How many more a running job may get.
    fn most_for(&self, job: JobId) -> u32 {
        let allowed = self.get(job).map_or(0, |it| self.places_for(&it.request));
        allowed.min(self.free())
    }

    fn offered(&mut self, job: JobId, by: Option<u32>, obligation: Obligation) -> u32 {
        let Some(by @ 1..) = by else { return 0 };
        let user = self.get(job).and_then(|it| it.request.user);
        self.charge(user, by);
        self.decisions.push(Decision::Grow { job, by, obligation });
        by
    }

    /// Asks a running job for processors; what it is expected to give, which
    /// may be more because of its sizes.
    pub fn shrink(&mut self, job: JobId, by: u32, obligation: Obligation) -> u32 {
        let asked = self.state.change(job, |it| {
            let by = by.min(it.spare());
            it.asked = by;
            (by, it.request.sizes.given(it.size, by))
        });
        let Some((by @ 1.., given)) = asked else { return 0 };
        self.decisions.push(Decision::Shrink { job, by, obligation });
        given
    }

    /// Tells an evolving job how many of what it asked for can be had.
    pub fn offer(&mut self, job: JobId, up_to: u32) {
        self.state.change(job, |it| it.want = None);
        self.decisions.push(Decision::Offer { job, up_to });
    }

    /// Nothing can be had for an evolving job's wish, or it has been met.
    pub fn drop_want(&mut self, job: JobId) {
        self.state.change(job, |it| it.want = None);
    }

    pub fn reserve(&mut self, turn: Turn, size: u32, start: Moment) {
        self.wait(turn, Reason::Reserved { start });
        self.decisions.push(Decision::Reserve { job: turn.2, size, start });
    }

    pub fn refuse(&mut self, turn: Turn, reason: Reason) {
        let job = turn.2;
        if self.state.dequeue(job).is_some() {
            self.decisions.push(Decision::Refuse { job, reason });
        }
    }

    /// Says why a job that was looked at does not start.
    pub fn wait(&mut self, turn: Turn, reason: Reason) {
        self.state.set_reason(turn, reason);
    }

    /// The queue is scanned from head to tail once more.
    pub fn scan(&mut self) -> u64 {
        self.state.scans += 1;
        self.state.scans
    }
}
