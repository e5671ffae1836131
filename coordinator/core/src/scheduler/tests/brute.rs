//! Policies that change sizes beside slow schedulers that do what the sources
//! say, one processor and one job at a time: after everything that happens,
//! every job is to hold the same.
//!
//! Nothing here is taken from the policies but their names: each reference is
//! written from the sentences that it quotes.

use std::time::Duration;

use gleaner_common::id::JobId;
use proptest::prelude::*;

use super::bench::{Bench, malleable, rigid};
use crate::scheduler::{Allowed, Fact, Request, Resources};

const PROCESSORS: u32 = 12;

/// One that runs, in the order of starts, or waits, in the order of arrivals.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    number: u32,
    /// A rigid one's are the same.
    bounds: [u32; 2],
    /// 0 as long as it waits.
    size: u32,
}

impl Job {
    fn can_change(&self) -> bool {
        self.bounds[0] < self.bounds[1]
    }

    fn spare(&self) -> u32 {
        if self.can_change() { self.size - self.bounds[0] } else { 0 }
    }

    fn room(&self) -> u32 {
        if self.can_change() { self.bounds[1] - self.size } else { 0 }
    }
}

/// What a reference knows: who runs, who waits.
#[derive(Clone, Debug, Default)]
struct World {
    running: Vec<Job>,
    waiting: Vec<Job>,
}

type Rule = fn(&mut World);

impl World {
    fn free(&self) -> u32 {
        PROCESSORS - self.running.iter().map(|job| job.size).sum::<u32>()
    }

    fn start(&mut self, index: usize, size: u32) {
        let job = self.waiting.remove(index);
        self.running.push(Job { size, ..job });
    }

    fn sizes(&self) -> Vec<(u32, u32)> {
        let mut sizes: Vec<_> = self.running.iter().map(|job| (job.number, job.size)).collect();
        sizes.sort_unstable();
        sizes
    }
}

/// "Processors are equally divided among all jobs, up to the maximum of each"
/// and never below its minimum: one after the other goes to whoever has least.
/// In order of arrival, as long as minimums fit.
fn equipartition(world: &mut World) {
    let minimums = |world: &World| world.running.iter().map(|job| job.bounds[0]).sum::<u32>();
    while let Some(first) = world.waiting.first()
        && minimums(world) + first.bounds[0] <= PROCESSORS
    {
        world.start(0, 0);
    }
    deal(world, |job| job.size);
}

/// Kumar 2001, §3.2.2: whoever fits on its minimum is let in, passing over those
/// that do not; what minimums leave is divided equally.
fn uniform_first_fit(world: &mut World) {
    let minimums = |world: &World| world.running.iter().map(|job| job.bounds[0]).sum::<u32>();
    let mut index = 0;
    while let Some(job) = world.waiting.get(index) {
        if minimums(world) + job.bounds[0] <= PROCESSORS {
            world.start(index, 0);
        } else {
            index += 1;
        }
    }
    deal(world, |job| job.size - job.bounds[0]);
}

/// All begin on their minimum; whoever has least gets the next one.
fn deal(world: &mut World, has: fn(&Job) -> u32) {
    for job in &mut world.running {
        job.size = job.bounds[0];
    }
    while world.free() > 0 {
        let could = world.running.iter_mut().filter(|job| job.size < job.bounds[1]);
        // Of equals the one that started first.
        let Some(least) = could.min_by_key(|job| has(job)) else { return };
        least.size += 1;
    }
}

/// Whom Ghafoor's scheduler asks next; §2.4 leaves that open.
type Select = fn(&World, u32) -> Option<usize>;

