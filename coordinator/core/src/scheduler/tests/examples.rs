//! What the four works print, worked by hand.

use std::time::Duration;

use gleaner_common::id::JobId;

use super::bench::{Bench, at, malleable, rigid};
use crate::scheduler::{
    Allowed, Class, Decision, Fact, Obligation, Parameters, Profit, Reason, Request, Resources,
    Sizes,
};

const ANY: Allowed = Allowed::Any;

fn shrinks(decisions: &[Decision]) -> Vec<(u32, u32)> {
    let shrink = |decision: &Decision| {
        let Decision::Shrink { job, by, .. } = decision else { return None };
        Some((job.0, *by))
    };
    decisions.iter().filter_map(shrink).collect()
}

fn grows(decisions: &[Decision]) -> Vec<(u32, u32)> {
    let grow = |decision: &Decision| {
        let Decision::Grow { job, by, .. } = decision else { return None };
        Some((job.0, *by))
    };
    decisions.iter().filter_map(grow).collect()
}

// Kumar 2001.

#[test]
fn kumars_three_jobs_share_128_processors_as_43_43_and_42() {
    // §3.2.2: J1, J2 and J3, 32 at least, 100 s on all 128.
    let mut bench = Bench::new("kumar-uniform", Resources::steady(128));
    for _ in 0..3 {
        bench.submit(malleable([32, 128, 128], ANY, 100));
    }
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 43), (2, 43), (3, 42)]);
    bench.finish();
    let ends: Vec<f64> = bench.ends.values().map(|end| end.since(at(0)).as_secs_f64()).collect();
    // He prints 297.6, 297.6 and 304: the last forgets that J3 has all 128
    // processors once the others have ended, as his own rule says.
    assert!((ends[0] - 12_800.0 / 43.0).abs() < 1e-6 && (ends[1] - ends[0]).abs() < 1e-9);
    assert!((ends[2] - 300.0).abs() < 1e-6, "{ends:?}");
}

#[test]
fn kumars_jobs_one_after_another_take_200_s_in_the_mean() {
    let mut bench = Bench::new("fcfs", Resources::steady(128));
    for _ in 0..3 {
        bench.submit(malleable([32, 128, 128], ANY, 100));
    }
    bench.finish();
    assert_eq!(bench.ends.values().copied().collect::<Vec<_>>(), [at(100), at(200), at(300)]);
}

#[test]
fn uniform_first_fit_passes_over_whoever_does_not_fit_on_its_minimum() {
    let mut bench = Bench::new("kumar-uniform", Resources::steady(16));
    let jobs = [rigid(10, 50), rigid(8, 10), malleable([2, 4, 8], ANY, 10)];
    let [_, large, _] = jobs.map(|job| bench.submit(job));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 10), (3, 6)]);
    let why = bench.scheduler.why(large);
    assert_eq!(why, Some(Reason::TooFewFree { needs: 8, free: 6 }));
}

fn paying(three: [u32; 3], takes_s: u64, deadline_s: u64, most: f64) -> Request {
    let profit = Some(Profit::of(most, at(0), at(deadline_s)));
    let deadline = Some(at(deadline_s));
    Request { deadline, profit, ..malleable(three, ANY, takes_s) }
}

#[test]
fn a_job_is_accepted_on_the_processors_that_lose_least() {
    // 10 processors. A would end at 40 on all of them and at 80 on 5: no loss
    // while its full profit lasts, which is until 100.
    let mut bench = Bench::new("kumar-profit", Resources::steady(10));
    bench.submit(paying([1, 10, 10], 40, 200, 100.0));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 10)], "what is idle goes to running jobs");
    // B needs 5 to end by its deadline, 40 s, and pays all of it by 20 s, which
    // takes 10; each processor more pays B more than A loses.
    bench.submit(paying([1, 10, 10], 20, 40, 1000.0));
    bench.cycle();
    let sizes = bench.sizes();
    assert_eq!(sizes.iter().map(|(_, size)| size).sum::<u32>(), 10);
    assert!(sizes[1].1 >= 5 && sizes[0].1 >= 2, "{sizes:?}");
}

