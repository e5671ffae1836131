//! Examples, one rule each, and random jobs and schedulers that never lose a
//! processor between them.

mod with_scheduler;

use gleaner_program_core::negotiation::Nonsense;

use super::*;
use Obligation::{Mandatory, Voluntary};

const WITHIN: Duration = Duration::from_secs(20);
const JOB: Rank = Rank(0);

/// The manager of one job of four ranks, and the job's side.
struct Desk {
    negotiations: Negotiations,
    at: Setting,
    job: Option<Talk>,
    requests: u64,
    /// What was made of the last thing that happened.
    made: Vec<Effect>,
}

impl Desk {
    fn new() -> Self {
        let clock = Clock { now: Moment(1), wall_ns: 1_000, prices: None };
        let at = Setting { clock, next: Rank(4), room: 28, size: 4 };
        let negotiations = Negotiations::default();
        Self { negotiations, at, job: None, requests: 0, made: vec![] }
    }

    fn happen(&mut self, what: impl FnOnce(&mut Negotiations, Setting, &mut Vec<Effect>)) {
        let mut made = vec![];
        what(&mut self.negotiations, self.at, &mut made);
        for effect in &made {
            if let Effect::Begin { count, .. } = effect {
                self.at.next.0 += count;
                self.at.room -= count;
                self.at.size += count;
            }
        }
        self.made = made;
    }

    fn grow(&mut self, by: u32) {
        self.happen(|it, at, out| it.grow(at, Some(JOB), by, Voluntary, out));
    }

    fn shrink(&mut self, by: u32, obligation: Obligation) {
        self.happen(|it, at, out| it.shrink(at, Some(JOB), by, obligation, out));
    }

    /// What the job is told reaches it.
    fn hear(&mut self) {
        for effect in self.made.clone() {
            let Effect::Tell { said, .. } = effect else { continue };
            match &mut self.job {
                Some(talk) if talk.number() == said.negotiation => {
                    let noted = talk.hear(self.at.clock.now, &said);
                    self.reply(noted);
                }
                _ => {
                    let talk = Talk::answer(self.at.clock.now, Party::Job, limits(2), &said);
                    self.job = Some(talk.unwrap().0);
                }
            }
        }
    }

    fn reply(&mut self, effects: Vec<talk::Effect>) {
        for effect in effects {
            if let talk::Effect::Send(said) = effect {
                self.happen(|it, at, out| it.heard(at, JOB, &said, out));
            }
        }
    }

    fn job_says(&mut self, choice: Choice) {
        self.hear();
        let effects = self.job.as_mut().unwrap().say(self.at.clock.now, choice);
        self.reply(effects);
    }

    /// The job answers with another number.
    fn job_wants(&mut self, by: u32) {
        self.hear();
        let mut template = self.job.as_ref().unwrap().table().clone();
        template.items[0].change = template.items[0].change.of(by);
        self.job_says(Choice::Counter(template));
    }

    fn ask(&mut self, ask: Ask) -> Request {
        self.requests += 1;
        let request = Request(self.requests);
        self.happen(|it, at, out| it.asked(at, JOB, (request, ask), out));
        request
    }

    fn opens(&mut self, statement: Statement) -> Request {
        let (opener, negotiation) = (Party::Job, Negotiation(self.requests + 1));
        self.ask(Ask::Negotiate(Said { opener, negotiation, round: 0, statement }))
    }

    fn requests(&mut self, by: u32) -> Request {
        let change = Change::Grow { by };
        self.opens(Statement::Offer(Template::processors(WITHIN, change, Voluntary)))
    }

    /// What the last question was answered.
    fn answer(&self) -> Option<Said> {
        self.made.iter().find_map(|effect| {
            let Effect::Answer { answer: Answer::Negotiated(said), .. } = effect else {
                return None;
            };
            Some(said.clone())
        })
    }

