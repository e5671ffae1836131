//! Ours beside theirs, in numbers: what was fitted, and what came out.

use std::fmt::Write as _;

use super::super::WriteReportError;
use super::super::document::Document;
use super::WorkloadReport;
use super::grid::{Spread, is_in};
use crate::workload::campaign::{At, Key, PrintedRow, of_where};

/// More points than anybody reads: all of them are in the results.
const POINTS_MAX: usize = 400;

/// A figure that somebody printed, and ours.
struct Cell<'a> {
    row: &'a PrintedRow,
    printed: f64,
    here: Option<Spread>,
    is_fitted: bool,
}

impl Cell<'_> {
    /// By how much ours is off, as a part of theirs.
    fn off(&self) -> Option<f64> {
        let here = self.here.as_ref()?.mean();
        (self.printed != 0.0).then(|| (here - self.printed) / self.printed)
    }

    fn is_among_ours(&self) -> bool {
        let here = self.here.as_ref();
        here.is_some_and(|here| (here.least()..=here.most()).contains(&self.printed))
    }
}

impl WorkloadReport<'_> {
    fn cells(&self, measure: &str) -> Vec<Cell<'_>> {
        let place = self.printed.measures.iter().position(|known| known == measure);
        let Some(place) = place else { return vec![] };
        let cell = |row: &'_ PrintedRow| row.values.get(place).copied().flatten();
        let rows = self.printed.rows.iter().filter_map(|row| Some((row, cell(row)?)));
        rows.map(|(row, printed)| Cell {
            row,
            printed,
            here: self.grid.spread(&row.at, measure),
            is_fitted: self.is_fitted(&row.at, measure),
        })
        .collect()
    }

    fn is_fitted(&self, at: &At, measure: &str) -> bool {
        self.manifest.report.fitted.iter().any(|fitted| {
            fitted.measure.as_deref() == Some(measure) && is_in(at, &of_where(&fitted.at))
        })
    }

    /// Every free parameter, and the figures that it was chosen by.
    pub(super) fn chosen(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let report = &self.manifest.report;
        document.section("What was chosen");
        if report.fitted.is_empty() {
            document.paragraph(
                "No parameter was chosen to come near a printed figure: all of what follows is predicted.",
            );
        } else {
            document.paragraph(
                "These parameters are not printed, and were chosen to come near a printed figure. Those figures test \
                 nothing and are not among the predictions below.",
            );
            let rows: Vec<Vec<String>> = report
                .fitted
                .iter()
                .map(|fitted| {
                    let at = of_where(&fitted.at);
                    let measure = fitted.measure.as_deref().unwrap_or_default();
                    let cells = self.cells(measure);
                    let cells = cells.iter().filter(|cell| is_in(&cell.row.at, &at));
                    let printed: Vec<f64> = cells.map(|cell| cell.printed).collect();
                    let here = self.grid.spread(&at, measure);
                    vec![
                        fitted.parameter.clone(),
                        fitted.to.clone(),
                        range(&printed),
                        here.map_or("-".to_owned(), |here| spoken(here.mean())),
                    ]
                })
                .collect();
            let header = ["parameter", "fitted to", "printed", "here"];
            document.table("fitted", "Fitted, and so no predictions", &header, &rows)?;
        }
        if !report.chosen.is_empty() {
            document.paragraph("What they leave open and was chosen without looking at a figure:");
            document.list(&report.chosen);
        }
        Ok(())
    }

    pub(super) fn predictions(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("Predictions");
        let mut said = vec![];
        for measure in &self.printed.measures {
            let cells = self.cells(measure);
            said.extend(summary(measure, &cells));
        }
        document.list(&said);
        for measure in &self.printed.measures {
            let cells = self.cells(measure);
            let caption = format!("{}: {}", self.manifest.report.source, title(measure));
            let name = format!("{}-{measure}", self.manifest.name);
            match &self.printed.axes[..] {
                [down, along] if cells.len() > 12 => {
                    crossed(document, &name, &caption, &cells, [down, along])?;
                }
                _ => self.listed(document, &name, &caption, &cells)?,
            }
        }
        Ok(())
    }

    fn listed(
        &self,
        document: &mut Document,
        name: &str,
        caption: &str,
        cells: &[Cell<'_>],
    ) -> Result<(), WriteReportError> {
        let titles: Vec<String> = self.printed.axes.iter().map(|axis| title(axis)).collect();
        let titles = titles.iter().map(String::as_str);
        let header: Vec<&str> =
            titles.chain(["printed", "here", "least", "most", "off", ""]).collect();
        let rows: Vec<Vec<String>> = cells
            .iter()
            .map(|cell| {
                let axes = self.printed.axes.iter();
                let mut row: Vec<String> = axes.map(|axis| key(&cell.row.at, axis)).collect();
                let here = cell.here.as_ref();
                let of = |of: fn(&Spread) -> f64| here.map_or("-".into(), |it| spoken(of(it)));
                row.extend([
                    spoken(cell.printed),
                    of(Spread::mean),
                    of(Spread::least),
                    of(Spread::most),
                    cell.off().map_or("-".into(), |off| format!("{:+.1} %", off * 100.0)),
                    if cell.is_fitted { "fitted".into() } else { String::new() },
                ]);
                row
            })
            .collect();
        document.table(name, caption, &header, &rows)
    }

    /// Every point of the grid, whatever was printed.
    pub(super) fn all_points(&self, document: &mut Document) -> Result<(), WriteReportError> {
        const MEASURES: [&str; 9] = [
            "utilisation",
            "turnaround_s",
            "wait_s",
            "execution_s",
            "slowdown",
            "profit",
            "negotiations",
            "adaptations",
            "refused",
        ];
        document.section("Every point of the grid");
        let mut varied = self.grid.varied();
        if varied.contains(&"site") {
            varied.retain(|axis| *axis != "processors");
        }
        let titles: Vec<String> = varied.iter().chain(&MEASURES).map(|name| title(name)).collect();
        let header: Vec<&str> = titles.iter().map(String::as_str).collect();
        let row = |point: &super::grid::Point| {
            let axes = varied.iter().map(|axis| key(&point.at, axis));
            let measures = MEASURES.iter().map(|measure| {
                let spread = self.grid.spread(&point.at, measure);
                spread.map_or("-".to_owned(), |it| spoken(it.mean()))
            });
            axes.chain(measures).collect::<Vec<String>>()
        };
        if self.grid.points.len() > POINTS_MAX {
            document.paragraph(&format!(
                "The first {POINTS_MAX} of {} points; `results.csv` has all runs.",
                self.grid.points.len()
            ));
        }
        let rows: Vec<Vec<String>> = self.grid.points.iter().take(POINTS_MAX).map(row).collect();
        document.table("points", "Means of all repetitions", &header, &rows)
    }
}

