//! The negotiations of one running job: his negotiation manager
//! (Ghafoor 2007, §4.2.5 and §4.3.1), between the scheduler and the job.
//!
//! ```text
//!  Decision::{Grow, Shrink, Offer} ──► Negotiations ──► what the job is told
//!  Fact::{Asked, Answered}         ◄──              ◄── what it says
//!                                    └──► Begin, Enforce: an agreement is carried out
//! ```
//!
//! The promise: whatever the scheduler has set aside or asked for is answered
//! once, in the end; a job has one negotiation at a time; a mandatory shrink is
//! kept, given, or enforced. "In the case of shrinkage, the execution involves
//! receiving the list of processors released": a job that has agreed to give
//! some is waited for, not for ever.
//!
//! Who opens: the coordinator by frames to the rank that negotiates for its
//! program, repeated until they are answered; a job by its ranks' questions,
//! which are not lost. A rank's `spawn` is such a question. Knows nothing of
//! workstations, queues and policies.

mod execution;
mod open;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_program_core::address::{Negotiation, Rank, Request};
use gleaner_program_core::endpoint::OPEN_ASKS_MAX;
use gleaner_program_core::negotiation::talk::{self, Choice, May, Talk};
use gleaner_program_core::negotiation::{
    Change, Item, Obligation, Outcome, Party, Price, Resource, Said, Statement, Status, Template,
    Terms, Why, said_by,
};
use gleaner_program_core::wire::{Answer, Ask};
use serde::{Deserialize, Serialize};

use execution::Execution;
use open::{
    Open, Pending, Way, answer, has_no_other, last_word, limits, ours, over, refusal, sends,
};

/// How long a job has to answer: it hears at its next call, and may compute for
/// long. Where processors are needed at once it has less. Guesses, not yet
/// measured at a site.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN_MANDATORY: Duration = Duration::from_secs(10);

/// A program redistributes its data before it lets ranks go. A guess.
const RELEASE_WITHIN: Duration = Duration::from_secs(60);

/// What is lost is said again after that long: an agent is connected again
/// within a lease. So often, if it is the end of a negotiation.
const REPEAT: Duration = Duration::from_secs(5);
const REPEATS_MAX: u32 = 24;

/// The job's offers that wait while another negotiation goes on.
const WAITING_MAX: usize = OPEN_ASKS_MAX;

/// What one processor and hour costs a job that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// It is offered for this.
    pub asked: Price,
    /// And not given for less.
    pub least: Price,
}

/// When something is said, and what processors cost then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Moment,
    /// No two negotiations of a job are opened at the same of these, over
    /// restarts of the coordinator too.
    pub(crate) wall_ns: u64,
    pub(crate) prices: Option<Prices>,
}

