//! One lab, tried: what came of it, or how it failed.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::lab::{Invariant, Lab, Outline, Setting};

/// A lab in which a promise did not hold, or a model was asked for nonsense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// Where in the source.
    pub at: String,
    /// How many faults there had been, and how many steps.
    pub faults: u64,
    pub steps: u64,
}

impl Failure {
    /// What failed, without what was different in each lab: a promise's name, or
    /// a place in the source.
    pub fn kind(&self) -> &str {
        let promise = Invariant::ALL.into_iter().map(Invariant::name);
        let is_it = |name: &&str| {
            self.message.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "))
        };
        promise.into_iter().find(is_it).unwrap_or(&self.at)
    }
}

#[derive(Clone, Debug)]
pub struct Trial {
    pub outcome: Result<Outline, Failure>,
    /// How often each promise was put to the test.
    pub exercised: [u64; Invariant::ALL.len()],
}

thread_local! {
    static PANICKED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
    static IS_TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Panics of labs are caught and told later.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_TRYING.get() {
                return before(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without words").to_owned();
            let at = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            PANICKED.set(Some((message, at.unwrap_or_default())));
        }));
    });
}

/// Runs the lab of this seed.
pub fn run(seed: u64, setting: Setting) -> Trial {
    catch_panics();
    Invariant::take_exercised();
    IS_TRYING.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| Lab::new(seed, setting).run()));
    IS_TRYING.set(false);
    let outcome = result.map_err(|_| {
        let (message, at) = PANICKED.take().unwrap_or_default();
        let (faults, steps) = Lab::last_seen();
        Failure { message, at, faults, steps }
    });
    Trial { outcome, exercised: Invariant::take_exercised() }
}

/// Runs it twice: equal seeds give equal histories.
pub fn run_twice(seed: u64, setting: &Setting) -> Trial {
    let first = run(seed, setting.clone());
    let second = run(seed, setting.clone());
    let mut trial = second;
    trial.exercised[Invariant::Determinism as usize] += 1;
    if first.outcome != trial.outcome {
        let (first, second) = (&first.outcome, &trial.outcome);
        let message = format!("{}: {first:?} and then {second:?}", Invariant::Determinism);
        trial.outcome = Err(Failure { message, at: String::new(), faults: 0, steps: 0 });
    }
    trial
}