/// One axis down, one along, and theirs beside each of ours.
fn crossed(
    document: &mut Document,
    name: &str,
    caption: &str,
    cells: &[Cell<'_>],
    [down, along]: [&String; 2],
) -> Result<(), WriteReportError> {
    let values = |axis: &str| {
        let mut found: Vec<String> = vec![];
        for cell in cells {
            let value = key(&cell.row.at, axis);
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found
    };
    let columns = values(along);
    let titles: Vec<String> =
        columns.iter().flat_map(|value| [value.clone(), "printed".to_owned()]).collect();
    let corner = format!("{} \\ {}", title(down), title(along));
    let header: Vec<&str> =
        std::iter::once(corner.as_str()).chain(titles.iter().map(String::as_str)).collect();
    let mut rows = vec![];
    for value in values(down) {
        let mut row = vec![value.clone()];
        for column in &columns {
            let is_here = |cell: &&Cell<'_>| {
                key(&cell.row.at, down) == value && key(&cell.row.at, along) == *column
            };
            match cells.iter().find(is_here) {
                Some(cell) if cell.is_fitted => {
                    row.extend(["fitted".to_owned(), spoken(cell.printed)]);
                }
                Some(cell) => {
                    let here = cell.here.as_ref();
                    let here = here.map_or("-".to_owned(), |here| spoken(here.mean()));
                    row.extend([here, spoken(cell.printed)]);
                }
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
        }
        rows.push(row);
    }
    document.table(name, caption, &header, &rows)
}

/// How near the predictions of a measure come.
fn summary(measure: &str, cells: &[Cell<'_>]) -> Option<String> {
    let predicted: Vec<&Cell<'_>> = cells.iter().filter(|cell| !cell.is_fitted).collect();
    let mut off: Vec<f64> = predicted.iter().filter_map(|cell| cell.off()).collect();
    off.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (middle, most) = (off.get(off.len() / 2)?.abs(), off.last()?.abs());
    let repeated =
        predicted.iter().all(|cell| cell.here.as_ref().is_some_and(|here| here.many() > 1));
    let among = predicted.iter().filter(|cell| cell.is_among_ours()).count();
    let within = |part: f64| off.iter().filter(|off| off.abs() <= part).count();
    let mut said = format!(
        "{}: of {} printed figures {} are met within 2 % and {} within 5 %; the median is off by {:.1} %, the worst \
         by {:.1} %.",
        title(measure),
        off.len(),
        within(0.02),
        within(0.05),
        middle * 100.0,
        most * 100.0
    );
    if repeated {
        // A string never fails.
        let _ = write!(said, " {among} lie between the least and the most of our repetitions.");
    }
    Some(said)
}

fn key(at: &At, axis: &str) -> String {
    match at.get(axis) {
        Some(Key::Text(text)) if text.is_empty() => "-".to_owned(),
        Some(key) => key.to_string(),
        None => "-".to_owned(),
    }
}

/// A column's name for people.
pub(super) fn title(name: &str) -> String {
    match name {
        "malleable" => "malleable (%)".to_owned(),
        "gap_s" => "gap (s)".to_owned(),
        "negotiation_s" => "negotiation (s)".to_owned(),
        "adaptation_s" => "adaptation (s)".to_owned(),
        "jobs_per_s" => "jobs a second".to_owned(),
        "mean_size" => "mean size".to_owned(),
        "lost_s" => "lost (processor s)".to_owned(),
        "excess" => "excess (processor s x speed)".to_owned(),
        _ => match name.strip_suffix("_s") {
            Some(name) => format!("{} (s)", name.replace('_', " ")),
            None => name.replace('_', " "),
        },
    }
}

/// A number with as many digits as matter.
pub(super) fn spoken(value: f64) -> String {
    match value.abs() {
        1_000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn range(values: &[f64]) -> String {
    let least = values.iter().copied().reduce(f64::min);
    let most = values.iter().copied().reduce(f64::max);
    match (least, most) {
        (Some(least), Some(most)) if least < most => {
            format!("{} to {}", spoken(least), spoken(most))
        }
        (Some(value), _) => spoken(value),
        _ => "-".to_owned(),
    }
}