#[test]
fn a_job_that_brings_less_than_others_lose_is_refused() {
    // Either ends in time only on all ten.
    let mut bench = Bench::new("kumar-profit", Resources::steady(10));
    bench.submit(paying([1, 10, 10], 100, 220, 1000.0));
    bench.cycle();
    // B needs 5 at least; A on 5 ends at 200, where it brings 1000 × 20 / 110.
    let poor = bench.submit(paying([1, 10, 10], 100, 200, 10.0));
    let decisions = bench.cycle();
    let [Decision::Refuse { job, reason: Reason::Unprofitable { gain } }] = decisions[..] else {
        panic!("{decisions:?}")
    };
    assert_eq!(job, poor);
    assert!((gain - (0.0 - (1000.0 - 1000.0 * 20.0 / 110.0))).abs() < 1e-6, "{gain}");
    assert_eq!(bench.sizes(), [(1, 10)]);
    // A job that cannot end in time at all.
    let late = paying([1, 10, 10], 100, 90, 1e6);
    let why = bench.scheduler.ask(at(0), &late).expect_err("too late");
    assert!(matches!(why, Reason::Deadline { needs: 10, .. }), "{why:?}");
    assert_eq!(
        why.to_string(),
        "it needs 10 processors to end before its deadline, and 5 can be had"
    );
}

#[test]
fn the_lazy_strategy_keeps_a_job_that_fits_when_the_first_deadline_is_over() {
    // A needs all ten until 100; B needs six for 50 s by 400.
    for (policy, is_kept) in [("kumar-profit", false), ("kumar-lazy", true)] {
        let mut bench = Bench::new(policy, Resources::steady(10));
        bench.submit(paying([10, 10, 10], 100, 110, 1000.0));
        bench.cycle();
        let later = paying([6, 6, 6], 50, 400, 10.0);
        assert!(bench.scheduler.ask(at(0), &later).is_err(), "no look-ahead yet");
        let job = bench.submit(later.clone());
        bench.cycle();
        assert_eq!(bench.scheduler.why(job).is_some(), is_kept, "{policy}");
        if is_kept {
            assert_eq!(bench.scheduler.why(job), Some(Reason::LookAhead(JobId(1))));
            // A third would not fit beside it at the look-ahead.
            assert!(bench.scheduler.ask(at(0), &later).is_err());
            let small = paying([4, 4, 4], 50, 400, 10.0);
            assert_eq!(bench.scheduler.ask(at(0), &small), Ok(()));
        }
        bench.finish();
        assert_eq!(bench.ends.get(&job).copied(), is_kept.then_some(at(150)));
    }
}

// Ghafoor 2007.

#[test]
fn asked_for_five_a_job_of_powers_of_two_gives_six_and_the_new_one_starts_on_eight() {
    // §3.1.1.1, Figure 3.2: three idle, and one of 2 to 16 on eight.
    let mut bench = Bench::new("ghafoor", Resources::steady(11));
    bench.submit(malleable([2, 8, 8], Allowed::PowersOfTwo, 1_000));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 8)]);
    bench.submit(rigid(8, 100));
    let decisions = bench.cycle();
    assert_eq!(shrinks(&decisions), [(1, 5)]);
    assert_eq!(bench.sizes(), [(1, 2), (2, 8)]);
    assert_eq!(bench.scheduler.state().free(), 1);
}

#[test]
fn a_job_that_ends_lets_others_start_and_the_earliest_started_grow() {
    // §3.1.1.2, Figure 3.3.
    let mut bench = Bench::new("ghafoor", Resources::steady(12));
    for job in [rigid(6, 10), malleable([2, 2, 5], ANY, 900), malleable([2, 2, 9], ANY, 900)] {
        bench.submit(job);
    }
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 6), (2, 4), (3, 2)]);
    let decisions = bench.cycle();
    assert_eq!(decisions, []);
    bench.go_to(at(10));
    assert_eq!(grows(&bench.cycle()), [(2, 1), (3, 5)]);
}

