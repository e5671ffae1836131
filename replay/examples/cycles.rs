//! How long one cycle of the scheduler takes with 1,000 malleable jobs on
//! 10,000 workstations whose owners come and go: `cycles [EVENTS] [POLICY ..]`.
//! All stages of a cycle count, and what the jobs answer.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    ALL, Allowed, Class, Decision, Fact, Named, Parameters, Request, Resources, Scheduler, Sizes,
};
use gleaner_shell::clock::Clock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const WORKSTATIONS: u32 = 10_000;
const JOBS: u32 = 1_000;

struct Drive {
    scheduler: Scheduler,
    chance: SmallRng,
    next: u32,
    now: Moment,
    busy: u32,
}

impl Drive {
    fn new(policy: &Named) -> Self {
        let scheduler =
            Scheduler::new(Resources::steady(WORKSTATIONS), (policy.build)(&Parameters::default()));
        Self { scheduler, chance: SmallRng::seed_from_u64(15), next: 0, now: Moment::ZERO, busy: 0 }
    }

    fn submit(&mut self) {
        let min = self.chance.random_range(1..=4);
        let max = self.chance.random_range(8..=24);
        let preferred = self.chance.random_range(min..=max);
        let sizes = Sizes::new([min, preferred, max], Allowed::Any).expect("in order");
        let takes = Duration::from_secs(self.chance.random_range(60..36_000));
        let request = Box::new(Request::new(Class::Malleable, sizes, Some(takes)));
        self.next += 1;
        self.scheduler.handle(self.now, Fact::Submitted { job: JobId(self.next), request });
    }

    /// A job ends and another comes, or an owner does.
    fn happens(&mut self) {
        let running = self.scheduler.state().running_count();
        let chosen = self.chance.random_range(0..running.max(1));
        let found = self.scheduler.state().running().nth(chosen).map(|(job, it)| (job, it.clone()));
        match (self.chance.random_range(0..3), found) {
            (0, Some((job, _))) => {
                self.scheduler.handle(self.now, Fact::Ended { job });
                self.submit();
            }
            (1, Some((job, it))) if it.size > it.request.sizes.min() => {
                self.busy += 1;
                self.tell_resources();
                self.scheduler.handle(self.now, Fact::Resized { job, size: it.size - 1 });
            }
            _ => {
                self.busy = self.busy.saturating_sub(1);
                self.tell_resources();
            }
        }
    }

    fn tell_resources(&mut self) {
        let processors = WORKSTATIONS - self.busy;
        let resources = Resources { processors, ..Resources::steady(WORKSTATIONS) };
        self.scheduler.handle(self.now, Fact::Resources(resources));
    }

    fn cycle(&mut self) -> usize {
        let mut decided = 0;
        loop {
            let decisions = self.scheduler.cycle(self.now);
            decided += decisions.len();
            let mut was_answered = false;
            for decision in decisions {
                let (Decision::Grow { job, by, .. } | Decision::Shrink { job, by, .. }) = decision
                else {
                    continue;
                };
                self.scheduler.handle(self.now, Fact::Answered { job, by });
                was_answered = true;
            }
            if !was_answered {
                return decided;
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let events = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let clock = Clock::new();
    for policy in
        ALL.iter().filter(|it| arguments.len() < 2 || arguments.iter().any(|a| a == it.name))
    {
        let mut drive = Drive::new(policy);
        for _ in 0..JOBS {
            drive.submit();
        }
        drive.cycle();
        let mut took = vec![];
        let mut decided = 0;
        for _ in 0..events {
            drive.now = drive.now + Duration::from_millis(500);
            drive.happens();
            let before = clock.now();
            decided += drive.cycle();
            took.push(clock.now().since(before));
        }
        took.sort_unstable();
        let state = drive.scheduler.state();
        println!(
            "{}: p50 {:?}, p99 {:?}, most {:?}; {} run on {}, {} wait, {:.1} decisions a cycle",
            policy.name,
            took[took.len() / 2],
            took[took.len() * 99 / 100],
            took[took.len() - 1],
            state.running_count(),
            state.held(),
            state.waiting_count(),
            f64::from(u32::try_from(decided).unwrap_or(u32::MAX)) / f64::from(events),
        );
    }
}
