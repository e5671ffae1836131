//! Ghafoor's examples by hand, and every path of two sides that a network and
//! a hostile job can make.

use std::collections::HashSet;

use gleaner_common::time::Moment;

use super::talk::{Choice, Effect, Limits, May, Talk};
use super::*;

const WITHIN: Duration = Duration::from_secs(3);
const LIMITS: Limits =
    Limits { within_max: WITHIN, repeat: Duration::from_secs(2), repeats_max: 2, rounds_max: 3 };

const GROW: Change = Change::Grow { by: 3 };
const SHRINK: Change = Change::Shrink { by: 3 };
use Obligation::{Mandatory, Voluntary};

fn processors(change: Change, obligation: Obligation) -> Template {
    Template::processors(WITHIN, change, obligation)
}

/// Two sides with nothing lost between them.
struct Pair {
    coordinator: Talk,
    job: Talk,
}

impl Pair {
    fn coordinator_offers(template: Template) -> Self {
        let number = (Party::Coordinator, Negotiation(1));
        let (coordinator, said) = Talk::open(Moment::ZERO, number, LIMITS, (template, false));
        let (job, _) = Talk::answer(Moment::ZERO, Party::Job, LIMITS, &said).unwrap();
        Self { coordinator, job }
    }

    /// Says it, until nothing more is said; what there is to decide then.
    fn say(&mut self, by: Party, choice: Choice) -> Vec<Effect> {
        let (mut one, mut other) = match by {
            Party::Coordinator => (&mut self.coordinator, &mut self.job),
            Party::Job => (&mut self.job, &mut self.coordinator),
        };
        let (mut made, mut decide) = (one.say(Moment::ZERO, choice), vec![]);
        while !made.is_empty() {
            let said = made.iter().filter_map(|effect| match effect {
                Effect::Send(said) => Some(said),
                Effect::Decide(_) | Effect::Heard(_) | Effect::Over(_) => None,
            });
            let heard = said.flat_map(|said| other.hear(Moment::ZERO, said)).collect();
            decide.extend(made.into_iter().filter(|it| matches!(it, Effect::Decide(_))));
            made = heard;
            std::mem::swap(&mut one, &mut other);
        }
        decide
    }
}

fn with(template: &Template, resource: Resource, change: impl FnOnce(&mut Item)) -> Template {
    let mut template = template.clone();
    change(template.item_mut(resource).unwrap());
    template
}

/// Ghafoor 2007, §4.3.2, the first example: on 8 processors and with powers of
/// two, it is offered 15 and asks for 8.
#[test]
fn a_job_of_powers_of_two_asks_for_eight_of_fifteen() {
    let offered = processors(Change::Grow { by: 15 }, Voluntary);
    let mut pair = Pair::coordinator_offers(offered.clone());
    let eight = with(&offered, Resource::Processors, |item| item.change = item.change.of(8));
    assert_eq!(pair.say(Party::Job, Choice::Counter(eight)), [Effect::Decide(May::Anything)]);
    let first = Some(Rank(8));
    pair.say(Party::Coordinator, Choice::Accept(first));
    let Some(Outcome::Accepted { agreed, first: begins }) = pair.job.outcome() else {
        panic!("{:?}", pair.job)
    };
    assert_eq!((agreed.change(), *begins), (Some(Change::Grow { by: 8 }), first));
    assert_eq!(pair.coordinator.outcome(), pair.job.outcome());
}

/// The second: the price is too high, a lower one is the last word, and taken.
#[test]
fn a_price_is_come_down_to() {
    let mut offered = processors(GROW, Voluntary);
    offered.items[0].terms.price = Some(Price(900));
    let mut pair = Pair::coordinator_offers(offered.clone());
    let at = |price| with(&offered, Resource::Processors, |it| it.terms.price = Some(Price(price)));
    assert_eq!(pair.say(Party::Job, Choice::Counter(at(500))), [Effect::Decide(May::Anything)]);
    let said = pair.say(Party::Coordinator, Choice::Final(at(700)));
    assert_eq!(said, [Effect::Decide(May::YesOrNo)]);
    assert_eq!(pair.say(Party::Job, Choice::Accept(None)), [Effect::Decide(May::YesOrNo)]);
    pair.say(Party::Coordinator, Choice::Accept(Some(Rank(4))));
    let Some(Outcome::Accepted { agreed, .. }) = pair.job.outcome() else { panic!("{pair:?}") };
    assert_eq!(agreed.items[0].terms.price, Some(Price(700)));
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} and {:?}", self.coordinator, self.job)
    }
}

