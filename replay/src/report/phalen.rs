//! Phalen 1994, §7 and Appendix 10.1, executed again: tables 7 to 12 and
//! figures 5 to 50, each beside what the thesis prints.

mod compare;
mod printed;

use std::path::Path;

use gleaner_figure::{LineChart, Panels};

use super::charts::{Named, crossing, nanos, points, seconds};
use super::cube::{Cube, Dim, Quantity};
use super::document::{Document, count, number, percent};
use super::{Source, WriteReportError};
use crate::results::{Label, Measure};

const DIMS: &[Dim] = &[Dim::Program, Dim::Workstations, Dim::TimeOfDay, Dim::IdleClass, Dim::Cost];

const PATH: [(Measure, &str); 4] = [
    (Measure::PathCompute, "compute"),
    (Measure::PathMoving, "moving"),
    (Measure::PathBlocking, "blocked"),
    (Measure::PathWaiting, "waiting for a workstation"),
];

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
        "D. Phalen (Brown University, 1994) executed four parallel programs 400,000 times (420,000 by her Table 7) on the logged usage of \
         her department's workstations, with processes that migrate when an owner comes back. This report executes \
         the same grid with gleaner's own placement and reaction code and stands its results beside hers. Her logs \
         and traces are lost; the owners and traces here are not hers, so equal numbers are not expected and equal \
         trends are. Her tables and sentences can be compared; the numbers behind her figures are not printed.",
    );
    let report = Report { source, named };
    report.executed(&mut document)?;
    report.differences(&mut document)?;
    report.by_workstations(&mut document)?;
    report.critical_path(&mut document)?;
    report.by_time_of_day(&mut document)?;
    report.by_activity(&mut document)?;
    report.appendix(&mut document)?;
    Ok(document)
}

struct Report<'a> {
    source: &'a Source,
    named: &'a Named,
}

