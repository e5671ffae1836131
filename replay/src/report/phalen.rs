//! Phalen 1994, §7 and Appendix 10.1, executed again: tables 7 to 12 and
//! figures 5 to 50, each beside what the thesis prints.

mod claims;
mod compare;
mod figures;
mod fitted;
mod path;
mod printed;
mod tables;

use std::path::Path;

use super::charts::{Named, points, seconds};
use super::cube::{Cube, Dim, Quantity};
use super::document::{Document, count};
use super::{Source, WriteReportError};
use crate::results::Measure;

const DIMS: &[Dim] = &[Dim::Program, Dim::Workstations, Dim::TimeOfDay, Dim::IdleClass, Dim::Cost];

const QUANTITIES: &[Quantity] = &[
    Quantity::Slowdown,
    Quantity::Finished,
    Quantity::Stretch,
    Quantity::ShareOnPath,
    Quantity::Utilisation,
    Quantity::Count(Measure::Transitions),
    Quantity::Count(Measure::OnCriticalPath),
    Quantity::Count(Measure::Waits),
    Quantity::Count(Measure::NodesUsed),
    Quantity::Seconds(Measure::AverageIdle),
    Quantity::Seconds(Measure::Execution),
    Quantity::Seconds(Measure::ZeroCost),
    Quantity::Seconds(Measure::PathCompute),
    Quantity::Seconds(Measure::PathMoving),
    Quantity::Seconds(Measure::PathBlocking),
    Quantity::Seconds(Measure::PathWaiting),
    Quantity::Seconds(Measure::LastCompute),
    Quantity::Seconds(Measure::LastMoving),
    Quantity::Seconds(Measure::LastBlocking),
    Quantity::Seconds(Measure::LastWaiting),
];

const SLOWDOWN: &str = "average slowdown (%)";
const TRANSITIONS: Quantity = Quantity::Count(Measure::Transitions);
const ON_PATH: Quantity = Quantity::Count(Measure::OnCriticalPath);

pub(super) fn cube() -> Cube {
    Cube::new(DIMS, QUANTITIES)
}

pub(super) fn write(
    source: &Source,
    named: &Named,
    out: &Path,
) -> Result<Document, WriteReportError> {
    let mut document = Document::new(out, "Phalen 1994, executed again")?;
    document.paragraph(
        "E. J. Phalen (Brown University, 1994) executed four parallel programs 400,000 times (420,000 by her Table 7) on the logged usage of \
         her department's workstations, with processes that migrate when an owner comes back. This report executes \
         the same grid with gleaner's own placement and reaction code and stands its results beside hers. Her logs \
         and traces are lost; the owners and traces here are not hers, so equal numbers are not expected; \
         where they are near, they may have been fitted, and then they are called that. Her tables and sentences can be \
         compared; the numbers behind her figures are not printed.",
    );
    let report = PhalenReport { source, named };
    report.executed(&mut document)?;
    report.what_was_fitted(&mut document)?;
    report.differences(&mut document)?;
    report.slowdown_by_cost(&mut document)?;
    report.by_workstations(&mut document)?;
    report.critical_path(&mut document)?;
    report.by_time_of_day(&mut document)?;
    report.by_activity(&mut document)?;
    report.appendix(&mut document)?;
    Ok(document)
}

struct PhalenReport<'a> {
    source: &'a Source,
    named: &'a Named,
}

impl PhalenReport<'_> {
    fn networks(&self) -> Vec<i64> {
        self.named.cube.values(Dim::Workstations)
    }

    /// Mean slowdown against cost, in seconds.
    fn slowdowns(&self, workstations: i64) -> Vec<(f64, f64)> {
        let filter = [(Dim::Workstations, workstations)];
        points(&self.named.cube.along(Dim::Cost, &filter, Quantity::Slowdown), seconds)
    }

    fn executed(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What was executed");
        let programs = self.source.manifest.programs.len() as u64;
        let header =
            ["workstations", "costs", "periods", "executions", "hers: periods", "hers: executions"];
        let costs = self.named.cube.values(Dim::Cost).len() as u64;
        let rows: Vec<Vec<String>> = self
            .source
            .manifest
            .networks
            .iter()
            .map(|network| {
                let periods = u64::from(network.periods) * programs;
                let hers = printed::TABLE_7
                    .iter()
                    .find(|(workstations, ..)| *workstations == i64::from(network.workstations));
                let hers =
                    |of: fn(&(i64, u64, u64)) -> u64| hers.map_or("-".into(), |row| count(of(row)));
                vec![
                    network.workstations.to_string(),
                    count(costs),
                    count(periods),
                    count(periods * costs),
                    hers(|row| row.1),
                    hers(|row| row.2),
                ]
            })
            .collect();
        document.table("table-07", "Table 7: the executions", &header, &rows)?;
        document.paragraph(
            "Her columns multiply out only if a period is counted once for each program: 1,200 are 300 hours for each \
             of four programs. That is our reading. 18 days (two of each of nine weeks from October to January, the \
             days of the week in turn) have 432 hours, so no more can be meant. The text \
             speaks of 400,000 executions; the table adds up to 420,000, and so do ours. The execution at cost zero, against \
             which a slowdown is measured, is not counted.",
        );
        document.list(&self.source.left_out());
        self.programs(document)
    }

    fn programs(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let header = ["program", "ranks", "operations", "subtasks", "undisturbed", "hers"];
        let rows: Vec<Vec<String>> = self
            .source
            .manifest
            .programs
            .iter()
            .map(|program| {
                let hers = printed::TABLE_8.iter().find(|(name, ..)| *name == program.name);
                vec![
                    hers.map_or(program.name.clone(), |(_, title, _)| (*title).to_owned()),
                    program.ranks.to_string(),
                    count(program.operations),
                    count(program.subtasks),
                    format!("{:.1} s", program.undisturbed_ns as f64 / 1e9),
                    hers.map_or("-".into(), |(_, _, millis)| format!("{:.1} s", millis / 1e3)),
                ]
            })
            .collect();
        document.table(
            "table-08",
            "Table 8: the programs, on workstations always idle",
            &header,
            &rows,
        )
    }
}
