//! What the program has: offers that it is made, and what it asks for itself
//! (Ghafoor 2007, §4.3.2). [`Communicator::spawn`], [`Communicator::leave`] and
//! [`Communicator::processors`] are cases of it that need no rounds.
//!
//! The protocol and its states are `gleaner_program_core::negotiation`, and what a
//! program makes of it [`side`](gleaner_program_core::negotiation::side).

use std::ops::Range;

use gleaner_common::trace::Op;
use gleaner_program_core::negotiation::side::{Agreed, Proposal, Response, Side, granted, wish};
use gleaner_program_core::negotiation::{Change, Said, Statement};

use crate::communicator::{Communicator, Standing};
use crate::error::{Awaited, Error};
use crate::transport::{Event, Order};

type Handler = Box<dyn FnMut(&Proposal) -> Response + Send>;

/// The rank's side of what the coordinator opens.
#[derive(Default)]
pub(crate) struct Offers {
    handler: Option<Handler>,
    side: Side,
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
        self.call(|this| Ok(this.offers.side.agreed()))
    }

    /// Asks for `n` more ranks, and takes what can be had of that, perhaps
    /// nothing. Waits a little for what others would have to give. They run
    /// the same program, as spawned ones do.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn request(&mut self, n: u32) -> Result<Range<u32>, Error> {
        self.call(|this| {
            let granted = this.negotiate_for(Change::Grow { by: n })?;
            let ranks = granted.map_or(0..0, |(_, ranks)| ranks);
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
            let granted = this.negotiate_for(Change::Shrink { by: n })?;
            Ok(granted.map_or(0, |(change, _)| change.by()))
        })
    }

    /// Opens a negotiation, and takes whatever is offered instead.
    fn negotiate_for(&mut self, change: Change) -> Result<Option<(Change, Range<u32>)>, Error> {
        let mut heard: Option<Said> = None;
        while change.by() > 0 {
            let Some(next) = wish(change, heard.as_ref().map(|said| &said.statement)) else {
                break;
            };
            heard = Some(self.propose(next, heard)?);
        }
        Ok(heard.and_then(|said| granted(&said.statement)))
    }

    fn propose(&mut self, statement: Statement, after: Option<Said>) -> Result<Said, Error> {
        self.order(Order::Propose { statement, after })?;
        self.answer(Awaited::Answer, |event| {
            if let Event::Negotiated(said) = event { Ok(said) } else { Err(event) }
        })
    }

    /// The coordinator says something in a negotiation that it has opened.
    pub(crate) fn hear_offer(&mut self, said: &Said) -> Result<(), Error> {
        let says = self.offers.side.hear(said);
        self.say_all(says)?;
        self.look_at_offer()
    }

    /// Answers an offer that nothing agreed before stands in the way of.
    pub(crate) fn look_at_offer(&mut self) -> Result<(), Error> {
        let Some(proposal) = self.offers.side.proposal() else { return Ok(()) };
        let is_here = self.standing == Standing::Here;
        let response = match self.offers.handler.as_mut().filter(|_| is_here) {
            Some(handler) => handler(&proposal),
            None => Response::Decline,
        };
        let says = self.offers.side.respond(response);
        self.say_all(says)
    }

    fn say_all(&mut self, says: Vec<Said>) -> Result<(), Error> {
        says.into_iter().try_for_each(|said| self.order(Order::Say(said)))
    }
}
