//! Workloads: SWF in and out, and what Ghafoor's equations say of a run.

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    ALL, Allowed, Class, Parameters, Request, Resources, Sizes, named,
};
use proptest::prelude::*;

use super::elastisim::Input;
use super::generate::{Knobs, Kumar, KumarSpeedup, Model};
use super::swf::{SwfJob, SwfLineError, SwfLog};
use super::{ChangeCosts, Outcome, Ramp, Rules, Site, Summary, WorkloadJob, run_on, run_workload};
use crate::campaign::values::Spelt;
use crate::spot::SpotTrace;
use crate::{Lab, Owner};

const LOG: &str = "\
; Version: 2.2
; MaxProcs: 128

   11   566129      5  28826    1  27758    -1    1  28800    -1  5 153  75 18180  3 -1 -1 -1
12 566290 532 26171 1 24666.5 -1 1 28800 -1 1 153 75 18184 3 -1 -1 -1
13 567314 -1 -1 8 -1 -1 8 64800 -1 5 150 6 13592 4 -1 -1 -1
";

fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

fn run(
    policy: &str,
    processors: u32,
    jobs: &[WorkloadJob],
    costs: ChangeCosts,
) -> (Summary, Vec<Outcome>) {
    under(policy, processors, jobs, costs.into())
}

fn under(
    policy: &str,
    processors: u32,
    jobs: &[WorkloadJob],
    rules: Rules,
) -> (Summary, Vec<Outcome>) {
    let policy = (named(policy).expect("a policy").build)(&Parameters::default());
    let mut outcomes = vec![];
    let summary = run_workload(
        jobs.iter().cloned(),
        Resources::steady(processors),
        policy,
        rules,
        |outcome| outcomes.push(*outcome),
    );
    outcomes.sort_by_key(|outcome| outcome.job);
    (summary, outcomes)
}

fn job(number: u32, submit_s: u64, takes_s: u64, class: Class, three: [u32; 3]) -> WorkloadJob {
    let sizes = Sizes::new(three, Allowed::Any).expect("sizes");
    let takes = Duration::from_secs(takes_s);
    let request = Request::new(class, sizes, Some(takes));
    WorkloadJob { number: JobId(number), submitted: at(submit_s), takes, request }
}

#[test]
fn a_log_is_read_and_written_again_as_it_was() {
    let log = SwfLog::read(LOG.as_bytes()).expect("it is in memory");
    assert_eq!((log.jobs.len(), log.broken, log.processors()), (3, 0, Some(128)));
    assert_eq!(log.jobs[1].to_string(), LOG.lines().nth(4).expect("the fifth line"));
    let again = SwfLog::read(log.to_string().as_bytes()).expect("it is in memory");
    assert_eq!(again, log);
    let jobs = log.rigid().expect("jobs");
    assert_eq!(jobs.len(), 2, "the third has not run");
    assert_eq!(jobs[1].request.estimate, Some(Duration::from_secs(28_800)));
    assert_eq!(jobs[1].takes, Duration::from_secs(26_171));
}

#[test]
fn broken_lines_are_counted_and_told_and_the_others_are_read() {
    let text = LOG.replace("28826", "-7").replace("532", "x") + "1 2 3\n\u{0}\n";
    let log = SwfLog::read(text.as_bytes()).expect("it is in memory");
    assert_eq!((log.jobs.len(), log.broken), (1, 4));
    let told: Vec<String> = log.told.iter().map(|(line, why)| format!("{line}: {why}")).collect();
    assert_eq!(
        told,
        [
            "4: a run time of -7 s: expected -1 or more",
            "5: field 3 is `x`: expected a number",
            "7: 3 fields: expected 18",
            "8: 1 fields: expected 18",
        ]
    );
    let many = "1\n".repeat(100);
    let log = SwfLog::read(many.as_bytes()).expect("it is in memory");
    assert_eq!((log.broken, log.told.len()), (100, 20));
    assert_eq!(log.told[0].1, SwfLineError::Fields { found: 1 });
    assert!(SwfJob::parse("").is_err());
}

