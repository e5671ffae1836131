//! A report on whatever a campaign varied: one section for each axis that has
//! more than one value. Phalen 1994, §8, leaves most of these questions open.

use std::path::Path;

use gleaner_figure::{Axis, LineChart, Look, Panels, Series};

use super::charts::{Named, exponent, points, seconds};
use super::cube::{Cube, Dim, Quantity};
use super::document::{Document, count, number, percent};
use super::{Source, WriteReportError};
use crate::results::{Label, Measure};

const DIMS: &[Dim] =
    &[Dim::Program, Dim::Workstations, Dim::Policy, Dim::OnBusy, Dim::Criterion, Dim::Cost];

const TRANSITIONS: Quantity = Quantity::Count(Measure::Transitions);
const EXECUTION: Quantity = Quantity::Seconds(Measure::Execution);

const QUANTITIES: &[Quantity] = &[
    Quantity::Slowdown,
    Quantity::Finished,
    Quantity::Stretch,
    Quantity::Utilisation,
    Quantity::WastedShare,
    TRANSITIONS,
    Quantity::Count(Measure::OnCriticalPath),
    Quantity::Count(Measure::Moves),
    Quantity::Seconds(Measure::AverageIdle),
    EXECUTION,
    Quantity::Seconds(Measure::PathCompute),
    Quantity::Seconds(Measure::PathRepeated),
    Quantity::Seconds(Measure::PathSlowed),
    Quantity::Seconds(Measure::PathBlocking),
    Quantity::Seconds(Measure::PathWaiting),
    Quantity::Seconds(Measure::PathFrozen),
    Quantity::Seconds(Measure::PathMoving),
    Quantity::Seconds(Measure::SharedComputing),
    Quantity::Seconds(Measure::SharedFrozen),
];

/// What the critical path is made of.
pub(super) const PARTS: [(Measure, &str); 7] = [
    (Measure::PathCompute, "compute"),
    (Measure::PathRepeated, "computed in vain"),
    (Measure::PathSlowed, "slowed beside an owner"),
    (Measure::PathBlocking, "blocked"),
    (Measure::PathWaiting, "waiting for a workstation"),
    (Measure::PathFrozen, "frozen under an owner"),
    (Measure::PathMoving, "moving"),
];

pub(super) fn cube() -> Cube {
    Cube::new(DIMS, QUANTITIES)
}

pub(super) fn write(
    source: &Source,
    named: &Named,
    out: &Path,
) -> Result<Document, WriteReportError> {
    let mut document = Document::new(out, &format!("Campaign {}", source.manifest.name))?;
    let report = GeneralReport { source, named };
    report.executed(&mut document)?;
    report.overview(&mut document)?;
    report.path(&mut document)?;
    report.reactions(&mut document)?;
    report.policies(&mut document)?;
    report.criteria(&mut document)?;
    report.programs(&mut document)?;
    report.subtasks(&mut document)?;
    Ok(document)
}

struct GeneralReport<'a> {
    source: &'a Source,
    named: &'a Named,
}

/// What a figure has a line for each value of, in its file's name and in words.
struct By {
    dim: Dim,
    file: &'static str,
    words: &'static str,
}

/// What a figure shows.
struct Shown {
    quantity: Quantity,
    axis: &'static str,
    file: &'static str,
    title: &'static str,
}

const STRETCH: Shown = Shown {
    quantity: Quantity::Stretch,
    axis: "times as long as undisturbed",
    file: "stretch",
    title: "How much longer programs take",
};

const MET: Shown = Shown {
    quantity: TRANSITIONS,
    axis: "busy transitions",
    file: "transitions",
    title: "Busy transitions met",
};

