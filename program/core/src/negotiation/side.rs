//! The program's side of what the coordinator opens: what is proposed to it, what it
//! says, and what was agreed.
//!
//! The promise: the program decides about one proposal at a time, and not before it
//! has taken note of what was agreed before. What it says is a wish; the end is the
//! coordinator's. Reads no clock: the coordinator ends what takes too long.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use gleaner_common::time::Moment;

use super::talk::{Choice, Effect, Limits, May, Talk};
use super::{
    Change, Obligation, Outcome, Party, Price, Resource, Said, Statement, Status, Template, Why,
};
use crate::address::Rank;

/// How long a request may wait for processors that others have to give. A
/// guess.
pub const WITHIN: Duration = Duration::from_secs(10);

const LIMITS: Limits =
    Limits { within_max: WITHIN, repeat: WITHIN, repeats_max: 0, rounds_max: u32::MAX };

/// What the program is offered, or asked to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub change: Change,
    /// It is done to the program, if the program does not do it itself.
    pub is_mandatory: bool,
    /// Only yes or no is left to say.
    pub is_final: bool,
    /// For one processor and hour, in thousandths of what the site counts in.
    pub price: Option<u64>,
}

/// What the program says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    Accept,
    Decline,
    /// So many instead, for this price: a job of powers of two takes 8 of 15.
    Counter {
        by: u32,
        price: Option<u64>,
    },
}

impl Response {
    /// So many instead, for the price that was offered.
    pub fn instead(proposal: &Proposal, by: u32) -> Self {
        match by {
            0 => Self::Decline,
            by if by == proposal.change.by() => Self::Accept,
            by => Self::Counter { by, price: proposal.price },
        }
    }
}

/// What was agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// These ranks begin.
    More(Range<u32>),
    /// So many are to leave soon; where they are `enforced`, so many processors
    /// are being taken from the program whatever it does.
    Fewer { by: u32, enforced: bool },
}

/// Of the rank that speaks for its program.
#[derive(Clone, Debug, Default)]
pub struct Side {
    talk: Option<Talk>,
    agreed: VecDeque<Agreed>,
}

impl Side {
    /// The coordinator says something in a negotiation that it has opened: what is to
    /// be said to that at once.
    pub fn hear(&mut self, said: &Said) -> Vec<Said> {
        let now = Moment::ZERO;
        let effects = match &mut self.talk {
            Some(talk) if talk.number() == said.negotiation => talk.hear(now, said),
            talk => match Talk::answer(now, Party::Job, LIMITS, said) {
                Ok((begun, _)) => {
                    *talk = Some(begun);
                    vec![]
                }
                // The end of what this process has not heard of, or nonsense.
                Err(_) if said.statement.concludes() => {
                    let round = said.round.saturating_add(1);
                    let noted = Said { round, statement: Statement::Noted, ..said.clone() };
                    vec![Effect::Send(noted)]
                }
                Err(_) => vec![],
            },
        };
        let mut says = self.obey(effects);
        if self.is_about_nothing() {
            says.extend(self.respond(Response::Decline));
        }
        says
    }

    /// Is it the program's turn, and not about processors?
    fn is_about_nothing(&self) -> bool {
        let of_others = |talk: &Talk| talk.table().item(Resource::Processors).is_none();
        self.talk.as_ref().is_some_and(|talk| talk.may().is_some() && of_others(talk))
    }

    fn obey(&mut self, effects: Vec<Effect>) -> Vec<Said> {
        let mut says = vec![];
        for effect in effects {
            match effect {
                Effect::Send(said) => says.push(said),
                Effect::Over(outcome) => self.agreed.extend(agreed_by(&outcome)),
                Effect::Decide(_) | Effect::Heard(_) => {}
            }
        }
        says
    }

    /// What the program is to say something to, if nothing stands in the way that was
    /// agreed before.
    pub fn proposal(&self) -> Option<Proposal> {
        let talk = self.talk.as_ref().filter(|_| self.agreed.is_empty())?;
        let may = talk.may()?;
        let item = talk.table().item(Resource::Processors)?;
        Some(Proposal {
            change: item.change,
            is_mandatory: item.terms.obligation == Obligation::Mandatory,
            is_final: may == May::YesOrNo,
            price: item.terms.price.map(|price| price.0),
        })
    }

    /// What goes out by the program's word.
    pub fn respond(&mut self, response: Response) -> Vec<Said> {
        let Some(talk) = &mut self.talk else { return vec![] };
        let choice = match response {
            Response::Accept => Choice::Accept(None),
            Response::Decline => Choice::Reject(Why::Unwanted),
            Response::Counter { by, price } => Choice::Counter(instead(talk.table(), by, price)),
        };
        let effects = talk.say(Moment::ZERO, choice);
        self.obey(effects)
    }

    /// What was agreed since this was asked last, the oldest first.
    pub fn agreed(&mut self) -> Option<Agreed> {
        self.agreed.pop_front()
    }
}

/// What a program says next that wants this change, after what it has heard of it: it
/// takes whatever is offered instead. `None`: it is over.
pub fn wish(change: Change, heard: Option<&Statement>) -> Option<Statement> {
    let Some(heard) = heard else {
        return Some(Statement::Offer(Template::processors(WITHIN, change, Obligation::Voluntary)));
    };
    let (offered, _) = heard.proposes()?;
    Some(Statement::Accept { agreed: offered.clone().all(Status::Accepted), first: None })
}

/// What such a wish has come to: so much, and the ranks that begin by it.
pub fn granted(said: &Statement) -> Option<(Change, Range<u32>)> {
    let Statement::Accept { agreed, first } = said else { return None };
    let change = agreed.change()?;
    Some((change, ranks_of(change, *first)))
}

fn instead(table: &Template, by: u32, price: Option<u64>) -> Template {
    let mut template = table.clone();
    if let Some(item) = template.item_mut(Resource::Processors) {
        item.change = item.change.of(by);
        item.terms.price = price.map(Price);
    }
    template
}

fn ranks_of(change: Change, first: Option<Rank>) -> Range<u32> {
    match (change, first) {
        (Change::Grow { by }, Some(Rank(first))) => first..first.saturating_add(by),
        (_, _) => 0..0,
    }
}

fn agreed_by(outcome: &Outcome) -> Option<Agreed> {
    let enforced = matches!(outcome, Outcome::Enforced(_));
    match (outcome, outcome.change()?) {
        (Outcome::Accepted { first, .. }, change @ Change::Grow { .. }) => {
            Some(Agreed::More(ranks_of(change, *first)))
        }
        (_, Change::Shrink { by }) => Some(Agreed::Fewer { by, enforced }),
        (_, Change::Grow { .. }) => None,
    }
}
