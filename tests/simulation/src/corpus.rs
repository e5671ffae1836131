//! Labs that once failed: a line each, as `glean-simulate` prints the command,
//! and why after a `#`.

use std::path::Path;

use clap::Parser;
use gleaner_simulation::Changes;

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    lab: crate::LabArgs,
}

pub(crate) fn read(path: &Path) -> Result<Vec<(u64, Changes)>, String> {
    let text = std::fs::read_to_string(path).map_err(|it| format!("{}: {it}", path.display()))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let line =
                Line::try_parse_from(line.split_whitespace()).map_err(|it| it.to_string())?;
            Ok((line.seed, line.lab.changes()?))
        })
        .collect()
}
