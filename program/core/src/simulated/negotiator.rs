//! A program that is in two minds: it negotiates by the library's own side of it, and
//! answers are drawn from what it has heard.

use crate::address::Rank;
use crate::negotiation::Said;
use crate::negotiation::side::{Agreed, Proposal, Response, Side};

/// For a rank that speaks for its program.
#[derive(Clone, Debug, Default)]
pub(super) struct Negotiator {
    side: Side,
    /// What it does not say anything to.
    silent: Option<Proposal>,
    says: Vec<Said>,
}

/// What the program has to do by what was agreed.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) gives: u32,
    /// The first of the ranks that begin, and how many.
    pub(super) begun: Vec<(Rank, u32)>,
    pub(super) says: Vec<Said>,
}

impl Negotiator {
    pub(super) fn hear(&mut self, said: &Said) {
        self.says.extend(self.side.hear(said));
    }

    pub(super) fn act(&mut self, mood: u64) -> Due {
        let mut due = Due::default();
        while let Some(agreed) = self.side.agreed() {
            match agreed {
                Agreed::More(ranks) if ranks.is_empty() => {}
                Agreed::More(ranks) => {
                    due.begun.push((Rank(ranks.start), ranks.end - ranks.start));
                }
                Agreed::Fewer { by, .. } => due.gives += by,
            }
        }
        let proposal = self.side.proposal();
        if proposal != self.silent {
            self.silent = proposal;
            if let Some(response) = proposal.and_then(|it| response(&it, mood)) {
                self.silent = None;
                self.says.extend(self.side.respond(response));
            }
        }
        due.says.append(&mut self.says);
        due
    }
}

/// `None`: it does not say anything.
fn response(proposal: &Proposal, mood: u64) -> Option<Response> {
    match mood % 8 {
        0..=3 => Some(Response::Accept),
        4 => Some(Response::Decline),
        // About fewer; about one, it is the same.
        5 | 6 => {
            let (by, price) = (proposal.change.by().div_ceil(2), proposal.price);
            Some(Response::Counter { by, price })
        }
        _ => None,
    }
}
