//! From the grid to figures, with what was printed as rings.

use gleaner_figure::{Axis, LineChart, Look, Series, series_colour};

use super::super::WriteReportError;
use super::super::document::Document;
use super::WorkloadReport;
use super::claims::lines;
use super::grid::is_in;
use super::tables::title;
use crate::workload::campaign::file::FigureEntry;
use crate::workload::campaign::{At, Key};

/// As many points as a distribution is drawn with.
const POINTS: usize = 400;

impl WorkloadReport<'_> {
    pub(super) fn figures(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let figures = &self.manifest.report.figures;
        if figures.is_empty() {
            return Ok(());
        }
        document.section("Figures");
        for figure in figures {
            let chart = self.chart(figure);
            document.figure(&figure.name, &figure.title, &chart)?;
        }
        Ok(())
    }

    fn chart(&self, figure: &FigureEntry) -> LineChart {
        let series = lines(figure, &self.grid).into_iter().enumerate().map(|(place, at)| {
            let name = at.get(&figure.by).map(|key| line_name(&figure.by, key));
            let name = name.unwrap_or_default();
            let line = match &figure.x {
                Some(x) => self.along(figure, x, name, &at),
                None => Series::new(name, self.distribution(figure, &at)),
            };
            line.coloured(series_colour(place))
        });
        let (label, y_label) = match &figure.x {
            Some(x) => (title(x), title(&figure.y)),
            None => (title(&figure.y), "jobs with at most so much (%)".to_owned()),
        };
        let axis = if figure.logarithmic { Axis::log } else { Axis::linear };
        LineChart {
            title: figure.title.clone(),
            x_axis: Axis::linear(label),
            y_axis: axis(y_label),
            series: series.filter(|line| !line.points.is_empty()).collect(),
            reference_name: format!("printed ({})", self.manifest.report.source),
            ..LineChart::default()
        }
    }

    fn along(&self, figure: &FigureEntry, x: &str, name: String, at: &At) -> Series {
        let mut line: Vec<(f64, f64, f64, f64)> = vec![];
        for key in self.grid.values(x, at) {
            let mut here = at.clone();
            here.insert(x.to_owned(), key.clone());
            if let (Key::Number(place), Some(spread)) = (key, self.grid.spread(&here, &figure.y)) {
                line.push((place, spread.mean(), spread.least(), spread.most()));
            }
        }
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points = line.iter().map(|(x, mean, ..)| (*x, *mean)).collect();
        let band = line.iter().map(|(x, _, least, most)| (*x, *least, *most)).collect();
        let references = self.rings(figure, x, at);
        Series { references, ..Series::new(name, points).looking(Look::Dotted).with_band(band) }
    }

    /// What was printed of a line.
    fn rings(&self, figure: &FigureEntry, x: &str, at: &At) -> Vec<(f64, f64)> {
        let place = self.printed.measures.iter().position(|known| *known == figure.y);
        let Some(place) = place else { return vec![] };
        // An axis that the printed table does not have says nothing.
        let known: At = at
            .iter()
            .filter(|(axis, _)| self.printed.axes.contains(axis))
            .map(|(axis, key)| (axis.clone(), key.clone()))
            .collect();
        let rows = self.printed.rows.iter().filter(|row| is_in(&row.at, &known));
        let ring = |row: &crate::workload::campaign::PrintedRow| match row.at.get(x)? {
            Key::Number(x) => Some((*x, row.values[place]?)),
            Key::Text(_) => None,
        };
        rows.filter_map(ring).collect()
    }

    fn distribution(&self, figure: &FigureEntry, at: &At) -> Vec<(f64, f64)> {
        let is_it = |one: &&super::claims::Wanted| one.measure == figure.y && one.at == *at;
        let Some(wanted) = self.wanted.iter().find(is_it) else { return vec![] };
        let mut values = wanted.values.clone();
        values.sort_by(f64::total_cmp);
        let step = values.len().div_ceil(POINTS).max(1);
        let part = |place: usize| 100.0 * (place + 1) as f64 / values.len() as f64;
        (0..values.len())
            .filter(|place| place % step == 0 || *place + 1 == values.len())
            .map(|place| (values[place], part(place)))
            .collect()
    }
}

fn line_name(axis: &str, key: &Key) -> String {
    match key {
        Key::Text(text) => text.clone(),
        Key::Number(_) => format!("{} {key}", title(axis)),
    }
}
