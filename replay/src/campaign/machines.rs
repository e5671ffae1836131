//! What is known of a lab's machines: one line of JSON for each, as
//! `glean workstations --json` prints them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

/// Why machines cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadMachinesError {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("line {line}: {why}: expected such as {{\"name\": \"ws-1\", \"speed\": 812.4}}")]
    Line { line: usize, why: serde_json::Error },
}

#[derive(Deserialize)]
struct MachineLine {
    name: String,
    speed: f32,
}

/// How fast each machine is, by name.
pub(super) fn read_speeds(path: &Path) -> Result<BTreeMap<String, f32>, ReadMachinesError> {
    speeds(&std::fs::read_to_string(path)?)
}

fn speeds(text: &str) -> Result<BTreeMap<String, f32>, ReadMachinesError> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let machines = lines.map(|(text, line)| {
        let machine: MachineLine =
            serde_json::from_str(text).map_err(|why| ReadMachinesError::Line { line, why })?;
        Ok((machine.name, machine.speed))
    });
    machines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workstations_prints_is_read_and_a_broken_line_is_named() {
        let printed = "{\"workstation\": 1, \"name\": \"ada\", \"cores\": 4, \"speed\": 812.5}\n";
        assert_eq!(speeds(printed).unwrap(), [("ada".to_owned(), 812.5)].into());
        let broken = speeds(&format!("{printed}\n{{\"name\": \"bob\"}}\n")).unwrap_err();
        assert!(broken.to_string().starts_with("line 3: missing field `speed`"), "{broken}");
    }
}
