//! The watchdog against a model of a worker, which may stop at any moment, and of
//! its guests, which know nothing of either.

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(1_000 + ms)
}

#[expect(clippy::unnecessary_wraps, reason = "as the worker says it")]
fn vouch(looked: u64, lease_end: u64) -> Option<Vouch> {
    Some(Vouch { looked: ms(looked), lease_end: ms(lease_end) })
}

/// What can happen next, to the worker or to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The worker looks at its sensors and vouches, or has no guests to vouch for.
    Looks,
    Renews,
    NobodyRuns,
    /// It hangs: whoever is stopped is seen to be, whoever is stuck is not.
    Stops,
    Hangs,
    GoesOn,
    Dies,
    /// So much time.
    Passes(Duration),
    /// The machine does, and nobody runs meanwhile.
    Sleeps(Duration),
}

const STEPS: [Step; 10] = [
    Step::Looks,
    Step::Renews,
    Step::NobodyRuns,
    Step::Stops,
    Step::Hangs,
    Step::GoesOn,
    Step::Dies,
    Step::Passes(Duration::from_millis(60)),
    Step::Passes(Duration::from_millis(150)),
    Step::Sleeps(Duration::from_secs(20)),
];

const LEASE: Duration = Duration::from_millis(400);

/// The supervisor and its worker, with what the kernel would show of them.
#[derive(Debug)]
struct World {
    now: Moment,
    dog: Watchdog,
    said: Option<Vouch>,
    lease_end: Moment,
    hangs: bool,
    frozen: bool,
    /// Guests are there that only the watchdog's freezer holds, if it does.
    guests: bool,
    orders: Vec<Order>,
}

impl World {
    fn new() -> Self {
        let now = ms(0);
        Self {
            now,
            dog: Watchdog::default(),
            said: None,
            lease_end: now + LEASE,
            hangs: false,
            frozen: false,
            guests: false,
            orders: vec![],
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Looks if !self.hangs => self.looks(),
            Step::Renews if !self.hangs => {
                self.lease_end = self.now + LEASE;
                self.looks();
            }
            Step::NobodyRuns if !self.hangs => {
                (self.guests, self.said) = (false, None);
                self.ring();
            }
            Step::Stops => {
                self.hangs = true;
                self.handle(Event::Stopped(self.said));
            }
            Step::Hangs => self.hangs = true,
            Step::GoesOn => self.hangs = false,
            Step::Dies => {
                self.handle(Event::Ended);
                assert!(!self.guests && !self.frozen, "{self:?}");
                let now = self.now;
                *self = Self { now, lease_end: now + LEASE, ..Self::new() };
            }
            Step::Passes(span) => self.pass(span),
            Step::Sleeps(span) => {
                self.now = self.now + span;
                self.heed();
            }
            Step::Looks | Step::Renews | Step::NobodyRuns => {}
        }
        self.check();
    }

    /// It vouches before guests run, and ends them itself when its lease does.
    fn looks(&mut self) {
        let runs = self.now < self.lease_end;
        let vouch = Vouch { looked: self.now, lease_end: self.lease_end };
        (self.guests, self.said) = (runs, runs.then_some(vouch));
        self.ring();
    }