#[test]
fn what_no_log_has_is_refused_or_told_and_never_capped() {
    let said = |text: &[u8]| SwfLog::read(text).expect_err("it is no log").to_string();
    assert_eq!(said(&vec![0; 100_000]), "line 1: a line of more than 4096 bytes");
    assert!(said(LOG.replace('\n', "\r").as_bytes()).starts_with("line 1: a carriage return"));
    let endless = std::io::BufReader::new(std::io::repeat(b'7'));
    assert!(SwfLog::read(endless).is_err());
    let broken = |from: &str, to: &str| {
        let log = SwfLog::read(LOG.replacen(from, to, 1).as_bytes()).expect("it is in memory");
        log.told.first().map(|(_, why)| why.to_string())
    };
    assert_eq!(broken("28826", "28827"), None);
    let told = broken("28826", "9223372037").expect("292 years");
    assert_eq!(told, "a run time of 9223372037: expected less");
    assert!(SpotTrace::read(std::io::repeat(b'[')).is_err());
    assert!(Input::read(std::io::repeat(b' ')).is_err());
}

#[test]
fn utilisation_and_means_are_what_the_equations_say() {
    // Two jobs of 4 on 8 processors, and one of 8 that waits for both.
    let jobs = [
        job(1, 10, 100, Class::Rigid, [4; 3]),
        job(2, 20, 50, Class::Rigid, [4; 3]),
        job(3, 30, 40, Class::Rigid, [8; 3]),
    ];
    let (summary, outcomes) = run("fcfs", 8, &jobs, ChangeCosts::default());
    let starts: Vec<Moment> = outcomes.iter().map(|outcome| outcome.started).collect();
    assert_eq!(starts, [at(10), at(20), at(110)]);
    assert_eq!(summary.span(), Duration::from_secs(140));
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, {b}");
    close(summary.utilisation(8), (400.0 + 200.0 + 320.0) / (8.0 * 140.0));
    close(summary.mean_turnaround_s(), (100.0 + 50.0 + 120.0) / 3.0);
    close(summary.mean_wait_s(), 80.0 / 3.0);
    close(summary.mean_slowdown(), (1.0 + 1.0 + 3.0) / 3.0);
}

#[test]
fn a_change_of_size_costs_what_it_is_said_to() {
    // 800 processor seconds; alone on 8 for 10 s, then on 4 for the 20 s of the
    // other, then on 8 again: 800 - 80 - 80 = 640 in 80 s, and 4 s twice.
    let jobs = [job(1, 0, 100, Class::Malleable, [4, 8, 8]), job(2, 10, 20, Class::Rigid, [4; 3])];
    let free = ChangeCosts::default();
    let (_, outcomes) = run("ghafoor", 8, &jobs, free);
    assert_eq!(outcomes[0].ended, at(110));
    let costs = ChangeCosts { adaptation: Duration::from_secs(1), ..free };
    let (summary, outcomes) = run("ghafoor", 8, &jobs, costs);
    // Of the 20 s on 4, four are spent on getting there.
    assert_eq!(outcomes[0].ended, at(30 + 4 + 82));
    assert_eq!((summary.adaptations, summary.negotiations), (2, 2));
    // Everything waits while there is a negotiation.
    let costs = ChangeCosts { negotiation: Duration::from_secs(3), ..free };
    let (_, outcomes) = run("ghafoor", 8, &jobs, costs);
    assert_eq!(outcomes[1].started, at(13));
}

