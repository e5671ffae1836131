//! The coordinator's side for a program that runs by itself: so many processors
//! are free, and what it is to be offered is known beforehand.
//!
//! The next offer is made when the one before is carried out. Knows nothing of
//! time: nothing is lost here, and nobody is late.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gleaner_common::time::Moment;

use super::talk::{self, Choice, Limits, May, Talk};
use super::{
    Change, Obligation, Outcome, Party, Said, Statement, Template, Why, answer_to, said_by,
};
use crate::address::{Negotiation, Rank, Request};
use crate::wire::{Answer, Ask};

const WITHIN: Duration = Duration::from_secs(3_600);

const LIMITS: Limits = Limits { within_max: WITHIN, repeat: WITHIN, repeats_max: 0, rounds_max: 8 };

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Tell {
        rank: Rank,
        said: Said,
    },
    Answer {
        rank: Rank,
        request: Request,
        answer: Answer,
    },
    /// So many ranks begin, the first of which is the next.
    Begin {
        by: Rank,
        count: u32,
    },
}

/// What there is when something is decided.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    pub free: u32,
    /// The number that the next rank will have.
    pub next: Rank,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Alone {
    offers: VecDeque<(Change, Obligation)>,
    negotiator: Option<Rank>,
    talk: Option<Talk>,
    numbers: u64,
    /// So many ranks are still to end, as agreed.
    releasing: u32,
    asked: BTreeMap<(Rank, Negotiation), Talk>,
}

impl Alone {
    pub fn new(offers: impl IntoIterator<Item = (Change, Obligation)>) -> Self {
        Self { offers: offers.into_iter().collect(), ..Self::default() }
    }

    /// This rank speaks for the program.
    pub fn negotiates(&mut self, rank: Rank) -> Vec<Effect> {
        self.negotiator = Some(rank);
        self.next_offer()
    }

    fn next_offer(&mut self) -> Vec<Effect> {
        let is_busy = self.talk.as_ref().is_some_and(|talk| !talk.is_done()) || self.releasing > 0;
        let Some(rank) = self.negotiator.filter(|_| !is_busy) else { return vec![] };
        let Some((change, obligation)) = self.offers.pop_front() else { return vec![] };
        self.numbers += 1;
        let number = (Party::Coordinator, Negotiation(self.numbers));
        let template = Template::processors(WITHIN, change, obligation);
        let (talk, said) = Talk::open(Moment::ZERO, number, LIMITS, (template, false));
        self.talk = Some(talk);
        vec![Effect::Tell { rank, said }]
    }

    /// The rank that negotiates has said this to an offer.
    pub fn said(&mut self, rank: Rank, said: &Said, there: Processors) -> Vec<Effect> {
        let Some(mut talk) = self.talk.take_if(|talk| talk.number() == said.negotiation) else {
            return vec![];
        };
        let heard = talk.hear(Moment::ZERO, said);
        let (mut out, over) = carry_out(&mut talk, rank, heard, there);
        let agreed = over.filter(|outcome| matches!(outcome, Outcome::Accepted { .. }));
        if let Some(Change::Shrink { by }) = agreed.as_ref().and_then(Outcome::change) {
            self.releasing = by;
        }
        self.talk = Some(talk);
        // Its end is noted at once, since nothing is lost.
        let is_noted = said.statement == Statement::Noted;
        if is_noted {
            out.extend(self.next_offer());
        }
        out
    }

    /// A rank negotiates by a question, if it is one.
    pub fn asked(
        &mut self,
        rank: Rank,
        (request, ask): (Request, &Ask),
        there: Processors,
    ) -> Vec<Effect> {
        let Some(said) = said_by(request, ask) else { return vec![] };
        let key = (rank, said.negotiation);
        let heard = if let Some(talk) = self.asked.get_mut(&key) {
            talk.hear(Moment::ZERO, &said)
        } else if let Ok((talk, may)) =
            Talk::answer(Moment::ZERO, Party::Coordinator, LIMITS, &said)
        {
            self.asked.insert(key, talk);
            vec![talk::Effect::Decide(may)]
        } else {
            let statement = Statement::Reject(Why::Nonsense);
            let said = Said { round: said.round.saturating_add(1), statement, ..said };
            let answer = answer_to(ask, said);
            return vec![Effect::Answer { rank, request, answer }];
        };
        let Some(mut talk) = self.asked.remove(&key) else { return vec![] };
        let (out, over) = carry_out(&mut talk, rank, heard, there);
        if over.is_none() {
            self.asked.insert(key, talk);
        }
        let answered = out.into_iter().map(|effect| match effect {
            Effect::Tell { rank, said } => {
                Effect::Answer { rank, request, answer: answer_to(ask, said) }
            }
            Effect::Answer { .. } | Effect::Begin { .. } => effect,
        });
        answered.collect()
    }

    /// A rank has ended: perhaps one that was to.
    pub fn ended(&mut self, rank: Rank) -> Vec<Effect> {
        self.negotiator.take_if(|negotiator| *negotiator == rank);
        self.releasing = self.releasing.saturating_sub(1);
        self.next_offer()
    }
}

fn carry_out(
    talk: &mut Talk,
    rank: Rank,
    effects: Vec<talk::Effect>,
    there: Processors,
) -> (Vec<Effect>, Option<Outcome>) {
    let (mut todo, mut out, mut over) = (VecDeque::from(effects), vec![], None);
    while let Some(effect) = todo.pop_front() {
        match effect {
            talk::Effect::Send(said) => out.push(Effect::Tell { rank, said }),
            talk::Effect::Decide(may) => {
                let choice = choice(talk, may, there);
                let grows = talk.table().change();
                if let (Choice::Accept(_), Some(Change::Grow { by: count })) = (&choice, grows) {
                    out.push(Effect::Begin { by: rank, count });
                }
                todo.extend(talk.say(Moment::ZERO, choice));
            }
            talk::Effect::Heard(_) => {}
            talk::Effect::Over(outcome) => over = Some(outcome),
        }
    }
    (out, over)
}

fn choice(talk: &Talk, may: May, Processors { free, next }: Processors) -> Choice {
    let table = talk.table();
    match table.change() {
        Some(Change::Grow { by }) if by <= free => Choice::Accept(Some(next)),
        Some(Change::Grow { .. }) if free == 0 || may == May::YesOrNo => {
            Choice::Reject(Why::TooFew { available: free })
        }
        Some(change @ Change::Grow { .. }) => {
            let mut template = table.clone();
            for item in &mut template.items {
                item.change = change.of(free);
            }
            Choice::Counter(template)
        }
        Some(Change::Shrink { .. }) => Choice::Accept(None),
        None => Choice::Reject(Why::NotNegotiable),
    }
}