    fn goes_on(&mut self, before: &Said, statement: Statement) {
        let said = Said { round: before.round + 1, statement, ..before.clone() };
        self.ask(Ask::Negotiate(said));
    }

    fn rank_ends(&mut self) {
        self.at.size -= 1;
        self.happen(|it, at, out| {
            it.ended(at, Rank(3), out);
        });
    }

    /// Lets all deadlines pass that are before that, and keeps what was made.
    fn pass(&mut self, span: Duration) {
        let (until, mut made) = (self.at.clock.now + span, vec![]);
        while let Some(due) = self.negotiations.deadline().filter(|due| *due <= until) {
            self.at.clock.now = due.max(self.at.clock.now);
            self.happen(Negotiations::wake);
            made.append(&mut self.made);
        }
        self.at.clock.now = until;
        self.made = made;
    }

    #[track_caller]
    fn check(&self, expected: &[Effect]) {
        for effect in expected {
            assert!(self.made.contains(effect), "no {effect:?}: {:#?}", self.made);
        }
    }

    /// What the scheduler is told.
    fn answered(&self) -> Vec<u32> {
        let by = |effect: &Effect| {
            if let Effect::Answered { by } = effect { Some(*by) } else { None }
        };
        self.made.iter().filter_map(by).collect()
    }
}

fn begin(count: u32) -> Effect {
    Effect::Begin { by: JOB, request: Request(0), count }
}

#[test]
fn a_job_that_takes_less_than_offered_gets_that_and_the_scheduler_hears_of_it() {
    let mut desk = Desk::new();
    desk.grow(15);
    desk.job_wants(8);
    desk.check(&[begin(8), Effect::Answered { by: 8 }]);
    desk.hear();
    let Some(Outcome::Accepted { first, agreed }) = desk.job.unwrap().outcome().cloned() else {
        panic!("not accepted")
    };
    assert_eq!((first, agreed.change()), (Some(Rank(4)), Some(Change::Grow { by: 8 })));
}

#[test]
fn a_job_that_wants_more_than_offered_is_told_the_last_word() {
    let mut desk = Desk::new();
    desk.grow(2);
    desk.job_wants(4);
    assert_eq!(desk.answered(), [0; 0]);
    desk.job_says(Choice::Accept(None));
    desk.check(&[begin(2), Effect::Answered { by: 2 }]);
}

#[test]
fn no_answer_and_nonsense_and_no_come_to_nothing_or_are_enforced() {
    let nonsense = |desk: &mut Desk| {
        desk.hear();
        let talk = desk.job.as_ref().unwrap();
        let agreed = talk.table().clone().all(Status::Accepted);
        let agreed = Template { items: agreed.items.repeat(2), ..agreed };
        let statement = Statement::Accept { agreed, first: None };
        let (opener, negotiation) = (Party::Coordinator, talk.number());
        let said = Said { opener, negotiation, round: 1, statement };
        desk.happen(|it, at, out| it.heard(at, JOB, &said, out));
    };
    let ways: [fn(&mut Desk); 3] = [
        |desk| desk.pass(Duration::from_secs(31)),
        |desk| desk.job_says(Choice::Reject(Why::Unwanted)),
        nonsense,
    ];
    for way in ways {
        let mut desk = Desk::new();
        desk.grow(2);
        way(&mut desk);
        assert_eq!(desk.answered(), [0]);
        let mut desk = Desk::new();
        desk.shrink(2, Voluntary);
        way(&mut desk);
        assert_eq!(desk.answered(), [0]);
        let mut desk = Desk::new();
        desk.shrink(2, Mandatory);
        way(&mut desk);
        desk.check(&[Effect::Enforce { by: 2 }]);
        assert_eq!(desk.answered(), [0; 0], "before it is done");
        desk.happen(|it, _, out| it.enforced(2, out));
        assert_eq!(desk.answered(), [2]);
    }
}

