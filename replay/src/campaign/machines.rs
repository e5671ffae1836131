//! What is known of a lab's machines: one line of JSON for each, as
//! `glean workstations --json` prints them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use gleaner_common::lines::{BoundedLines, LineError};
use serde::Deserialize;

/// What `glean workstations --json` prints of one has some kilobytes.
const LINE_BYTES_MAX: usize = 64 << 10;

const MACHINES_MAX: usize = 100_000;

/// Why machines cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadMachinesError {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("line {line}: {why}: expected such as {{\"name\": \"ws-1\", \"speed\": 812.4}}")]
    Line { line: u64, why: serde_json::Error },
    #[error("line {line}: {source}")]
    NoLine { line: u64, source: LineError },
    #[error("line {line}: a speed of {speed}: expected a number from 0 on")]
    Speed { line: u64, speed: f32 },
    #[error("more than {MACHINES_MAX} machines")]
    TooMany,
}

#[derive(Deserialize)]
struct MachineLine {
    name: String,
    speed: f32,
}

/// How fast each machine is, by name.
pub(super) fn read_speeds(path: &Path) -> Result<BTreeMap<String, f32>, ReadMachinesError> {
    speeds(BufReader::new(File::open(path)?))
}

fn speeds(text: impl BufRead) -> Result<BTreeMap<String, f32>, ReadMachinesError> {
    let mut lines = BoundedLines::new(text, LINE_BYTES_MAX);
    let mut machines = BTreeMap::new();
    loop {
        let line = lines.number() + 1;
        let text = match lines.next_line() {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(machines),
            Err(source) => return Err(ReadMachinesError::NoLine { line, source }),
        };
        if text.trim().is_empty() {
            continue;
        }
        let machine: MachineLine =
            serde_json::from_str(text).map_err(|why| ReadMachinesError::Line { line, why })?;
        if !(machine.speed.is_finite() && machine.speed >= 0.0) {
            return Err(ReadMachinesError::Speed { line, speed: machine.speed });
        }
        machines.insert(machine.name, machine.speed);
        if machines.len() > MACHINES_MAX {
            return Err(ReadMachinesError::TooMany);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workstations_prints_is_read_and_a_broken_line_is_named() {
        let printed = "{\"workstation\": 1, \"name\": \"ada\", \"cores\": 4, \"speed\": 812.5}\n";
        assert_eq!(speeds(printed.as_bytes()).unwrap(), [("ada".to_owned(), 812.5)].into());
        let broken = format!("{printed}\n{{\"name\": \"bob\"}}\n");
        let broken = speeds(broken.as_bytes()).unwrap_err();
        assert!(broken.to_string().starts_with("line 3: missing field `speed`"), "{broken}");
        for speed in ["-1", "1e39", "NaN"] {
            let line = format!("{{\"name\": \"ada\", \"speed\": {speed}}}");
            assert!(speeds(line.as_bytes()).unwrap_err().to_string().starts_with("line 1: "));
        }
    }
}