/// What a negotiation happens in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) clock: Clock,
    /// The next rank to begin, how many there can be more, and how many have
    /// not ended.
    pub(crate) next: Rank,
    pub(crate) room: u32,
    pub(crate) size: u32,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Tell {
        rank: Rank,
        said: Said,
    },
    Answer {
        rank: Rank,
        request: Request,
        answer: Answer,
    },
    /// The job asks the scheduler for so many more; 0: not any longer.
    Asked {
        more: u32,
        is_answer: bool,
    },
    /// So many ranks begin, as agreed with this one.
    Begin {
        by: Rank,
        request: Request,
        count: u32,
    },
    /// What has come of what the scheduler had set aside or asked for.
    Answered {
        by: u32,
    },
    /// So many processors are to be taken from the job; answered by
    /// [`Negotiations::enforced`].
    Enforce {
        by: u32,
    },
    Note(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Negotiations {
    newest: u64,
    open: Option<Open>,
    /// The one before, whose end the job may not have heard.
    last: Option<Open>,
    execution: Execution,
    waiting: VecDeque<(Rank, Request, Ask)>,
}

impl Negotiations {
    // ── what the scheduler decides ─────────────────────────────────────────

    /// So many processors are set aside for the job: an offer to this rank, or
    /// what it has asked for.
    pub(crate) fn grow(
        &mut self,
        at: Setting,
        with: Option<Rank>,
        by: u32,
        obligation: Obligation,
        out: &mut Vec<Effect>,
    ) {
        if self.is_asked_for() {
            return self.grant(at, by, out);
        }
        let by = by.min(at.room);
        let (Some(with), None, 1..) = (with, &self.open, by) else {
            return out.push(Effect::Answered { by: 0 });
        };
        self.open(at, with, (Change::Grow { by }, obligation), Pending::Grow(by), out);
    }

    /// The job is to give so many processors. What else goes on is ended if it
    /// must.
    pub(crate) fn shrink(
        &mut self,
        at: Setting,
        with: Option<Rank>,
        by: u32,
        obligation: Obligation,
        out: &mut Vec<Effect>,
    ) {
        let must = obligation == Obligation::Mandatory;
        if must {
            // What waits goes on waiting.
            let waiting = std::mem::take(&mut self.waiting);
            self.say(at, Choice::Reject(Why::Overtaken), out);
            self.waiting = waiting;
        }
        let is_free = self.open.is_none() && self.execution.is_free();
        match with {
            Some(with) if is_free => {
                self.open(at, with, (Change::Shrink { by }, obligation), Pending::Shrink(by), out);
            }
            Some(_) | None if must => self.execution.enforce(by, out),
            Some(_) | None => out.push(Effect::Answered { by: 0 }),
        }
        if self.open.is_none() {
            self.next(at, out);
        }
    }

    /// So many of those that the job has asked for could be had, if it still
    /// wants them then.
    pub(crate) fn offer(&mut self, at: Setting, up_to: u32, out: &mut Vec<Effect>) {
        if !self.is_asked_for() {
            return;
        }
        let choice = self.choice(at, up_to.min(at.room));
        // All that it has asked for could be had: it is being seen to.
        if !matches!(choice, Choice::Accept(_)) {
            self.set_pending(Pending::Nothing);
            self.say(at, choice, out);
        }
    }

    fn is_asked_for(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.pending == Pending::Wish)
    }

    /// The scheduler has set aside what the job had asked for, or some of it.
    fn grant(&mut self, at: Setting, by: u32, out: &mut Vec<Effect>) {
        let by = by.min(at.room);
        let choice = self.choice(at, by);
        self.set_pending(Pending::Grow(by));
        self.say(at, choice, out);
    }

    /// What to say to a job that asks for more, if so many can be had.
    fn choice(&self, at: Setting, available: u32) -> Choice {
        let Some(open) = &self.open else { return Choice::Reject(Why::Over) };
        let table = open.talk.table();
        let Some(Change::Grow { by }) = table.change() else {
            return Choice::Reject(Why::NotNegotiable);
        };
        let given = by.min(available);
        if given == 0 {
            return Choice::Reject(Why::TooFew { available });
        }
        let proposal = ours(table, Change::Grow { by: given }, at.clock.prices);
        if proposal.status() == Status::Accepted && has_no_other(table) {
            return Choice::Accept(Some(at.next));
        }
        if open.talk.may() != Some(May::YesOrNo) {
            return Choice::Counter(proposal);
        }
        let is_short = given < by;
        Choice::Reject(if is_short { Why::TooFew { available } } else { Why::Price })
    }

    fn open(
        &mut self,
        at: Setting,
        with: Rank,
        (change, obligation): (Change, Obligation),
        pending: Pending,
        out: &mut Vec<Effect>,
    ) {
        let is_mandatory = obligation == Obligation::Mandatory;
        let within = if is_mandatory { ANSWER_WITHIN_MANDATORY } else { ANSWER_WITHIN };
        let price = at.clock.prices.filter(|_| matches!(change, Change::Grow { .. }));
        let terms = Terms { obligation, price: price.map(|prices| prices.asked) };
        let template = Template::one(within, Item::open(Resource::Processors, change, terms));
        self.newest = at.clock.wall_ns.max(self.newest + 1);
        let number = (Party::Coordinator, Negotiation(self.newest));
        let (talk, said) = Talk::open(at.clock.now, number, limits(REPEATS_MAX), (template, false));
        let open = Open { talk, with, way: Way::Frames, pending };
        out.push(open.carry(said));
        self.open = Some(open);
    }

    // ── what the job says ──────────────────────────────────────────────────

    /// The rank says something in a negotiation that the coordinator has
    /// opened.
    pub(crate) fn heard(&mut self, at: Setting, rank: Rank, said: &Said, out: &mut Vec<Effect>) {
        if said.opener != Party::Coordinator {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.is(rank, said)) {
            return self.hear(at, said, out);
        }
        if let Some(last) = self.last.as_mut().filter(|last| last.is(rank, said)) {
            let again = last.talk.hear(at.clock.now, said);
            out.extend(sends(last, again));
        } else if said.statement != Statement::Noted {
            // It is of before a restart: the job is not to wait for its end.
            out.push(Effect::Tell { rank, said: over(said, Why::Over) });
        }
    }

    /// The rank asks in a negotiation that it has opened, or opens one.
    pub(crate) fn asked(
        &mut self,
        at: Setting,
        rank: Rank,
        (request, ask): (Request, Ask),
        out: &mut Vec<Effect>,
    ) {
        let Some(said) = said_by(request, &ask) else { return };
        if said.opener != Party::Job {
            return out.extend(refusal(rank, request, &ask, Why::Nonsense));
        }
        let of = |open: &&mut Open| open.is(rank, &said);
        if let Some(open) = self.open.as_mut().filter(of) {
            return match &mut open.way {
                Way::Questions { request: before, ask: of } if request > *before => {
                    (*before, *of) = (request, ask);
                    self.hear(at, &said, out);
                }
                // Repeated: what was answered may be lost.
                Way::Questions { .. } | Way::Frames => {
                    let newest = open.talk.newest().filter(|_| open.talk.may().is_none());
                    out.extend(newest.map(|newest| answer(rank, request, &ask, newest.clone())));
                }
            };
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.is(rank, &said)) {
            // It has ended while this question was on its way, or after its answer was.
            let newest = last.talk.newest();
            return out.extend(newest.map(|newest| answer(rank, request, &ask, newest.clone())));
        }
        if said.round != 0 {
            return out.extend(refusal(rank, request, &ask, Why::Over));
        }
        let is_known = self.waiting.iter().any(|(by, of, _)| (*by, *of) == (rank, request));
        if !is_known {
            self.waiting.push_back((rank, request, ask));
            self.next(at, out);
        }
    }

    /// Takes up what the job wants next. What the coordinator has offered
    /// meanwhile and need not be is overtaken by it.
    fn next(&mut self, at: Setting, out: &mut Vec<Effect>) {
        let is_offer = self.open.as_ref().is_some_and(|open| {
            matches!(open.pending, Pending::Grow(_) | Pending::Shrink(_))
                && open.talk.opener() == Party::Coordinator
                && !open.talk.table().is_mandatory()
        });
        if is_offer && !self.waiting.is_empty() {
            // And what waits is taken up when that is over.
            return self.say(at, Choice::Reject(Why::Overtaken), out);
        }
        if self.open.is_some() {
            while self.waiting.len() > WAITING_MAX {
                if let Some((rank, request, ask)) = self.waiting.pop_back() {
                    out.extend(refusal(rank, request, &ask, Why::Busy));
                }
            }
            return;
        }
        if let Some((rank, request, ask)) = self.waiting.pop_front() {
            self.take_up(at, rank, (request, ask), out);
        }
    }

    fn take_up(
        &mut self,
        at: Setting,
        rank: Rank,
        (request, ask): (Request, Ask),
        out: &mut Vec<Effect>,
    ) {
        let Some(said) = said_by(request, &ask) else { return };
        let (talk, _) = match Talk::answer(at.clock.now, Party::Coordinator, limits(0), &said) {
            Ok(begun) => begun,
            Err(nonsense) => {
                out.push(Effect::Note(format!("{rank} asks for nonsense: {nonsense}")));
                out.extend(refusal(rank, request, &ask, Why::Nonsense));
                return self.next(at, out);
            }
        };
        let way = Way::Questions { request, ask };
        self.open = Some(Open { talk, with: rank, way, pending: Pending::Nothing });
        self.decide(at, out);
    }

    /// The rank has ended: it says nothing more, and its processor is free. Does
    /// that processor count as one that it was asked for?
    pub(crate) fn ended(&mut self, at: Setting, rank: Rank, out: &mut Vec<Effect>) -> bool {
        self.waiting.retain(|(by, ..)| *by != rank);
        self.last.take_if(|last| last.with == rank);
        let counts = self.execution.released(out);
        if !counts {
            self.gave_unasked(at, out);
        }
        if self.open.as_ref().is_some_and(|open| open.with == rank) {
            self.say(at, Choice::Reject(Why::Gone), out);
        }
        counts
    }

    /// A processor is free that was being negotiated about: the scheduler
    /// hears of it as it is, and waits for one fewer.
    fn gave_unasked(&mut self, at: Setting, out: &mut Vec<Effect>) {
        let Some(Pending::Shrink(asked)) = self.open.as_ref().map(|open| open.pending) else {
            return;
        };
        if asked > 1 {
            return self.set_pending(Pending::Shrink(asked - 1));
        }
        self.set_pending(Pending::Nothing);
        self.say(at, Choice::Reject(Why::Overtaken), out);
    }

    // ── what follows ───────────────────────────────────────────────────────

    fn hear(&mut self, at: Setting, said: &Said, out: &mut Vec<Effect>) {
        let Some(open) = &mut self.open else { return };
        let effects = open.talk.hear(at.clock.now, said);
        self.carry_out(at, effects, out);
    }

    fn say(&mut self, at: Setting, choice: Choice, out: &mut Vec<Effect>) {
        let Some(open) = &mut self.open else { return };
        if let (Choice::Accept(_), Some(Change::Grow { by: count })) =
            (&choice, open.talk.table().change())
        {
            // They are there before anybody hears of them.
            out.push(Effect::Begin { by: open.with, request: open.request(), count });
        }
        let effects = open.talk.say(at.clock.now, choice);
        self.carry_out(at, effects, out);
    }

    fn carry_out(&mut self, at: Setting, effects: Vec<talk::Effect>, out: &mut Vec<Effect>) {
        for effect in effects {
            match effect {
                talk::Effect::Send(said) => {
                    out.extend(self.open.as_ref().map(|open| open.carry(said)));
                }
                talk::Effect::Decide(_) => self.decide(at, out),
                talk::Effect::Heard(nonsense) => {
                    let rank = self.open.as_ref().map_or(Rank(0), |open| open.with);
                    out.push(Effect::Note(format!("{rank} negotiates nonsense: {nonsense}")));
                }
                talk::Effect::Over(outcome) => self.is_over(at, &outcome, out),
            }
        }
    }

    /// It is our turn.
    fn decide(&mut self, at: Setting, out: &mut Vec<Effect>) {
        let Some(open) = &self.open else { return };
        let table = open.talk.table();
        let is_job = open.talk.opener() == Party::Job;
        match (table.change(), open.pending) {
            (None, _) => self.say(at, Choice::Reject(Why::NotNegotiable), out),
            (Some(Change::Grow { by }), Pending::Grow(aside)) if !is_job || by <= aside => {
                let choice = self.choice(at, aside.min(at.room));
                self.say(at, last_word(choice), out);
            }
            (Some(Change::Grow { by }), pending) => {
                if let Pending::Grow(_) = pending {
                    // It wants more than was set aside.
                    out.push(Effect::Answered { by: 0 });
                }
                let is_answer =
                    open.talk.may() == Some(May::YesOrNo) && open.talk.newest().is_some();
                self.set_pending(Pending::Wish);
                out.push(Effect::Asked { more: by, is_answer });
            }
            (Some(Change::Shrink { by }), pending) => {
                let asked = if let Pending::Shrink(asked) = pending { asked } else { 1 };
                let choice = self.shrink_choice(at, by, asked);
                self.say(at, choice, out);
            }
        }
    }

    /// What to say to a job that gives so many. One rank stays: a job that gives
    /// all that it has ends.
    fn shrink_choice(&self, at: Setting, by: u32, asked: u32) -> Choice {
        let Some(open) = &self.open else { return Choice::Reject(Why::Over) };
        let (table, most) = (open.talk.table(), at.size.saturating_sub(1));
        let is_forced = table.is_mandatory() && open.talk.opener() == Party::Coordinator;
        let asked = if is_forced { asked } else { 0 };
        let wanted = by.max(asked).min(most.max(asked));
        if wanted == 0 {
            return Choice::Reject(Why::TooFew { available: 0 });
        }
        let proposal = ours(table, Change::Shrink { by: wanted }, None);
        if proposal.status() == Status::Accepted && has_no_other(table) {
            Choice::Accept(None)
        } else if open.talk.may() == Some(May::YesOrNo) {
            Choice::Reject(Why::TooFew { available: most })
        } else {
            Choice::Final(proposal)
        }
    }

    fn set_pending(&mut self, pending: Pending) {
        if let Some(open) = &mut self.open {
            open.pending = pending;
        }
    }

    fn is_over(&mut self, at: Setting, outcome: &Outcome, out: &mut Vec<Effect>) {
        let Some(open) = self.open.take() else { return };
        match (open.pending, outcome.change()) {
            (Pending::Grow(_), Some(Change::Grow { by })) => out.push(Effect::Answered { by }),
            (Pending::Shrink(by), Some(_)) if matches!(outcome, Outcome::Enforced(_)) => {
                out.push(Effect::Note(format!("{by} processors are taken from it")));
                self.execution.enforce(by, out);
            }
            (Pending::Shrink(_), Some(Change::Shrink { by })) => {
                let is_mandatory = open.talk.table().is_mandatory();
                self.execution.promised(at.clock.now + RELEASE_WITHIN, by, Some(is_mandatory));
            }
            (Pending::Grow(_) | Pending::Shrink(_), _) => out.push(Effect::Answered { by: 0 }),
            (Pending::Wish, None) => out.push(Effect::Asked { more: 0, is_answer: false }),
            (Pending::Nothing, Some(Change::Shrink { by })) => {
                self.execution.promised(at.clock.now + RELEASE_WITHIN, by, None);
            }
            (Pending::Wish | Pending::Nothing, _) => {}
        }
        self.last = Some(open);
        self.next(at, out);
    }

    /// So many processors have been taken from the job.
    pub(crate) fn enforced(&mut self, by: u32, out: &mut Vec<Effect>) {
        self.execution.enforced(by, out);
    }

    /// All that is under way comes to nothing: the program begins again.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Effect>) {
        let Self { open, execution, .. } = std::mem::take(self);
        match open.map(|open| open.pending) {
            Some(Pending::Grow(_) | Pending::Shrink(_)) => out.push(Effect::Answered { by: 0 }),
            Some(Pending::Wish) => out.push(Effect::Asked { more: 0, is_answer: false }),
            Some(Pending::Nothing) | None => execution.abandon(out),
        }
    }

    /// What a rank may have missed that is connected again.
    pub(crate) fn missed_by(&self, rank: Rank) -> Option<Said> {
        let of = |open: &&Open| open.with == rank && matches!(open.way, Way::Frames);
        let open = self.open.as_ref().filter(of);
        let last = || self.last.as_ref().filter(of).filter(|last| !last.talk.is_done());
        open.or_else(last).and_then(|open| open.talk.newest().cloned())
    }

    /// When `wake` is due: ask again after every call.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let talks = [&self.open, &self.last].into_iter().flatten();
        let talks = talks.filter_map(|open| open.talk.deadline()).min();
        [talks, self.execution.deadline()].into_iter().flatten().min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    pub(crate) fn wake(&mut self, at: Setting, out: &mut Vec<Effect>) {
        if let Some(last) = &mut self.last {
            let again = last.talk.wake(at.clock.now);
            out.extend(sends(last, again));
        }
        self.execution.wake(at.clock.now, out);
        let Some(open) = &mut self.open else { return };
        let is_due = open.talk.deadline().is_some_and(|due| due <= at.clock.now);
        if is_due && open.pending == Pending::Wish {
            // The scheduler has not said so much as "no": nothing can be had.
            return self.say(at, Choice::Reject(Why::TooFew { available: 0 }), out);
        }
        let effects = open.talk.wake(at.clock.now);
        self.carry_out(at, effects, out);
    }
}
