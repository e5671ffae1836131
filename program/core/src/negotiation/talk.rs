//! One side of one negotiation: the states of Ghafoor 2007, Figure 4.13.
//!
//! The promise: whatever is lost, late, repeated or makes no sense, the
//! coordinator's side ends within the time it was given, in one outcome; and
//! what the job's side ends in, if it hears of it, is the same. Decides
//! nothing by itself: whoever holds it is told when there is something to
//! decide.
//!
//! ```text
//!   open ──► Theirs ◄── say: an offer; by a job also Accept, Reject ──┐
//!              │                                                      │
//!              └─ heard: an offer; by the coordinator also Accept ──► Ours ◄── answer
//!   Over: by the coordinator's Accept, Reject or Enforce, or its deadline
//! ```
//!
//! Statements are numbered; each side repeats its newest until something newer
//! is heard. The end is repeated until the job has noted it.

use std::time::Duration;

use gleaner_common::time::Moment;

use super::{Nonsense, Outcome, Party, Said, Statement, Status, Template, Why};
use crate::address::{Negotiation, Rank};

/// What bounds a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Nobody may take longer to answer, whatever was offered.
    pub within_max: Duration,
    /// After that long without an answer the newest statement is repeated.
    pub repeat: Duration,
    /// So often; 0 where what carries it loses nothing.
    pub repeats_max: u32,
    /// From this round on an offer is the last.
    pub rounds_max: u32,
}

/// What whoever has the turn may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum May {
    Anything,
    /// The last offer was final, or was accepted by a job.
    YesOrNo,
}

