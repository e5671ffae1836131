//! How a program negotiates that is in two minds: by the library's own side of a
//! talk, and with answers that are drawn from what it has heard.

use std::time::Duration;

use gleaner_common::time::Moment;

use crate::address::Rank;
use crate::negotiation::talk::{Choice, Effect, Limits, Talk};
use crate::negotiation::{
    Change, Obligation, Outcome, Party, Said, Statement, Status, Template, Why,
};

const LIMITS: Limits = Limits {
    within_max: Duration::from_secs(60),
    repeat: Duration::from_secs(60),
    repeats_max: 0,
    rounds_max: u32::MAX,
};

/// For a rank that speaks for its program.
#[derive(Clone, Debug, Default)]
pub(super) struct Negotiator {
    talk: Option<Talk>,
    /// What it says next.
    pub(super) says: Vec<Said>,
    /// So many ranks are to leave, as it has agreed or as it must.
    pub(super) gives: u32,
    /// How many ends it has heard, and the ranks that begin by them: the first of each,
    /// and how many.
    pub(super) ended: u64,
    pub(super) begun: Vec<(Rank, u32)>,
}

impl Negotiator {
    /// The coordinator says something in a negotiation that it has opened.
    pub(super) fn hear(&mut self, said: &Said, mood: u64) {
        let effects = match &mut self.talk {
            Some(talk) if talk.number() == said.negotiation => talk.hear(Moment::ZERO, said),
            talk => match Talk::answer(Moment::ZERO, Party::Job, LIMITS, said) {
                Ok((begun, may)) => {
                    *talk = Some(begun);
                    vec![Effect::Decide(may)]
                }
                // It began before the rank went back.
                Err(_) if said.statement.concludes() => {
                    let round = said.round.saturating_add(1);
                    vec![Effect::Send(Said { round, statement: Statement::Noted, ..said.clone() })]
                }
                Err(_) => vec![],
            },
        };
        self.obey(effects, mood);
    }

    fn obey(&mut self, effects: Vec<Effect>, mood: u64) {
        for effect in effects {
            match effect {
                Effect::Send(said) => self.says.push(said),
                Effect::Decide(_) => {
                    let decided = self.decide(mood);
                    self.obey(decided, mood);
                }
                Effect::Over(outcome) => {
                    self.gives += given(&outcome);
                    self.ended += 1;
                    self.begun.extend(begun(&outcome.statement()));
                }
                Effect::Heard(_) => {}
            }
        }
    }

    fn decide(&mut self, mood: u64) -> Vec<Effect> {
        let Some(talk) = &mut self.talk else { return vec![] };
        let choice = match mood % 8 {
            0..=3 => Choice::Accept(None),
            4 => Choice::Reject(Why::Unwanted),
            5 | 6 => Choice::Counter(less(talk.table())),
            // It does not say anything.
            _ => return vec![],
        };
        talk.say(Moment::ZERO, choice)
    }
}

fn given(outcome: &Outcome) -> u32 {
    match outcome.change() {
        Some(Change::Shrink { by }) => by,
        Some(Change::Grow { .. }) | None => 0,
    }
}

/// The ranks that begin by what the coordinator says.
pub(super) fn begun(said: &Statement) -> Option<(Rank, u32)> {
    let Statement::Accept { agreed, first: Some(first) } = said else { return None };
    agreed.change().map(|change| (*first, change.by()))
}

/// About fewer; about one, it is the same.
fn less(table: &Template) -> Template {
    let mut template = table.clone();
    for item in &mut template.items {
        item.change = item.change.of(item.change.by().div_ceil(2));
    }
    template
}

/// What a program says that wants so many ranks more, or to give some, after what it
/// has heard of it. It takes whatever is offered instead.
pub(super) fn wish(change: Change, heard: Option<&Said>) -> Statement {
    match heard.and_then(|said| said.statement.proposes()) {
        Some((offered, _)) => {
            Statement::Accept { agreed: offered.clone().all(Status::Accepted), first: None }
        }
        None => Statement::Offer(Template::processors(
            Duration::from_secs(10),
            change,
            Obligation::Voluntary,
        )),
    }
}
