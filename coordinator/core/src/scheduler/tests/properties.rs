//! What holds under every policy, whatever happens.

use std::time::Duration;

use gleaner_common::id::JobId;
use proptest::prelude::*;

use super::bench::{Bench, malleable, rigid};
use crate::scheduler::{
    ALL, Allowed, Class, Decision, Fact, Parameters, Reason, Request, Resources, Speedup,
};

const PROCESSORS: u32 = 24;

#[derive(Clone, Debug)]
enum Happening {
    Submit(Request),
    Pass(u64),
    OwnersHold(u32),
    /// A running job asks for more.
    Ask(usize, u32),
    /// An owner's return, already carried out.
    Lose(usize, u32),
    Withdraw(u32),
    Return(usize),
}

fn any_request() -> impl Strategy<Value = Request> {
    let allowed = prop_oneof![
        Just(Allowed::Any),
        Just(Allowed::PowersOfTwo),
        Just(Allowed::MultiplesOf(3)),
        Just(Allowed::List(vec![2, 5, 9, 17])),
    ];
    let speedup = prop_oneof![
        Just(Speedup::Linear),
        Just(Speedup::Amdahl { parallel: 0.9 }),
        Just(Speedup::Downey { parallelism: 6.0, variance: 1.5 }),
    ];
    let bounds = [1..=PROCESSORS, 1..=PROCESSORS, 1..=PROCESSORS];
    let class = prop::sample::select(Class::ALL.to_vec());
    (class, bounds, allowed, speedup, 1..60_u64, -2..3_i8).prop_filter_map(
        "no size is allowed",
        |(class, mut three, allowed, speedup, takes, priority)| {
            three.sort_unstable();
            let sizes = crate::scheduler::Sizes::new(three, allowed.clone()).ok()?;
            let job = if class == Class::Rigid {
                rigid(sizes.preferred(), takes)
            } else {
                Request { class, ..malleable(three, allowed, takes) }
            };
            Some(Request { speedup, priority, ..job })
        },
    )
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => any_request().prop_map(Happening::Submit),
        4 => (0..30_u64).prop_map(Happening::Pass),
        1 => (0..PROCESSORS).prop_map(Happening::OwnersHold),
        1 => (0..8_usize, 0..40_u32).prop_map(|(i, n)| Happening::Ask(i, n)),
        1 => (0..8_usize, 1..6_u32).prop_map(|(i, n)| Happening::Lose(i, n)),
        1 => (0..30_u32).prop_map(Happening::Withdraw),
        1 => (0..8_usize).prop_map(Happening::Return),
    ]
}

