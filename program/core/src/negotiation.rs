//! How the coordinator and a running job agree on what the job has
//! (Ghafoor 2007, §4.3.2 and Figure 4.13).
//!
//! ```text
//!  whoever begins ── Offer ──► the other decides ── CounterOffer ─► the first decides ── ..
//!                                │        └── FinalOffer: Accept or Reject, nothing else
//!                                └── Accept, Reject, at any time ─► over: Accepted, Declined, Enforced
//! ```
//!
//! All that is negotiated about travels in a [`Template`]: several resources,
//! each with its terms and a status of its own. Here are the words and what
//! makes sense of them; [`talk`] is the state machine of either side, and [`side`]
//! what the library makes of it for a program.
//!
//! **One side concludes.** A word can be lost, and two sides that each end a
//! negotiation by themselves can end it differently. So a job's `Accept` or
//! `Reject` is a wish, and the coordinator's the end: he has it granting the
//! agreed resources, which only it can do ("in the case of an accept, the
//! agreed resources are allocated"). Its deadlines are the ones that count.
//!
//! **Mandatory and voluntary** (Buisson et al. 2007, §II.D). A mandatory change
//! is negotiated in how much more and which ranks, not in whether: declined,
//! unanswered or answered by nonsense, it is enforced.

pub mod alone;
pub mod side;
pub mod talk;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address::{Negotiation, RANKS_MAX, Rank, Request};
use crate::wire::{Answer, Ask};

/// The most resources in one negotiation. A guess; it bounds a frame.
pub const ITEMS_MAX: usize = 8;

/// The longest that anybody may take to answer, and the shortest: a job hears
/// at its next call.
pub const WITHIN_MAX: Duration = Duration::from_secs(24 * 3600);
pub const WITHIN_MIN: Duration = Duration::from_millis(100);

/// Who speaks: he calls them the resource management system and the
/// application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Party {
    Coordinator,
    Job,
}

impl Party {
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Coordinator => Self::Job,
            Self::Job => Self::Coordinator,
        }
    }
}

/// What can be had more or less of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// A place for one rank.
    Processors,
    MemoryMib,
    DiskMib,
    Gpus,
}

/// A job gets more or gives some up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Change {
    Grow { by: u32 },
    Shrink { by: u32 },
}

impl Change {
    pub fn by(self) -> u32 {
        match self {
            Self::Grow { by } | Self::Shrink { by } => by,
        }
    }

    /// The same change by another number.
    #[must_use]
    pub fn of(self, by: u32) -> Self {
        match self {
            Self::Grow { .. } => Self::Grow { by },
            Self::Shrink { .. } => Self::Shrink { by },
        }
    }

    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Must it be done (Buisson et al. 2007, §II.D)?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Obligation {
    /// A guideline: the other may take or give less.
    Voluntary,
    /// It is done to the job if the job does not do it itself. A job that asks
    /// for more and cannot go on with less says so by it.
    Mandatory,
}

/// For one processor (MiB, GPU) and hour, in thousandths of whatever the site
/// counts in. Whoever gets the resource pays.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Price(pub u64);

/// Under which conditions a resource changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    pub obligation: Obligation,
    /// `None`: nothing is paid.
    pub price: Option<Price>,
}

impl Terms {
    pub fn free(obligation: Obligation) -> Self {
        Self { obligation, price: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    Open,
    Accepted,
    Rejected,
}

/// One resource that is negotiated about ("resource object").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Item {
    pub resource: Resource,
    pub change: Change,
    pub terms: Terms,
    pub status: Status,
}

impl Item {
    pub fn open(resource: Resource, change: Change, terms: Terms) -> Self {
        Self { resource, change, terms, status: Status::Open }
    }

    fn must_shrink(&self) -> bool {
        matches!(self.change, Change::Shrink { .. })
            && self.terms.obligation == Obligation::Mandatory
    }
}

/// All that is negotiated about, in one object: his negotiation template. Its
/// general part (who, which, how far) is in [`Said`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Template {
    /// How long the other has to answer. A span, because clocks differ.
    pub within: Duration,
    pub items: Vec<Item>,
}

impl Template {
    /// About one resource.
    pub fn one(within: Duration, item: Item) -> Self {
        Self { within, items: vec![item] }
    }

    /// About processors alone, for nothing.
    pub fn processors(within: Duration, change: Change, obligation: Obligation) -> Self {
        Self::one(within, Item::open(Resource::Processors, change, Terms::free(obligation)))
    }

    pub fn item(&self, resource: Resource) -> Option<&Item> {
        self.items.iter().find(|item| item.resource == resource)
    }