#[test]
fn a_negotiation_costs_what_is_drawn_for_it_and_may_come_to_nothing() {
    let jobs = [job(1, 0, 100, Class::Malleable, [4, 8, 8]), job(2, 10, 20, Class::Rigid, [4; 3])];
    let most = ChangeCosts { negotiation: Duration::from_secs(3), ..ChangeCosts::default() };
    let run = |seed, success| {
        let rules = Rules { ramp: Some(Ramp { seed, most, success }), ..Rules::default() };
        under("ghafoor", 8, &jobs, rules)
    };
    let starts: Vec<Moment> = (0..20).map(|seed| run(seed, 100).1[1].started).collect();
    assert!(starts.iter().all(|start| (at(10)..at(13)).contains(start)), "{starts:?}");
    assert!(starts.iter().any(|start| *start != starts[0]), "{starts:?}");
    assert_eq!(run(7, 100), run(7, 100));
    let (summary, outcomes) = run(7, 0);
    assert!(summary.adaptations == 0 && summary.negotiations > 0, "{summary:?}");
    assert_eq!(outcomes[1].started, at(100), "nobody gave it anything");
}

/// Ten parts of 10 s on at most four processors, and a rigid job of two that
/// comes at 15 s: two are given where parts end, at 20 s. The other two do what is left.
#[test]
fn a_bag_gives_processors_where_its_parts_end() {
    let jobs = [job(1, 0, 25, Class::Malleable, [1, 4, 4]), job(2, 15, 5, Class::Rigid, [2; 3])];
    let bags = [(JobId(1), 10), (JobId(2), 2)].into();
    let (summary, outcomes) = under("ghafoor", 4, &jobs, Rules { bags, ..Rules::default() });
    assert_eq!((outcomes[1].started, outcomes[1].ended), (at(20), at(25)));
    assert_eq!(outcomes[0].ended, at(30));
    assert!((summary.used_s - 110.0).abs() < 1e-6, "what is held is what parts take");
    assert_eq!(summary.ended, 2);
}

#[test]
fn the_last_parts_of_a_bag_leave_the_rest_to_others() {
    let jobs = [job(1, 0, 50, Class::Malleable, [2, 2, 2]), job(2, 0, 5, Class::Rigid, [1; 3])];
    let bags = [(JobId(1), 5), (JobId(2), 1)].into();
    let (_, outcomes) = under("fcfs", 2, &jobs, Rules { bags, ..Rules::default() });
    // 20 s each: two at a time until 40, and then one beside the other job.
    assert_eq!((outcomes[0].ended, outcomes[1].started), (at(60), at(40)));
}

/// Kumar 2001, §4.1.1: linear jobs of 64.5 s on 64 processors in the mean, 16 to
/// 64 at least. All processors work whenever there is a job, so this is an
/// M/M/1 queue: 74, 95 and 182 s, where his Table 4.2 prints 69.9, 82.6 and
/// 114.6. His utilisation is had.
#[test]
fn uniform_first_fit_with_linear_jobs_is_an_m_m_1_queue() {
    let takes = Spelt(Duration::from_millis(64_500));
    let (jobs, speedup) = (20_000, KumarSpeedup::Linear);
    let model =
        Model::Kumar(Kumar { jobs, least: 16, takes, speedup, profit: None, one_stream: false });
    for (gap_s, queue_s, printed) in
        [(500, 74.05, 0.1284), (200, 95.2, 0.3205), (100, 181.7, 0.6391)]
    {
        let gap = Duration::from_secs(gap_s);
        let knobs = Knobs { seed: 2001, gap, malleable: 100, range: None };
        let jobs: Vec<WorkloadJob> = model.jobs(knobs).collect();
        let (summary, _) = run("kumar-uniform", 64, &jobs, ChangeCosts::default());
        let load = 64.5 / gap.as_secs_f64();
        assert!((64.5 / (1.0 - load) - queue_s).abs() < 0.1, "that is what such a queue takes");
        let mean = summary.mean_turnaround_s();
        assert!((mean / queue_s - 1.0).abs() < 0.05, "{mean} s, and not {queue_s} s");
        let utilisation = summary.utilisation(64);
        assert!((utilisation / printed - 1.0).abs() < 0.03, "{utilisation}");
    }
}

fn on_site(policy: &str, site: &Site, jobs: &[WorkloadJob]) -> (Summary, Vec<Outcome>) {
    let named = named(policy).expect("a policy");
    let build = || (named.build)(&Parameters::default());
    let mut outcomes = vec![];
    let costs = ChangeCosts::default();
    let summary =
        run_on(jobs.iter().cloned(), site, build, costs, |outcome| outcomes.push(*outcome));
    outcomes.sort_by_key(|outcome| outcome.job);
    (summary, outcomes)
}

