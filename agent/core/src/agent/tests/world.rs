//! Every order of everything, against a model of the shell, the keepers and the
//! coordinator.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_common::wire::Finished;
use proptest::prelude::*;

use super::*;
use crate::guest::GuestAt;

/// A lease, as an agent counts it.
const COUNTED: Duration = Duration::from_millis(9_800);

/// The shell, the keepers and the coordinator in one: carries effects out,
/// and checks every promise after every step.
struct World {
    agent: Agent,
    now: Moment,
    linked: bool,
    started: BTreeMap<Fence, Run>,
    accepted: BTreeSet<Fence>,
    ended: BTreeSet<Fence>,
    unwanted: BTreeSet<Fence>,
    reactions: BTreeMap<Fence, Reaction>,
    /// What happens now may undo what is on its way.
    may_undo: bool,
    asked: Vec<u64>,
    lease_until: Option<Moment>,
    greeted: Moment,
    sent: BTreeMap<u64, Moment>,
    newest: u32,
    /// Two for guests, and as many for those who come while others are being cleared away.
    places: [Container; 4],
    /// What the shell answers at once.
    answers: VecDeque<Event>,
}

/// A place as the kernel has it.
#[derive(Clone, Copy, Debug, Default)]
struct Container {
    frozen: bool,
    keeper: bool,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what can be seen of a guest")]
struct Run {
    place: PlaceId,
    /// Came from elsewhere and was not set going.
    held: bool,
    /// What of it has come so far, and may still.
    came: u8,
    comes: bool,
    answered: bool,
    /// On its way elsewhere.
    carried: bool,
    carriers: u32,
    reaped: bool,
    life: Life,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            place: PlaceId(0),
            held: false,
            came: 0,
            comes: true,
            answered: false,
            carried: false,
            carriers: 0,
            reaped: false,
            life: Life::Lives,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Lives,
    Killed,
    Gone,
}

#[derive(Clone, Debug)]
enum Step {
    Type,
    Quiet,
    Pass(u64),
    Offer(u32),
    Exit(usize),
    Start(usize),
    FailToStart(usize),
    Cancel(u32),
    Ack,
    Acknowledge,
    LinkUp,
    LinkDown,
    Welcome,
    Sick(bool),
    Pause,
    Resume,
    Sleep,
    Wake,
    Stop(u32),
    Arrival(u32),
    Land(usize),
    Depart(usize, bool),
    Stay(usize),
    GoOn(usize),
    CannotLeave(usize),
    LetGo(usize),
    KeeperDies(u16),
    Weigh(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Type),
        3 => Just(Step::Quiet),
        4 => (0u64..5_000).prop_map(Step::Pass),
        8 => (1u32..6).prop_map(Step::Offer),
        2 => (1u32..6).prop_map(Step::Arrival),
        8 => (0usize..9).prop_map(Step::Land),
        5 => (0usize..9, any::<bool>()).prop_map(|(which, again)| Step::Depart(which, again)),
        3 => (0usize..9).prop_map(Step::Stay),
        3 => (0usize..9).prop_map(Step::GoOn),
        2 => (0usize..9).prop_map(Step::CannotLeave),
        4 => (0usize..9).prop_map(Step::LetGo),
        1 => (0u16..2).prop_map(Step::KeeperDies),
        1 => (0usize..9, 0u64..1 << 40).prop_map(|(which, bytes)| Step::Weigh(which, bytes)),
        4 => (0usize..9).prop_map(Step::Exit),
        4 => (0usize..9).prop_map(Step::Start),
        1 => (0usize..9).prop_map(Step::FailToStart),
        1 => (0u32..40).prop_map(Step::Cancel),
        5 => Just(Step::Ack),
        2 => Just(Step::Acknowledge),
        2 => Just(Step::LinkUp),
        1 => Just(Step::LinkDown),
        2 => Just(Step::Welcome),
        1 => any::<bool>().prop_map(Step::Sick),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => Just(Step::Sleep),
        2 => Just(Step::Wake),
        1 => (0u32..40).prop_map(Step::Stop),
    ]
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            agent: agent(2),
            now: at(0),
            linked: true,
            started: BTreeMap::new(),
            accepted: BTreeSet::new(),
            ended: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            reactions: BTreeMap::new(),
            may_undo: false,
            asked: vec![],
            lease_until: Some(at(0) + COUNTED),
            greeted: at(0),
            sent: BTreeMap::new(),
            newest: 0,
            places: [Container::default(); 4],
            answers: VecDeque::new(),
        };
        let effects = world.agent.wake(world.now);
        world.carry_out(&effects);
        world
    }

    fn tell(&mut self, event: Event) {
        self.answers.push_back(event);
        self.answer();
    }

    fn tell_guest(&mut self, fence: Fence, event: guest::Event) {
        self.tell(Event::Guest(fence, event));
    }

    /// Whatever the shell answers at once.
    fn answer(&mut self) {
        while let Some(event) = self.answers.pop_front() {
            let effects = self.agent.handle(self.now, event);
            self.carry_out(&effects);
        }
    }

    /// Lets time pass, waking the agent whenever it wants to be.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        let mut wakes = 0;
        while let Some(due) = self.agent.deadline().filter(|due| *due <= until) {
            // What follows from one may be due at once, and so on a few times.
            wakes = if due > self.now { 0 } else { wakes + 1 };
            assert!(wakes < 4, "a deadline that stays");
            self.now = self.now.max(due);
            let effects = self.agent.wake(self.now);
            self.carry_out(&effects);
            self.answer();
        }
        self.now = until;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    fn do_step(&mut self, step: &Step) {
        self.may_undo = matches!(
            step,
            Step::Cancel(_) | Step::Stop(_) | Step::Sleep | Step::FailToStart(_) | Step::Welcome
        );
        match *step {
            Step::Type => self.tell(typed()),
            Step::Quiet => {
                for _ in 0..4 {
                    self.pass(Duration::from_secs(20));
                    self.tell(load(0.0));
                    self.answer_heartbeats();
                }
            }
            Step::Pass(ms) => self.pass(Duration::from_millis(ms)),
            Step::Offer(job) if self.linked => {
                self.newest += 1;
                let fence = Fence::of(self.newest);
                self.reactions.insert(fence, JOBS[job as usize - 1].0);
                self.accepted.insert(fence);
                self.tell(offer(self.newest, job));
            }
            Step::Arrival(job) if self.linked => {
                self.newest += 1;
                let fence = Fence::of(self.newest);
                self.reactions.insert(fence, JOBS[job as usize - 1].0);
                self.accepted.insert(fence);
                self.tell(arrival(self.newest, job));
            }
            Step::Land(which) => {
                if let Some(fence) = self.alive(which) {
                    self.more_comes(fence);
                }
            }
            Step::Depart(which, again) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(depart(fence.number, 1_000 + u32::from(again)));
                }
            }
            Step::Stay(which) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(stay(fence.number));
                }
            }
            Step::GoOn(which) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(go_on(fence.number));
                }
            }
            Step::CannotLeave(which) => {
                if let Some(fence) = self.alive(which).filter(|it| self.started[it].carried) {
                    self.tell_guest(fence, guest::Event::CannotLeave("a socket".into()));
                }
            }
            Step::LetGo(which) => {
                let let_go = |run: &Run| run.carriers > u32::from(run.carried);
                if let Some(fence) = self.alive(which).filter(|it| let_go(&self.started[it])) {
                    self.run(fence).carriers -= 1;
                    self.tell_guest(fence, guest::Event::CarryingEnded);
                }
            }
            Step::KeeperDies(place) => self.keeper_dies(PlaceId(place)),
            Step::Weigh(which, bytes) => {
                if let Some(fence) = self.alive(which) {
                    self.tell(Event::Weighed { fence, bytes });
                }
            }
            Step::Exit(which) => {
                if let Some(fence) = self.alive(which) {
                    let Run { place, life, held, answered, .. } = self.started[&fence];
                    if life == Life::Killed {
                        self.keeper_dies(place);
                    } else if !held || answered {
                        self.gone(fence);
                        self.tell(Event::Keeper(place, KeeperEvent::Ended { last: false }));
                    }
                }
            }
            Step::Start(which) => {
                if let Some(fence) = self.alive(which) {
                    self.tell(Event::Started(fence));
                }
            }
            Step::FailToStart(which) => {
                let lives = |run: &Run| run.life == Life::Lives;
                if let Some(fence) = self.alive(which).filter(|it| lives(&self.started[it])) {
                    self.gone(fence);
                    let (place, why) = (self.started[&fence].place, "no".to_owned());
                    let failed = KeeperEvent::CannotStart { fence, why, hopeless: false };
                    self.tell(Event::Keeper(place, failed));
                }
            }
            Step::Cancel(fence) if self.linked => {
                // An end that was due before may be told.
                self.pass(Duration::ZERO);
                if self.agent.knows(Fence::of(fence)) {
                    self.unwanted.insert(Fence::of(fence));
                }
                self.tell(frame(CoordinatorFrame::Cancel { fence: Fence::of(fence) }));
            }
            Step::Ack => self.answer_heartbeats(),
            Step::Acknowledge => {
                for fence in self.ended.clone() {
                    self.tell(frame(CoordinatorFrame::Acknowledge { fence }));
                }
            }
            Step::LinkUp => {
                self.linked = true;
                self.greeted = self.now;
                self.asked.clear();
                self.tell(Event::LinkUp);
                for number in 1..=5 {
                    self.tell(known_job(number));
                }
            }
            Step::LinkDown => {
                self.linked = false;
                self.asked.clear();
                self.tell(Event::LinkDown);
            }
            Step::Welcome if self.linked => {
                self.lease_until = self.lease_until.max(Some(self.greeted + COUNTED));
                let keep: Vec<u32> =
                    self.accepted.difference(&self.ended).map(|f| f.number).collect();
                self.tell(welcome(&keep));
            }
            Step::Sick(sick) => {
                let health = if sick { Health::Sick("blind".into()) } else { Health::Well };
                let sensor = Sensor::Terminals;
                self.tell(Event::Observed(Observation::Health { sensor, health }));
            }
            Step::Pause => self.tell(Event::Pause(Pause { by: "ada".into(), until: None })),
            Step::Resume => self.tell(Event::Resume),
            Step::Sleep => self.tell(Event::AboutToSleep),
            Step::Wake => self.tell(Event::Woke),
            Step::Stop(fence) => {
                self.tell(Event::Stop { fence: Fence::of(fence), by: "ada".into() });
            }
            Step::Offer(_)
            | Step::Cancel(_)
            | Step::Welcome
            | Step::Arrival(_)
            | Step::Depart(..)
            | Step::Stay(_)
            | Step::GoOn(_) => {}
        }
    }

    fn answer_heartbeats(&mut self) {
        for sequence in std::mem::take(&mut self.asked) {
            if self.linked {
                self.lease_until = self.lease_until.max(Some(self.sent[&sequence] + COUNTED));
                self.tell(frame(CoordinatorFrame::HeartbeatAck { sequence }));
            }
        }
    }

    /// The next of what comes of it.
    fn more_comes(&mut self, fence: Fence) {
        let Run { place, held, came, comes, life, .. } = self.started[&fence];
        if !held || !comes || life != Life::Lives {
            return;
        }
        self.run(fence).came += 1;
        match came {
            0 => self.tell_guest(fence, guest::Event::Coming),
            1 => self.tell_guest(fence, guest::Event::Header { pipes: 0, lays: false }),
            2 => self.tell_guest(fence, guest::Event::Known { keep: Keep::State }),
            3 => self.tell(Event::Keeper(place, KeeperEvent::ProcessStands { fence })),
            4 => self.tell_guest(fence, guest::Event::Whole { bytes: 9 }),
            _ => {}
        }
    }

    fn keeper_dies(&mut self, place: PlaceId) {
        if std::mem::take(&mut self.places[usize::from(place.0)].keeper) {
            self.all_die(place);
            self.tell(Event::Keeper(place, KeeperEvent::Gone));
        }
    }

    fn alive(&self, which: usize) -> Option<Fence> {
        let alive: Vec<_> = self
            .started
            .iter()
            .filter(|(_, run)| run.life != Life::Gone)
            .map(|(fence, _)| *fence)
            .collect();
        alive.get(which % alive.len().max(1)).copied()
    }

    fn gone(&mut self, fence: Fence) {
        self.run(fence).life = Life::Gone;
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "others are carried out elsewhere, or are no such guest's"
    )]
    fn carry_out(&mut self, effects: &[Effect]) {
        let first_other = effects.iter().position(|effect| {
            matches!(effect, Effect::Send(_) | Effect::Record(_) | Effect::PersistPause(_))
        });
        for (index, effect) in effects.iter().enumerate() {
            match effect {
                Effect::Freeze(_) | Effect::Thaw(_) | Effect::Kill(_) | Effect::GoOn(_) => {
                    assert!(first_other.is_none_or(|first| index < first), "{effects:?}");
                    self.touch(effect);
                }
                Effect::Send(AgentFrame::Heartbeat { sequence, .. }) => {
                    self.sent.insert(*sequence, self.now);
                    self.asked.push(*sequence);
                }
                Effect::Send(AgentFrame::Attempt(event)) if event.is_end() => {
                    self.ended(event);
                }
                Effect::Send(_) => assert!(self.linked, "said to nobody: {effect:?}"),
                Effect::Stage { .. }
                | Effect::Discard { .. }
                | Effect::Abandon { .. }
                | Effect::Record(_)
                | Effect::PersistPause(_)
                | Effect::ReadyToSleep
                | Effect::ReadyToStop => {}
                other => self.carry_out_there(other),
            }
        }
        self.check();
    }

    /// What stops a guest, or lets it run.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "others are carried out elsewhere, or are no such guest's"
    )]
    fn touch(&mut self, effect: &Effect) {
        match effect {
            Effect::Freeze(at) => {
                let place = &mut self.places[usize::from(at.place.0)];
                assert!(!std::mem::replace(&mut place.frozen, true), "frozen twice");
            }
            Effect::Thaw(at) => {
                let place = &mut self.places[usize::from(at.place.0)];
                assert!(std::mem::take(&mut place.frozen), "thawed twice");
                let carried = |run: &Run| run.carriers > 0 && run.life == Life::Lives;
                assert!(!self.started.get(&at.fence).is_some_and(carried), "thawed on its way");
            }
            Effect::Kill(at) => {
                assert!(self.places[usize::from(at.place.0)].keeper, "killed without a keeper");
                let over = self.lease_until.is_none_or(|until| self.now >= until);
                let run = self.run(at.fence);
                assert_eq!(run.life, Life::Lives, "killed twice");
                run.life = Life::Killed;
                let carried = run.carried;
                assert!(!carried || self.may_undo || over, "destroyed on its way: {effect:?}");
            }
            Effect::GoOn(at) => {
                let run = self.run(at.fence);
                assert!(std::mem::take(&mut run.held), "set going twice");
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// At the place of a guest.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "others are carried out elsewhere, or are no such guest's"
    )]
    fn carry_out_there(&mut self, effect: &Effect) {
        match effect {
            Effect::SpawnKeeper { place, .. } => {
                let place = &mut self.places[usize::from(place.0)];
                assert!(!place.frozen, "a keeper is born frozen");
                assert!(!std::mem::replace(&mut place.keeper, true), "two keepers");
            }
            Effect::DropKeeper(place) => {
                let here = &mut self.places[usize::from(place.0)];
                assert!(std::mem::take(&mut here.keeper), "no keeper to drop");
                self.answers.push_back(Event::Keeper(*place, KeeperEvent::Gone));
                for run in self.started.values_mut() {
                    // What has not come yet gets another.
                    if run.place == *place && !run.held {
                        run.life = Life::Gone;
                    }
                }
            }
            Effect::Launch { at, .. } => {
                assert!(self.agent.lease.is_valid(self.now));
                self.enters(*at, Run { place: at.place, ..Run::default() });
            }
            Effect::Expect(start) => {
                let at = start.at;
                self.enters(at, Run { place: at.place, held: true, ..Run::default() });
            }
            Effect::Answer(at, no) => {
                let run = self.run(at.fence);
                assert!(run.held && !std::mem::replace(&mut run.answered, true), "answered twice");
                run.comes &= no.is_none();
            }
            // It has not run.
            Effect::ClearGround(at) => self.gone(at.fence),
            Effect::Look(at) => {
                let looked = guest::Event::Looked(Look::Steady);
                self.answers.push_back(Event::Guest(at.fence, looked));
            }
            Effect::Verify(at) => {
                let verified = guest::Event::Verified(Ok(Duration::from_secs(1)));
                self.answers.push_back(Event::Guest(at.fence, verified));
            }
            Effect::Reap { at, .. } => {
                let run = self.run(at.fence);
                assert!(!std::mem::replace(&mut run.reaped, true), "reaped twice");
                run.life = Life::Gone;
                let exit = Box::new(exit(Outcome::Succeeded));
                let exited = guest::Event::Exited { exit, stays: false };
                self.answers.push_back(Event::Guest(at.fence, exited));
            }
            Effect::Carry(departure) => {
                let frozen = self.places[usize::from(departure.at.place.0)].frozen;
                let run = self.run(departure.at.fence);
                assert!(frozen && !run.carried, "carried while it runs");
                run.carried = true;
                run.carriers += 1;
            }
            Effect::CallBack(at) => {
                assert!(std::mem::take(&mut self.run(at.fence).carried), "nobody carries it");
            }
            Effect::Hurry(..)
            | Effect::Prepare(_)
            | Effect::Measure(_)
            | Effect::ReceiveProcess(_)
            | Effect::Land(_) => {}
            other => panic!("no ranks and no files here: {other:?}"),
        }
    }

    fn enters(&mut self, at: GuestAt, run: Run) {
        assert!(self.lease_until.is_some_and(|until| self.now < until));
        let keeper = self.places[usize::from(at.place.0)].keeper;
        assert!(keeper || run.held, "started by nobody");
        assert!(self.started.insert(at.fence, run).is_none(), "entered twice");
        let alive = self.started.values().filter(|run| run.life != Life::Gone).count();
        assert!(alive <= 2, "more guests than places");
    }

    /// What is at a place whose keeper is gone.
    fn all_die(&mut self, place: PlaceId) {
        for run in self.started.values_mut().filter(|run| run.place == place) {
            run.life = Life::Gone;
        }
    }

    fn run(&mut self, fence: Fence) -> &mut Run {
        self.started.get_mut(&fence).expect("a guest that was started")
    }

    fn ended(&mut self, end: &AttemptEvent) {
        let fence = end.fence();
        assert!(self.linked);
        // Repeated on a new connection, but never another end.
        self.ended.insert(fence);
        assert_eq!(self.agent.ends.get(&fence), Some(end));
        assert!(!self.unwanted.contains(&fence), "a cancelled one was told of");
        if let AttemptEvent::Finished(Finished { .. }) = end {
            assert_eq!(self.started[&fence].life, Life::Gone);
        }
    }

    /// The promises.
    fn check(&self) {
        let status = self.agent.status(self.now);
        let lease_ended = self.lease_until.is_none_or(|until| self.now >= until);
        for (fence, run) in self.started.iter().filter(|(_, run)| run.life == Life::Lives) {
            assert!(!lease_ended, "{fence} outlives the lease");
            let here = status.guests.iter().find(|guest| guest.fence == *fence);
            let here = here.expect("a guest that runs is known");
            let frozen = self.places[usize::from(run.place.0)].frozen;
            let stands = matches!(here.state, GuestState::Suspended | GuestState::Leaving);
            assert_eq!(stands || run.carriers > 0, frozen, "{fence}");
            assert_eq!(here.state == GuestState::Waiting, run.held, "{fence}");
            assert!(!run.carried || here.state == GuestState::Leaving, "{fence}");
            if status.presence.busy && !frozen && !run.held {
                let demoted = here.state == GuestState::Demoted;
                assert!(demoted && self.reactions[fence] == Reaction::Renice, "{fence}");
                assert!(!self.agent.occupancy.is_claimed(), "{fence} shares a claimed machine");
            }
        }
        // Every attempt that was offered is here or has ended, and not both.
        for fence in &self.accepted {
            let ended = self.agent.ends.contains_key(fence)
                || self.ended.contains(fence)
                || self.unwanted.contains(fence);
            assert!(ended != self.agent.knows(*fence), "{fence}: ended {ended}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_a_promise(steps in proptest::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in &steps {
            world.do_step(step);
        }
    }
}

/// As a random order of events had it.
#[test]
fn what_had_expired_before_it_was_cancelled_is_told() {
    let mut world = World::new();
    let offers = || std::iter::repeat_n(Step::Offer(1), 5);
    let first = offers().chain([Step::LinkUp, Step::Type, Step::Land(0)]).chain(offers());
    let late = [Step::Quiet, Step::LinkUp, Step::Offer(1), Step::Quiet, Step::Welcome];
    for step in first.chain([Step::Land(0)]).chain(late).chain([Step::Cancel(11)]) {
        world.do_step(&step);
    }
}

#[test]
fn a_guest_that_stays_is_called_back_and_thawed_when_its_carrier_has_let_go() {
    let mut world = World::new();
    let away = [Step::Offer(3), Step::Pause, Step::Depart(0, false), Step::Resume];
    for step in away.iter().chain(&[Step::Stay(0)]) {
        world.do_step(step);
    }
    let run = world.started[&Fence::of(world.newest)];
    assert!(!run.carried && run.carriers == 1 && world.places[0].frozen);
    world.do_step(&Step::LetGo(0));
    assert!(!world.places[0].frozen);
}

/// The welcome came so late that its lease was over.
#[test]
fn what_expires_as_the_connection_breaks_is_not_said_to_nobody() {
    let mut world = World::new();
    let quiet = [Step::LinkUp, Step::Quiet, Step::LinkUp, Step::Offer(1), Step::Quiet];
    for step in quiet.iter().chain(&[Step::Welcome, Step::LinkDown]) {
        world.do_step(step);
    }
}
