//! A negotiation under way with one rank, and what the coordinator says in it.

use gleaner_program_core::address::{Rank, Request};
use gleaner_program_core::negotiation::talk::{self, Choice, Limits, Talk};
use gleaner_program_core::negotiation::{
    Change, Item, Resource, Said, Statement, Status, Template, Why, answer_to, said_by,
};
use gleaner_program_core::wire::Ask;

use super::{ANSWER_WITHIN, Effect, Prices, REPEAT};

/// What the scheduler waits for in a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Nothing,
    /// It has set so many aside.
    Grow(u32),
    /// It has asked for so many.
    Shrink(u32),
    /// It has been asked, and we wait for it.
    Wish,
}

/// How the job's side speaks.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Frames,
    Questions { request: Request, ask: Ask },
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) talk: Talk,
    pub(super) with: Rank,
    pub(super) way: Way,
    pub(super) pending: Pending,
}

impl Open {
    pub(super) fn is(&self, rank: Rank, said: &Said) -> bool {
        self.with == rank
            && self.talk.opener() == said.opener
            && self.talk.number() == said.negotiation
    }

    pub(super) fn carry(&self, said: Said) -> Effect {
        let rank = self.with;
        match &self.way {
            Way::Frames => Effect::Tell { rank, said },
            Way::Questions { request, ask } => answer(rank, *request, ask, said),
        }
    }

    pub(super) fn request(&self) -> Request {
        match &self.way {
            Way::Frames => Request(0),
            Way::Questions { request, .. } => *request,
        }
    }
}

pub(super) fn limits(repeats_max: u32) -> Limits {
    Limits { within_max: ANSWER_WITHIN, repeat: REPEAT, repeats_max, rounds_max: 8 }
}

/// What is sent of it: the rest was carried out when it ended.
pub(super) fn sends(open: &Open, effects: Vec<talk::Effect>) -> Vec<Effect> {
    let said = effects.into_iter().filter_map(|effect| match effect {
        talk::Effect::Send(said) => Some(open.carry(said)),
        talk::Effect::Decide(_) | talk::Effect::Heard(_) | talk::Effect::Over(_) => None,
    });
    said.collect()
}

pub(super) fn over(said: &Said, why: Why) -> Said {
    let round = said.round.saturating_add(1);
    Said { round, statement: Statement::Reject(why), ..said.clone() }
}

/// What is said, as this question is answered.
pub(super) fn answer(rank: Rank, request: Request, ask: &Ask, said: Said) -> Effect {
    Effect::Answer { rank, request, answer: answer_to(ask, said) }
}

pub(super) fn refusal(rank: Rank, request: Request, ask: &Ask, why: Why) -> Option<Effect> {
    let said = over(&said_by(request, ask)?, why);
    Some(answer(rank, request, ask, said))
}

/// Is it about processors alone, or what is left of it?
pub(super) fn has_no_other(table: &Template) -> bool {
    let is_settled =
        |item: &Item| item.resource == Resource::Processors || item.status == Status::Rejected;
    table.items.iter().all(is_settled)
}

/// An answer to what is on the table: so many processors, at no less than what
/// they cost, and of everything else none, since nothing else of a running job
/// can be changed. What is as it was offered is accepted.
pub(super) fn ours(table: &Template, change: Change, prices: Option<Prices>) -> Template {
    let mut template = table.clone();
    for item in &mut template.items {
        if item.resource != Resource::Processors {
            item.status = Status::Rejected;
            continue;
        }
        let before = *item;
        item.change = change;
        if let Some(Prices { least, .. }) = prices {
            item.terms.price = Some(item.terms.price.unwrap_or_default().max(least));
        }
        let is_as_offered = *item == Item { status: item.status, ..before };
        item.status = if is_as_offered { Status::Accepted } else { Status::Open };
    }
    template
}

/// An offer of ours was answered by another one: what we say is the last word.
pub(super) fn last_word(choice: Choice) -> Choice {
    match choice {
        Choice::Counter(template) => Choice::Final(template),
        Choice::Accept(_) | Choice::Reject(_) | Choice::Final(_) => choice,
    }
}