fn lab(changes: &[&[u64]]) -> Lab {
    let owner = |changes: &&[u64]| Owner {
        idle: true,
        changes: changes.iter().map(|s| Duration::from_secs(*s)).collect(),
        ..Owner::default()
    };
    let owners: Vec<Owner> = changes.iter().map(owner).collect();
    Lab::of_owners(&owners, Duration::from_secs(1_000))
}

#[test]
fn a_malleable_job_gives_way_to_an_owner_and_takes_the_workstation_again() {
    // 40 processor seconds on 4: 20 by the owner's return, 15 on three by its
    // leaving, the last five on four.
    let site = Site::with_owners(lab(&[&[5, 10], &[], &[], &[]]));
    let jobs = [job(1, 0, 10, Class::Malleable, [1, 4, 4])];
    let (summary, outcomes) = on_site("equipartition", &site, &jobs);
    assert_eq!(outcomes[0].ended, at(11) + Duration::from_millis(250));
    assert_eq!((summary.taken_by_owners, summary.returned, summary.left), (1, 0, 0));
    assert_eq!(outcomes[0].adaptations, 2);
    assert!((summary.held() - 1.0).abs() < 1e-9, "all that owners left was used");
}

#[test]
fn a_rigid_job_moves_if_it_can_and_waits_again_if_it_cannot() {
    let jobs = [job(1, 0, 20, Class::Rigid, [2; 3])];
    let moves = Site::with_owners(lab(&[&[5, 30], &[5, 30], &[], &[]]));
    let (summary, outcomes) = on_site("fcfs", &moves, &jobs);
    assert_eq!((summary.returned, outcomes[0].ended), (0, at(20)));
    let waits = Site::with_owners(lab(&[&[5, 30], &[]]));
    let (summary, outcomes) = on_site("fcfs", &waits, &jobs);
    assert_eq!((summary.taken_by_owners, summary.returned), (1, 1));
    assert_eq!((outcomes[0].started, outcomes[0].ended), (at(0), at(45)));
    let forgets = Site { keeps_work: false, ..waits };
    let (_, outcomes) = on_site("fcfs", &forgets, &jobs);
    assert_eq!(outcomes[0].ended, at(50));
}

#[test]
fn what_has_not_ended_with_the_owners_log_is_left() {
    let site = Site::with_owners(lab(&[&[]]));
    let jobs = [job(1, 0, 999, Class::Rigid, [1; 3]), job(2, 1, 9, Class::Rigid, [1; 3])];
    let (summary, _) = on_site("fcfs", &site, &jobs);
    assert_eq!((summary.ended, summary.left), (1, 1));
}

#[test]
fn a_job_stays_in_the_group_that_had_most_room() {
    let site = Site::grouped(vec![2, 4]);
    let jobs = [
        job(1, 0, 10, Class::Malleable, [2, 2, 6]),
        job(2, 1, 10, Class::Rigid, [2; 3]),
        // Nowhere are four free: it waits where there are as many, for the first.
        job(3, 2, 10, Class::Rigid, [4; 3]),
        job(4, 3, 10, Class::Rigid, [5; 3]),
    ];
    let (summary, outcomes) = on_site("fcfs", &site, &jobs);
    let starts: Vec<Moment> = outcomes.iter().map(|outcome| outcome.started).collect();
    assert_eq!(starts, [at(0), at(1), at(10)]);
    assert_eq!(summary.refused, 1);
}