    /// The watchdog hears of it now if it has asked to, or at its next deadline.
    fn ring(&mut self) {
        if !self.dog.looks() {
            self.heed();
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..100 {
            let Some(at) = self.dog.deadline().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            self.heed();
            self.check();
        }
        panic!("a deadline that stays: {self:?}");
    }

    fn heed(&mut self) {
        while self.handle(Event::Says(self.said)) {}
    }

    fn handle(&mut self, event: Event) -> bool {
        let order = self.dog.handle(self.now, event);
        self.orders.extend(order);
        match order {
            None => {}
            Some(Order::Freeze) => {
                assert!(!std::mem::replace(&mut self.frozen, true), "frozen twice: {self:?}");
            }
            Some(Order::Thaw) => {
                assert!(std::mem::take(&mut self.frozen), "thawed twice: {self:?}");
                assert!(!self.hangs || self.said.is_none_or(|it| self.now < it.until()));
            }
            Some(Order::Kill) => {
                assert!(self.frozen && self.now >= self.lease_end, "killed early: {self:?}");
                self.guests = false;
            }
            Some(Order::Clear) => (self.frozen, self.guests) = (false, false),
        }
        order.is_some()
    }

    fn check(&self) {
        let runs = self.guests && !self.frozen;
        let vouched = self.said.is_some_and(|said| self.now <= said.until());
        assert!(!runs || vouched, "nobody vouches: {self:?}");
        assert!(!runs || self.now <= self.lease_end, "beyond the lease: {self:?}");
        let late = self.now > self.lease_end + KILL_AFTER;
        assert!(!self.guests || !late, "still there after the lease: {self:?}");
        if self.said.is_none() && !self.dog.looks() {
            assert_eq!(self.dog.deadline(), None, "awake for nobody: {self:?}");
        }
    }

    /// Whatever happened before: a worker that is well has its guests run.
    fn calm(&mut self) {
        self.step(Step::GoesOn);
        // Who was stopped and looks again does so later.
        self.step(Step::Passes(Duration::from_millis(1)));
        for _ in 0..3 {
            self.step(Step::Renews);
            self.step(Step::Passes(Duration::from_millis(10)));
            assert!(!self.frozen, "a worker that is well is not believed: {self:?}");
            self.step(Step::Passes(BEAT_EVERY));
        }
        self.step(Step::NobodyRuns);
        self.step(Step::Passes(Duration::from_secs(1)));
        assert_eq!((self.frozen, self.dog.deadline()), (false, None));
    }
}

#[test]
fn no_six_steps_let_a_guest_run_that_nobody_vouches_for() {
    for path in 0..STEPS.len().pow(6) {
        let mut world = World::new();
        let mut rest = path;
        for _ in 0..6 {
            world.step(STEPS[rest % STEPS.len()]);
            rest /= STEPS.len();
        }
        world.calm();
    }
}

proptest! {
    #[test]
    fn no_long_life_does_either(steps in proptest::collection::vec((0..STEPS.len(), 1_u64..300), 1..200)) {
        let mut world = World::new();
        for (index, span) in steps {
            let step = STEPS[index];
            let passes = matches!(step, Step::Passes(_));
            world.step(if passes { Step::Passes(Duration::from_millis(span)) } else { step });
        }
        world.calm();
    }

    /// Somebody who is heard every tenth of a second is never frozen.
    #[test]
    fn whoever_is_on_time_is_left_alone(lates in proptest::collection::vec(0_u64..50, 1..100)) {
        let mut world = World::new();
        for late in lates {
            world.step(Step::Renews);
            world.step(Step::Passes(BEAT_EVERY + Duration::from_millis(late)));
        }
        prop_assert_eq!(world.orders, vec![]);
    }
}

#[test]
fn what_was_said_before_the_doubt_sets_nobody_going() {
    let mut dog = Watchdog::default();
    assert_eq!(dog.handle(ms(1), Event::Says(vouch(0, 9_000))), None);
    assert_eq!(dog.handle(ms(2), Event::Stopped(vouch(0, 9_000))), Some(Order::Freeze));
    assert_eq!(dog.handle(ms(3), Event::Says(vouch(0, 9_000))), None);
    assert_eq!(dog.handle(ms(4), Event::Says(vouch(3, 9_000))), Some(Order::Thaw));
    // It looked long ago, and could only say so now.
    assert_eq!(dog.handle(ms(900), Event::Says(vouch(4, 9_000))), Some(Order::Freeze));
    assert_eq!(dog.handle(ms(901), Event::Says(vouch(700, 9_000))), None);
    assert_eq!(dog.handle(ms(902), Event::Says(vouch(902, 9_000))), Some(Order::Thaw));
}

/// It went on for a moment, looked, and was stopped again before the bell was heard.
#[test]
fn what_was_said_between_two_stops_sets_nobody_going() {
    let mut dog = Watchdog::default();
    assert_eq!(dog.handle(ms(1), Event::Says(vouch(0, 9_000))), None);
    assert_eq!(dog.handle(ms(2), Event::Stopped(vouch(0, 9_000))), Some(Order::Freeze));
    assert_eq!(dog.handle(ms(6), Event::Stopped(vouch(5, 9_000))), None);
    assert_eq!(dog.handle(ms(7), Event::Says(vouch(5, 9_000))), None);
    assert_eq!(dog.handle(ms(9), Event::Says(vouch(8, 9_000))), Some(Order::Thaw));
}

#[test]
fn guests_stand_still_at_the_leases_end_and_are_killed_soon_after() {
    let mut dog = Watchdog::default();
    assert_eq!(dog.handle(ms(0), Event::Says(vouch(0, 90))), None);
    assert_eq!(dog.deadline(), Some(ms(90)));
    assert_eq!(dog.handle(ms(90), Event::Says(vouch(0, 90))), Some(Order::Freeze));
    assert_eq!(dog.deadline(), Some(ms(140)));
    assert_eq!(dog.handle(ms(140), Event::Says(vouch(0, 90))), Some(Order::Kill));
    assert_eq!(dog.deadline(), None);
    assert_eq!(dog.handle(ms(500), Event::Says(None)), Some(Order::Thaw));
}

/// The worker heard of it, and hung before it had looked at its sensors.
#[test]
fn a_renewed_lease_puts_the_kill_off() {
    let mut dog = Watchdog::default();
    assert_eq!(dog.handle(ms(0), Event::Says(vouch(0, 90))), None);
    assert_eq!(dog.handle(ms(5), Event::Stopped(vouch(0, 90))), Some(Order::Freeze));
    assert_eq!(dog.handle(ms(6), Event::Says(vouch(0, 300))), None);
    assert_eq!(dog.deadline(), Some(ms(350)));
    assert_eq!(dog.handle(ms(140), Event::Says(vouch(0, 300))), None);
    assert_eq!(dog.handle(ms(350), Event::Says(vouch(0, 300))), Some(Order::Kill));
}

#[test]
fn a_beat_is_said_when_it_is_news() {
    assert!(!is_news(None, None));
    assert!(is_news(None, vouch(0, 900)) && is_news(vouch(0, 900), None));
    assert!(!is_news(vouch(0, 900), vouch(49, 900)));
    assert!(is_news(vouch(0, 900), vouch(50, 900)));
    assert!(is_news(vouch(0, 900), vouch(1, 901)));
}