/// What to say. A coordinator that rejects what a job says to something
/// mandatory enforces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Of what is offered, with the first rank that begins by it.
    Accept(Option<Rank>),
    Reject(Why),
    Counter(Template),
    Final(Template),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Turn {
    Ours(May),
    Theirs(May),
    Over { outcome: Outcome, is_noted: bool },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send(Said),
    /// It is our turn: say something about [`Talk::table`].
    Decide(May),
    /// What was heard makes no sense. The coordinator's side ends by it.
    Heard(Nonsense),
    Over(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Talk {
    role: Party,
    opener: Party,
    number: Negotiation,
    limits: Limits,
    /// Of the newest statement that was said or heard.
    round: u32,
    /// What was offered last, by whichever side; and by this one.
    table: Template,
    ours: Option<Template>,
    turn: Turn,
    said: Option<Said>,
    repeats: u32,
    repeat_at: Option<Moment>,
    /// Until then whoever has the turn must have spoken.
    until: Moment,
}

impl Talk {
    /// Opens a negotiation: say it, and wait.
    pub fn open(
        now: Moment,
        (role, number): (Party, Negotiation),
        limits: Limits,
        (template, is_final): (Template, bool),
    ) -> (Self, Said) {
        let mut talk = Self {
            role,
            opener: role,
            number,
            limits,
            round: 0,
            table: template.clone(),
            ours: None,
            turn: Turn::Ours(May::Anything),
            said: None,
            repeats: 0,
            repeat_at: None,
            until: now,
        };
        let statement =
            if is_final { Statement::FinalOffer(template) } else { Statement::Offer(template) };
        let said = talk.propose(now, 0, statement);
        (talk, said)
    }

    /// Hears the other side open one: it is our turn.
    ///
    /// # Errors
    /// It opens nothing.
    pub fn answer(
        now: Moment,
        role: Party,
        limits: Limits,
        said: &Said,
    ) -> Result<(Self, May), Nonsense> {
        said.check()?;
        let is_opening = matches!(said.statement, Statement::Offer(_) | Statement::FinalOffer(_));
        let Some((template, is_final)) = said.statement.proposes().filter(|_| is_opening) else {
            return Err(Nonsense::OutOfTurn);
        };
        if said.round != 0 || said.opener != role.other() {
            return Err(Nonsense::OutOfTurn);
        }
        if template.status() != Status::Open {
            return Err(Nonsense::NotToSay);
        }
        let may = if is_final { May::YesOrNo } else { May::Anything };
        let talk = Self {
            role,
            opener: said.opener,
            number: said.negotiation,
            limits,
            round: 0,
            table: template.clone(),
            ours: None,
            turn: Turn::Ours(may),
            said: None,
            repeats: 0,
            repeat_at: None,
            until: now + template.within.min(limits.within_max),
        };
        Ok((talk, may))
    }

    pub fn number(&self) -> Negotiation {
        self.number
    }

    pub fn opener(&self) -> Party {
        self.opener
    }

    /// What was offered last.
    pub fn table(&self) -> &Template {
        &self.table
    }

    /// What may be said, if it is our turn.
    pub fn may(&self) -> Option<May> {
        if let Turn::Ours(may) = self.turn { Some(may) } else { None }
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        if let Turn::Over { outcome, .. } = &self.turn { Some(outcome) } else { None }
    }

    /// The other side has heard how it ended, or will not be told again.
    pub fn is_done(&self) -> bool {
        matches!(self.turn, Turn::Over { is_noted, .. } if is_noted || self.repeat_at.is_none())
    }

    /// The newest that this side said: for an end that may not have heard it.
    pub fn newest(&self) -> Option<&Said> {
        self.said.as_ref()
    }

    /// Says something, if it is our turn; a counter-offer where only yes or no
    /// is left is a no. The coordinator may end it at any time.
    pub fn say(&mut self, now: Moment, choice: Choice) -> Vec<Effect> {
        let is_coordinator = self.role == Party::Coordinator;
        let may = match (&self.turn, &choice) {
            (Turn::Ours(may), _) => *may,
            (Turn::Theirs(_), Choice::Reject(_)) if is_coordinator => May::YesOrNo,
            (Turn::Theirs(_) | Turn::Over { .. }, _) => return vec![],
        };
        match choice {
            Choice::Accept(first) => {
                let agreed = self.table.clone().all(Status::Accepted);
                if is_coordinator {
                    return self.conclude(now, Outcome::Accepted { agreed, first });
                }
                self.wish(now, Statement::Accept { agreed, first: None })
            }
            Choice::Reject(why) if is_coordinator => self.end(now, why),
            Choice::Reject(why) => self.wish(now, Statement::Reject(why)),
            Choice::Counter(_) | Choice::Final(_) if may == May::YesOrNo => {
                self.say(now, Choice::Reject(Why::Unwanted))
            }
            Choice::Counter(template) if self.round + 1 < self.limits.rounds_max => {
                self.offer(now, template, false)
            }
            Choice::Counter(template) | Choice::Final(template) => self.offer(now, template, true),
        }
    }

    /// A counter-offer, or what it comes to where nothing in it is open.
    fn offer(&mut self, now: Moment, template: Template, is_final: bool) -> Vec<Effect> {
        if template.check_against(&self.table).is_err() {
            // What we would say ourselves makes no sense.
            return self.say(now, Choice::Reject(Why::Unwanted));
        }
        let statement = if is_final {
            Statement::FinalOffer(template)
        } else {
            Statement::CounterOffer(template)
        };
        vec![Effect::Send(self.propose(now, self.round + 1, statement))]
    }

    fn propose(&mut self, now: Moment, round: u32, statement: Statement) -> Said {
        let Some((template, is_final)) = statement.proposes() else {
            unreachable!("a proposal that proposes nothing")
        };
        (self.table, self.ours) = (template.clone(), Some(template.clone()));
        self.until = now + template.within.min(self.limits.within_max);
        self.turn = Turn::Theirs(if is_final { May::YesOrNo } else { May::Anything });
        self.spoken(now, round, statement)
    }

    /// What a job wants the end to be.
    fn wish(&mut self, now: Moment, statement: Statement) -> Vec<Effect> {
        self.turn = Turn::Theirs(May::YesOrNo);
        let round = self.round + 1;
        vec![Effect::Send(self.spoken(now, round, statement))]
    }

    fn spoken(&mut self, now: Moment, round: u32, statement: Statement) -> Said {
        self.round = round;
        let (opener, negotiation) = (self.opener, self.number);
        let said = Said { opener, negotiation, round, statement };
        self.said = Some(said.clone());
        let repeats = self.limits.repeats_max > 0;
        (self.repeats, self.repeat_at) = (0, repeats.then_some(now + self.limits.repeat));
        said
    }

    /// It ends without an agreement: what is mandatory is enforced.
    fn end(&mut self, now: Moment, why: Why) -> Vec<Effect> {
        let mandatory = self.ours.as_ref().filter(|ours| ours.is_mandatory());
        let outcome = match mandatory {
            Some(ours) => Outcome::Enforced(ours.clone().enforced()),
            None => Outcome::Declined(why),
        };
        self.conclude(now, outcome)
    }

    fn conclude(&mut self, now: Moment, outcome: Outcome) -> Vec<Effect> {
        let said = self.spoken(now, self.round + 1, outcome.statement());
        self.turn = Turn::Over { outcome: outcome.clone(), is_noted: false };
        vec![Effect::Send(said), Effect::Over(outcome)]
    }

    /// Hears a statement of this negotiation.
    pub fn hear(&mut self, now: Moment, said: &Said) -> Vec<Effect> {
        match self.heard(now, said) {
            Ok(effects) => effects,
            Err(nonsense) => {
                let mut effects = vec![Effect::Heard(nonsense)];
                if self.role == Party::Coordinator {
                    effects.extend(self.end(now, Why::Nonsense));
                }
                effects
            }
        }
    }

    fn heard(&mut self, now: Moment, said: &Said) -> Result<Vec<Effect>, Nonsense> {
        let is_coordinators = self.role == Party::Job;
        if is_coordinators && said.statement.concludes() {
            return self.heard_the_end(said);
        }
        if let Turn::Over { is_noted, .. } = &mut self.turn {
            if said.statement == Statement::Noted {
                *is_noted = true;
                self.repeat_at = None;
                return Ok(vec![]);
            }
            // It was on its way when the end was said.
            return Ok(self.again());
        }
        if said.round <= self.round {
            // Repeated: what we made of it has been lost, if we have.
            let is_answered = said.round + 1 == self.round;
            return Ok(if is_answered { self.again() } else { vec![] });
        }
        let Turn::Theirs(may) = self.turn else { return Err(Nonsense::OutOfTurn) };
        if said.round != self.round + 1 {
            return Err(Nonsense::OutOfTurn);
        }
        said.check()?;
        match &said.statement {
            Statement::Offer(_) => Err(Nonsense::OutOfTurn),
            Statement::Enforce(_) | Statement::Noted => Err(Nonsense::NotToSay),
            Statement::Accept { agreed, .. } => self.heard_yes(now, said.round, agreed),
            Statement::Reject(why) => Ok(self.end(now, *why)),
            Statement::CounterOffer(template) | Statement::FinalOffer(template) => {
                if may == May::YesOrNo {
                    return Err(Nonsense::AfterTheLastWord);
                }
                let is_final = matches!(said.statement, Statement::FinalOffer(_));
                self.heard_offer(now, said.round, template, is_final)
            }
        }
    }

    /// A job accepts what we have offered: it is granted, or cannot be any
    /// more.
    fn heard_yes(
        &mut self,
        now: Moment,
        round: u32,
        agreed: &Template,
    ) -> Result<Vec<Effect>, Nonsense> {
        if agreed.items != self.table.clone().all(Status::Accepted).items {
            return Err(Nonsense::AboutSomethingElse);
        }
        Ok(self.our_turn(now, round, May::YesOrNo))
    }

    fn heard_offer(
        &mut self,
        now: Moment,
        round: u32,
        template: &Template,
        is_final: bool,
    ) -> Result<Vec<Effect>, Nonsense> {
        template.check_against(&self.table)?;
        if template.status() == Status::Rejected && self.role == Party::Coordinator {
            // It says no to all of it, in other words.
            return Ok(self.end(now, Why::Unwanted));
        }
        self.table = template.clone();
        self.until = now + template.within.min(self.limits.within_max);
        let is_last = is_final || template.status() != Status::Open;
        let may = if is_last { May::YesOrNo } else { May::Anything };
        Ok(self.our_turn(now, round, may))
    }

    fn our_turn(&mut self, now: Moment, round: u32, may: May) -> Vec<Effect> {
        self.round = round;
        self.turn = Turn::Ours(may);
        self.repeat_at = None;
        self.until = self.until.max(now + self.limits.repeat);
        vec![Effect::Decide(may)]
    }

    /// A job hears how it ended, perhaps once more.
    fn heard_the_end(&mut self, said: &Said) -> Result<Vec<Effect>, Nonsense> {
        said.check()?;
        let (opener, negotiation) = (self.opener, self.number);
        let round = said.round.saturating_add(1);
        let noted = Said { opener, negotiation, round, statement: Statement::Noted };
        let noted = Effect::Send(noted);
        if let Turn::Over { .. } = self.turn {
            return Ok(vec![noted]);
        }
        let outcome = match said.statement.clone() {
            Statement::Accept { agreed, first } => Outcome::Accepted { agreed, first },
            Statement::Enforce(template) => Outcome::Enforced(template),
            Statement::Reject(why) => Outcome::Declined(why),
            Statement::Offer(_)
            | Statement::CounterOffer(_)
            | Statement::FinalOffer(_)
            | Statement::Noted => return Err(Nonsense::NotToSay),
        };
        self.round = said.round;
        self.repeat_at = None;
        self.turn = Turn::Over { outcome: outcome.clone(), is_noted: true };
        Ok(vec![noted, Effect::Over(outcome)])
    }

    fn again(&self) -> Vec<Effect> {
        self.said.clone().map(Effect::Send).into_iter().collect()
    }

    /// When `wake` is due. Ask again after every call.
    pub fn deadline(&self) -> Option<Moment> {
        let may_end = self.role == Party::Coordinator && self.outcome().is_none();
        let until = may_end.then_some(self.until);
        [until, self.repeat_at].into_iter().flatten().min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    pub fn wake(&mut self, now: Moment) -> Vec<Effect> {
        let may_end = self.role == Party::Coordinator && self.outcome().is_none();
        if may_end && self.until <= now {
            return self.end(now, Why::Late);
        }
        if self.repeat_at.is_none_or(|at| now < at) {
            return vec![];
        }
        self.repeats += 1;
        let goes_on = self.repeats < self.limits.repeats_max;
        self.repeat_at = goes_on.then_some(now + self.limits.repeat);
        self.again()
    }
}
