//! Policies that divide all processors, beside all divisions there are.

use std::time::Duration;

use gleaner_common::id::JobId;
use proptest::prelude::*;

use super::bench::{Bench, rigid};
use crate::scheduler::{
    Allowed, Class, Fact, Parameters, Request, Resources, Running, Sizes, Speedup, State,
};

const PROCESSORS: u32 = 9;
/// So many at once that everybody gets one.
const JOBS: usize = 4;

/// Every way to give the jobs that run from one processor to their maximum.
fn divisions(jobs: &[&Running]) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    for job in jobs {
        let sizes = 1..=job.request.sizes.max();
        let longer = |one: &Vec<u32>| {
            let given: u32 = one.iter().sum();
            let fits = sizes.clone().filter(move |size| given + size <= PROCESSORS);
            fits.map(|size| [&one[..], &[size]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn any_job() -> impl Strategy<Value = Request> {
    let parallel = 0.5..0.999_f64;
    (1..=PROCESSORS, 1..=PROCESSORS, parallel, 1..200_u64).prop_map(|(a, b, parallel, takes)| {
        let sizes = Sizes::new([1, a.min(b), a.max(b)], Allowed::Any).expect("in order");
        let takes = Duration::from_secs(takes);
        let speedup = Speedup::Amdahl { parallel };
        Request { speedup, ..Request::new(Class::Malleable, sizes, Some(takes)) }
    })
}

/// Lets jobs come and end, and checks after every cycle that no division is
/// better than the one that was chosen.
fn check<V: PartialOrd + std::fmt::Debug>(
    policy: &str,
    story: Vec<(u64, Request)>,
    value: impl Fn(&State, &Bench, &[(&Running, u32)]) -> V,
    is_as_good: impl Fn(&V, &V) -> bool,
) -> Result<(), TestCaseError> {
    let parameters = Parameters { change_cost: Duration::ZERO, ..Parameters::default() };
    let mut bench = Bench::with(policy, Resources::steady(PROCESSORS), &parameters);
    for (pass, request) in story {
        bench.go_to(bench.now + Duration::from_secs(pass));
        bench.cycle();
        if bench.scheduler.state().running_count() < JOBS {
            bench.submit(request);
            bench.cycle();
        }
        let state = bench.scheduler.state();
        if policy == "gleaner" && state.waiting_count() > 0 {
            // A first step can be worth less than what shorter jobs make of it.
            return Ok(());
        }
        prop_assert_eq!(state.waiting_count(), 0, "{}", policy);
        let jobs: Vec<&Running> = state.running().map(|(_, job)| job).collect();
        let of = |sizes: &[u32]| {
            let jobs: Vec<(&Running, u32)> =
                jobs.iter().copied().zip(sizes.iter().copied()).collect();
            value(state, &bench, &jobs)
        };
        let chosen: Vec<u32> = jobs.iter().map(|job| job.size).collect();
        for other in divisions(&jobs) {
            let (ours, theirs) = (of(&chosen), of(&other));
            prop_assert!(
                is_as_good(&ours, &theirs),
                "{policy}: {chosen:?} {ours:?}, {other:?} {theirs:?}"
            );
        }
    }
    Ok(())
}

/// The sum of speed-ups, each by the fifth root of the work that is left.
fn weighed(_: &State, bench: &Bench, jobs: &[(&Running, u32)]) -> f64 {
    let of = |(job, size): &(&Running, u32)| {
        let at = |size| job.request.speedup.at(size);
        let left = job.progress.left(bench.now).expect("its length is known").as_secs_f64();
        let work = (left * at(job.request.sizes.preferred())).max(0.001);
        at(*size) / work.powf(0.2)
    };
    jobs.iter().map(of).sum()
}

/// The smallest part first.
fn smallest_parts(_: &State, _: &Bench, jobs: &[(&Running, u32)]) -> Vec<u32> {
    let mut sizes: Vec<u32> = jobs.iter().map(|(_, size)| *size).collect();
    sizes.sort_unstable();
    sizes
}

fn sum_of_speedups(_: &State, _: &Bench, jobs: &[(&Running, u32)]) -> f64 {
    jobs.iter().map(|(job, size)| job.request.speedup.at(*size)).sum()
}

proptest! {
    #[test]
    fn no_division_brings_ends_nearer_than_ours(
        story in prop::collection::vec((0..60_u64, any_job()), 1..12)
    ) {
        check("gleaner", story, weighed, |ours, other| *ours > other * (1.0 - 1e-5))?;
    }

    #[test]
    fn no_division_is_more_equal_than_equipartition(
        story in prop::collection::vec((0..60_u64, any_job()), 1..12)
    ) {
        check("equipartition", story, smallest_parts, |ours, other| ours >= other)?;
    }

    #[test]
    fn no_division_has_a_larger_sum_of_speedups_than_apm(
        story in prop::collection::vec((0..60_u64, any_job()), 1..12)
    ) {
        check("apm", story, sum_of_speedups, |ours, other| *ours > other - 1e-6)?;
    }
}

#[test]
fn a_change_that_does_not_pay_is_not_made() {
    // Alone on 4 of 8, nearly done: the four that become free are of no use.
    let parameters = Parameters { change_cost: Duration::from_secs(20), ..Parameters::default() };
    let mut bench = Bench::with("gleaner", Resources::steady(8), &parameters);
    let sizes = Sizes::new([4, 4, 8], Allowed::Any).expect("in order");
    let takes = Some(Duration::from_secs(100));
    bench.submit(Request::new(Class::Malleable, sizes, takes));
    bench.submit(rigid(4, 70));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (2, 4)]);
    bench.go_to(bench.now + Duration::from_secs(70));
    bench.cycle();
    // Half of 30 s are less than 20 s.
    assert_eq!(bench.sizes(), [(1, 4)]);
    bench.submit(rigid(4, 10));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (3, 4)]);
    let third = JobId(3);
    bench.tell(Fact::Ended { job: third });
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4)]);
}

#[test]
fn who_returns_often_is_lent_less() {
    // Owners come back and leave again; in the mean one of eight every 10 s.
    let parameters = Parameters { change_cost: Duration::from_secs(60), ..Parameters::default() };
    let mut bench = Bench::with("gleaner", Resources::steady(8), &parameters);
    for _ in 0..100 {
        for processors in [7, 8] {
            bench.go_to(bench.now + Duration::from_secs(5));
            let resources = Resources { processors, ..Resources::steady(8) };
            bench.tell(Fact::Resources(resources));
            bench.cycle();
        }
    }
    let sizes = Sizes::new([1, 2, 8], Allowed::Any).expect("in order");
    let speedup = Speedup::Amdahl { parallel: 0.9 };
    let request = Request::new(Class::Malleable, sizes, Some(Duration::from_secs(10_000)));
    bench.submit(Request { speedup, ..request });
    bench.cycle();
    // A processor is taken back every 75 s, and the job stands still for 60.
    let [(_, size)] = bench.sizes()[..] else { panic!("one job runs") };
    assert!(size < 8, "{size}");
}
