//! Which job runs when, and on how many processors: one scheduler, for the live
//! coordinator and for replay.
//!
//! ```text
//! Fact ──► Scheduler::handle ──► State ──► Scheduler::cycle ──► decisions
//!              ▲                (queue, running, indexes)  ▲          │
//!              │                                    a policy          ▼
//!              └──────── Answered: what a job takes or gives ◄── whoever carries them out
//! ```
//!
//! All facts of one moment are told first; one cycle then decides about them
//! together (Ghafoor 2007, §4.2 and §4.3.1). A cycle has as many stages as its
//! negotiations take: what a job answers is one more fact, and
//! [`Scheduler::cycle`] is called again after it. A job that declines is left alone until something else happens, so the stages end. An
//! owner's return is a fact like the others: fewer processors, and a shrink
//! that has already been carried out.
//!
//! Pure and synchronous, like the core. A policy decides about jobs and sizes
//! only; which workstations these are is placement.

mod cycle;
mod policies;
mod policy;
mod reason;
mod request;
mod sizes;
mod speedup;
pub mod spread;
mod state;
#[cfg(test)]
mod tests;
mod users;
mod work;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

pub use self::cycle::{Cycle, Decision, Obligation};
pub use self::policies::ALL;
pub use self::policy::{DEFAULT, Named, PARAMETERS, Parameter, Parameters, Scheduling, named};
pub use self::reason::Reason;
pub use self::request::{Class, Profit, Request, RequestError};
pub use self::sizes::{Allowed, Sizes, SizesError};
pub use self::speedup::{KUMAR_TABLE, Speedup, SpeedupError};
pub use self::state::{Changes, Resources, Running, State, Turn, Waiting, Want};
pub use self::users::User;
pub use self::work::Progress;
use crate::shares::Claim;

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Submitted {
        job: JobId,
        request: Box<Request>,
    },
    /// A job ended, or was taken back by its submitter.
    Ended {
        job: JobId,
    },
    /// A running job has lost all that it held and waits again, where it was.
    Returned {
        job: JobId,
    },
    /// What a job made of an offer to grow, or of being asked to shrink: so
    /// many processors it has taken, or given up. It may be more than asked.
    Answered {
        job: JobId,
        by: u32,
    },
    /// An evolving job asks for more, or says how many it takes of what it was
    /// told can be had.
    Asked {
        job: JobId,
        more: u32,
        is_answer: bool,
    },
    /// A running job holds so many from now on: it has given some up by itself,
    /// or owners have come back and its agents have left already.
    Resized {
        job: JobId,
        size: u32,
    },
    /// Owners came or went, or workstations did.
    Resources(Resources),
    /// A job that waits runs on so many already: it did before this scheduler
    /// was there, or was sent ahead of its turn.
    Runs {
        job: JobId,
        size: u32,
    },
    /// A job can run on other sizes than before: parts of it have ended, or it
    /// has come to have more.
    Sized {
        job: JobId,
        sizes: Sizes,
    },
    /// None of the workstations that are free suits a job that was to start: it
    /// stands aside until [`Fact::Suits`].
    Unplaced {
        job: JobId,
    },
    /// Other workstations are free than before: what stood aside may fit now.
    Suits,
    /// A user's claim, and how many places more they may have. From the first
    /// one on the queue is in order of claims, and who was never told of waits.
    Claim {
        user: User,
        claim: Claim,
        places: u32,
    },
}

impl Fact {
    /// Is it about what was decided in this cycle, and no news?
    fn is_answer(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Unplaced { .. } | Self::Claim { .. })
    }
}

#[derive(Debug)]
pub struct Scheduler {
    state: State,
    policy: Box<dyn Scheduling>,
    refused: Vec<Decision>,
    /// The last stage gave somebody something.
    has_given: bool,
}