/// "Each resource request has its own terms for the negotiation and its own
/// status": the processors are taken, the memory is not.
#[test]
fn resources_are_accepted_and_rejected_one_by_one() {
    let mut offered = processors(GROW, Voluntary);
    let memory = Change::Grow { by: 4_096 };
    offered.items.push(Item::open(Resource::MemoryMib, memory, Terms::free(Voluntary)));
    assert_eq!(offered.status(), Status::Open);
    let mut pair = Pair::coordinator_offers(offered.clone());
    let answer = with(&offered, Resource::MemoryMib, |item| item.status = Status::Rejected);
    let answer = answer.all(Status::Accepted);
    // Nothing in it is open: only yes or no is left.
    assert_eq!(pair.say(Party::Job, Choice::Counter(answer)), [Effect::Decide(May::YesOrNo)]);
    pair.say(Party::Coordinator, Choice::Accept(Some(Rank(4))));
    let Some(Outcome::Accepted { agreed, .. }) = pair.job.outcome() else { panic!("{pair:?}") };
    assert_eq!(agreed.item(Resource::MemoryMib).unwrap().status, Status::Rejected);
    assert_eq!(agreed.change(), Some(GROW));
}

#[test]
fn a_counter_offer_to_the_last_word_is_a_no() {
    let mut pair = Pair::coordinator_offers(processors(GROW, Voluntary));
    let two = processors(Change::Grow { by: 2 }, Voluntary);
    pair.say(Party::Job, Choice::Final(two));
    let one = processors(Change::Grow { by: 1 }, Voluntary);
    pair.say(Party::Coordinator, Choice::Counter(one));
    assert_eq!(pair.job.outcome(), Some(&Outcome::Declined(Why::Unwanted)));
}

#[test]
fn a_job_that_declines_a_mandatory_shrink_loses_it_all_the_same() {
    let mut pair = Pair::coordinator_offers(processors(SHRINK, Mandatory));
    pair.say(Party::Job, Choice::Reject(Why::Unwanted));
    let Some(Outcome::Enforced(done)) = pair.job.outcome() else { panic!("{pair:?}") };
    assert_eq!(done.change(), Some(SHRINK));
}

#[test]
fn what_can_be_in_no_template_is_named() {
    let good = processors(GROW, Voluntary);
    let wrong = |change: fn(&mut Template)| {
        let mut template = good.clone();
        change(&mut template);
        template.check().unwrap_err().to_string()
    };
    for (told, found) in [
        ("0 resources", wrong(|it| it.items.clear())),
        ("9 resources", wrong(|it| it.items = vec![it.items[0]; 9])),
        ("Processors twice", wrong(|it| it.items.push(it.items[0]))),
        ("0 of Processors", wrong(|it| it.items[0].change = Change::Grow { by: 0 })),
        ("65537 of Processors", wrong(|it| it.items[0].change = Change::Shrink { by: 65_537 })),
        ("an answer within 0ns", wrong(|it| it.within = Duration::ZERO)),
        ("an answer within 100000s", wrong(|it| it.within = Duration::from_secs(100_000))),
    ] {
        assert!(found.starts_with(told), "{found}");
    }
    let against = |other: Template| other.check_against(&good).unwrap_err();
    assert_eq!(against(processors(SHRINK, Voluntary)), Nonsense::AboutSomethingElse);
    assert_eq!(against(processors(GROW, Mandatory)), Nonsense::AboutSomethingElse);
    let two = processors(Change::Grow { by: 2 }, Voluntary).all(Status::Accepted);
    assert_eq!(against(two), Nonsense::NotAsOffered(Resource::Processors));
}

// ── every path ─────────────────────────────────────────────────────────────

/// Any deadline may pass at any time: what is true then is true of all spans.
const AT_ANY_TIME: Limits =
    Limits { within_max: Duration::ZERO, repeat: Duration::ZERO, repeats_max: 2, rounds_max: 3 };

/// Two sides, and what is on its way between them: any order, lost, twice.
#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    now: Moment,
    coordinator: Option<Talk>,
    job: Option<Talk>,
    to_coordinator: Vec<Said>,
    to_job: Vec<Said>,
    is_hostile: bool,
}

/// No more is on its way at once in one direction: what is more is lost.
const ON_ITS_WAY_MAX: usize = 2;

impl World {
    fn opened(by: Party, template: Template, is_final: bool, is_hostile: bool) -> Self {
        let number = (by, Negotiation(1));
        let (talk, said) = Talk::open(Moment::ZERO, number, AT_ANY_TIME, (template, is_final));
        let (now, to_coordinator, to_job) = (Moment::ZERO, vec![], vec![]);
        let mut world =
            Self { now, coordinator: None, job: None, to_coordinator, to_job, is_hostile };
        match by {
            Party::Coordinator => (world.coordinator, world.to_job) = (Some(talk), vec![said]),
            Party::Job => (world.job, world.to_coordinator) = (Some(talk), vec![said]),
        }
        world
    }