#[test]
fn what_an_evolving_job_gives_up_starts_whoever_waits() {
    // §3.1.1.3, Figure 3.4.
    let mut bench = Bench::new("ghafoor", Resources::steady(8));
    let sizes = Sizes::new([1, 8, 8], ANY).expect("sizes");
    let evolving = Request { class: Class::Evolving, sizes, ..rigid(8, 100) };
    let job = bench.submit(evolving);
    bench.cycle();
    bench.submit(rigid(3, 10));
    assert_eq!(shrinks(&bench.cycle()), [], "only malleable jobs are asked");
    bench.tell(Fact::Resized { job, size: 4 });
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (2, 3)]);
}

#[test]
fn an_evolving_job_that_asks_for_24_is_offered_15_and_takes_8() {
    // §3.1.1.4, Figure 3.5: on eight; five idle, and three malleable jobs that
    // can give one, two and seven.
    let mut bench = Bench::new("ghafoor", Resources::steady(34));
    let sizes = Sizes::new([8, 8, 32], Allowed::PowersOfTwo).expect("sizes");
    bench.submit(malleable([5, 5, 6], ANY, 900));
    bench.submit(malleable([5, 5, 7], ANY, 900));
    bench.submit(malleable([1, 1, 8], ANY, 900));
    bench.cycle();
    let evolving = Request { class: Class::Evolving, sizes, ..malleable([1; 3], ANY, 900) };
    let job = bench.submit(evolving);
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 6), (2, 7), (3, 8), (4, 8)]);
    assert_eq!(bench.scheduler.state().free(), 5);
    bench.tell(Fact::Asked { job, more: 24, is_answer: false });
    let decisions = bench.cycle();
    assert_eq!(decisions[0], Decision::Offer { job, up_to: 15 });
    assert_eq!(shrinks(&decisions), [(1, 1), (2, 2)]);
    assert_eq!(grows(&decisions), [(4, 8)]);
    assert_eq!(bench.sizes(), [(1, 5), (2, 5), (3, 8), (4, 16)]);
}

#[test]
fn of_ten_idle_processors_two_jobs_get_four_and_the_first_of_them_the_rest() {
    // §4.2.4: three pending jobs of 4 to 12.
    let mut bench = Bench::new("ghafoor", Resources::steady(10));
    let jobs = [(); 3].map(|()| bench.submit(malleable([4, 4, 12], ANY, 100)));
    let decisions = bench.scheduler.cycle(at(0));
    assert_eq!(
        decisions[..2],
        [Decision::Start { job: jobs[0], size: 6 }, Decision::Start { job: jobs[1], size: 4 },]
    );
}

#[test]
fn eight_are_taken_from_two_jobs_and_not_from_four() {
    // §4.2.4: eight more are needed, and four jobs can give five each.
    let ask = |policy| {
        let mut bench = Bench::new(policy, Resources::steady(24));
        for start in 0..4 {
            bench.now = at(start);
            bench.submit(malleable([1, 6, 6], ANY, 1_000));
            bench.cycle();
        }
        bench.submit(rigid(8, 10));
        shrinks(&bench.cycle())
    };
    assert_eq!(ask("ghafoor"), [(1, 5), (2, 3)]);
    assert_eq!(ask("ghafoor-latest"), [(4, 5), (3, 3)]);
}

#[test]
fn the_open_selections_ask_who_can_give_most_or_as_few_as_will_do() {
    let ask = |policy| {
        let mut bench = Bench::new(policy, Resources::steady(22));
        for (start, most) in [(0, 4), (1, 10), (2, 8)] {
            bench.now = at(start);
            bench.submit(malleable([1, most, most], ANY, 1_000));
            bench.cycle();
        }
        bench.submit(rigid(7, 10));
        shrinks(&bench.cycle())
    };
    // They can give 3, 9 and 7.
    assert_eq!(ask("ghafoor"), [(1, 3), (2, 4)]);
    assert_eq!(ask("ghafoor-most"), [(2, 7)]);
    assert_eq!(ask("ghafoor-fewest"), [(3, 7)]);
}