    pub fn item_mut(&mut self, resource: Resource) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.resource == resource)
    }

    /// How many processors more or fewer; `None` if it is not about any, or
    /// they were rejected.
    pub fn change(&self) -> Option<Change> {
        let item = self.item(Resource::Processors)?;
        (item.status != Status::Rejected).then_some(item.change)
    }

    /// "The overall status of the negotiation depends on the combined status of
    /// all the requested resources": open while one is, and accepted if any is.
    pub fn status(&self) -> Status {
        let has = |status| self.items.iter().any(|item| item.status == status);
        [Status::Open, Status::Accepted].into_iter().find(|it| has(*it)).unwrap_or(Status::Rejected)
    }

    /// Every open item becomes this.
    #[must_use]
    pub fn all(mut self, status: Status) -> Self {
        for item in self.items.iter_mut().filter(|item| item.status == Status::Open) {
            item.status = status;
        }
        self
    }

    /// Is there anything in it that happens whatever the job says?
    pub fn is_mandatory(&self) -> bool {
        self.items.iter().any(Item::must_shrink)
    }

    /// What happens of it whatever the job says.
    #[must_use]
    pub fn enforced(mut self) -> Self {
        for item in &mut self.items {
            item.status = if item.must_shrink() { Status::Accepted } else { Status::Rejected };
        }
        self
    }

    /// # Errors
    /// What cannot be in any template.
    pub fn check(&self) -> Result<(), Nonsense> {
        if self.items.is_empty() || self.items.len() > ITEMS_MAX {
            return Err(Nonsense::Items { found: self.items.len() });
        }
        if !(WITHIN_MIN..=WITHIN_MAX).contains(&self.within) {
            return Err(Nonsense::Within(self.within));
        }
        for (at, item) in self.items.iter().enumerate() {
            if self.items[..at].iter().any(|before| before.resource == item.resource) {
                return Err(Nonsense::Twice(item.resource));
            }
            let by = item.change.by();
            let is_too_much = item.resource == Resource::Processors && by > RANKS_MAX;
            if by == 0 || is_too_much {
                return Err(Nonsense::By { resource: item.resource, by });
            }
        }
        Ok(())
    }

    /// Can this be said where that was offered? It is about the same, in the
    /// same order; what it calls accepted is what was offered.
    ///
    /// # Errors
    /// What it cannot be.
    pub fn check_against(&self, offered: &Self) -> Result<(), Nonsense> {
        self.check()?;
        let alike = |(ours, theirs): (&Item, &Item)| {
            ours.resource == theirs.resource
                && ours.change.is_like(theirs.change)
                && ours.terms.obligation == theirs.terms.obligation
        };
        if self.items.len() != offered.items.len()
            || !self.items.iter().zip(&offered.items).all(alike)
        {
            return Err(Nonsense::AboutSomethingElse);
        }
        for (item, offered) in self.items.iter().zip(&offered.items) {
            let is_as_offered = item.change == offered.change && item.terms == offered.terms;
            let was_settled = offered.status != Status::Open && item.status != offered.status;
            if was_settled || item.status == Status::Accepted && !is_as_offered {
                return Err(Nonsense::NotAsOffered(item.resource));
            }
        }
        Ok(())
    }
}

/// What one says to the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Statement {
    /// Opens a negotiation.
    Offer(Template),
    /// Something else instead of what was offered.
    CounterOffer(Template),
    /// This or nothing; may open a negotiation, too.
    FinalOffer(Template),
    /// Of the last offer, which it repeats. The coordinator's ends the
    /// negotiation, and names the first of the ranks that begin by it.
    Accept { agreed: Template, first: Option<Rank> },
    /// The coordinator's ends the negotiation.
    Reject(Why),
    /// The coordinator's: what was mandatory is being done to the job.
    Enforce(Template),
    /// The job's: it has heard the end.
    Noted,
}

impl Statement {
    /// What it proposes, and whether it is the last word.
    pub fn proposes(&self) -> Option<(&Template, bool)> {
        match self {
            Self::Offer(template) | Self::CounterOffer(template) => Some((template, false)),
            Self::FinalOffer(template) => Some((template, true)),
            Self::Accept { .. } | Self::Reject(_) | Self::Enforce(_) | Self::Noted => None,
        }
    }

    /// Is this the end, if the coordinator says it?
    pub fn concludes(&self) -> bool {
        matches!(self, Self::Accept { .. } | Self::Reject(_) | Self::Enforce(_))
    }
}

/// A statement and where it belongs: the general part of his template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// Who opened the negotiation, which that side has numbered.
    pub opener: Party,
    pub negotiation: Negotiation,
    /// The opening is 0, and every new statement one more.
    pub round: u32,
    pub statement: Statement,
}