    fn side(&mut self, party: Party) -> (&mut Option<Talk>, &mut Vec<Said>) {
        match party {
            Party::Coordinator => (&mut self.coordinator, &mut self.to_job),
            Party::Job => (&mut self.job, &mut self.to_coordinator),
        }
    }

    fn on_its_way(&mut self, to: Party) -> &mut Vec<Said> {
        self.side(to.other()).1
    }

    fn carry_out(&mut self, party: Party, effects: Vec<Effect>) {
        let before = self.coordinator.as_ref().and_then(|it| it.outcome().cloned());
        for effect in effects {
            match effect {
                Effect::Send(said) => {
                    let (_, way) = self.side(party);
                    if way.len() < ON_ITS_WAY_MAX && !way.contains(&said) {
                        way.push(said);
                    }
                }
                Effect::Over(outcome) => self.ended(party, &outcome),
                Effect::Decide(_) => {}
                Effect::Heard(_) => assert!(self.is_hostile && party == Party::Coordinator),
            }
        }
        let after = self.coordinator.as_ref().and_then(|it| it.outcome().cloned());
        assert!(before.is_none() || before == after, "it ended twice: {before:?}, {after:?}");
    }

    /// What a side ends in is what the coordinator ended in, a job is held to
    /// what it said, and what must be is.
    fn ended(&self, party: Party, outcome: &Outcome) {
        let coordinator = self.coordinator.as_ref().unwrap();
        assert_eq!(coordinator.outcome(), Some(outcome));
        let offered = coordinator.table();
        if offered.is_mandatory() && coordinator.opener() == Party::Coordinator {
            assert!(!matches!(outcome, Outcome::Declined(_)), "{outcome:?}");
        }
        let Outcome::Accepted { agreed, .. } = outcome else { return };
        if party == Party::Job || self.is_hostile {
            return;
        }
        let said = self.job.as_ref().and_then(Talk::newest).unwrap();
        let wanted = if let Statement::Accept { agreed, .. } = &said.statement {
            agreed.clone()
        } else {
            said.statement.proposes().unwrap().0.clone().all(Status::Accepted)
        };
        assert_eq!(agreed.items, wanted.items, "it never said so");
    }

    fn arrive(&mut self, to: Party, said: &Said) {
        let now = self.now;
        let (talk, _) = self.side(to);
        let effects = if let Some(talk) = talk {
            talk.hear(now, said)
        } else {
            *talk = Talk::answer(now, to, AT_ANY_TIME, said).ok().map(|(talk, _)| talk);
            vec![]
        };
        self.carry_out(to, effects);
    }

    fn choices(&self, party: Party) -> Vec<Choice> {
        let talk = if party == Party::Job { &self.job } else { &self.coordinator };
        let Some(talk) = talk else { return vec![] };
        let by = |by: u32| {
            let mut template = talk.table().clone();
            template.items[0].change = template.items[0].change.of(by);
            template
        };
        match (talk.may(), party) {
            (Some(_), Party::Job) if self.is_hostile => vec![Choice::Counter(by(4))],
            (Some(_), Party::Job) => vec![
                Choice::Accept(None),
                Choice::Reject(Why::Unwanted),
                Choice::Counter(by(4)),
                Choice::Final(by(2)),
            ],
            (Some(_), Party::Coordinator) => vec![
                Choice::Accept(Some(Rank(9))),
                Choice::Reject(Why::Price),
                Choice::Counter(by(1)),
            ],
            (None, Party::Coordinator) if talk.outcome().is_none() => {
                vec![Choice::Reject(Why::Overtaken)]
            }
            (None, _) => vec![],
        }
    }

    /// What a job could say that makes no sense, or comes out of turn.
    fn nonsense(&self) -> Vec<Said> {
        let Some(talk) = self.coordinator.as_ref().filter(|_| self.is_hostile) else {
            return vec![];
        };
        let (opener, negotiation) = (talk.opener(), talk.number());
        let agreed = processors(Change::Grow { by: 65_000 }, Voluntary).all(Status::Accepted);
        let statements = [
            Statement::Accept { agreed: agreed.clone(), first: Some(Rank(0)) },
            Statement::Enforce(agreed.clone()),
            Statement::CounterOffer(Template { items: vec![], within: WITHIN }),
            Statement::Offer(talk.table().clone()),
            Statement::Noted,
        ];
        let said = |statement: &Statement, round| Said {
            opener,
            negotiation,
            round,
            statement: statement.clone(),
        };
        let rounds = [1, u32::MAX];
        statements.iter().flat_map(|it| rounds.map(|round| said(it, round))).collect()
    }