#[test]
fn an_offer_is_repeated_until_it_is_answered_and_its_end_until_it_is_noted() {
    let mut desk = Desk::new();
    desk.grow(2);
    desk.pass(Duration::from_secs(12));
    assert_eq!(desk.made.len(), 2, "{:?}", desk.made);
    desk.job_says(Choice::Reject(Why::Unwanted));
    desk.pass(Duration::from_secs(12));
    assert_eq!(desk.made.len(), 2, "{:?}", desk.made);
    desk.hear();
    desk.pass(Duration::from_secs(1_000));
    assert_eq!(desk.made, []);
}

/// Buisson et al. 2007, §V.C: "the accepted number of processors are waited to
/// be released".
#[test]
fn processors_are_free_when_they_are_released_and_not_when_they_are_promised() {
    let mut desk = Desk::new();
    desk.shrink(2, Voluntary);
    desk.job_says(Choice::Accept(None));
    assert_eq!(desk.answered(), [0; 0]);
    desk.rank_ends();
    assert_eq!(desk.answered(), [0; 0]);
    desk.rank_ends();
    assert_eq!(desk.answered(), [2]);
}

#[test]
fn a_job_may_give_more_than_it_was_asked_for_but_not_its_last() {
    // Ghafoor 2007, §3.1.1.1: six of eight for five.
    let mut desk = Desk::new();
    desk.at.size = 8;
    desk.shrink(5, Mandatory);
    desk.job_wants(6);
    desk.hear();
    let Some(Outcome::Accepted { agreed, .. }) = desk.job.as_ref().unwrap().outcome() else {
        panic!("not accepted")
    };
    assert_eq!(agreed.change(), Some(Change::Shrink { by: 6 }));
    let mut desk = Desk::new();
    desk.shrink(2, Voluntary);
    desk.job_wants(4);
    desk.hear();
    let job = desk.job.unwrap();
    assert_eq!(
        (job.table().change(), job.may()),
        (Some(Change::Shrink { by: 3 }), Some(May::YesOrNo))
    );
}

#[test]
fn who_gives_less_than_must_be_hears_the_last_word_first() {
    let mut desk = Desk::new();
    desk.shrink(3, Mandatory);
    desk.job_wants(1);
    assert_eq!(desk.answered(), [0; 0]);
    desk.job_says(Choice::Reject(Why::Unwanted));
    desk.check(&[Effect::Enforce { by: 3 }]);
}

#[test]
fn yes_and_then_nothing_is_enforced_or_counts_as_what_was_given() {
    for (obligation, told) in
        [(Mandatory, Effect::Enforce { by: 1 }), (Voluntary, Effect::Answered { by: 1 })]
    {
        let mut desk = Desk::new();
        desk.shrink(2, obligation);
        desk.job_says(Choice::Accept(None));
        desk.hear();
        desk.rank_ends();
        desk.pass(RELEASE_WITHIN);
        desk.check(&[told, Effect::Note("it gave 1 of 2 processors in time".to_owned())]);
        desk.happen(|it, _, out| it.enforced(1, out));
        assert_eq!(desk.answered(), if obligation == Mandatory { vec![2] } else { vec![] });
    }
}

#[test]
fn a_job_gets_what_it_asks_for() {
    let mut desk = Desk::new();
    let request = desk.requests(3);
    desk.check(&[Effect::Asked { more: 3, is_answer: false }]);
    assert_eq!(desk.answer(), None);
    desk.grow(3);
    desk.check(&[Effect::Begin { by: JOB, request, count: 3 }, Effect::Answered { by: 3 }]);
    let Some(Statement::Accept { first, .. }) = desk.answer().map(|said| said.statement) else {
        panic!("{:?}", desk.made)
    };
    assert_eq!(first, Some(Rank(4)));
}