#[test]
fn with_a_barrier_processors_are_held_until_it_is_over_and_counted_as_lost() {
    // Bagga 2014, §4.1: 14.867 10⁹ cycles on five processors of 3.8 GHz hold 19
    // of them in the one second that it takes, 4.13 too many.
    let takes = Duration::from_secs_f64(14.867_457_867 / (5.0 * 2.8));
    let mut one = job(1, 0, 1, Class::Rigid, [5; 3]);
    (one.takes, one.request.estimate, one.request.speed) = (takes, Some(takes), Some(2.8));
    let barrier = Some(Duration::from_secs(1));
    let site = Site { speed: 3.8, barrier, ..Site::steady(20) };
    let (summary, outcomes) = on_site("sdf", &site, &[one]);
    assert_eq!(outcomes[0].ended, at(1));
    assert!((summary.lost_s * 3.8 - 4.132_542_133).abs() < 1e-6, "{}", summary.lost_s * 3.8);
}

fn any_job(number: u32) -> impl Strategy<Value = WorkloadJob> {
    let class = prop::sample::select(vec![Class::Rigid, Class::Moldable, Class::Malleable]);
    (0..200_u64, 1..60_u64, class, [1..=16_u32, 1..=16, 1..=16]).prop_map(
        move |(submit, takes, class, mut three)| {
            three.sort_unstable();
            let three = if class == Class::Rigid { [three[1]; 3] } else { three };
            job(number, submit, takes, class, three)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Linear jobs without costs: all the work that was brought is done, no
    /// more is used than there is, and nobody ends before it can.
    #[test]
    fn the_work_that_comes_is_the_work_that_is_done(
        jobs in prop::collection::vec(any_job(0), 1..25)
    ) {
        let mut jobs = jobs;
        jobs.sort_by_key(|job| job.submitted);
        (0..).zip(&mut jobs).for_each(|(number, job)| job.number = JobId(number));
        let work = |job: &WorkloadJob| {
            job.takes.as_secs_f64() * f64::from(job.request.sizes.preferred())
        };
        for policy in ALL {
            let (summary, outcomes) = run(policy.name, 16, &jobs, ChangeCosts::default());
            let ended = outcomes.iter().map(|outcome| work(&jobs[outcome.job.0 as usize]));
            let ended: f64 = ended.sum();
            prop_assert!((summary.used_s - ended).abs() < 1e-3, "{}", policy.name);
            prop_assert_eq!(summary.left, 0, "{}", policy.name);
            prop_assert_eq!(summary.ended + summary.refused, jobs.len() as u64);
            prop_assert!(summary.utilisation(16) <= 1.0 + 1e-9);
            for outcome in &outcomes {
                let job = &jobs[outcome.job.0 as usize];
                let least = work(job) / f64::from(job.request.sizes.max());
                prop_assert!(outcome.execution().as_secs_f64() > least - 1e-6);
            }
        }
    }

    /// Whatever owners do: nobody uses more than they leave, and a job that has
    /// ended has done its work once.
    #[test]
    fn owners_take_and_leave_and_no_work_is_lost_nor_gained(
        jobs in prop::collection::vec(any_job(0), 1..12),
        owners in prop::collection::vec(prop::collection::btree_set(1..400_u64, 0..8), 4..9)
    ) {
        let mut jobs = jobs;
        jobs.sort_by_key(|job| job.submitted);
        (0..).zip(&mut jobs).for_each(|(number, job)| job.number = JobId(number));
        let owners: Vec<Vec<u64>> =
            owners.into_iter().map(|changes| changes.into_iter().collect()).collect();
        let changes: Vec<&[u64]> = owners.iter().map(Vec::as_slice).collect();
        let site = Site::with_owners(lab(&changes));
        for policy in ALL {
            let (summary, outcomes) = on_site(policy.name, &site, &jobs);
            let all = summary.ended + summary.refused + summary.left;
            prop_assert_eq!(all, jobs.len() as u64, "{}", policy.name);
            prop_assert!(summary.used_s <= summary.available_s + 1e-3, "{}", policy.name);
            for outcome in &outcomes {
                let job = &jobs[outcome.job.0 as usize];
                let work =
                    job.takes.as_secs_f64() * f64::from(job.request.sizes.preferred());
                prop_assert!((outcome.used_s - work).abs() < 1e-3, "{}: {outcome:?}", policy.name);
            }
        }
    }
}
