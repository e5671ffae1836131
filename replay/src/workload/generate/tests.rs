//! What is generated is what its model says.

use std::time::Duration;

use gleaner_coordinator_core::scheduler::Class;
use proptest::prelude::{any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::*;
use crate::campaign::values::Spelt;

fn seconds(s: u64) -> Spelt {
    Spelt(Duration::from_secs(s))
}

fn knobs(gap_s: f64) -> Knobs {
    Knobs { seed: 7, gap: Duration::from_secs_f64(gap_s), malleable: 0, range: None }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, many) = values.fold((0.0, 0.0), |(sum, many), value| (sum + value, many + 1.0));
    sum / many
}

#[track_caller]
fn near(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{found}, and not {expected}");
}

fn gap_s(jobs: &[WorkloadJob]) -> f64 {
    let last = jobs.last().map_or(0.0, |job| Duration::from_nanos(job.submitted.0).as_secs_f64());
    last / jobs.len() as f64
}

#[test]
fn downeys_jobs_are_uniform_in_their_logarithms() {
    let model = Downey { jobs: 20_000, sizes: [16, 128], times: [seconds(100), seconds(3_600)] };
    let jobs: Vec<WorkloadJob> = Model::Downey(model).jobs(knobs(20.0)).collect();
    near(mean(jobs.iter().map(|job| job.takes.as_secs_f64())), 3_500.0 / 36_f64.ln(), 0.03);
    let sizes = jobs.iter().map(|job| f64::from(job.request.sizes.preferred()));
    near(mean(sizes), 113.0 / (129.0_f64 / 16.0).ln() - 0.5, 0.02);
    near(gap_s(&jobs), 20.0, 0.03);
    assert!(jobs.iter().all(|job| (16..=128).contains(&job.request.sizes.min())));
}

/// On a ramp from 2 s to 8 s the mean is a third of the way, and half of what is
/// drawn is below 1 - 1/√2 of it.
#[test]
fn what_is_drawn_on_a_ramp_is_the_less_likely_the_larger() {
    let mut draws = Draws::seeded(7);
    let bounds = [2, 8].map(Duration::from_secs);
    let costs: Vec<f64> = (0..20_000).map(|_| draws.ramp_span(bounds).as_secs_f64()).collect();
    assert!(costs.iter().all(|cost| (2.0..=8.0).contains(cost)));
    near(mean(costs.iter().copied()), 4.0, 0.02);
    let half = 2.0 + 6.0 * (1.0 - 0.5_f64.sqrt());
    near(costs.iter().filter(|cost| **cost < half).count() as f64, 10_000.0, 0.03);
}

#[test]
fn a_share_of_malleable_jobs_changes_nothing_else() {
    let downey = Downey { jobs: 1_000, sizes: [16, 128], times: [seconds(100), seconds(3_600)] };
    let model = Model::Downey(downey);
    let range = Some(Range::Processors { min: 2, max: 64 });
    let with = |malleable| -> Vec<WorkloadJob> {
        model.jobs(Knobs { malleable, range, ..knobs(20.0) }).collect()
    };
    let rigid = with(0);
    for percent in [10, 33, 100] {
        let mixed = with(percent);
        let malleable = mixed.iter().filter(|job| job.request.class == Class::Malleable);
        assert_eq!(malleable.count(), percent as usize * 10);
        for (one, other) in rigid.iter().zip(&mixed) {
            assert_eq!(one.submitted, other.submitted);
            // The work is the same, also of jobs larger than their range.
            let work = |job: &WorkloadJob| {
                job.takes.as_secs_f64() * f64::from(job.request.sizes.preferred())
            };
            near(work(one), work(other), 1e-6);
        }
    }
}

#[test]
fn kumars_jobs_hold_the_same_work_whether_they_adapt_or_not() {
    for (speedup, least) in [(KumarSpeedup::Linear, 16), (KumarSpeedup::Table, 1)] {
        let takes = Spelt(Duration::from_millis(64_500));
        let kumar = Kumar { jobs: 20_000, least, takes, speedup, profit: None, one_stream: false };
        let model = Model::Kumar(kumar);
        let with = |malleable| -> Vec<WorkloadJob> {
            model.jobs(Knobs { malleable, ..knobs(100.0) }).collect()
        };
        let (adaptive, traditional) = (with(100), with(0));
        near(mean(adaptive.iter().map(|job| job.takes.as_secs_f64())), 64.5, 0.03);
        for (one, other) in adaptive.iter().zip(&traditional).take(100) {
            assert_eq!(one.request.sizes.min(), other.request.sizes.preferred());
            let on = |job: &WorkloadJob| {
                job.takes.as_secs_f64() * job.request.speedup.at(job.request.sizes.preferred())
            };
            near(on(one), on(other), 1e-6);
            assert_eq!(other.request.class, Class::Rigid);
        }
    }
}

