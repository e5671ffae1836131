//! A program's negotiations: who speaks for it, and what agreements do to it.

use gleaner_program_core::address::{RANKS_MAX, Rank, Request};
use gleaner_program_core::negotiation::{
    Change, Obligation, Party, Resource, Said, Statement, Status,
};
use gleaner_program_core::wire::{Answer, Ask, ToRank};

use super::record::Happened;
use super::{Order, Program};
use crate::negotiation::{Clock, Effect, Setting};
use crate::scheduler;

impl Program {
    fn setting(&self, clock: Clock) -> Setting {
        let next = Rank(self.past.ranks());
        let room = self.ranks_max().saturating_sub(next.0);
        Setting { clock, next, room, size: self.past.size() }
    }

    /// The rank to which offers are made; `None`: the program does not
    /// negotiate, and is not asked.
    pub(crate) fn negotiator(&self) -> Option<Rank> {
        self.past.negotiator()
    }

    /// The scheduler has decided about the size of this job, or answers what it
    /// has asked for. Decisions about anything else are nobody's here.
    pub(crate) fn decided(&mut self, clock: Clock, decision: &scheduler::Decision) {
        use scheduler::Decision::{Grow, Offer, Refuse, Reserve, Shrink, Start};
        let (at, with, mut out) = (self.setting(clock), self.negotiator(), vec![]);
        let negotiations = &mut self.negotiations;
        match *decision {
            Grow { by, obligation, .. } => {
                negotiations.grow(at, with, by, obligation.into(), &mut out);
            }
            Shrink { by, obligation, .. } => {
                negotiations.shrink(at, with, by, obligation.into(), &mut out);
            }
            Offer { up_to, .. } => negotiations.offer(at, up_to, &mut out),
            Start { .. } | Reserve { .. } | Refuse { .. } => {}
        }
        self.negotiation_effects(out);
    }

    /// So many processors have been taken from the program.
    pub(crate) fn enforced(&mut self, by: u32) {
        let mut out = vec![];
        self.negotiations.enforced(by, &mut out);
        self.negotiation_effects(out);
    }

    /// A rank says something in a negotiation that was opened with it.
    pub(crate) fn said(&mut self, clock: Clock, rank: Rank, said: &Said) {
        let (at, mut out) = (self.setting(clock), vec![]);
        self.negotiations.heard(at, rank, said, &mut out);
        self.negotiation_effects(out);
    }

    /// A rank negotiates by a question, of which a spawn is one.
    pub(super) fn asked_to_negotiate(
        &mut self,
        clock: Clock,
        rank: Rank,
        (request, ask): (Request, Ask),
        free: u32,
    ) {
        if let Some(answer) = self.agreed_before(rank, request, &ask) {
            return self.answer(rank, request, answer);
        }
        if let Ask::Spawn { count } = ask
            && (count == 0 || count > RANKS_MAX)
        {
            return self.answer(rank, request, Answer::TooMany { available: free });
        }
        let (at, mut out) = (self.setting(clock), vec![]);
        self.negotiations.asked(at, rank, (request, ask), &mut out);
        self.negotiation_effects(out);
    }

    /// What came of this question before a restart.
    fn agreed_before(&self, rank: Rank, request: Request, ask: &Ask) -> Option<Answer> {
        let answer = self.past.spawned_before(rank, request)?;
        let (Answer::Spawned { first, count }, Ask::Negotiate(said)) = (&answer, ask) else {
            return Some(answer);
        };
        let mut agreed = if let Statement::Accept { agreed, .. } = &said.statement {
            agreed.clone()
        } else {
            said.statement.proposes()?.0.clone()
        };
        agreed.item_mut(Resource::Processors)?.change = Change::Grow { by: *count };
        let agreed = agreed.all(Status::Accepted);
        let statement = Statement::Accept { agreed, first: Some(*first) };
        let (opener, round) = (Party::Job, said.round.saturating_add(1));
        Some(Answer::Negotiated(Said { opener, round, statement, ..said.clone() }))
    }

    pub(super) fn negotiates(&mut self, rank: Rank, request: Request) {
        if self.past.negotiator() != Some(rank) {
            self.happen(Happened::Negotiates(rank));
        }
        self.answer(rank, request, Answer::Noted);
    }

    /// A rank has ended. Its processor may be one that was asked for.
    pub(super) fn negotiator_ended(&mut self, clock: Clock, rank: Rank) {
        let (at, mut out) = (self.setting(clock), vec![]);
        self.negotiations.ended(at, rank, &mut out);
        self.negotiation_effects(out);
    }

    pub(super) fn abandon_negotiations(&mut self) {
        let mut out = vec![];
        self.negotiations.abandon(&mut out);
        self.negotiation_effects(out);
    }

    pub(super) fn wake_negotiations(&mut self, clock: Clock) {
        let (at, mut out) = (self.setting(clock), vec![]);
        self.negotiations.wake(at, &mut out);
        self.negotiation_effects(out);
    }

    fn negotiation_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell { rank, said } => {
                    self.orders.push_back(Order::Send { rank, what: ToRank::Negotiate(said) });
                }
                Effect::Answer { rank, request, answer } => self.answer(rank, request, answer),
                Effect::Asked { more, is_answer } => {
                    self.orders.push_back(Order::Asked { more, is_answer });
                }
                Effect::Begin { by, request, count } => {
                    let first = Rank(self.past.ranks());
                    self.add_ranks(count, Happened::Spawned { by, request, first, count });
                }
                Effect::Answered { by } => self.orders.push_back(Order::Answered { by }),
                Effect::Enforce { by } => self.orders.push_back(Order::Enforce { by }),
                Effect::Note(note) => self.orders.push_back(Order::Note(note)),
            }
        }
    }
}

impl From<scheduler::Obligation> for Obligation {
    fn from(obligation: scheduler::Obligation) -> Self {
        match obligation {
            scheduler::Obligation::Voluntary => Self::Voluntary,
            scheduler::Obligation::Mandatory => Self::Mandatory,
        }
    }
}