impl GeneralReport<'_> {
    fn many(&self, dim: Dim) -> usize {
        self.named.cube.values(dim).len()
    }

    fn executed(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What was executed");
        document.list(&self.source.left_out());
        let rows: Vec<Vec<String>> = self
            .source
            .manifest
            .programs
            .iter()
            .map(|program| {
                vec![
                    program.name.clone(),
                    if program.all { "all idle".to_owned() } else { program.ranks.to_string() },
                    count(program.operations),
                    count(program.subtasks),
                    format!("{:.3}", subtask_s(program)),
                    format!("{:.1}", program.undisturbed_ns as f64 / 1e9),
                ]
            })
            .collect();
        let header =
            ["program", "ranks", "operations", "subtasks", "mean subtask (s)", "undisturbed (s)"];
        document.table("programs", "The programs", &header, &rows)
    }

    /// One line for each combination, over all programs and costs.
    fn overview(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let cube = &self.named.cube;
        let mut rows = vec![];
        for workstations in cube.values(Dim::Workstations) {
            for policy in cube.values(Dim::Policy) {
                for reaction in cube.values(Dim::OnBusy) {
                    for criterion in cube.values(Dim::Criterion) {
                        let filter = [
                            (Dim::Workstations, workstations),
                            (Dim::Policy, policy),
                            (Dim::OnBusy, reaction),
                            (Dim::Criterion, criterion),
                        ];
                        rows.push(vec![
                            workstations.to_string(),
                            self.named.name(Dim::Policy, policy),
                            self.named.name(Dim::OnBusy, reaction),
                            self.named.name(Dim::Criterion, criterion),
                            percent(
                                cube.mean(&filter, Quantity::Finished).map(|part| 100.0 * part),
                                1,
                            ),
                            number(cube.mean(&filter, Quantity::Stretch), 2),
                            number(cube.mean(&filter, TRANSITIONS), 2),
                            number(cube.mean(&filter, Quantity::Count(Measure::Moves)), 2),
                            percent(cube.mean(&filter, Quantity::WastedShare), 1),
                            percent(cube.mean(&filter, Quantity::Utilisation), 1),
                        ]);
                    }
                }
            }
        }
        let header = [
            "workstations",
            "policy",
            "on busy",
            "criterion",
            "ended",
            "times undisturbed",
            "transitions",
            "moves",
            "work in vain",
            "idle time used",
        ];
        document.table("overview", "Means over all programs, periods and costs", &header, &rows)
    }

    fn path(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("Slowdown, and what the critical path is made of");
        let chart = self.named.against_cost(
            "Average slowdown against the same execution at cost zero",
            "average slowdown (%)",
            Dim::Workstations,
            &[],
            Quantity::Slowdown,
        );
        document.figure("slowdown", "Slowdown by number of workstations", &chart)?;
        let lines = |workstations| {
            let filter = [(Dim::Workstations, workstations)];
            let series = PARTS.map(|(measure, name)| {
                let along = self.named.cube.along(Dim::Cost, &filter, Quantity::Seconds(measure));
                Series::new(name, points(&along, seconds))
            });
            // What never happens needs no line; the colours stay.
            let series =
                series.into_iter().filter(|line| line.points.iter().any(|point| point.1 > 0.0));
            LineChart {
                title: self.named.name(Dim::Workstations, workstations),
                x_axis: Axis::linear("cost of a move (s)"),
                y_axis: Axis::linear("on the critical path (s)"),
                series: series.collect(),
                ..LineChart::default()
            }
        };
        let charts: Vec<LineChart> =
            self.named.cube.values(Dim::Workstations).into_iter().map(lines).collect();
        let panels = Panels {
            title: "The critical path in parts".into(),
            columns: charts.len().min(3),
            same_axes: true,
            charts,
            ..Panels::default()
        };
        document.figure("critical-path", "The critical path in parts (§7.2.2, §8)", &panels)?;
        let exponents =
            self.named.cube.values(Dim::Workstations).into_iter().filter_map(|workstations| {
                let filter = [(Dim::Workstations, workstations)];
                let line =
                    points(&self.named.cube.along(Dim::Cost, &filter, Quantity::Slowdown), seconds);
                Some(format!(
                    "{workstations} workstations: {:.2}",
                    exponent(&line, 0.0, f64::INFINITY)?
                ))
            });
        let exponents: Vec<String> = exponents.collect();
        if !exponents.is_empty() {
            document.paragraph(&format!(
                "Slowdown grows as cost to the power of (1 would be linear): {}.",
                exponents.join("; ")
            ));
        }
        Ok(())
    }

    fn reactions(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What each reaction costs program, owner and lab (§8)");
        let by = By { dim: Dim::OnBusy, file: "reaction", words: "reaction" };
        let used = Shown {
            quantity: Quantity::Utilisation,
            axis: "of the idle time used (%)",
            file: "utilisation",
            title: "CPU utilisation: idle time that did useful work",
        };
        let wasted = Shown {
            quantity: Quantity::WastedShare,
            axis: "of the work (%)",
            file: "wasted",
            title: "Work done in vain",
        };
        self.against_cost(document, &by, &[STRETCH, used, wasted])?;
        self.owners_loss(document)?;
        self.break_even(document)
    }

    /// What an owner notices: computing beside them, and memory held.
    fn owners_loss(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let cube = &self.named.cube;
        let mut rows = vec![];
        for reaction in cube.values(Dim::OnBusy) {
            let filter = [(Dim::OnBusy, reaction)];
            let mean = |quantity| cube.mean(&filter, quantity);
            let returns = mean(TRANSITIONS);
            let each = |measure| {
                let seconds = mean(Quantity::Seconds(measure))?;
                returns.filter(|returns| *returns > 0.0).map(|returns| seconds / returns)
            };
            rows.push(vec![
                self.named.name(Dim::OnBusy, reaction),
                number(returns, 2),
                number(mean(Quantity::Seconds(Measure::SharedComputing)), 1),
                number(each(Measure::SharedComputing), 1),
                number(mean(Quantity::Seconds(Measure::SharedFrozen)), 1),
                number(each(Measure::SharedFrozen), 1),
            ]);
        }
        let header = [
            "on busy",
            "owners' returns",
            "computing beside owners (s)",
            "each return (s)",
            "frozen or leaving under owners (s)",
            "each return (s)",
        ];
        document.table("owners", "The owner's loss of response, an execution", &header, &rows)?;
        document.paragraph(
            "A rank that computes beside an owner costs response for that long; one that is frozen or on its way out \
             costs the memory it holds, and no processor. How much response that is, no usage log can tell; how long it \
             lasts, it can.",
        );
        Ok(())
    }

    /// "How great of an improvement in migration costs is needed to justify
    /// retreating" (§8).
    fn break_even(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let Some(migrate) = self.named.value(Label::OnBusy, "migrate") else { return Ok(()) };
        let cube = &self.named.cube;
        let line = |workstations, reaction| {
            let filter = [(Dim::Workstations, workstations), (Dim::OnBusy, reaction)];
            points(&cube.along(Dim::Cost, &filter, Quantity::Stretch), seconds)
        };
        let (mut series, mut rows) = (vec![], vec![]);
        for other in ["rollback", "retreat"] {
            let Some(reaction) = self.named.value(Label::OnBusy, other) else { continue };
            for workstations in cube.values(Dim::Workstations) {
                let cheaper = line(workstations, reaction);
                let even = line(workstations, migrate).into_iter().filter_map(|(cost, stretch)| {
                    Some((cost, break_even_cost(&cheaper, stretch)?))
                });
                let even: Vec<(f64, f64)> = even.collect();
                rows.extend(even.iter().map(|(cost, most)| {
                    vec![
                        other.to_owned(),
                        workstations.to_string(),
                        format!("{cost:.0}"),
                        format!("{most:.1}"),
                        format!("{:.1}", cost - most),
                    ]
                }));
                series.push(Series::new(format!("{other}, {workstations} workstations"), even));
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let costs = cube.values(Dim::Cost).into_iter().map(seconds);
        let same = Series::new("equal costs", costs.map(|cost| (cost, cost)).collect());
        series.push(same.looking(Look::Dashed).coloured(gleaner_figure::Colour(150, 150, 150)));
        let chart = LineChart {
            title: "What a move without the whole state may cost at most".into(),
            x_axis: Axis::linear("cost of a migration (s)"),
            y_axis: Axis::linear("cost at which programs take as long (s)"),
            series,
            ..LineChart::default()
        };
        document.figure(
            "break-even",
            "How large a gain in migration cost justifies rolling back or retreating (§8)",
            &chart,
        )?;
        let header = [
            "instead",
            "workstations",
            "migration costs (s)",
            "must cost at most (s)",
            "gain needed (s)",
        ];
        document.table("break-even", "When less state is worth moving", &header, &rows)?;
        document.paragraph(
            "Where a line is missing, no cost however small makes up for the work that is done again.",
        );
        Ok(())
    }

    fn policies(&self, document: &mut Document) -> Result<(), WriteReportError> {
        if self.many(Dim::Policy) < 2 {
            return Ok(());
        }
        document.section("Placement");
        let by = By { dim: Dim::Policy, file: "policy", words: "policy" };
        self.against_cost(document, &by, &[STRETCH, MET])
    }

    fn criteria(&self, document: &mut Document) -> Result<(), WriteReportError> {
        if self.many(Dim::Criterion) < 2 {
            return Ok(());
        }
        document.section("The idle criterion (§5, §8)");
        let by = By { dim: Dim::Criterion, file: "criterion", words: "idle criterion" };
        let idle = Shown {
            quantity: Quantity::Seconds(Measure::AverageIdle),
            axis: "mean idle period (s)",
            file: "idle",
            title: "Length of the idle periods",
        };
        self.against_cost(document, &by, &[STRETCH, MET, idle])
    }

    /// One figure for each quantity, with a line for each value of the dimension.
    fn against_cost(
        &self,
        document: &mut Document,
        by: &By,
        all: &[Shown],
    ) -> Result<(), WriteReportError> {
        for Shown { quantity, axis, file, title } in all {
            let chart = self.named.against_cost(title, axis, by.dim, &[], *quantity);
            let (file, title) =
                (format!("{}-{file}", by.file), format!("{title}, by {}", by.words));
            document.figure(&file, &title, &chart)?;
        }
        Ok(())
    }

    /// Longer programs (§7.2.1: "an open issue").
    fn programs(&self, document: &mut Document) -> Result<(), WriteReportError> {
        if self.many(Dim::Program) < 2 {
            return Ok(());
        }
        document.section("By program (§7.2.1, §8)");
        let chart = self.named.against_cost(
            "Average slowdown by program",
            "average slowdown (%)",
            Dim::Program,
            &[],
            Quantity::Slowdown,
        );
        document.figure("program-slowdown", "Slowdown by program", &chart)?;
        document.figure(
            "program-relative",
            "Slowdown by program, against the cost of a move as a part of the program's length",
            &self.relative(),
        )?;
        let cube = &self.named.cube;
        let mut rows = vec![];
        for (program, facts) in (0..).zip(&self.source.manifest.programs) {
            let filter = [(Dim::Program, program)];
            let execution = cube.mean(&filter, EXECUTION);
            let an_hour = |many: f64| execution.map(|seconds| many / seconds * 3_600.0);
            rows.push(vec![
                facts.name.clone(),
                format!("{:.1}", facts.undisturbed_ns as f64 / 1e9),
                number(execution, 1),
                number(cube.mean(&filter, Quantity::Stretch), 2),
                number(cube.mean(&filter, TRANSITIONS), 2),
                number(cube.mean(&filter, TRANSITIONS).and_then(an_hour), 2),
                percent(cube.mean(&filter, Quantity::Finished).map(|part| 100.0 * part), 1),
            ]);
        }
        let header = [
            "program",
            "undisturbed (s)",
            "execution (s)",
            "times undisturbed",
            "transitions",
            "an hour",
            "ended",
        ];
        document.table("program-length", "Means by program, over everything else", &header, &rows)
    }

    /// "A migration cost of 25% of the initial execution time introduces a
    /// slowdown of no more than 200%" (§7.2.1): is that so for longer ones?
    fn relative(&self) -> LineChart {
        let cube = &self.named.cube;
        let lines = (0..).zip(&self.source.manifest.programs).map(|(program, facts)| {
            let along = cube.along(Dim::Cost, &[(Dim::Program, program)], Quantity::Slowdown);
            let part = |cost: i64| 100.0 * cost as f64 / facts.undisturbed_ns.max(1) as f64;
            let line = points(&along, part).into_iter().filter(|(part, _)| *part <= 100.0);
            Series::new(facts.name.clone(), line.collect()).looking(Look::Dotted)
        });
        LineChart {
            title: "Average slowdown, by cost relative to the program".into(),
            x_axis: Axis::linear("cost of a move (% of the undisturbed execution)"),
            y_axis: Axis::linear("average slowdown (%)"),
            series: lines.filter(|line| !line.points.is_empty()).collect(),
            ..LineChart::default()
        }
    }

    /// "The relationship between the size of a program's subtasks, and the
    /// duration of idle periods on the workstations" (§8).
    fn subtasks(&self, document: &mut Document) -> Result<(), WriteReportError> {
        if self.many(Dim::Program) < 3 {
            return Ok(());
        }
        document.section("Subtask size against idle-period length (§8)");
        let cube = &self.named.cube;
        for (quantity, name, y, title) in [
            (Quantity::WastedShare, "wasted", "work in vain (%)", "Work done in vain"),
            (
                Quantity::Stretch,
                "stretch",
                "times as long as undisturbed",
                "How much longer programs take",
            ),
        ] {
            let mut series = vec![];
            for reaction in cube.values(Dim::OnBusy) {
                let mut line: Vec<(f64, f64)> = (0..)
                    .zip(&self.source.manifest.programs)
                    .filter_map(|(program, facts)| {
                        let filter = [(Dim::Program, program), (Dim::OnBusy, reaction)];
                        let idle = cube.mean(&filter, Quantity::Seconds(Measure::AverageIdle))?;
                        let size = subtask_s(facts) / idle;
                        Some((size, cube.mean(&filter, quantity)?)).filter(|_| size > 0.0)
                    })
                    .collect();
                line.sort_by(|a, b| a.0.total_cmp(&b.0));
                series.push(
                    Series::new(self.named.name(Dim::OnBusy, reaction), line).looking(Look::Dotted),
                );
            }
            let chart = LineChart {
                title: format!("{title}, by subtask size"),
                x_axis: Axis::log("mean subtask / mean idle period"),
                y_axis: Axis::linear(y),
                series,
                ..LineChart::default()
            };
            document.figure(
                &format!("subtask-{name}"),
                &format!("{title} against the size of subtasks"),
                &chart,
            )?;
        }
        Ok(())
    }
}

/// Mean work between two receives.
fn subtask_s(program: &crate::results::manifest::ProgramFacts) -> f64 {
    program.compute_ns as f64 / 1e9 / program.subtasks.max(1) as f64
}

/// The highest cost at which a line is not above a height; `None` if it
/// always is. Beyond the last point nothing is said.
fn break_even_cost(line: &[(f64, f64)], height: f64) -> Option<f64> {
    let mut found = None;
    for pair in line.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if y0 <= height && height < y1 {
            return Some(x0 + (height - y0) / (y1 - y0) * (x1 - x0));
        }
        if y1 <= height {
            found = Some(x1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_even_is_where_the_line_comes_up_to_the_height() {
        let line = [(1.0, 1.1), (2.0, 1.3), (3.0, 1.5)];
        assert_eq!(break_even_cost(&line, 1.4).map(|cost| (cost * 10.0).round()), Some(25.0));
        assert_eq!(break_even_cost(&line, 1.0), None);
        assert_eq!(break_even_cost(&line, 9.0), Some(3.0));
    }
}