#[test]
fn koalas_programs_take_what_is_printed_of_figure_6() {
    let model = Model::Koala(Koala { jobs: 300 });
    let jobs: Vec<WorkloadJob> = model.jobs(Knobs { malleable: 100, ..knobs(120.0) }).collect();
    let takes = |job: &WorkloadJob, size| job.takes.as_secs_f64() / job.request.rate(size);
    let mut seen = [0, 0];
    for job in &jobs {
        let is_gadget = job.request.sizes.max() == 46;
        let (on_two, best) = if is_gadget { (600.0, 240.0) } else { (120.0, 60.0) };
        near(takes(job, 2), on_two, 1e-9);
        near(takes(job, job.request.sizes.max()), best, 1e-9);
        assert!(is_gadget || !job.request.sizes.contains(6), "FT takes powers of two");
        seen[usize::from(is_gadget)] += 1;
    }
    assert_eq!(jobs.len(), 300);
    assert!(seen.iter().all(|seen| (120..=180).contains(seen)), "{seen:?}");
    let rigid = model.jobs(Knobs { malleable: 50, ..knobs(120.0) });
    let rigid = rigid.filter(|job| job.request.sizes.max() == 2).count();
    assert!((120..=180).contains(&rigid), "{rigid}");
}

#[test]
fn baggas_worked_job_demands_five_processors() {
    let bagga = Bagga {
        batches: 50,
        jobs: [2, 4],
        burst: [14.867_457_867, 14.867_457_867],
        meant: 2.8,
        most: 20,
    };
    let jobs: Vec<WorkloadJob> = Model::Bagga(bagga).jobs(knobs(1.0)).collect();
    assert!(jobs.iter().all(|job| job.request.sizes.preferred() == 5));
    near(jobs[0].takes.as_secs_f64(), 14.867_457_867 / 14.0, 1e-9);
    let mut batches: Vec<_> = jobs.iter().map(|job| job.submitted).collect();
    batches.dedup();
    assert_eq!(batches.len(), 50);
    assert!((100..=200).contains(&jobs.len()));
}

#[test]
fn what_no_model_can_be_made_of_is_told() {
    let downey = |sizes, times| Model::Downey(Downey { jobs: 1, sizes, times });
    for (model, told) in [
        (downey([0, 4], [seconds(1), seconds(2)]), "`sizes`: expected"),
        (downey([4, 2], [seconds(1), seconds(2)]), "`sizes`: expected"),
        (downey([1, 2], [seconds(3), seconds(2)]), "`times`: expected"),
        (Model::Koala(Koala { jobs: 0 }), "`jobs`: expected at least one"),
    ] {
        let error = model.check(None).expect_err("no model").to_string();
        assert!(error.starts_with(told), "{error}");
    }
    let range = "2-16".parse().ok();
    assert_eq!(Model::Koala(Koala { jobs: 1 }).check(range), Err(ModelError::Range("koala")));
    for text in ["", "2", "0-4", "4-2", "50%-200", "a-b", "2-4-8"] {
        assert!(text.parse::<Range>().is_err(), "{text}");
    }
}

proptest! {
    /// Whatever is drawn can be run: sizes in order, and on the same processors
    /// twice the same.
    #[test]
    fn every_mixed_job_is_one_that_runs(
        seed in any::<u64>(), malleable in 0..=100_u32, moldable in 0..=100_u32,
        powers_of_two in any::<bool>(), least in 1..40_u32, more in 0..200_u32,
        range in prop::sample::select(vec!["50%-200%", "2-16", "1%-100%"])
    ) {
        let model = Model::Mixed(Mixed {
            jobs: 60,
            sizes: [least, least + more],
            powers_of_two,
            times: [seconds(10), seconds(1_000)],
            moldable,
            parallel: Some([0.5, 1.0]),
            estimates: [1.0, 5.0],
        });
        prop_assert_eq!(model.check(None), Ok(()));
        let knobs = Knobs { seed, malleable, range: range.parse().ok(), ..knobs(5.0) };
        let jobs: Vec<WorkloadJob> = model.jobs(knobs).collect();
        prop_assert_eq!(jobs.len(), 60);
        for job in &jobs {
            prop_assert_eq!(job.request.check(), Ok(()));
            prop_assert!(job.request.estimate >= Some(job.takes));
        }
        prop_assert!(jobs.iter().is_sorted_by_key(|job| job.submitted));
        prop_assert_eq!(model.jobs(knobs).collect::<Vec<_>>(), jobs);
    }
}