impl Report<'_> {
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

    fn by_workstations(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By number of workstations (§7.1, §7.2)");
        self.table_10(document)?;
        self.table_11(document)?;
        self.table_12(document)?;
        let mut slowdown = self.named.against_cost(
            "Average slowdown by number of workstations",
            SLOWDOWN,
            Dim::Workstations,
            &[],
            Quantity::Slowdown,
        );
        for (series, workstations) in slowdown.series.iter_mut().zip(self.networks()) {
            series.references = reference_points(workstations);
        }
        "printed by Phalen (Tables 11, 12)".clone_into(&mut slowdown.reference_name);
        document.figure(
            "figure-05",
            "Figure 5: average slowdown by number of workstations",
            &slowdown,
        )?;
        for (name, title, y, quantity) in [
            ("07", "Average busy transitions", "busy transitions", TRANSITIONS),
            (
                "08",
                "Average busy transitions on the critical path",
                "on the critical path",
                ON_PATH,
            ),
            (
                "09",
                "Share of the transitions on the critical path",
                "on the critical path (%)",
                Quantity::ShareOnPath,
            ),
        ] {
            let chart = self.named.against_cost(title, y, Dim::Workstations, &[], quantity);
            let caption = format!(
                "Figure {}: {} by number of workstations",
                name.trim_start_matches('0'),
                title.to_lowercase()
            );
            document.figure(&format!("figure-{name}"), &caption, &chart)?;
        }
        for series in &mut slowdown.series {
            series.points.retain(|(cost, _)| *cost <= 40.0);
            series.references.retain(|(cost, _)| *cost <= 40.0);
        }
        document.figure(
            "figure-10",
            "Figure 10: average slowdown at costs of 1 to 40 s",
            &LineChart { title: "Average slowdown at costs of 1 to 40 s".into(), ..slowdown },
        )
    }

    fn table_10(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let header = [
            "workstations",
            "of the executions",
            "of their mean",
            "between the programs' means",
            "hers",
        ];
        let range = |values: Vec<f64>| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if values.is_empty() { "-".into() } else { format!("{least:.2} to {most:.2}") }
        };
        let mut rows = vec![];
        for workstations in self.networks() {
            let filter = [(Dim::Workstations, workstations)];
            let along = self.named.cube.along(Dim::Cost, &filter, Quantity::Slowdown);
            let deviations = along.values().filter_map(super::cube::Sample::deviation).collect();
            let errors = along.values().filter_map(super::cube::Sample::error).collect();
            let hers = printed::TABLE_10.iter().find(|row| row.0 == workstations);
            rows.push(vec![
                workstations.to_string(),
                range(deviations),
                range(errors),
                range(self.between_programs(workstations)),
                hers.map_or("-".into(), |(_, least, most)| format!("{least:.2} to {most:.2}")),
            ]);
        }
        document.table(
            "table-10",
            "Table 10: range of standard deviations of the slowdown, in %, over all costs",
            &header,
            &rows,
        )?;
        document.paragraph(
            "She does not print what her standard deviations are taken over. Those of single executions are necessarily \
             of the order of the slowdown itself, since most executions meet few transitions and some meet many; hers \
             are a tenth of it or less, which fits a deviation of means.",
        );
        Ok(())
    }

    fn between_programs(&self, workstations: i64) -> Vec<f64> {
        let programs = self.named.cube.values(Dim::Program);
        let costs = self.named.cube.values(Dim::Cost);
        let deviation = |cost: &i64| {
            let means: Vec<f64> = programs
                .iter()
                .filter_map(|program| {
                    let filter = [
                        (Dim::Program, *program),
                        (Dim::Workstations, workstations),
                        (Dim::Cost, *cost),
                    ];
                    self.named.cube.mean(&filter, Quantity::Slowdown)
                })
                .collect();
            let many = means.len() as f64;
            let mean = means.iter().sum::<f64>() / many;
            let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
            (means.len() > 1).then(|| (squares / (many - 1.0)).sqrt())
        };
        costs.iter().filter_map(deviation).collect()
    }

    fn table_11(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let titles: Vec<String> = printed::SLOWDOWNS
            .iter()
            .flat_map(|slowdown| [format!("{slowdown} %"), "hers".to_owned()])
            .collect();
        let header: Vec<&str> =
            std::iter::once("workstations").chain(titles.iter().map(String::as_str)).collect();
        let mut rows = vec![];
        for workstations in self.networks() {
            let line = self.slowdowns(workstations);
            let hers = printed::TABLE_11.iter().find(|row| row.0 == workstations);
            let mut row = vec![workstations.to_string()];
            for (place, slowdown) in printed::SLOWDOWNS.into_iter().enumerate() {
                let at = crossing(&line, slowdown);
                row.push(at.map_or("not reached".into(), |cost| format!("{cost:.1} s")));
                row.push(hers.map_or("-".into(), |(_, costs)| format!("{} s", costs[place])));
            }
            rows.push(row);
        }
        document.table(
            "table-11",
            "Table 11: cost of a move that slows down by so much",
            &header,
            &rows,
        )
    }

    fn table_12(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let titles: Vec<String> = printed::COSTS
            .iter()
            .flat_map(|cost| [format!("{cost} s"), "hers".to_owned()])
            .collect();
        let header: Vec<&str> =
            std::iter::once("workstations").chain(titles.iter().map(String::as_str)).collect();
        let mut rows = vec![];
        for workstations in self.networks() {
            let hers = printed::TABLE_12.iter().find(|row| row.0 == workstations);
            let mut row = vec![workstations.to_string()];
            for (place, cost) in printed::COSTS.into_iter().enumerate() {
                let filter = [(Dim::Workstations, workstations), (Dim::Cost, nanos(cost))];
                row.push(percent(self.named.cube.mean(&filter, Quantity::Slowdown), 2));
                row.push(percent(hers.map(|(_, slowdowns)| slowdowns[place]), 2));
            }
            rows.push(row);
        }
        document.table("table-12", "Table 12: slowdown at so much a move", &header, &rows)
    }

    /// Her §7.2.2 leaves this to future work: what the critical path is made
    /// of, and so why slowdown rises faster than cost.
    fn critical_path(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What the critical path is made of (left open in §7.2.2)");
        let charts = self.networks().into_iter().map(|workstations| {
            let filter = [(Dim::Workstations, workstations)];
            let series = PATH.iter().map(|(measure, name)| {
                let along = self.named.cube.along(Dim::Cost, &filter, Quantity::Seconds(*measure));
                gleaner_figure::Series::new(*name, points(&along, seconds))
            });
            LineChart {
                title: self.named.name(Dim::Workstations, workstations),
                x_axis: gleaner_figure::Axis::linear("cost of a move (s)"),
                y_axis: gleaner_figure::Axis::linear("on the critical path (s)"),
                series: series.collect(),
                ..LineChart::default()
            }
        });
        let panels = Panels {
            title: "The critical path in parts".into(),
            columns: 3,
            same_axes: true,
            charts: charts.collect(),
            ..Panels::default()
        };
        document.figure(
            "critical-path",
            "The critical path in parts, against the cost of a move",
            &panels,
        )?;
        let mut rows = vec![];
        for workstations in self.networks() {
            for cost in [1, 10, 50, 100] {
                let filter = [(Dim::Workstations, workstations), (Dim::Cost, nanos(cost))];
                let cube = &self.named.cube;
                let mut row = vec![workstations.to_string(), cost.to_string()];
                row.extend(
                    PATH.map(|(measure, _)| {
                        number(cube.mean(&filter, Quantity::Seconds(measure)), 1)
                    }),
                );
                row.push(number(cube.mean(&filter, Quantity::Seconds(Measure::Execution)), 1));
                row.push(number(cube.mean(&filter, ON_PATH), 2));
                rows.push(row);
            }
        }
        if rows.iter().any(|row| row[2] != "-") {
            let header = [
                "workstations",
                "cost (s)",
                "compute (s)",
                "moving (s)",
                "blocked (s)",
                "waiting (s)",
                "execution (s)",
                "transitions on it",
            ];
            document.table("critical-path", "The critical path in parts", &header, &rows)?;
        }
        document.paragraph(&self.superlinear());
        Ok(())
    }

    fn by_time_of_day(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By time of day (§7.3)");
        document.paragraph(
            "Night is midnight to 6 a.m., morning 6 a.m. to noon, afternoon noon to 6 p.m., evening 6 p.m. to midnight.",
        );
        for (first, y, quantity, what) in [
            (11, SLOWDOWN, Quantity::Slowdown, "slowdown"),
            (14, "busy transitions", TRANSITIONS, "busy transitions"),
        ] {
            self.figures(document, first, y, quantity, what, Dim::TimeOfDay)?;
        }
        Ok(())
    }

    fn by_activity(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By length of the idle periods (§7.4)");
        for (first, y, quantity, what) in [
            (17, SLOWDOWN, Quantity::Slowdown, "slowdown"),
            (20, "on the critical path", ON_PATH, "busy transitions on the critical path"),
        ] {
            self.figures(document, first, y, quantity, what, Dim::IdleClass)?;
        }
        self.classes(document)
    }

    /// One figure for each network.
    fn figures(
        &self,
        document: &mut Document,
        first: usize,
        y: &str,
        quantity: Quantity,
        what: &str,
        by: Dim,
    ) -> Result<(), WriteReportError> {
        for (figure, workstations) in (first..).zip(self.networks()) {
            let title =
                format!("Average {what} by {} on {workstations} workstations", grouping(by));
            let chart = self.named.against_cost(
                &title,
                y,
                by,
                &[(Dim::Workstations, workstations)],
                quantity,
            );
            document.figure(
                &format!("figure-{figure:02}"),
                &format!("Figure {figure}: {}", lower(&title)),
                &chart,
            )?;
        }
        Ok(())
    }

    /// How many executions fall into each class: lines of few are rough.
    fn classes(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let mut rows = vec![];
        for workstations in self.networks() {
            let filter = [(Dim::Workstations, workstations)];
            let along = self.named.cube.along(Dim::IdleClass, &filter, Quantity::Finished);
            let mut row = vec![workstations.to_string()];
            row.extend(
                (0..4).map(|class| count(along.get(&class).map_or(0, |sample| sample.many))),
            );
            rows.push(row);
        }
        let header: Vec<&str> =
            std::iter::once("workstations").chain(super::cube::IDLE_CLASSES).collect();
        document.table(
            "activity-classes",
            "Executions by mean length of the idle periods",
            &header,
            &rows,
        )
    }

    /// Figures 23 to 50: seven for each program, in her order.
    fn appendix(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let mut figure = 23;
        for (title, name) in [
            ("FFT program", "fft"),
            ("MSH program", "msh"),
            ("DET", "det"),
            ("TEST program", "test"),
        ] {
            document.section(&format!("Appendix 10.1: {title}"));
            let Some(program) = self.named.value(Label::Program, name) else {
                document.paragraph(&format!(
                    "The campaign has no program `{name}`: figures {figure} to {} are left out.",
                    figure + 6
                ));
                figure += 7;
                continue;
            };
            let of = [(Dim::Program, program)];
            let heading =
                format!("{}: average slowdown by number of workstations", name.to_uppercase());
            let chart = self.named.against_cost(
                &heading,
                SLOWDOWN,
                Dim::Workstations,
                &of,
                Quantity::Slowdown,
            );
            document.figure(
                &format!("figure-{figure}"),
                &format!("Figure {figure}: {heading}"),
                &chart,
            )?;
            figure += 1;
            for workstations in [30, 50, 100] {
                for by in [Dim::TimeOfDay, Dim::IdleClass] {
                    let heading = format!(
                        "{}: average slowdown by {} on {workstations} workstations",
                        name.to_uppercase(),
                        grouping(by)
                    );
                    let filter = [(Dim::Program, program), (Dim::Workstations, workstations)];
                    let chart = self.named.against_cost(
                        &heading,
                        SLOWDOWN,
                        by,
                        &filter,
                        Quantity::Slowdown,
                    );
                    document.figure(
                        &format!("figure-{figure}"),
                        &format!("Figure {figure}: {heading}"),
                        &chart,
                    )?;
                    figure += 1;
                }
            }
        }
        Ok(())
    }
}

fn grouping(by: Dim) -> &'static str {
    if by == Dim::TimeOfDay { "time of day" } else { "length of the idle periods" }
}

fn lower(title: &str) -> String {
    let mut characters = title.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// Her Tables 11 and 12 as points of Figure 5.
fn reference_points(workstations: i64) -> Vec<(f64, f64)> {
    let eleven = printed::TABLE_11.iter().filter(|row| row.0 == workstations);
    let eleven = eleven.flat_map(|row| row.1.into_iter().zip(printed::SLOWDOWNS));
    let twelve = printed::TABLE_12.iter().filter(|row| row.0 == workstations);
    let twelve =
        twelve.flat_map(|row| printed::COSTS.map(|cost| cost as f64).into_iter().zip(row.1));
    eleven.chain(twelve).collect()
}