impl Said {
    /// Looks only at what can be known without the negotiation.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), Nonsense> {
        match &self.statement {
            Statement::Offer(template)
            | Statement::CounterOffer(template)
            | Statement::FinalOffer(template)
            | Statement::Enforce(template)
            | Statement::Accept { agreed: template, .. } => template.check(),
            Statement::Reject(_) | Statement::Noted => Ok(()),
        }
    }
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Why {
    /// It does not want to, and need not say why.
    Unwanted,
    /// No answer in time: the job's, or the coordinator's decision.
    Late,
    /// What was said makes no sense.
    Nonsense,
    /// Another negotiation goes on.
    Busy,
    /// Something that must be came between.
    Overtaken,
    /// So many can be had, which is fewer.
    TooFew { available: u32 },
    /// Nobody can change how much of this it has.
    NotNegotiable,
    /// Too cheap, or too dear.
    Price,
    /// Nothing is known of this negotiation (any more).
    Over,
    /// Whoever spoke for the job has ended.
    Gone,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwanted => f.write_str("it does not want to"),
            Self::Late => f.write_str("there was no answer in time"),
            Self::Nonsense => f.write_str("the answer made no sense"),
            Self::Busy => f.write_str("another negotiation goes on"),
            Self::Overtaken => f.write_str("something that had to be came between"),
            Self::TooFew { available } => write!(f, "{available} can be had"),
            Self::NotNegotiable => f.write_str("it cannot be changed while the job runs"),
            Self::Price => f.write_str("the price does not suit"),
            Self::Over => f.write_str("that negotiation is over"),
            Self::Gone => f.write_str("the rank that spoke for the job has ended"),
        }
    }
}

/// What a negotiation has come to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The items that are marked so, and the first rank that begins by it.
    Accepted {
        agreed: Template,
        first: Option<Rank>,
    },
    Declined(Why),
    /// It was mandatory, and is done to the job.
    Enforced(Template),
}

impl Outcome {
    /// What the coordinator says of it.
    pub fn statement(&self) -> Statement {
        match self.clone() {
            Self::Accepted { agreed, first } => Statement::Accept { agreed, first },
            Self::Declined(why) => Statement::Reject(why),
            Self::Enforced(template) => Statement::Enforce(template),
        }
    }

    /// How many processors more or fewer it makes; `None`: none.
    pub fn change(&self) -> Option<Change> {
        match self {
            Self::Accepted { agreed: template, .. } | Self::Enforced(template) => template.change(),
            Self::Declined(_) => None,
        }
    }
}

/// What makes no sense of what was said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    #[error("{found} resources: expected 1 to {ITEMS_MAX}")]
    Items { found: usize },
    #[error("an answer within {0:?}: expected {WITHIN_MIN:?} to {WITHIN_MAX:?}")]
    Within(Duration),
    #[error("{0:?} twice")]
    Twice(Resource),
    #[error("{by} of {resource:?}: expected at least one, and at most what there can be")]
    By { resource: Resource, by: u32 },
    #[error("it is not about what was offered")]
    AboutSomethingElse,
    #[error("{0:?} is accepted otherwise than it was offered")]
    NotAsOffered(Resource),
    #[error("it is not its turn")]
    OutOfTurn,
    #[error("another offer where only yes or no was left")]
    AfterTheLastWord,
    #[error("the other side says this, or nobody does")]
    NotToSay,
}

// ── spawning is a case of it ───────────────────────────────────────────────

/// A rank that spawns asks for what can be had at once.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What a question says of a negotiation, if it does: to spawn is to make a
/// final offer to take so many processors, all or none.
pub fn said_by(request: Request, ask: &Ask) -> Option<Said> {
    let statement = match ask {
        Ask::Negotiate(said) => return Some(said.clone()),
        Ask::Spawn { count } => Statement::FinalOffer(Template::processors(
            AT_ONCE,
            Change::Grow { by: *count },
            Obligation::Mandatory,
        )),
        Ask::Leave
        | Ask::Processors
        | Ask::Negotiates
        | Ask::NextTask
        | Ask::Done { .. }
        | Ask::ReturnTask { .. }
        | Ask::PutTask { .. }
        | Ask::CloseBag
        | Ask::NextResult
        | Ask::BeginsAnew => return None,
    };
    Some(Said { opener: Party::Job, negotiation: Negotiation(request.0), round: 0, statement })
}

/// What the coordinator said to it, as that question is answered.
pub fn answer_to(ask: &Ask, said: Said) -> Answer {
    let Ask::Spawn { .. } = ask else { return Answer::Negotiated(said) };
    match said.statement {
        Statement::Accept { agreed, first: Some(first) } => {
            Answer::Spawned { first, count: agreed.change().map_or(0, Change::by) }
        }
        Statement::Reject(Why::TooFew { available }) => Answer::TooMany { available },
        Statement::Reject(why) => Answer::Declined { reason: why.to_string() },
        // Never said to a final offer.
        Statement::Accept { first: None, .. }
        | Statement::Offer(_)
        | Statement::CounterOffer(_)
        | Statement::FinalOffer(_)
        | Statement::Enforce(_)
        | Statement::Noted => Answer::Declined { reason: Why::Nonsense.to_string() },
    }
}