#[test]
fn a_negotiation_that_does_not_end_as_planned_takes_another_stage() {
    let mut bench = Bench::new("ghafoor", Resources::steady(20));
    for start in 0..2 {
        bench.now = at(start);
        bench.submit(malleable([2, 10, 10], ANY, 1_000));
        bench.cycle();
    }
    bench.submit(rigid(6, 10));
    let first = JobId(1);
    let decisions = bench.cycle_with(|bench, decision| {
        // The first gives two of the six that it was asked for.
        let is_first = matches!(decision, Decision::Shrink { job, .. } if *job == first);
        if is_first { Some(Fact::Answered { job: first, by: 2 }) } else { bench.obedient(decision) }
    });
    assert_eq!(shrinks(&decisions), [(1, 6), (2, 4)]);
    assert_eq!(bench.sizes(), [(1, 8), (2, 6), (3, 6)]);
}

// Buisson et al. 2007.

fn three_running(policy: &str, processors: u32, parameters: &Parameters) -> Bench {
    let mut bench = Bench::with(policy, Resources::steady(6), parameters);
    for _ in 0..3 {
        bench.submit(malleable([2, 2, 46], ANY, 10_000));
    }
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 2), (2, 2), (3, 2)]);
    bench.tell(Fact::Resources(Resources::steady(processors)));
    bench
}

#[test]
fn fpsma_offers_all_to_the_earliest_started_and_egs_equal_parts() {
    let plain = Parameters::default();
    // Figure 4.
    let mut bench = three_running("pra-fpsma", 56, &plain);
    assert_eq!(grows(&bench.cycle()), [(1, 44), (2, 6)]);
    // Figure 5: 20 over three, the remainder to the earliest started.
    let mut bench = three_running("pra-egs", 26, &plain);
    assert_eq!(grows(&bench.cycle()), [(1, 7), (2, 7), (3, 6)]);
    // What is kept for owners is not grown into.
    let kept = Parameters { kept_free: 15, ..plain };
    let mut bench = Bench::with("pra-egs", Resources::steady(26), &kept);
    bench.submit(malleable([2, 2, 46], ANY, 10_000));
    bench.cycle();
    bench.tell(Fact::Resources(Resources::steady(26)));
    bench.cycle();
    assert_eq!(bench.scheduler.state().free(), 15);
}

#[test]
fn under_pra_nobody_starts_while_a_running_job_can_grow() {
    let mut bench = three_running("pra-egs", 26, &Parameters::default());
    let waiting = bench.submit(rigid(2, 10));
    let decisions = bench.scheduler.cycle(bench.now);
    assert_eq!(grows(&decisions).len(), 3);
    assert_eq!(bench.scheduler.why(waiting), Some(Reason::RunningFirst));
    for answer in decisions.iter().filter_map(|it| bench.obedient(it)).collect::<Vec<_>>() {
        bench.tell(answer);
    }
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 9), (2, 9), (3, 8)]);
    // When all have their maximum, it starts.
    bench.tell(Fact::Resources(Resources::steady(200)));
    bench.cycle();
    bench.tell(Fact::Resources(Resources::steady(200)));
    bench.cycle();
    assert_eq!(bench.sizes().last(), Some(&(4, 2)));
}

#[test]
fn under_pwa_running_jobs_give_way_the_last_started_first_or_all_by_the_same() {
    let shrunk = |policy: &str, size| {
        let mut bench = three_running(policy, 26, &Parameters::default());
        bench.cycle();
        let before = bench.sizes();
        bench.submit(rigid(size, 10));
        (before, shrinks(&bench.cycle()), bench.sizes())
    };
    let (before, asked, after) = shrunk("pwa-fpsma", 7);
    assert_eq!(before, [(1, 22), (2, 2), (3, 2)]);
    assert_eq!(asked, [(1, 7)], "the others have nothing to give");
    assert_eq!(after, [(1, 15), (2, 2), (3, 2), (4, 7)]);
    let (before, asked, after) = shrunk("pwa-egs", 7);
    assert_eq!(before, [(1, 9), (2, 9), (3, 8)]);
    // 7 over three; the remainder from the most recently started (§V.C.2), not
    // from all but that many, as line 5 of Figure 5 has it.
    assert_eq!(asked, [(3, 3), (2, 2), (1, 2)]);
    assert_eq!(after, [(1, 7), (2, 7), (3, 5), (4, 7)]);
    // More than all can give: running jobs are considered for growing instead.
    let mut bench = three_running("pwa-egs", 9, &Parameters::default());
    let large = bench.submit(rigid(4, 10));
    assert_eq!(shrinks(&bench.cycle()), []);
    assert_eq!(bench.sizes(), [(1, 3), (2, 3), (3, 3)]);
    assert_eq!(bench.scheduler.why(large), Some(Reason::TooFewFree { needs: 4, free: 0 }));
}

