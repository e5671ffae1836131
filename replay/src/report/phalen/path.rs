//! What §7.2.2 leaves to future work: what the critical path is made of, and
//! so why slowdown rises faster than cost.

use gleaner_figure::{Axis, LineChart, Panels, Series};

use super::super::WriteReportError;
use super::super::charts::{points, seconds};
use super::super::cube::{Dim, Quantity};
use super::super::document::{Document, number};
use super::{ON_PATH, PhalenReport, TRANSITIONS};
use crate::results::Measure;

type Parts = [(Measure, &'static str); 4];

/// Followed back from the last rank's end through whoever was waited for.
const PATH: Parts = [
    (Measure::PathCompute, "compute"),
    (Measure::PathMoving, "moving"),
    (Measure::PathBlocking, "blocked"),
    (Measure::PathWaiting, "waiting for a workstation"),
];

/// The rank that ends last, from its begin: her own account (§6.4), "the
/// computation time of each subtask and the blocking time for each receive".
const LAST: Parts = [
    (Measure::LastCompute, "compute"),
    (Measure::LastMoving, "moving"),
    (Measure::LastBlocking, "blocked"),
    (Measure::LastWaiting, "waiting for a workstation"),
];

const COSTS_S: [i64; 4] = [1, 10, 50, 100];

impl PhalenReport<'_> {
    pub(super) fn critical_path(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What the critical path is made of (left open in §7.2.2)");
        document.paragraph(
            "Two accounts. The first follows the critical path back through every message that was waited for, so that \
             blocking for a rank that computes is that rank's computing; what is left as blocked is time that no work \
             explains. The second is hers (§6.4): the rank that ends last, with its blocking at every receive.",
        );
        self.parts(document, "critical-path", "The critical path in parts", &PATH)?;
        self.parts(document, "last-rank", "The rank that ends last, in parts", &LAST)?;
        document.list(&self.growth());
        Ok(())
    }

    fn parts(
        &self,
        document: &mut Document,
        name: &str,
        title: &str,
        parts: &Parts,
    ) -> Result<(), WriteReportError> {
        let charts = self.networks().into_iter().map(|workstations| {
            let filter = [(Dim::Workstations, workstations)];
            let series = parts.iter().map(|(measure, name)| {
                let along = self.named.cube.along(Dim::Cost, &filter, Quantity::Seconds(*measure));
                Series::new(*name, points(&along, seconds))
            });
            LineChart {
                title: self.named.name(Dim::Workstations, workstations),
                x_axis: Axis::linear("cost of a move (s)"),
                y_axis: Axis::linear("mean time (s)"),
                series: series.collect(),
                ..LineChart::default()
            }
        });
        let panels = Panels {
            title: title.to_owned(),
            columns: 3,
            same_axes: true,
            charts: charts.collect(),
            ..Panels::default()
        };
        document.figure(name, &format!("{title}, against the cost of a move"), &panels)?;
        let mut rows = vec![];
        for workstations in self.networks() {
            for cost in COSTS_S {
                rows.extend(self.parts_row(workstations, cost, parts));
            }
        }
        let header = [
            "workstations",
            "cost (s)",
            "compute (s)",
            "moving (s)",
            "blocked (s)",
            "waiting (s)",
            "execution (s)",
            "transitions",
            "on the path",
        ];
        if rows.is_empty() { Ok(()) } else { document.table(name, title, &header, &rows) }
    }

    /// `None` where the campaign has no such cost.
    fn parts_row(&self, workstations: i64, cost: i64, parts: &Parts) -> Option<Vec<String>> {
        let execution = self.at(workstations, cost, Quantity::Seconds(Measure::Execution))?;
        let mut row = vec![workstations.to_string(), cost.to_string()];
        for (measure, _) in parts {
            row.push(number(self.at(workstations, cost, Quantity::Seconds(*measure)), 1));
        }
        row.push(format!("{execution:.1}"));
        row.push(number(self.at(workstations, cost, TRANSITIONS), 2));
        row.push(number(self.at(workstations, cost, ON_PATH), 2));
        Some(row)
    }

    /// Which of her four explanations holds, for each network.
    fn growth(&self) -> Vec<String> {
        let each = self.networks().into_iter().filter_map(|workstations| {
            Some(format!("{}. {}", self.grown_parts(workstations)?, self.factors(workstations)?))
        });
        let said: Vec<String> = each.collect();
        if said.is_empty() {
            return vec!["The campaign has not all of the costs 1 s, 10 s and 100 s, so the rise is not broken down.".to_owned()];
        }
        said
    }

    fn grown_parts(&self, workstations: i64) -> Option<String> {
        let grown = |measure| {
            let at = |cost| self.at(workstations, cost, Quantity::Seconds(measure));
            Some(at(100)? - at(1)?)
        };
        Some(format!(
            "With {workstations} workstations, from 1 s to 100 s a move, an execution takes {:.0} s longer; on its critical \
             path are {:+.0} s of moving, {:+.0} s of waiting for a workstation, {:+.0} s of blocking that no work explains, \
             and {:+.0} s of computing",
            grown(Measure::Execution)?,
            grown(Measure::PathMoving)?,
            grown(Measure::PathWaiting)?,
            grown(Measure::PathBlocking)?,
            grown(Measure::PathCompute)?
        ))
    }

    /// By how much more than cost slowdown grows, and through what.
    fn factors(&self, workstations: i64) -> Option<String> {
        let ratio = |quantity| {
            let (few, many) =
                (self.at(workstations, 10, quantity)?, self.at(workstations, 100, quantity)?);
            (few > 0.0).then(|| many / few)
        };
        let beyond = ratio(Quantity::Slowdown)? / 10.0;
        let (transitions, on_path) = (ratio(TRANSITIONS)?, ratio(ON_PATH)?);
        let (share, rest) = (on_path / transitions, beyond / on_path);
        let factors = [
            (
                transitions,
                "that there are more transitions, because a longer execution gives owners more time to come back",
            ),
            (
                share,
                "that more of them are on the critical path, because a longer move hides less behind blocking",
            ),
            (
                rest,
                "that each of them delays by more than its cost, by waiting and by moves to workstations that turn busy too",
            ),
        ];
        let verdict = if beyond <= 1.05 {
            "So slowdown is not superlinear here.".to_owned()
        } else {
            let most = factors.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
            format!("What counts most is {}.", most.1)
        };
        Some(format!(
            "From 10 s to 100 s slowdown grows {beyond:.2} times as much as cost: transitions grow by a factor of \
             {transitions:.2}, the part of them on the critical path by {share:.2}, the delay for each beyond its cost by \
             {rest:.2}. {verdict}"
        ))
    }
}
