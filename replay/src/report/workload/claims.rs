//! Their sentences beside our numbers.

use super::super::WriteReportError;
use super::super::document::Document;
use super::WorkloadReport;
use super::grid::{Grid, Spread, at, is_in};
use super::tables::{spoken, title};
use crate::results::table::Table;
use crate::workload::campaign::file::{ClaimEntry, FigureEntry, ReportEntry};
use crate::workload::campaign::{At, of_where};

/// A measure of single jobs, somewhere in the grid.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) measure: String,
    pub(super) at: At,
    pub(super) values: Vec<f64>,
}

impl Wanted {
    pub(super) fn take(&mut self, table: &Table) {
        let Some(column) = table.column(&self.measure) else { return };
        // Jobs of one run follow each other, and are all there or none is.
        for row in 0..table.rows() {
            if is_in(&at(table, row), &self.at) {
                self.values.extend(column.number(row));
            }
        }
    }
}

/// What claims and figures ask single jobs.
pub(super) fn wanted(report: &ReportEntry, grid: &Grid) -> Vec<Wanted> {
    let wanted = |measure: &str, at: At| Wanted { measure: measure.to_owned(), at, values: vec![] };
    let of_claims = report.claims.iter().filter(|claim| claim.jobs.is_some());
    let of_claims = of_claims.flat_map(|claim| {
        places(claim).into_iter().map(|at| wanted(&claim.measure, at)).collect::<Vec<_>>()
    });
    let of_figures = report.figures.iter().filter(|figure| figure.x.is_none());
    let of_figures = of_figures.flat_map(|figure| {
        lines(figure, grid).into_iter().map(|at| wanted(&figure.y, at)).collect::<Vec<_>>()
    });
    of_claims.chain(of_figures).collect()
}

/// Where each line of a figure is.
pub(super) fn lines(figure: &FigureEntry, grid: &Grid) -> Vec<At> {
    let filter = of_where(&figure.at);
    let values = grid.values(&figure.by, &filter).into_iter();
    values
        .map(|value| {
            let mut at = filter.clone();
            at.insert(figure.by.clone(), value);
            at
        })
        .collect()
}

/// Where a claim looks.
fn places(claim: &ClaimEntry) -> Vec<At> {
    if claim.rises.is_empty() {
        return vec![of_where(&claim.at)];
    }
    let base = of_where(&claim.at);
    let mut all = vec![];
    for place in &claim.rises {
        let mut at = base.clone();
        at.extend(of_where(place));
        all.push(at);
    }
    all
}

/// What a claim finds somewhere.
#[derive(Clone, Debug)]
enum Found {
    Runs(Spread),
    /// A part of the jobs, in percent, and its standard error.
    Jobs {
        part: f64,
        error: f64,
    },
}

impl Found {
    fn value(&self) -> f64 {
        match self {
            Self::Runs(spread) => spread.mean(),
            Self::Jobs { part, .. } => *part,
        }
    }

    /// By how much another is above this, and the standard error of that.
    fn rise(&self, to: &Self) -> (f64, f64) {
        match (self, to) {
            (Self::Runs(one), Self::Runs(other)) => one.rise(other),
            (Self::Jobs { error, .. }, Self::Jobs { error: other, .. }) => {
                (to.value() - self.value(), error.hypot(*other))
            }
            _ => (to.value() - self.value(), 0.0),
        }
    }
}

impl WorkloadReport<'_> {
    pub(super) fn claims(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let claims = &self.manifest.report.claims;
        if claims.is_empty() {
            return Ok(());
        }
        document.section("Their sentences");
        let rows: Vec<Vec<String>> = claims.iter().map(|claim| self.claim(claim)).collect();
        let header = ["they say", "here", "holds here"];
        document.table("sentences", "What they say of their results", &header, &rows)?;
        document.paragraph(
            "Something rises if each mean is above the one before by more than twice the standard error of the \
             difference, repetition by repetition, since the same repetitions have the same jobs; by less, there is no \
             difference.",
        );
        Ok(())
    }

    fn claim(&self, claim: &ClaimEntry) -> Vec<String> {
        let places = places(claim);
        let found: Vec<Option<Found>> = places.iter().map(|at| self.found(claim, at)).collect();
        let texts: Vec<String> = found
            .iter()
            .map(|found| found.as_ref().map_or("-".to_owned(), |found| spoken(found.value())))
            .collect();
        let unit = match claim.jobs {
            Some([low, high]) => {
                format!("% of the jobs with {} from {low} to {high}", title(&claim.measure))
            }
            None => title(&claim.measure),
        };
        let known: Option<Vec<Found>> = found.into_iter().collect();
        let verdict = known.map_or("-", |found| verdict(claim, &found));
        vec![claim.says.clone(), format!("{unit}: {}", texts.join(", ")), verdict.to_owned()]
    }

    fn found(&self, claim: &ClaimEntry, at: &At) -> Option<Found> {
        let Some([low, high]) = claim.jobs else {
            return self.grid.spread(at, &claim.measure).map(Found::Runs);
        };
        let is_it = |one: &&Wanted| one.measure == claim.measure && one.at == *at;
        let values = &self.wanted.iter().find(is_it)?.values;
        let many = values.len() as f64;
        let inside = values.iter().filter(|value| (low..=high).contains(*value)).count() as f64;
        let part = inside / many;
        let error = (part * (1.0 - part) / many).sqrt() * 100.0;
        (many > 0.0).then_some(Found::Jobs { part: part * 100.0, error })
    }
}

fn verdict(claim: &ClaimEntry, found: &[Found]) -> &'static str {
    if let Some([low, high]) = claim.between {
        let inside = found.iter().all(|found| (low..=high).contains(&found.value()));
        return if inside { "yes" } else { "no" };
    }
    let steps: Vec<(f64, f64)> = found
        .windows(2)
        .map(|pair| {
            let (rise, error) = pair[0].rise(&pair[1]);
            (rise, 2.0 * error)
        })
        .collect();
    if steps.iter().any(|(rise, error)| *rise < -error) {
        "no"
    } else if steps.iter().all(|(rise, error)| rise > error) {
        "yes"
    } else {
        "no difference"
    }
}