    /// All that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut next = vec![];
        for party in [Party::Coordinator, Party::Job] {
            for at in 0..self.clone().on_its_way(party).len() {
                // Arrives, is lost, arrives and comes again.
                for (arrives, is_gone) in [(true, true), (false, true), (true, false)] {
                    let mut world = self.clone();
                    let way = world.on_its_way(party);
                    let said = way[at].clone();
                    if is_gone {
                        way.remove(at);
                    }
                    if arrives {
                        world.arrive(party, &said);
                    }
                    next.push(world);
                }
            }
            for choice in self.choices(party) {
                let mut world = self.clone();
                let now = world.now;
                let (talk, _) = world.side(party);
                let effects = talk.as_mut().unwrap().say(now, choice);
                world.carry_out(party, effects);
                next.push(world);
            }
            next.extend(self.time_passes(party));
        }
        for said in self.nonsense() {
            let mut world = self.clone();
            world.arrive(Party::Coordinator, &said);
            next.push(world);
        }
        next
    }

    fn time_passes(&self, party: Party) -> Option<Self> {
        let mut world = self.clone();
        let (talk, _) = world.side(party);
        let due = talk.as_ref()?.deadline()?;
        let now = world.now.max(due);
        world.now = now;
        let (talk, _) = world.side(party);
        let effects = talk.as_mut()?.wake(now);
        world.carry_out(party, effects);
        Some(world)
    }
}

/// Walks all of it; how many situations there are.
#[track_caller]
fn walk(first: World) -> usize {
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
    while let Some(world) = open.pop() {
        let next = world.next();
        assert!(seen.len() < 5_000_000, "too many to walk");
        if next.is_empty() {
            let coordinator = world.coordinator.as_ref();
            let is_over = coordinator.is_none_or(|it| it.outcome().is_some());
            assert!(is_over, "nothing more can happen, and it is not over");
        }
        for world in next {
            if seen.insert(world.clone()) {
                open.push(world);
            }
        }
    }
    seen.len()
}

#[test]
fn every_path_of_what_the_coordinator_opens_ends_alike_on_both_sides() {
    for template in
        [processors(GROW, Voluntary), processors(SHRINK, Voluntary), processors(SHRINK, Mandatory)]
    {
        for is_final in [false, true] {
            let world = World::opened(Party::Coordinator, template.clone(), is_final, false);
            assert!(walk(world) > 100);
        }
    }
}

#[test]
fn every_path_of_what_a_job_opens_ends_alike_on_both_sides() {
    for template in [processors(GROW, Voluntary), processors(SHRINK, Voluntary)] {
        for is_final in [false, true] {
            assert!(walk(World::opened(Party::Job, template.clone(), is_final, false)) > 100);
        }
    }
}

/// And the coordinator's side is over by its deadline, in what it says there.
#[test]
fn no_nonsense_at_any_point_keeps_a_negotiation_from_its_end() {
    for obligation in [Voluntary, Mandatory] {
        let template = processors(SHRINK, obligation);
        walk(World::opened(Party::Coordinator, template, false, true));
    }
    walk(World::opened(Party::Job, processors(GROW, Voluntary), false, true));
}

#[test]
fn who_never_hears_an_answer_has_said_it_so_often_and_ends_in_time() {
    let number = (Party::Coordinator, Negotiation(1));
    for (obligation, is_enforced) in [(Voluntary, false), (Mandatory, true)] {
        let template = processors(SHRINK, obligation);
        let (mut talk, _) = Talk::open(Moment::ZERO, number, LIMITS, (template, false));
        let mut sent = 0;
        while talk.outcome().is_none() {
            let due = talk.deadline().expect("it never ends");
            assert!(due <= Moment::ZERO + WITHIN);
            let effects = talk.wake(due);
            sent += effects.iter().filter(|it| matches!(it, Effect::Send(_))).count();
        }
        assert_eq!(sent, 2, "once more, and the end");
        assert_eq!(matches!(talk.outcome(), Some(Outcome::Enforced(_))), is_enforced);
        // The end is told so often, too.
        let told = std::iter::from_fn(|| talk.deadline().map(|due| talk.wake(due).len()));
        assert_eq!(told.sum::<usize>(), 2);
        assert!(talk.is_done());
    }
}