fn happens(bench: &mut Bench, what: Happening) {
    let nth = |bench: &Bench, index| bench.scheduler.state().running().nth(index).map(|it| it.0);
    match what {
        Happening::Submit(request) => _ = bench.submit(request),
        Happening::Pass(s) => bench.go_to(bench.now + Duration::from_secs(s)),
        Happening::OwnersHold(held) => {
            let processors = PROCESSORS - held;
            let resources = Resources { processors, ..Resources::steady(PROCESSORS) };
            bench.tell(Fact::Resources(resources));
        }
        Happening::Ask(index, more) => {
            let Some(job) = nth(bench, index) else { return };
            bench.tell(Fact::Asked { job, more, is_answer: false });
        }
        Happening::Lose(index, lost) => {
            let Some(job) = nth(bench, index) else { return };
            let it = bench.scheduler.state().get(job).expect("it runs");
            let size = it.size - it.request.sizes.given(it.size, lost);
            bench.tell(Fact::Resized { job, size });
        }
        Happening::Withdraw(number) => bench.tell(Fact::Ended { job: JobId(number) }),
        Happening::Return(index) => {
            let Some(job) = nth(bench, index) else { return };
            bench.tell(Fact::Returned { job });
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Moods(u64);

impl Moods {
    /// Does this job decline what is decided?
    fn decline(self, decision: &Decision) -> bool {
        let (Decision::Grow { job, by, .. } | Decision::Shrink { job, by, .. }) = decision else {
            return false;
        };
        self.0.rotate_right(job.0.wrapping_mul(7).wrapping_add(*by)).trailing_zeros() >= 2
    }
}

fn answer(bench: &Bench, decision: &Decision, moods: Moods) -> Option<Fact> {
    if moods.decline(decision)
        && let Decision::Grow { job, .. } | Decision::Shrink { job, .. } = decision
    {
        return Some(Fact::Answered { job: *job, by: 0 });
    }
    bench.obedient(decision)
}

/// Nobody starts on more than there is; the bench checks the rest.
fn check_decisions(bench: &Bench, before: &[Decision]) -> Result<(), TestCaseError> {
    let state = bench.scheduler.state();
    for decision in before {
        let named = match decision {
            Decision::Start { job, .. }
            | Decision::Grow { job, .. }
            | Decision::Shrink { job, .. }
            | Decision::Offer { job, .. } => *job,
            Decision::Reserve { .. } | Decision::Refuse { .. } => continue,
        };
        prop_assert!(state.get(named).is_some(), "{decision:?} of a job that does not run");
    }
    for (turn, _) in state.waiting() {
        let why = bench.scheduler.why(turn.2);
        prop_assert!(why.is_some_and(|why| !why.is_final() && !why.to_string().is_empty()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Processors are neither created nor lost, bounds and sizes hold at every
    /// moment, cycles end, whoever waits is told why, and once all is calm
    /// everybody who was not refused gets to the end.
    #[test]
    fn whatever_happens_under_any_policy_all_is_accounted_for_and_ends(
        story in prop::collection::vec(any_happening(), 1..60), moods in any::<u64>()
    ) {
        for policy in ALL {
            let mut bench = Bench::new(policy.name, Resources::steady(PROCESSORS));
            for what in story.clone() {
                happens(&mut bench, what);
                let free = bench.scheduler.state().resources().processors;
                let held = bench.scheduler.state().held();
                let decisions = bench.cycle_with(|bench, it| answer(bench, it, Moods(moods)));
                let now_held = bench.scheduler.state().held();
                prop_assert!(now_held <= free.max(held), "{}: {now_held} of {free}", policy.name);
                check_decisions(&bench, &decisions)?;
            }
            bench.tell(Fact::Resources(Resources::steady(PROCESSORS)));
            bench.finish();
            let state = bench.scheduler.state();
            prop_assert_eq!(state.held(), 0, "{}", policy.name);
            let left: Vec<_> = state.waiting().map(|(turn, job)| (turn.2, &job.reason)).collect();
            prop_assert!(left.is_empty(), "{} starves {left:?}", policy.name);
        }
    }

    /// Equal facts, equal decisions.
    #[test]
    fn the_same_story_is_decided_the_same(story in prop::collection::vec(any_happening(), 1..30)) {
        for policy in ALL {
            let run = || {
                let mut bench = Bench::new(policy.name, Resources::steady(PROCESSORS));
                for what in story.clone() {
                    happens(&mut bench, what);
                    bench.cycle();
                }
                bench.told
            };
            prop_assert_eq!(run(), run());
        }
    }

    /// A job that is asked about changes nothing.
    #[test]
    fn asking_whether_a_job_would_be_taken_changes_nothing(
        story in prop::collection::vec(any_happening(), 1..20), request in any_request()
    ) {
        for policy in ["kumar-profit", "kumar-lazy", "ghafoor"] {
            let mut bench = Bench::new(policy, Resources::steady(PROCESSORS));
            for what in story.clone() {
                happens(&mut bench, what);
                bench.cycle();
            }
            let asked = bench.scheduler.ask(bench.now, &request);
            let job = bench.submit(request.clone());
            bench.cycle();
            prop_assert_eq!(asked.is_err(), bench.refused.contains(&job), "{}: {:?}", policy, asked);
        }
    }
}

#[test]
fn what_is_larger_than_everything_is_refused_at_once_and_said_so() {
    for policy in ALL {
        let resources = Resources { processors: 2, ..Resources::steady(PROCESSORS) };
        let mut bench = Bench::new(policy.name, resources);
        let job = bench.submit(rigid(PROCESSORS + 1, 10));
        let reason = Reason::LargerThanAll { needs: PROCESSORS + 1, all: PROCESSORS };
        assert_eq!(bench.cycle(), [Decision::Refuse { job, reason }], "{}", policy.name);
        assert_eq!(reason.to_string(), "it needs 25 processors, and there are 24 at most");
    }
}

#[test]
fn late_and_repeated_facts_change_nothing() {
    let mut bench = Bench::with("ghafoor", Resources::steady(8), &Parameters::default());
    let job = bench.submit(malleable([2, 4, 8], Allowed::Any, 100));
    bench.cycle();
    let stranger = JobId(99);
    for fact in [
        Fact::Answered { job, by: 3 },
        Fact::Answered { job: stranger, by: 3 },
        Fact::Ended { job: stranger },
        Fact::Returned { job: stranger },
        Fact::Resized { job: stranger, size: 3 },
        Fact::Asked { job, more: 3, is_answer: true },
        Fact::Submitted { job, request: Box::new(rigid(1, 1)) },
    ] {
        bench.tell(fact.clone());
        assert_eq!(bench.cycle(), [], "{fact:?}");
        assert_eq!(bench.sizes(), [(1, 8)]);
    }
}