/// Ghafoor 2007, §3.1.1.4: it asks for more than is free, and is told what there
/// could be.
#[test]
fn a_job_that_asks_for_too_much_is_offered_what_there_is_and_may_take_it() {
    let mut desk = Desk::new();
    desk.requests(24);
    desk.happen(|it, at, out| it.offer(at, 12, out));
    let counter = desk.answer().unwrap();
    let (template, is_final) = counter.statement.proposes().unwrap();
    assert_eq!((template.change(), is_final), (Some(Change::Grow { by: 12 }), false));
    let agreed = template.clone().all(Status::Accepted);
    desk.goes_on(&counter, Statement::Accept { agreed, first: None });
    desk.check(&[Effect::Asked { more: 12, is_answer: true }]);
    desk.grow(12);
    assert_eq!(desk.answered(), [12]);
    // It declines: nothing was set aside for it.
    let mut desk = Desk::new();
    desk.requests(24);
    desk.happen(|it, at, out| it.offer(at, 12, out));
    let counter = desk.answer().unwrap();
    desk.goes_on(&counter, Statement::Reject(Why::Unwanted));
    assert_eq!(desk.answered(), [0; 0]);
    assert!(matches!(desk.answer().unwrap().statement, Statement::Reject(_)));
}

#[test]
fn a_job_that_takes_what_it_was_offered_too_late_hears_that_it_is_over() {
    let mut desk = Desk::new();
    desk.requests(24);
    desk.happen(|it, at, out| it.offer(at, 12, out));
    let counter = desk.answer().unwrap();
    desk.pass(WITHIN);
    let agreed = counter.statement.proposes().unwrap().0.clone().all(Status::Accepted);
    desk.goes_on(&counter, Statement::Accept { agreed, first: None });
    let request = Request(desk.requests);
    let answered = |effect: &Effect| {
        let Effect::Answer { request: of, answer: Answer::Negotiated(said), .. } = effect else {
            return false;
        };
        *of == request && said.statement == Statement::Reject(Why::Late)
    };
    assert!(desk.made.iter().any(answered), "it waits for an answer: {:?}", desk.made);
}

#[test]
fn a_wish_that_waits_is_taken_up_also_when_what_must_be_is_done_at_once() {
    let mut desk = Desk::new();
    desk.shrink(1, Mandatory);
    let request = desk.requests(3);
    desk.check(&[]);
    // What was asked for before is enforced, and so is this.
    desk.shrink(1, Mandatory);
    desk.check(&[Effect::Enforce { by: 1 }, Effect::Asked { more: 3, is_answer: false }]);
    desk.grow(3);
    desk.check(&[Effect::Begin { by: JOB, request, count: 3 }]);
}

#[test]
fn a_wish_of_which_the_scheduler_says_nothing_is_declined_in_time_and_taken_back() {
    let mut desk = Desk::new();
    desk.requests(3);
    desk.pass(WITHIN);
    desk.check(&[Effect::Asked { more: 0, is_answer: false }]);
    let said = desk.answer().unwrap().statement;
    assert_eq!(said, Statement::Reject(Why::TooFew { available: 0 }));
    // The scheduler's answer comes too late.
    desk.grow(0);
    assert_eq!(desk.answered(), [0]);
}

#[test]
fn a_spawn_is_all_or_none() {
    let mut desk = Desk::new();
    let request = desk.ask(Ask::Spawn { count: 3 });
    desk.happen(|it, at, out| it.offer(at, 2, out));
    let answer = Answer::TooMany { available: 2 };
    desk.check(&[Effect::Answer { rank: JOB, request, answer }]);
    let request = desk.ask(Ask::Spawn { count: 3 });
    desk.grow(3);
    let answer = Answer::Spawned { first: Rank(4), count: 3 };
    desk.check(&[Effect::Answer { rank: JOB, request, answer }]);
    let last = desk.made.iter().position(|it| matches!(it, Effect::Answer { .. }));
    let begin = desk.made.iter().position(|it| matches!(it, Effect::Begin { .. }));
    assert!(begin < last, "they are there before it hears of them");
}

