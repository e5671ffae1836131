//! What a campaign has come to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use gleaner_simulation::{Changes, Failure, Invariant, Trial, Trouble};

/// A lab that fails, as small as it was made.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seed: u64,
    pub(crate) changes: Changes,
    pub(crate) failure: Failure,
}

impl Found {
    fn command(&self) -> String {
        format!("glean-simulate --seed {}{}", self.seed, self.changes)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    began: Instant,
    labs: u64,
    simulated_s: f64,
    pub(crate) steps: u64,
    attempts: u64,
    moves: u64,
    lost: u64,
    /// Negotiations about the sizes of programs.
    negotiated: u64,
    faults: BTreeMap<Trouble, u64>,
    exercised: [u64; Invariant::ALL.len()],
    calm_permille: u64,
    waste_permille: u64,
    /// And its seed.
    slowest: (Duration, u64),
    pub(crate) found: Vec<Found>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            labs: 0,
            simulated_s: 0.0,
            steps: 0,
            attempts: 0,
            moves: 0,
            lost: 0,
            negotiated: 0,
            faults: BTreeMap::new(),
            exercised: [0; _],
            calm_permille: 0,
            waste_permille: 0,
            slowest: (Duration::ZERO, 0),
            found: vec![],
        }
    }

    pub(crate) fn add(&mut self, seed: u64, trial: &Trial, twice: bool, took: Duration) {
        let times = if twice { 2 } else { 1 };
        self.slowest = self.slowest.max((took / times, seed));
        for (sum, count) in self.exercised.iter_mut().zip(trial.exercised) {
            *sum += count;
        }
        self.labs += 1;
        let outline = match &trial.outcome {
            Ok(outline) => outline,
            Err(failure) => return self.steps += failure.steps,
        };
        self.simulated_s += outline.took.as_secs_f64() * f64::from(times);
        self.steps += outline.steps * u64::from(times);
        self.attempts += outline.attempts as u64;
        self.moves += outline.went;
        self.lost += outline.lost;
        self.negotiated += outline.negotiated;
        for (trouble, count) in &outline.faults {
            *self.faults.entry(*trouble).or_default() += count * u64::from(times);
        }
        self.calm_permille = self.calm_permille.max(outline.calm_permille);
        self.waste_permille = self.waste_permille.max(outline.waste_permille);
    }

    pub(crate) fn hours(&self) -> f64 {
        self.simulated_s / 3_600.0
    }

    fn took_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn progress(&self) -> String {
        format!(
            "{:.0} s: {} labs, {:.0} hours, {:.1e} steps, {} failed",
            self.took_s(),
            self.labs,
            self.hours(),
            self.steps as f64,
            self.found.len()
        )
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let names = Invariant::ALL.into_iter().map(Invariant::name);
        let faults: BTreeMap<_, _> =
            self.faults.iter().map(|(trouble, count)| (trouble.name(), *count)).collect();
        let exercised: BTreeMap<_, _> = names.zip(self.exercised).collect();
        let failures = self.found.iter().map(|found| {
            serde_json::json!({
                "kind": found.failure.kind(),
                "message": found.failure.message,
                "command": found.command(),
                "steps": found.failure.steps,
            })
        });
        serde_json::json!({
            "labs": self.labs,
            "simulated_hours": self.hours(),
            "steps": self.steps,
            "steps_per_s": self.steps as f64 / self.took_s(),
            "took_s": self.took_s(),
            "attempts": self.attempts,
            "moves": self.moves,
            "lost": self.lost,
            "negotiations": self.negotiated,
            "faults": faults,
            "exercised": exercised,
            "calm_permille_max": self.calm_permille,
            "waste_permille_max": self.waste_permille,
            "slowest_lab": { "seed": self.slowest.1, "took_s": self.slowest.0.as_secs_f64() },
            "failures": failures.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took_s();
        let (hours, steps) = (self.hours(), self.steps as f64);
        writeln!(f, "labs                  {}", self.labs)?;
        writeln!(f, "simulated hours       {hours:.0} ({:.1} a second)", hours / took)?;
        writeln!(f, "steps                 {} ({:.0} a second)", self.steps, steps / took)?;
        writeln!(f, "attempts              {}", self.attempts)?;
        writeln!(f, "moves, lost           {}, {}", self.moves, self.lost)?;
        writeln!(f, "negotiations          {}", self.negotiated)?;
        writeln!(
            f,
            "longest calm, waste   {}, {} of a thousand",
            self.calm_permille, self.waste_permille
        )?;
        let (took, seed) = self.slowest;
        writeln!(f, "slowest lab           {:.1} s, seed {seed}", took.as_secs_f64())?;
        writeln!(f, "faults")?;
        for (trouble, count) in &self.faults {
            writeln!(f, "  {:20}{count}", trouble.name())?;
        }
        writeln!(f, "promises, each so often put to the test")?;
        for (invariant, count) in Invariant::ALL.into_iter().zip(self.exercised) {
            writeln!(f, "  {:20}{count}", invariant.name())?;
        }
        writeln!(f, "failures              {}", self.found.len())?;
        for found in &self.found {
            writeln!(f, "  {}", short(&found.failure.message))?;
            writeln!(f, "  after {} steps; {}", found.failure.steps, found.command())?;
        }
        Ok(())
    }
}

/// The beginning of it.
pub(crate) fn short(message: &str) -> String {
    message.chars().take(300).collect()
}