#[test]
fn changes_for_waiting_jobs_are_mandatory_and_growth_is_voluntary() {
    let mut bench = three_running("pwa-fpsma", 26, &Parameters::default());
    let grown = bench.cycle();
    assert!(matches!(grown[..], [Decision::Grow { obligation: Obligation::Voluntary, .. }]));
    bench.submit(rigid(2, 10));
    let shrunk = bench.cycle();
    assert!(matches!(shrunk[0], Decision::Shrink { obligation: Obligation::Mandatory, .. }));
}

#[test]
fn ft_accepts_the_highest_power_of_two_of_what_it_is_offered() {
    // §VI.A: what is left of the offer goes to the next.
    let mut bench = Bench::new("pra-fpsma", Resources::steady(4));
    bench.submit(malleable([2, 2, 32], Allowed::PowersOfTwo, 1_000));
    bench.submit(malleable([2, 2, 46], ANY, 1_000));
    bench.cycle();
    bench.tell(Fact::Resources(Resources::steady(16)));
    assert_eq!(grows(&bench.cycle()), [(1, 6), (2, 6)]);
}

#[test]
fn a_job_is_tried_so_often_and_then_refused() {
    let parameters = Parameters { tries_max: 3, ..Parameters::default() };
    let mut bench = Bench::with("pwa-fpsma", Resources::steady(4), &parameters);
    bench.submit(rigid(3, 10_000));
    let large = bench.submit(rigid(2, 10));
    for try_ in 1..=3 {
        bench.now = at(try_);
        bench.tell(Fact::Resources(Resources::steady(4)));
        assert_eq!(bench.refused, [], "after {} tries", try_ - 1);
        bench.cycle();
    }
    assert_eq!(bench.refused, [large]);
}

// Bagga 2014.

fn moldable(demand: u32, max: u32, meant: f64) -> Request {
    let sizes = Sizes::new([1, demand, max], ANY).expect("sizes");
    let takes = Some(Duration::from_secs(1));
    Request { speed: Some(meant), ..Request::new(Class::Moldable, sizes, takes) }
}

#[track_caller]
fn check_batch(policy: &str, resources: Resources, demands: &[u32], expected: &[(u32, u32)]) {
    let mut bench = Bench::new(policy, resources);
    for demand in demands {
        bench.submit(moldable(*demand, 99, 2.8));
    }
    bench.cycle();
    assert_eq!(bench.sizes(), expected, "{policy}");
}

#[test]
fn baggas_policies_give_a_batch_what_their_flow_charts_say() {
    let twenty = Resources::steady(20);
    let same = Resources { speed: 2.8, ..twenty };
    let demands = [8, 9, 5, 3];
    // SDF: whoever fits, in order.
    check_batch("sdf", same, &demands, &[(1, 8), (2, 9), (4, 3)]);
    // EEMA: the first that does not fit gets what is left.
    check_batch("eema", same, &demands, &[(1, 8), (2, 9), (3, 3)]);
    check_batch("m-lida", same, &demands, &[(1, 8), (2, 9), (3, 3)]);
    // 8, 9 and 5 of 2.8 GHz are 5.9, 6.6 and 3.7 of 3.8 GHz; 3 are 2.2.
    let faster = Resources { speed: 3.8, ..twenty };
    check_batch("m-lida", faster, &demands, &[(1, 6), (2, 7), (3, 4), (4, 2)]);
    // §3.4.4: 8 × 20/25 = 6.4, 9 × 14/17 = 7.4, 5 × 7/8 = 4.4, and the rest.
    check_batch("pwp", same, &demands, &[(1, 6), (2, 7), (3, 4), (4, 3)]);
    // With more than is demanded, everybody has its demand.
    check_batch("pwp", same, &[8, 9], &[(1, 8), (2, 9)]);
    // With fewer processors than jobs, a batch waits.
    check_batch("pwp", Resources::steady(3), &demands, &[]);
}