#[test]
fn what_a_job_releases_by_itself_is_nothing_the_scheduler_waits_for() {
    let mut desk = Desk::new();
    let change = Change::Shrink { by: 9 };
    desk.opens(Statement::Offer(Template::processors(WITHIN, change, Voluntary)));
    let counter = desk.answer().unwrap();
    let (template, is_final) = counter.statement.proposes().unwrap();
    assert_eq!((template.change(), is_final), (Some(Change::Shrink { by: 3 }), true));
    let agreed = template.clone().all(Status::Accepted);
    desk.goes_on(&counter, Statement::Accept { agreed, first: None });
    assert!(matches!(desk.answer().unwrap().statement, Statement::Accept { .. }));
    desk.rank_ends();
    assert_eq!(desk.made, []);
    desk.pass(RELEASE_WITHIN);
    desk.check(&[Effect::Note("it gave 1 of 3 processors in time".to_owned())]);
}

#[test]
fn a_jobs_wish_comes_before_what_it_was_offered_and_what_must_be_before_its_wish() {
    let mut desk = Desk::new();
    desk.grow(2);
    desk.requests(3);
    desk.check(&[Effect::Answered { by: 0 }, Effect::Asked { more: 3, is_answer: false }]);
    desk.shrink(1, Mandatory);
    desk.check(&[Effect::Asked { more: 0, is_answer: false }]);
    assert_eq!(desk.answer().unwrap().statement, Statement::Reject(Why::Overtaken));
    // What it wants now waits until that is over.
    desk.requests(2);
    assert_eq!(desk.made, []);
    desk.shrink(1, Voluntary);
    assert_eq!(desk.answered(), [0], "one at a time");
}

#[test]
fn of_all_that_a_job_asks_for_only_processors_can_be_had_while_it_runs() {
    let mut desk = Desk::new();
    let mut template = Template::processors(WITHIN, Change::Grow { by: 2 }, Voluntary);
    let memory = Change::Grow { by: 4_096 };
    template.items.push(Item::open(Resource::MemoryMib, memory, Terms::free(Voluntary)));
    desk.opens(Statement::Offer(template));
    desk.grow(2);
    let counter = desk.answer().unwrap();
    let (template, _) = counter.statement.proposes().unwrap();
    let statuses: Vec<Status> = template.items.iter().map(|item| item.status).collect();
    assert_eq!(statuses, [Status::Accepted, Status::Rejected]);
    let agreed = template.clone();
    desk.goes_on(&counter, Statement::Accept { agreed, first: None });
    assert_eq!(desk.answered(), [2]);
    let mut desk = Desk::new();
    desk.opens(Statement::FinalOffer(Template::one(
        WITHIN,
        Item::open(Resource::Gpus, Change::Grow { by: 1 }, Terms::free(Voluntary)),
    )));
    assert_eq!(desk.answer().unwrap().statement, Statement::Reject(Why::NotNegotiable));
}

#[test]
fn a_price_is_asked_and_none_below_the_least_is_taken() {
    let prices = Prices { asked: Price(900), least: Price(700) };
    for (offers, takes, is_final) in [(800, 800, false), (500, 700, true)] {
        let mut desk = Desk::new();
        desk.at.clock.prices = Some(prices);
        desk.grow(2);
        desk.hear();
        let mut template = desk.job.as_ref().unwrap().table().clone();
        assert_eq!(template.items[0].terms.price, Some(Price(900)));
        template.items[0].terms.price = Some(Price(offers));
        desk.job_says(Choice::Counter(template));
        if is_final {
            assert_eq!(desk.answered(), [0; 0]);
            desk.job_says(Choice::Accept(None));
        }
        assert_eq!(desk.answered(), [2]);
        desk.hear();
        let Some(Outcome::Accepted { agreed, .. }) = desk.job.unwrap().outcome().cloned() else {
            panic!("not accepted")
        };
        assert_eq!(agreed.items[0].terms.price, Some(Price(takes)));
    }
}

