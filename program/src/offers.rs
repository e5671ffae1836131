//! What the program has: offers that it is made, and what it asks for itself
//! (Ghafoor 2007, §4.3.2). [`Communicator::spawn`], [`Communicator::leave`] and
//! [`Communicator::processors`] are cases of it that need no rounds.
//!
//! The protocol and its states are `gleaner_program_core::negotiation`. A rank
//! reads no clock: the coordinator ends what takes too long.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_common::trace::Op;
use gleaner_program_core::address::Rank;
use gleaner_program_core::negotiation::talk::{Choice, Effect, Limits, May, Talk};
use gleaner_program_core::negotiation::{
    Change, Obligation, Outcome, Party, Price, Resource, Said, Statement, Status, Template, Why,
};

use crate::communicator::{Communicator, Standing};
use crate::error::{Awaited, Error};
use crate::transport::{Event, Order};

/// How long a request may wait for processors that others have to give. A
/// guess.
const WITHIN: Duration = Duration::from_secs(10);

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

type Handler = Box<dyn FnMut(&Proposal) -> Response + Send>;

/// The rank's side of what the coordinator opens.
#[derive(Default)]
pub(crate) struct Offers {
    handler: Option<Handler>,
    talk: Option<Talk>,
    agreed: VecDeque<Agreed>,
}

impl Communicator {
    /// Speaks for the program from now on: `handler` is called inside this
    /// rank's calls whenever the program is offered processors or asked for
    /// some. It only says what the program will do; what was agreed in the end,
    /// [`Self::agreed`] tells, at a time that the program chooses. Until it has,
    /// `handler` is not called again: it knows what the program has.
    ///
    /// A rank that goes back to where it was before does not hear offers again
    /// that it heard since: a program that reacts to them saves its state when
    /// it has.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn on_offer(
        &mut self,
        handler: impl FnMut(&Proposal) -> Response + Send + 'static,
    ) -> Result<(), Error> {
        self.offers.handler = Some(Box::new(handler));
        self.call(|this| this.order(Order::Negotiates))
    }

    /// What was agreed since this was asked last, if anything was.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn agreed(&mut self) -> Result<Option<Agreed>, Error> {
        self.call(|this| Ok(this.offers.agreed.pop_front()))
    }

    /// Asks for `n` more ranks, and takes what can be had of that, perhaps
    /// nothing. Waits a little for what others would have to give. They run
    /// the same program, as spawned ones do.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn request(&mut self, n: u32) -> Result<Range<u32>, Error> {
        self.call(|this| {
            let agreed = this.negotiate_for(Change::Grow { by: n })?;
            let ranks = agreed.map_or(0..0, |(template, first)| ranks_of(&template, first));
            ranks.clone().for_each(|rank| this.note(Op::Spawn { rank }));
            Ok(ranks)
        })
    }

    /// Says that the program gives `n` processors back: as many ranks are to
    /// leave soon, whichever it chooses. Gives how many the coordinator counts
    /// on, since one rank has to stay. A rank that just leaves need not say so
    /// before.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn release(&mut self, n: u32) -> Result<u32, Error> {
        self.call(|this| {
            let agreed = this.negotiate_for(Change::Shrink { by: n })?;
            Ok(agreed.and_then(|(template, _)| template.change()).map_or(0, Change::by))
        })
    }

    /// Opens a negotiation, and takes whatever is offered instead.
    fn negotiate_for(&mut self, change: Change) -> Result<Option<(Template, Option<Rank>)>, Error> {
        if change.by() == 0 {
            return Ok(None);
        }
        let template = Template::processors(WITHIN, change, Obligation::Voluntary);
        let mut said = self.propose(Statement::Offer(template), None)?;
        loop {
            let next = match said.statement.clone() {
                Statement::Accept { agreed, first } => return Ok(Some((agreed, first))),
                Statement::Reject(_) | Statement::Enforce(_) | Statement::Noted => return Ok(None),
                Statement::Offer(template)
                | Statement::CounterOffer(template)
                | Statement::FinalOffer(template) => {
                    Statement::Accept { agreed: template.all(Status::Accepted), first: None }
                }
            };
            said = self.propose(next, Some(said))?;
        }
    }

    fn propose(&mut self, statement: Statement, after: Option<Said>) -> Result<Said, Error> {
        self.order(Order::Propose { statement, after })?;
        self.answer(Awaited::Answer, |event| {
            if let Event::Negotiated(said) = event { Ok(said) } else { Err(event) }
        })
    }

    /// The coordinator says something in a negotiation that it has opened.
    pub(crate) fn hear_offer(&mut self, said: &Said) -> Result<(), Error> {
        let now = Moment::ZERO;
        let effects = match &mut self.offers.talk {
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
        for effect in effects {
            match effect {
                Effect::Send(said) => self.order(Order::Say(said))?,
                Effect::Over(outcome) => self.offers.agreed.extend(agreed_by(&outcome)),
                Effect::Decide(_) | Effect::Heard(_) => {}
            }
        }
        self.look_at_offer()
    }

    /// Answers an offer that nothing agreed before stands in the way of.
    pub(crate) fn look_at_offer(&mut self) -> Result<(), Error> {
        let may = self.offers.talk.as_ref().and_then(Talk::may);
        let Some(may) = may.filter(|_| self.offers.agreed.is_empty()) else { return Ok(()) };
        for effect in self.decide(may) {
            if let Effect::Send(said) = effect {
                self.order(Order::Say(said))?;
            }
        }
        Ok(())
    }

    fn decide(&mut self, may: May) -> Vec<Effect> {
        let is_here = self.standing == Standing::Here;
        let Offers { handler, talk, .. } = &mut self.offers;
        let Some(talk) = talk else { return vec![] };
        let table = talk.table();
        let proposal = table.item(Resource::Processors).map(|item| Proposal {
            change: item.change,
            is_mandatory: item.terms.obligation == Obligation::Mandatory,
            is_final: may == May::YesOrNo,
            price: item.terms.price.map(|price| price.0),
        });
        let response = match (handler.as_mut().filter(|_| is_here), proposal) {
            (Some(handler), Some(proposal)) => handler(&proposal),
            (_, _) => Response::Decline,
        };
        let choice = match response {
            Response::Accept => Choice::Accept(None),
            Response::Decline => Choice::Reject(Why::Unwanted),
            Response::Counter { by, price } => Choice::Counter(instead(table, by, price)),
        };
        talk.say(Moment::ZERO, choice)
    }
}

fn instead(table: &Template, by: u32, price: Option<u64>) -> Template {
    let mut template = table.clone();
    if let Some(item) = template.item_mut(Resource::Processors) {
        item.change = item.change.of(by);
        item.terms.price = price.map(Price);
    }
    template
}

fn ranks_of(agreed: &Template, first: Option<Rank>) -> Range<u32> {
    match (agreed.change(), first) {
        (Some(Change::Grow { by }), Some(Rank(first))) => first..first.saturating_add(by),
        (_, _) => 0..0,
    }
}

fn agreed_by(outcome: &Outcome) -> Option<Agreed> {
    let enforced = matches!(outcome, Outcome::Enforced(_));
    match (outcome, outcome.change()?) {
        (Outcome::Accepted { agreed, first }, Change::Grow { .. }) => {
            Some(Agreed::More(ranks_of(agreed, *first)))
        }
        (_, Change::Shrink { by }) => Some(Agreed::Fewer { by, enforced }),
        (_, Change::Grow { .. }) => None,
    }
}
