//! Usage records: what the agents say that they recorded, against what the collector
//! has.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use gleaner_lab::Lab;
use serde::Serialize;
use serde_json::Value;

/// Of all hosts together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Transitions in the agents' logs. One that is killed between its log's line and
    /// its disk has recorded nothing.
    pub told: usize,
    pub kept: usize,
    /// Numbers that are missing before a higher one, within a life of a spool.
    pub gaps: u64,
    pub repeats: u64,
    /// Kills of agents, each of which may have come between line and disk.
    pub killed: u64,
}

impl Usage {
    /// # Errors
    /// The archive cannot be read.
    pub fn read(lab: &Lab, killed: u64) -> Result<Self> {
        let data = lab.collector_data().join("usage").display().to_string();
        let mut usage = Self { killed, ..Self::default() };
        for host in &lab.hosts {
            let log = fs::read_to_string(host.dir.join("agent.log")).unwrap_or_default();
            usage.told += log.lines().filter(|line| is_transition(line)).count();
            let rows = ["usage", "show", &host.name, "--usage", &data, "--json"];
            // A host of which nothing is kept has no log there.
            usage.count(&lab.rows::<Value>(&rows).unwrap_or_default());
        }
        Ok(usage)
    }

    fn count(&mut self, rows: &[Value]) {
        self.kept += rows.len();
        let mut lives: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for row in rows {
            // A spool that began anew counts from 1 again, and says so.
            let life = format!("{} {}", row["boot"], row.get("life").unwrap_or(&Value::Null));
            lives.entry(life).or_default().extend(row["sequence"].as_u64());
        }
        for mut numbers in lives.into_values() {
            numbers.sort_unstable();
            let all = numbers.len() as u64;
            let last = numbers.last().copied().unwrap_or(0);
            numbers.dedup();
            let distinct = numbers.len() as u64;
            self.repeats += all - distinct;
            self.gaps += last.saturating_sub(distinct);
        }
    }

    /// All that can have been recorded has arrived.
    pub fn is_whole(&self) -> bool {
        self.gaps == 0 && self.repeats == 0 && self.kept as u64 + self.killed >= self.told as u64
    }
}

/// How an agent logs a transition: `.. INFO pts/0, 0.4 s ago cause=TTY`.
fn is_transition(line: &str) -> bool {
    let cause = line.rsplit_once(" cause=").map(|(_, cause)| cause);
    cause.is_some_and(|cause| {
        !cause.is_empty() && cause.bytes().all(|it| it.is_ascii_uppercase() || it == b'_')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_transition_is_known_in_a_log() {
        assert!(is_transition("2026-11-23T07:11:30Z  INFO pts/0, 0.4 s ago cause=TTY"));
        assert!(!is_transition("2026-11-23T07:11:31Z  INFO stopping"));
        assert!(!is_transition("2026-11-23T07:11:31Z  WARN it ended cause=no space left"));
    }

    fn counted(numbers: &[(&str, u64)]) -> Usage {
        let row =
            |(life, number): &(&str, u64)| json!({"boot": "b", "life": life, "sequence": number});
        let mut usage = Usage::default();
        usage.count(&numbers.iter().map(row).collect::<Vec<_>>());
        usage
    }

    #[test]
    fn gaps_and_repeats_are_counted_by_life() {
        assert!(counted(&[("a", 1), ("a", 2), ("b", 1), ("a", 3)]).is_whole());
        assert_eq!(counted(&[("a", 1), ("a", 4)]).gaps, 2);
        assert_eq!(counted(&[("a", 2)]).gaps, 1);
        assert_eq!(counted(&[("a", 1), ("a", 1)]).repeats, 1);
    }

    #[test]
    fn records_that_are_told_and_not_kept_are_missed() {
        let usage = Usage { told: 9, kept: 7, ..Usage::default() };
        assert!(!usage.is_whole());
        assert!(Usage { killed: 2, ..usage }.is_whole());
    }
}