impl Scheduler {
    pub fn new(resources: Resources, policy: Box<dyn Scheduling>) -> Self {
        Self { state: State::new(resources), policy, refused: vec![], has_given: false }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes note of a fact. Late and repeated ones change nothing.
    pub fn handle(&mut self, now: Moment, fact: Fact) {
        if !fact.is_answer() {
            self.state.forgive();
            self.state.changes.is_news = true;
        }
        match fact {
            Fact::Submitted { job, request } => self.submitted(now, job, request),
            Fact::Ended { job } => {
                if self.state.dequeue(job).is_none() {
                    self.state.end(job);
                }
            }
            Fact::Returned { job } => {
                if let Some(it) = self.state.end(job) {
                    self.state.enqueue(job, it.submitted, it.request);
                }
            }
            Fact::Answered { job, by } => self.answered(now, job, by),
            Fact::Asked { job, more, is_answer } => {
                let evolving = |it: &mut Running| it.request.class == Class::Evolving;
                if self.state.change(job, evolving) == Some(true) {
                    let want = (more > 0).then_some(Want { more, is_answer });
                    self.state.change(job, |it| it.want = want);
                }
            }
            Fact::Resized { job, size: 0 } => self.handle(now, Fact::Returned { job }),
            Fact::Resized { job, size } => {
                let before = self.state.get(job).map_or(size, |it| it.size);
                self.state.resize(now, job, size);
                // It may be what it was asked for.
                let given = before.saturating_sub(size);
                self.state.change(job, |it| it.asked = it.asked.saturating_sub(given).min(it.size));
            }
            Fact::Runs { job, size } => {
                if self.state.aside(job).is_some() {
                    self.state.call_back();
                }
                self.state.begin(now, job, size);
            }
            Fact::Sized { job, sizes } => self.state.set_sizes(job, sizes),
            Fact::Unplaced { job } => {
                if let Some(it) = self.state.end(job) {
                    self.state.enqueue(job, it.submitted, it.request);
                }
                self.state.put_aside(job);
            }
            Fact::Suits => self.state.call_back(),
            Fact::Claim { user, claim, places } => self.state.users.claim(user, claim, places),
            Fact::Resources(resources) => {
                self.state.resources = resources;
                self.state.changes.other = true;
            }
        }
    }

    fn submitted(&mut self, now: Moment, job: JobId, request: Box<Request>) {
        if self.state.knows(job) {
            return;
        }
        let (needs, all) = (request.sizes.min(), self.state.resources.all);
        if needs > all {
            let reason = Reason::LargerThanAll { needs, all };
            return self.refused.push(Decision::Refuse { job, reason });
        }
        self.state.enqueue(job, now, request);
    }

    fn answered(&mut self, now: Moment, job: JobId, by: u32) {
        let Some(it) = self.state.get(job) else { return };
        let (size, offered, asked) = (it.size, it.offered, it.asked);
        match (offered, asked) {
            (0, 0) => {}
            (0, _) => {
                self.state.change(job, |it| it.asked = 0);
                self.state.resize(now, job, size.saturating_sub(by).max(1));
            }
            (_, _) => {
                let taken = by.min(offered);
                self.state.change(job, |it| (it.offered, it.want) = (0, None));
                self.state.resize(now, job, size + taken);
            }
        }
        if by < offered.max(asked) {
            self.state.decline(job);
        }
    }

    /// One stage: decides what is to be done about all that was told.
    /// [`Scheduler::has_another_stage`] says whether there is another one, after
    /// this one's decisions have been carried out.
    #[must_use]
    pub fn cycle(&mut self, now: Moment) -> Vec<Decision> {
        let mut cycle = Cycle::new(now, &mut self.state);
        cycle.decisions.append(&mut self.refused);
        make_whole(&mut cycle);
        self.policy.decide(&mut cycle);
        let decisions = std::mem::take(&mut cycle.decisions);
        let is_given = |it: &Decision| matches!(it, Decision::Start { .. } | Decision::Grow { .. });
        self.has_given = decisions.iter().any(is_given);
        // A policy knows what it has done itself.
        self.state.changes = Changes::default();
        decisions
    }

    /// Has anything been told since the last stage that could be decided about?
    pub fn has_news(&self) -> bool {
        let changes = &self.state.changes;
        changes.is_news || changes.other || !changes.arrived.is_empty() || !self.refused.is_empty()
    }

    /// Has anything been answered since the last stage, or comes another's turn
    /// after what it gave?
    pub fn has_another_stage(&self) -> bool {
        self.has_news() || self.has_given && self.policy.takes_turns() && self.state.has_users()
    }

    /// See [`Scheduling::keeps`].
    pub fn keeps(&self) -> bool {
        self.policy.keeps()
    }

    /// Would this job be taken if it were submitted now (Kumar 2001, §3.2.1,
    /// `is_available`)? Changes nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&self, now: Moment, request: &Request) -> Result<(), Reason> {
        let (needs, all) = (request.sizes.min(), self.state.resources.all);
        if needs > all {
            return Err(Reason::LargerThanAll { needs, all });
        }
        self.policy.would_take(&self.state, now, request)
    }

    /// Why does this job wait? `None` if it does not.
    pub fn why(&self, job: JobId) -> Option<Reason> {
        if self.state.aside(job).is_some() {
            return Some(Reason::NothingSuits);
        }
        let turn = self.state.turn(job)?;
        let waiting = self.state.waiting_at(turn)?;
        waiting.reason.or_else(|| {
            // Nobody got as far as this one.
            let (first, _) = self.state.first_waiting()?;
            let (needs, free) = (waiting.request.sizes.min(), self.state.free());
            Some(if first == turn || needs > free {
                Reason::TooFewFree { needs, free }
            } else {
                Reason::Behind(first.2)
            })
        })
    }
}

/// Whoever holds too few to get on comes before all that policies decide: what
/// it holds is of no use without the rest.
fn make_whole(cycle: &mut Cycle<'_>) {
    let lacking: Vec<JobId> = cycle.lacking().map(|(job, _)| job).collect();
    for job in lacking {
        cycle.make_whole(job);
    }
}
