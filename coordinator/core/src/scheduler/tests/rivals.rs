//! First come first served and backfilling beside slow schedulers that do what
//! the definitions say, second by second.

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use proptest::prelude::*;

use super::bench::{at, rigid};
use crate::scheduler::{Decision, Fact, Parameters, Reason, Request, Resources, Scheduler, named};

const PROCESSORS: u32 = 8;

#[derive(Clone, Debug)]
struct Job {
    submit: u64,
    size: u32,
    estimate: u64,
    takes: u64,
}

/// When each job starts, by our scheduler.
fn ours(policy: &str, jobs: &[Job]) -> Vec<u64> {
    let policy = (named(policy).expect("a policy").build)(&Parameters::default());
    let mut scheduler = Scheduler::new(Resources::steady(PROCESSORS), policy);
    let mut starts = vec![None; jobs.len()];
    for now in 0.. {
        let mut is_news = false;
        for (index, job) in jobs.iter().enumerate() {
            let id = JobId(u32::try_from(index).expect("few"));
            if job.submit == now {
                let request = Box::new(rigid(job.size, job.estimate));
                scheduler.handle(at(now), Fact::Submitted { job: id, request });
                is_news = true;
            }
            if starts[index].is_some_and(|start| start + job.takes == now) {
                scheduler.handle(at(now), Fact::Ended { job: id });
                is_news = true;
            }
        }
        // Nothing is asked of it when nothing has happened.
        for decision in if is_news { scheduler.cycle(at(now)) } else { vec![] } {
            if let Decision::Start { job, .. } = decision {
                starts[job.0 as usize] = Some(now);
            }
        }
        let ended =
            |(job, start): (&Job, &Option<u64>)| start.is_some_and(|s| s + job.takes <= now);
        if jobs.iter().zip(&starts).all(ended) {
            break;
        }
        assert!(now < 10_000, "somebody starves: {scheduler:?}");
    }
    starts.into_iter().map(|start| start.expect("started")).collect()
}

/// Who starts now, of those that wait in order: by the definition.
type Rule = fn(&[Job], &[usize], &[Option<u64>], u64) -> Vec<usize>;

fn reference(rule: Rule, jobs: &[Job]) -> Vec<u64> {
    let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
    for now in 0..10_000 {
        let has_ended = |i: usize| starts[i].is_some_and(|s| s + jobs[i].takes == now);
        let is_news = (0..jobs.len()).any(|i| jobs[i].submit == now || has_ended(i));
        if is_news {
            let mut waiting: Vec<usize> = (0..jobs.len())
                .filter(|i| jobs[*i].submit <= now && starts[*i].is_none())
                .collect();
            waiting.sort_by_key(|i| (jobs[*i].submit, *i));
            for i in rule(jobs, &waiting, &starts, now) {
                starts[i] = Some(now);
            }
        }
        if starts.iter().all(Option::is_some) {
            break;
        }
    }
    starts.into_iter().map(|start| start.expect("started")).collect()
}

/// What is used at a second, as far as is known now.
fn used(jobs: &[Job], starts: &[Option<u64>], now: u64, then: u64) -> u32 {
    let runs = |(job, start): (&Job, &Option<u64>)| {
        let start = (*start)?;
        let is_running = start + job.takes > now;
        // Nobody knows when a job ends that outlives its estimate: any moment.
        let end = (start + job.estimate).max(now + 1);
        (is_running && then >= now && then < end).then_some(job.size)
    };
    jobs.iter().zip(starts).filter_map(runs).sum()
}

fn fcfs(jobs: &[Job], waiting: &[usize], starts: &[Option<u64>], now: u64) -> Vec<usize> {
    let mut free = PROCESSORS - used(jobs, starts, now, now);
    let mut fits = |i: &&usize| {
        let fits = jobs[**i].size <= free;
        free -= if fits { jobs[**i].size } else { 0 };
        fits
    };
    waiting.iter().take_while(&mut fits).copied().collect()
}

fn easy(jobs: &[Job], waiting: &[usize], starts: &[Option<u64>], now: u64) -> Vec<usize> {
    let mut starts = starts.to_vec();
    let mut begun = fcfs(jobs, waiting, &starts, now);
    for i in &begun {
        starts[*i] = Some(now);
    }
    let Some((first, behind)) = waiting[begun.len()..].split_first() else { return begun };
    let free = |starts: &[Option<u64>], then| PROCESSORS - used(jobs, starts, now, then);
    // The first second at which the first fits.
    let shadow =
        (now..now + 10_000).find(|then| free(&starts, *then) >= jobs[*first].size).expect("ever");
    let mut extra = free(&starts, shadow) - jobs[*first].size;
    for i in behind {
        let job = &jobs[*i];
        let is_short = now + job.estimate <= shadow;
        if job.size <= free(&starts, now) && (is_short || job.size <= extra) {
            extra -= if is_short { 0 } else { job.size };
            starts[*i] = Some(now);
            begun.push(*i);
        }
    }
    begun
}