/// Ghafoor 2007, §4.2.4, sentence by sentence.
fn ghafoor(world: &mut World, select: Select) {
    // "Schedule as many jobs as possible .. by allocating the minimum number",
    // "according to the arrival time".
    let before = world.running.len();
    while let Some(first) = world.waiting.first()
        && first.bounds[0] <= world.free()
    {
        world.start(0, first.bounds[0]);
    }
    // "If after the first step idle processors are available, they are allocated
    // to the jobs in the initial list on a FCFS basis."
    for index in before..world.running.len() {
        let more = world.running[index].room().min(world.free());
        world.running[index].size += more;
    }
    // "Tries to schedule pending jobs by preempting processors .. according to
    // the maximum fit policy, assuming that the preemptable are available."
    let spare: u32 = world.running.iter().map(Job::spare).sum();
    let (mut could_be_had, mut pending, mut needed) = (world.free() + spare, 0, 0);
    while let Some(job) = world.waiting.get(pending)
        && job.bounds[0] <= could_be_had
    {
        could_be_had -= job.bounds[0];
        needed += job.bounds[0];
        pending += 1;
    }
    if pending > 0 {
        // "Preempt the maximum possible number of processors from jobs starting
        // with the first."
        while world.free() < needed
            && let Some(index) = select(world, needed - world.free())
        {
            let gives = world.running[index].spare().min(needed - world.free());
            world.running[index].size -= gives;
        }
        for _ in 0..pending {
            let least = world.waiting[0].bounds[0];
            world.start(0, least);
        }
        return;
    }
    // "Then the idle processors are allocated to running malleable jobs on a
    // first start first get basis."
    for index in 0..world.running.len() {
        let more = world.running[index].room().min(world.free());
        world.running[index].size += more;
    }
}

fn earliest(world: &World, _: u32) -> Option<usize> {
    (0..world.running.len()).find(|index| world.running[*index].spare() > 0)
}

fn latest(world: &World, _: u32) -> Option<usize> {
    (0..world.running.len()).rev().find(|index| world.running[*index].spare() > 0)
}

fn most(world: &World, _: u32) -> Option<usize> {
    let able = (0..world.running.len()).filter(|index| world.running[*index].spare() > 0);
    able.rev().max_by_key(|index| world.running[*index].spare())
}

/// One that has enough, the smallest of these; otherwise whoever has most.
fn fewest(world: &World, missing: u32) -> Option<usize> {
    let enough = (0..world.running.len()).filter(|i| world.running[*i].spare() >= missing);
    enough.min_by_key(|i| world.running[*i].spare()).or_else(|| most(world, missing))
}

#[derive(Clone, Debug)]
enum Happening {
    Submit(u32, u32),
    /// One of those that run.
    End(usize),
    Withdraw(usize),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1..=PROCESSORS, 1..=PROCESSORS)
            .prop_map(|(a, b)| Happening::Submit(a.min(b), a.max(b))),
        3 => (0..8_usize).prop_map(Happening::End),
        1 => (0..8_usize).prop_map(Happening::Withdraw),
    ]
}

fn request(min: u32, max: u32) -> Request {
    if min == max { rigid(min, 10_000) } else { malleable([min, min, max], Allowed::Any, 10_000) }
}

/// Tells both of the same, one thing a second.
fn check(policy: &str, rule: Rule, story: &[Happening]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(policy, Resources::steady(PROCESSORS));
    let mut world = World::default();
    for what in story {
        bench.now = bench.now + Duration::from_secs(1);
        let gone = match *what {
            Happening::Submit(min, max) => {
                let number = bench.submit(request(min, max)).0;
                world.waiting.push(Job { number, bounds: [min, max], size: 0 });
                None
            }
            Happening::End(index) if index < world.running.len() => {
                Some(world.running.remove(index))
            }
            Happening::Withdraw(index) if index < world.waiting.len() => {
                Some(world.waiting.remove(index))
            }
            Happening::End(_) | Happening::Withdraw(_) => continue,
        };
        if let Some(Job { number, .. }) = gone {
            bench.tell(Fact::Ended { job: JobId(number) });
        }
        bench.cycle();
        rule(&mut world);
        // Who starts at one moment is in the order of numbers from then on.
        prop_assert_eq!(bench.sizes(), world.sizes(), "{} after {:?} of {:?}", policy, what, story);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn equipartition_decides_as_its_definition_does(
        story in prop::collection::vec(any_happening(), 1..40)
    ) {
        check("equipartition", equipartition, &story)?;
    }

    #[test]
    fn uniform_first_fit_decides_as_its_definition_does(
        story in prop::collection::vec(any_happening(), 1..40)
    ) {
        check("kumar-uniform", uniform_first_fit, &story)?;
    }

    #[test]
    fn maximum_fit_and_pending_first_decide_as_their_definitions_do(
        story in prop::collection::vec(any_happening(), 1..40)
    ) {
        check("ghafoor", |world| ghafoor(world, earliest), &story)?;
        check("ghafoor-latest", |world| ghafoor(world, latest), &story)?;
        check("ghafoor-most", |world| ghafoor(world, most), &story)?;
        check("ghafoor-fewest", |world| ghafoor(world, fewest), &story)?;
    }
}