#[test]
fn who_speaks_for_the_job_ends_and_what_was_under_way_ends_with_it() {
    // Its own processor is one of those that were asked for.
    for (obligation, told) in
        [(Voluntary, Effect::Answered { by: 0 }), (Mandatory, Effect::Enforce { by: 1 })]
    {
        let mut desk = Desk::new();
        desk.shrink(2, obligation);
        desk.happen(|it, at, out| {
            it.ended(at, JOB, out);
        });
        desk.check(&[told]);
    }
}

#[test]
fn a_question_that_comes_again_is_answered_again_and_the_same() {
    let mut desk = Desk::new();
    let request = desk.requests(3);
    let again = |desk: &mut Desk| {
        let (opener, negotiation) = (Party::Job, Negotiation(request.0));
        let template = Template::processors(WITHIN, Change::Grow { by: 3 }, Voluntary);
        let said = Said { opener, negotiation, round: 0, statement: Statement::Offer(template) };
        desk.happen(|it, at, out| it.asked(at, JOB, (request, Ask::Negotiate(said)), out));
    };
    again(&mut desk);
    assert_eq!(desk.made, [], "it is not asked for twice");
    desk.grow(3);
    let answer = desk.answer();
    again(&mut desk);
    assert_eq!((desk.answer(), desk.made.len()), (answer, 1));
}

#[test]
fn two_ranks_that_spawn_at_once_are_heard_one_after_the_other() {
    let mut desk = Desk::new();
    let first = desk.ask(Ask::Spawn { count: 1 });
    let other = Rank(1);
    desk.happen(|it, at, out| it.asked(at, other, (Request(1), Ask::Spawn { count: 2 }), out));
    assert_eq!(desk.made, []);
    desk.grow(1);
    let answer = Answer::Spawned { first: Rank(4), count: 1 };
    desk.check(&[
        Effect::Answer { rank: JOB, request: first, answer },
        Effect::Asked { more: 2, is_answer: false },
    ]);
}

#[test]
fn what_a_job_says_that_makes_no_sense_is_refused_and_noted() {
    let mut desk = Desk::new();
    let request = desk.opens(Statement::Noted);
    let refused = desk.answer().unwrap();
    assert_eq!(refused.statement, Statement::Reject(Why::Nonsense));
    let told = format!("{JOB} asks for nonsense: {}", Nonsense::OutOfTurn);
    desk.check(&[Effect::Note(told)]);
    assert_eq!(request, Request(1));
    // Of a negotiation that nobody knows, in either way.
    let said = Said { negotiation: Negotiation(77), round: 3, ..refused };
    desk.ask(Ask::Negotiate(said.clone()));
    assert_eq!(desk.answer().unwrap().statement, Statement::Reject(Why::Over));
    let said = Said { opener: Party::Coordinator, ..said };
    desk.happen(|it, at, out| it.heard(at, JOB, &said, out));
    assert!(matches!(&desk.made[..], [Effect::Tell { said, .. }] if said.round == 4));
}

#[test]
fn a_program_that_begins_again_leaves_nothing_unanswered() {
    type Way = fn(&mut Desk);
    let ways: [(Way, Effect); 4] = [
        (|desk| desk.grow(2), Effect::Answered { by: 0 }),
        (|desk| desk.shrink(2, Mandatory), Effect::Answered { by: 0 }),
        (|desk| _ = desk.requests(2), Effect::Asked { more: 0, is_answer: false }),
        (
            |desk| {
                desk.shrink(2, Voluntary);
                desk.job_says(Choice::Accept(None));
                desk.rank_ends();
            },
            Effect::Answered { by: 1 },
        ),
    ];
    for (way, told) in ways {
        let mut desk = Desk::new();
        way(&mut desk);
        desk.happen(|it, _, out| it.abandon(out));
        assert_eq!(desk.made, [told]);
        assert_eq!(desk.negotiations.deadline(), None);
    }
}
