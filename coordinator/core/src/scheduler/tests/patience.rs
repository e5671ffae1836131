//! How long our policy lets a job wait.

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use proptest::prelude::*;

use super::bench::{Bench, at, malleable, rigid};
use crate::scheduler::{Allowed, Parameters, Request, Resources};

const PROCESSORS: u32 = 8;

/// When a job that needs everything starts, if more short ones keep coming than
/// can be done; `None` if it has not after two days.
fn start_among(wide: Request, short: &Request) -> Option<Duration> {
    let mut bench = Bench::new("gleaner", Resources::steady(PROCESSORS));
    bench.submit(short.clone());
    bench.cycle();
    let wide = bench.submit(wide);
    for step in 1..2 * 864 {
        bench.submit(short.clone());
        bench.cycle();
        if let Some(start) = bench.starts.get(&wide) {
            return Some(start.since(at(0)));
        }
        while bench.next_end().is_some_and(|end| end < at(100 * step)) {
            bench.go_to(bench.next_end().expect("one runs"));
            bench.cycle();
        }
        bench.go_to(at(100 * step));
    }
    None
}

#[test]
fn a_job_is_overtaken_for_a_day_and_then_waits_for_those_that_run() {
    let day = Duration::from_secs(86_400);
    for short in [rigid(2, 600), malleable([2, 2, 4], Allowed::Any, 600)] {
        let wide = malleable([PROCESSORS; 3], Allowed::Any, 36_000);
        let start = start_among(wide, &short).expect("within two days");
        assert!(start > day, "{start:?}: not for its own worth");
        assert!(start <= day + Duration::from_secs(600 + 100), "{start:?}");
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    (1..=PROCESSORS, 1..=PROCESSORS, 1..60_u64, any::<bool>()).prop_map(
        |(a, b, takes, is_rigid)| {
            let (min, max) = (a.min(b), a.max(b));
            if is_rigid {
                rigid(min, takes)
            } else {
                malleable([min, min, max], Allowed::Any, takes)
            }
        },
    )
}

proptest! {
    /// Estimates hold here: from when a job is overdue it waits for those that
    /// run, and for each that is overdue before it, or with it.
    #[test]
    fn whoever_is_overdue_waits_for_those_before_it_only(
        story in prop::collection::vec((0..20_u64, any_request()), 1..60)
    ) {
        let overtaken_max = Duration::from_secs(100);
        let parameters =
            Parameters { overtaken_max, change_cost: Duration::ZERO, ..Parameters::default() };
        let mut bench = Bench::with("gleaner", Resources::steady(PROCESSORS), &parameters);
        let mut submitted: Vec<(JobId, Moment)> = vec![];
        for (pass, request) in story {
            let then = bench.now + Duration::from_secs(pass);
            while let Some(end) = bench.next_end().filter(|end| *end < then) {
                bench.go_to(end);
                bench.cycle();
            }
            bench.go_to(then);
            submitted.push((bench.submit(request), then));
            bench.cycle();
        }
        bench.finish();
        for (job, at) in &submitted {
            let waited = bench.starts[job].since(*at);
            let overdue_at = *at + overtaken_max;
            let is_before = |(other, since): &&(JobId, Moment)| {
                since <= at && other != job && bench.starts[other] > overdue_at
            };
            let before = submitted.iter().filter(is_before).count();
            let longest = Duration::from_secs(60) * u32::try_from(before + 1).expect("few");
            prop_assert!(waited <= overtaken_max + longest, "{job}: {waited:?}, {before} before it");
        }
    }
}
