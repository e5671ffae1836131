//! What a soak came to: a table for people, one record for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::growth::Taken;
use crate::usage::Usage;
use crate::witness::{Doubled, Late};

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub hosts: usize,
    pub minutes: f64,
    /// How many were carried out, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Drawn, and nothing was there to be hit.
    pub missed: u64,
    /// What cannot be tried here, and why.
    pub skipped: Vec<String>,
    /// Datagrams: relayed, dropped, doubled, delayed, corrupted.
    pub datagrams: [u64; 5],
    pub jobs: usize,
    /// Jobs that were accepted without the user's having heard of it.
    pub unheard: usize,
    pub subprograms: usize,
    pub succeeded: usize,
    pub cancelled: usize,
    pub attempts: u64,
    /// Attempts that the lab failed, not their program.
    pub failures: u64,
    pub moves: u64,
    pub retreats: u64,
    /// Processes that the witness saw, by host.
    pub witnessed: usize,
    /// Succeeded, and not seen to have come to the end.
    pub unwitnessed: usize,
    pub lost: Vec<String>,
    pub doubled: Vec<Doubled>,
    pub wrong: Vec<String>,
    pub stuck: Vec<String>,
    /// Until everything had ended once the faults had.
    pub calm_s: f64,
    /// Keys typed at the owners' terminals.
    pub keys: usize,
    /// Guests that ran beside an owner for longer than `late_after_s`.
    pub late: Vec<Late>,
    pub late_after_s: f64,
    /// Daemons that ended without having been killed: their last words.
    pub deaths: Vec<String>,
    /// Lines of their logs.
    pub panics: Vec<String>,
    pub usage: Usage,
    pub before: Taken,
    pub after: Taken,
}

impl Report {
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Nothing lost, doubled, wrong or stuck, and nobody panicked.
    pub fn is_good(&self) -> bool {
        self.failings().iter().all(|(_, count)| *count == 0)
    }

    fn failings(&self) -> [(&'static str, usize); 5] {
        [
            ("lost", self.lost.len()),
            ("doubled", self.doubled.len()),
            ("wrong", self.wrong.len()),
            ("stuck", self.stuck.len()),
            ("panics", self.panics.len()),
        ]
    }

    /// The worst of those beside their owner.
    fn latest_s(&self) -> f64 {
        self.late.iter().map(|late| late.ran_until_s).fold(0.0, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "{name:<38} {value:>12}");
        line("seed", self.seed.to_string())?;
        line("minutes of faults", format!("{:.1}", self.minutes))?;
        line("faults", self.all_faults().to_string())?;
        for (kind, count) in &self.faults {
            line(&format!("  {kind}"), count.to_string())?;
        }
        line("  drawn, and nothing to hit", self.missed.to_string())?;
        for (what, count) in ["relayed", "dropped", "doubled", "delayed", "corrupted"]
            .iter()
            .zip(self.datagrams)
        {
            line(&format!("datagrams {what}"), count.to_string())?;
        }
        line("jobs", self.jobs.to_string())?;
        line("  taken without our hearing of it", self.unheard.to_string())?;
        line("subprograms", self.subprograms.to_string())?;
        line("  succeeded", self.succeeded.to_string())?;
        line("  cancelled", self.cancelled.to_string())?;
        line("  attempts", self.attempts.to_string())?;
        line("  attempts that the lab failed", self.failures.to_string())?;
        line("  moves", self.moves.to_string())?;
        line("  retreats", self.retreats.to_string())?;
        line("processes seen", self.witnessed.to_string())?;
        line("succeeded, and not seen to end", self.unwitnessed.to_string())?;
        for (name, count) in self.failings() {
            line(&name.to_uppercase(), count.to_string())?;
        }
        line("time to calm", format!("{:.1} s", self.calm_s))?;
        line("keys of owners", self.keys.to_string())?;
        let late = format!("beside an owner after {:.0} ms", self.late_after_s * 1e3);
        line(&late, self.late.len().to_string())?;
        line("  the latest", format!("{:.3} s", self.latest_s()))?;
        line("daemons that died by themselves", self.deaths.len().to_string())?;
        let usage = &self.usage;
        line("usage records told", usage.told.to_string())?;
        line("  kept", usage.kept.to_string())?;
        line("  gaps, repeats", format!("{}, {}", usage.gaps, usage.repeats))?;
        writeln!(f, "{:<25} {:>12} {:>12}", "taken", "before", "after")?;
        let mut grown = |name: &str, before: String, after: String| {
            writeln!(f, "  {name:<23} {before:>12} {after:>12}")
        };
        let (before, after) = (&self.before, &self.after);
        for (role, bytes) in &before.memory_bytes {
            let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
            let later = after.memory_bytes.get(role).copied().unwrap_or(0);
            grown(&format!("memory of a {role}"), mib(*bytes), mib(later))?;
        }
        for (role, count) in &before.descriptors {
            let later = after.descriptors.get(role).copied().unwrap_or(0);
            grown(&format!("descriptors of a {role}"), count.to_string(), later.to_string())?;
        }
        for (name, before, after) in [
            ("mounts", before.mounts, after.mounts),
            ("control groups", before.cgroups, after.cgroups),
            ("processes", before.processes, after.processes),
            ("zombies", before.zombies, after.zombies),
            ("outgoing", before.outgoing, after.outgoing),
        ] {
            grown(name, before.to_string(), after.to_string())?;
        }
        for skipped in &self.skipped {
            writeln!(f, "SKIPPED {skipped}")?;
        }
        let said = [("lost", &self.lost), ("wrong", &self.wrong), ("stuck", &self.stuck)];
        for (name, lines) in said.into_iter().chain([("death", &self.deaths), ("panic", &self.panics)]) {
            lines.iter().try_for_each(|line| writeln!(f, "{name}: {line}"))?;
        }
        self.doubled.iter().try_for_each(|it| writeln!(f, "doubled: {it:?}"))?;
        self.late.iter().try_for_each(|it| writeln!(f, "late: {it:?}"))
    }
}