#[test]
fn a_demand_of_five_is_ten_at_half_the_speed_and_four_at_3_8_ghz() {
    // §3.5: "required of 2.0 GHz, and the system has processors of 1 GHz".
    let half = Resources { speed: 1.4, ..Resources::steady(20) };
    check_batch("m-lida", half, &[5], &[(1, 10)]);
    // §4.1: five of 2.8 GHz where processors have 3.8.
    let faster = Resources { speed: 3.8, ..Resources::steady(20) };
    check_batch("m-lida", faster, &[5], &[(1, 4)]);
    check_batch("sdf", faster, &[5], &[(1, 5)]);
    // His burst, without the digit too many (148674578647 in the text, where
    // the sum has 14867457867): SDF wastes 4132542133 cycles in that second,
    // and the four processors of M-LIDA 332542133.
    let burst = 14_867_457_867_u64;
    assert_eq!(5 * 3_800_000_000 - burst, 4_132_542_133);
    assert_eq!(4 * 3_800_000_000 - burst, 332_542_133);
}

#[test]
fn what_a_job_no_longer_needs_starts_the_next() {
    // §3.6: 8 processors for 3 s; half way through the last second it needs 4.
    let mut bench = Bench::new("m-lida", Resources { speed: 2.8, ..Resources::steady(8) });
    let job = Request { speed: Some(2.8), ..malleable([1, 8, 8], ANY, 3) };
    bench.submit(job.clone());
    bench.cycle();
    bench.now = at(1);
    bench.submit(job);
    assert_eq!(shrinks(&bench.cycle()), []);
    bench.now = at(2) + Duration::from_millis(500);
    bench.tell(Fact::Resources(bench.scheduler.state().resources()));
    assert_eq!(shrinks(&bench.cycle()), [(1, 4)]);
    assert_eq!(bench.sizes(), [(1, 4), (2, 4)]);
}

// The rivals.

#[test]
fn equipartition_divides_everything_and_minimums_and_maximums_hold() {
    let mut bench = Bench::new("equipartition", Resources::steady(30));
    for three in [[1, 1, 4], [1, 1, 30], [12, 12, 30]] {
        bench.submit(malleable(three, ANY, 1_000));
    }
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (2, 13), (3, 13)]);
    bench.submit(rigid(10, 100));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (2, 4), (3, 12), (4, 10)]);
}

#[test]
fn folding_halves_the_largest_for_the_first_in_the_queue_and_unfolds_later() {
    let mut bench = Bench::new("folding", Resources::steady(16));
    let job = malleable([2, 16, 16], Allowed::PowersOfTwo, 100);
    bench.submit(job.clone());
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 16)]);
    bench.submit(job);
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 8), (2, 8)]);
    bench.submit(rigid(4, 10));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 4), (2, 8), (3, 4)]);
    bench.go_to(at(10));
    bench.cycle();
    assert_eq!(bench.sizes(), [(1, 8), (2, 8)]);
}

#[test]
fn apm_gives_each_processor_to_whoever_gains_most_by_it() {
    use crate::scheduler::Speedup;
    let mut bench = Bench::new("apm", Resources::steady(12));
    let job = |parallel| Request {
        speedup: Speedup::Amdahl { parallel },
        ..malleable([1, 1, 64], ANY, 100)
    };
    bench.submit(job(0.5));
    bench.submit(job(0.99));
    bench.cycle();
    // The first gains 0.33 by its second processor, 0.17 by its third and 0.1
    // by its fourth; the second some 0.8 by its tenth.
    assert_eq!(bench.sizes(), [(1, 1), (2, 11)]);
}
