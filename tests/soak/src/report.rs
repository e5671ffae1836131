//! What a soak came to: a table for people, one record for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::growth::{Life, Taken, left};
use crate::usage::Usage;
use crate::witness::{Doubled, Late};

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub hosts: usize,
    /// Of all hosts.
    pub places: usize,
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
    /// Of each role the daemon that lived through most faults.
    pub lives: BTreeMap<&'static str, Life>,
}

impl Report {
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Nothing lost, doubled, wrong or stuck, every usage record kept, nobody panicked, and
    /// nothing that grows with the faults.
    pub fn is_good(&self) -> bool {
        self.failings().iter().all(|(_, count)| *count == 0)
    }

    /// What takes ever more, one line each.
    fn growing(&self) -> Vec<String> {
        let lives = self.lives.iter().filter(|(_, life)| life.grows());
        let lives = lives.map(|(role, life)| {
            let (memory, descriptors) = (life.memory_growth(), life.descriptor_growth());
            format!(
                "{role}: {memory:.0} bytes and {descriptors:.1} descriptors in a thousand faults"
            )
        });
        lives.chain(left(&self.before, &self.after, self.all_faults(), self.places)).collect()
    }

    fn failings(&self) -> [(&'static str, usize); 7] {
        [
            ("lost", self.lost.len()),
            ("doubled", self.doubled.len()),
            ("wrong", self.wrong.len()),
            ("stuck", self.stuck.len()),
            ("panics", self.panics.len()),
            ("usage records missed", usize::from(!self.usage.is_whole())),
            ("growing", self.growing().len()),
        ]
    }

    /// The worst of those beside their owner.
    fn latest_s(&self) -> f64 {
        self.late.iter().map(|late| late.ran_until_s).fold(0.0, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_faults(f)?;
        self.write_work(f)?;
        self.write_taken(f)?;
        self.skipped.iter().try_for_each(|skipped| writeln!(f, "SKIPPED {skipped}"))?;
        let said = [("lost", &self.lost), ("wrong", &self.wrong), ("stuck", &self.stuck)];
        for (name, lines) in
            said.into_iter().chain([("death", &self.deaths), ("panic", &self.panics)])
        {
            lines.iter().try_for_each(|line| writeln!(f, "{name}: {line}"))?;
        }
        self.growing().iter().try_for_each(|line| writeln!(f, "growing: {line}"))?;
        self.doubled.iter().try_for_each(|it| writeln!(f, "doubled: {it:?}"))?;
        self.late.iter().try_for_each(|it| writeln!(f, "late: {it:?}"))
    }
}

/// One line of the table.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<40} {value:>12}")
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn grown(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    [before, after]: [impl fmt::Display; 2],
) -> fmt::Result {
    writeln!(f, "  {name:<25} {before:>12} {after:>12}")
}

impl Report {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "seed", self.seed)?;
        line(f, "minutes of faults", format_args!("{:.1}", self.minutes))?;
        line(f, "faults", self.all_faults())?;
        self.faults.iter().try_for_each(|(kind, count)| line(f, &format!("  {kind}"), count))?;
        line(f, "  drawn, and nothing to hit", self.missed)?;
        let names = ["relayed", "dropped", "doubled", "delayed", "corrupted"];
        let mut datagrams = names.iter().zip(self.datagrams);
        datagrams.try_for_each(|(what, count)| line(f, &format!("datagrams {what}"), count))
    }

    fn write_work(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "jobs", self.jobs)?;
        line(f, "  taken without our hearing of it", self.unheard)?;
        line(f, "subprograms", self.subprograms)?;
        line(f, "  succeeded", self.succeeded)?;
        line(f, "  cancelled", self.cancelled)?;
        line(f, "  attempts", self.attempts)?;
        line(f, "  attempts that the lab failed", self.failures)?;
        line(f, "  moves", self.moves)?;
        line(f, "  retreats", self.retreats)?;
        line(f, "processes seen", self.witnessed)?;
        line(f, "succeeded, and not seen to end", self.unwitnessed)?;
        let mut failings = self.failings().into_iter();
        failings.try_for_each(|(name, count)| line(f, &name.to_uppercase(), count))?;
        line(f, "time to calm", format_args!("{:.1} s", self.calm_s))?;
        line(f, "keys of owners", self.keys)?;
        let late = format!("beside an owner after {:.0} ms", self.late_after_s * 1e3);
        line(f, &late, self.late.len())?;
        let hung = self.late.iter().filter(|late| late.hung).count();
        line(f, "  of these, by agents that stood still", hung)?;
        line(f, "  the latest", format_args!("{:.3} s", self.latest_s()))?;
        line(f, "daemons that died by themselves", self.deaths.len())?;
        line(f, "usage records told", self.usage.told)?;
        line(f, "  kept", self.usage.kept)?;
        line(f, "  gaps", self.usage.gaps)?;
        line(f, "  repeats", self.usage.repeats)
    }

    fn write_taken(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = [&self.before, &self.after];
        grown(f, "taken", ["before", "after"])?;
        for role in self.before.memory_bytes.keys() {
            let of = |taken: &Taken| taken.memory_bytes.get(role).copied().unwrap_or(0);
            grown(f, &format!("memory of a {role}"), both.map(|taken| mib(of(taken))))?;
        }
        for role in self.before.descriptors.keys() {
            let of = |taken: &Taken| taken.descriptors.get(role).copied().unwrap_or(0);
            grown(f, &format!("descriptors of a {role}"), both.map(of))?;
        }
        grown(f, "mounts", both.map(|taken| taken.mounts))?;
        grown(f, "control groups", both.map(|taken| taken.cgroups))?;
        grown(f, "processes", both.map(|taken| taken.processes))?;
        grown(f, "zombies", both.map(|taken| taken.zombies))?;
        grown(f, "outgoing", both.map(|taken| taken.outgoing))?;
        self.lives.iter().try_for_each(|(role, life)| {
            writeln!(f, "  the {role} that lived through {} faults", life.faults)?;
            let memory = [life.first, life.last].map(|held| mib(held.memory_bytes));
            grown(f, "  memory", memory)?;
            grown(f, "  descriptors", [life.first, life.last].map(|held| held.descriptors))
        })
    }
}