fn conservative(jobs: &[Job], waiting: &[usize], starts: &[Option<u64>], now: u64) -> Vec<usize> {
    // Second by second, what is free when all before are given theirs.
    let mut free: Vec<u32> =
        (now..now + 4_000).map(|then| PROCESSORS - used(jobs, starts, now, then)).collect();
    let mut begun = vec![];
    for i in waiting {
        let (size, takes) = (jobs[*i].size, usize::try_from(jobs[*i].estimate).expect("small"));
        let fits = |from: &usize| free[*from..*from + takes].iter().all(|free| *free >= size);
        let from = (0..2_000).find(fits).expect("ever");
        free[from..from + takes].iter_mut().for_each(|free| *free -= size);
        if from == 0 {
            begun.push(*i);
        }
    }
    begun
}

fn any_jobs(exact: bool) -> impl Strategy<Value = Vec<Job>> {
    let job = (0..60_u64, 1..=PROCESSORS, 1..25_u64, 1..25_u64);
    let jobs = prop::collection::vec(job, 1..24);
    jobs.prop_map(move |jobs| {
        let job = |(submit, size, a, b): (u64, u32, u64, u64)| {
            let takes = if exact { a } else { a.min(b) };
            Job { submit, size, estimate: a, takes }
        };
        jobs.into_iter().map(job).collect()
    })
}

proptest! {
    #[test]
    fn whoever_comes_first_is_served_first(jobs in any_jobs(false)) {
        prop_assert_eq!(ours("fcfs", &jobs), reference(fcfs, &jobs));
    }

    #[test]
    fn easy_decides_as_its_definition_does(jobs in any_jobs(false)) {
        prop_assert_eq!(ours("easy", &jobs), reference(easy, &jobs));
    }

    #[test]
    fn conservative_decides_as_its_definition_does(jobs in any_jobs(false)) {
        prop_assert_eq!(ours("conservative", &jobs), reference(conservative, &jobs));
    }

    /// No starvation: with estimates that hold, nobody in the queue is delayed
    /// by whoever comes later.
    #[test]
    fn under_conservative_nobody_is_delayed_by_later_ones(jobs in any_jobs(true), kept in 1..24_usize) {
        let mut jobs = jobs;
        jobs.sort_by_key(|job| job.submit);
        let first = &jobs[..kept.min(jobs.len())];
        let alone = ours("conservative", first);
        let together = ours("conservative", &jobs);
        prop_assert_eq!(&alone[..], &together[..first.len()]);
    }
}

#[test]
fn the_first_is_promised_a_start_and_only_whoever_keeps_it_overtakes() {
    let policy = (named("easy").expect("a policy").build)(&Parameters::default());
    let mut scheduler = Scheduler::new(Resources::steady(10), policy);
    let jobs = [(6, 100), (8, 50), (3, 200), (2, 300), (2, 90)];
    for (id, (size, takes)) in (1..).zip(jobs) {
        let request = Box::new(rigid(size, takes));
        scheduler.handle(at(0), Fact::Submitted { job: JobId(id), request });
    }
    let start = |job, size| Decision::Start { job: JobId(job), size };
    assert_eq!(
        scheduler.cycle(at(0)),
        [
            start(1, 6),
            Decision::Reserve { job: JobId(2), size: 8, start: at(100) },
            // Of ten, eight are the second's from 100 on: two may stay longer.
            start(4, 2),
            start(5, 2),
        ]
    );
    let why = scheduler.why(JobId(2)).expect("it waits").to_string();
    assert_eq!(why, "it was promised a start, which is not yet");
    let span = Duration::from_secs(1);
    scheduler.handle(at(0) + span, Fact::Ended { job: JobId(5) });
    assert_eq!(scheduler.cycle(at(0) + span).len(), 1, "the promise, once more");
}

/// The third was begun for as long as it likes, though the second was promised both
/// when the first ends: the plan had less than nothing there.
#[test]
fn nobody_without_an_estimate_overtakes_who_waits_for_one_without() {
    let policy = (named("conservative").expect("a policy").build)(&Parameters::default());
    let mut scheduler = Scheduler::new(Resources::steady(2), policy);
    let unknown = |size| Request::rigid(size, None).expect("a request");
    for (id, request) in (1..).zip([unknown(1), unknown(2), unknown(1), rigid(1, 100)]) {
        scheduler.handle(at(0), Fact::Submitted { job: JobId(id), request: Box::new(request) });
    }
    let start = |job, size| Decision::Start { job: JobId(job), size };
    let promise = Decision::Reserve { job: JobId(2), size: 2, start: Moment::MAX };
    assert_eq!(scheduler.cycle(at(0)), [start(1, 1), promise, start(4, 1)]);
    assert_eq!(scheduler.why(JobId(3)), Some(Reason::Behind(JobId(2))));
    scheduler.handle(at(100), Fact::Ended { job: JobId(4) });
    assert_eq!(scheduler.cycle(at(100)), [promise]);
    scheduler.handle(at(200), Fact::Ended { job: JobId(1) });
    assert_eq!(scheduler.cycle(at(200))[0], start(2, 2));
}
