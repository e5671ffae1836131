//! Workloads that somebody published, run again: our figures beside theirs.
//!
//! What is compared, which parameters were fitted to which figure, and what
//! they say in words, the campaign's file declares; here it is worked out. The
//! promise: a figure that a parameter was chosen by is never among those that
//! are said to have come out.

mod claims;
mod figures;
mod grid;
mod tables;

use std::path::Path;

use self::claims::Wanted;
use self::grid::Grid;
use super::document::{Document, count};
use super::{ReportError, WriteReportError};
use crate::results::store::{Part, Store, StoreError};
use crate::results::table::Table;
use crate::workload::campaign::{Printed, WorkloadManifest};

/// A report while it is made.
struct WorkloadReport<'a> {
    manifest: &'a WorkloadManifest,
    grid: Grid,
    printed: Printed,
    /// What single jobs are asked.
    wanted: Vec<Wanted>,
}

pub(super) fn write(dir: &Path, out: &Path) -> Result<Document, ReportError> {
    let (store, manifest) = Store::open_complete::<WorkloadManifest>(dir)?;
    let mut grid = Grid::default();
    read(&store, Part::Results, |table| grid.take(table))?;
    let printed = manifest.printed.as_deref().map(Printed::parse);
    // It was read when the campaign was.
    let printed = printed.and_then(Result::ok).unwrap_or_default();
    let mut wanted = claims::wanted(&manifest.report, &grid);
    if manifest.per_job && !wanted.is_empty() {
        read(&store, Part::Jobs, |table| wanted.iter_mut().for_each(|one| one.take(table)))?;
    }
    let report = WorkloadReport { manifest: &manifest, grid, printed, wanted };
    Ok(report.document(out)?)
}

fn read(store: &Store, part: Part, mut take: impl FnMut(&Table)) -> Result<(), StoreError> {
    let path = store.whole(part);
    let read = Table::read(&path, |table| {
        take(&table);
        Ok(())
    });
    read.map_err(|why| StoreError::Read { path, why })
}

impl WorkloadReport<'_> {
    fn document(&self, out: &Path) -> Result<Document, WriteReportError> {
        let report = &self.manifest.report;
        let title = if report.title.is_empty() { &self.manifest.name } else { &report.title };
        let mut document = Document::new(out, title)?;
        for about in &report.about {
            document.paragraph(about);
        }
        document.list(&self.what_was_run());
        let has_printed = !self.printed.rows.is_empty();
        if has_printed || !report.fitted.is_empty() || !report.chosen.is_empty() {
            self.chosen(&mut document)?;
        }
        if has_printed {
            self.predictions(&mut document)?;
        }
        self.claims(&mut document)?;
        self.figures(&mut document)?;
        if !report.remarks.is_empty() {
            document.section("Why a figure cannot be had, and how ours differ");
            document.list(&report.remarks);
        }
        self.all_points(&mut document)?;
        Ok(document)
    }

    fn what_was_run(&self) -> Vec<String> {
        let manifest = self.manifest;
        let sum = |measure| self.grid.total(measure);
        let mut said = vec![format!(
            "{} runs, each point of the grid {} times with other seeds; {} jobs, of which {} were refused and {} had \
             not ended when nothing happened any more.",
            count(manifest.runs),
            count(manifest.repeats.into()),
            count(sum("jobs")),
            count(sum("refused")),
            count(sum("left")),
        )];
        for log in &manifest.logs {
            let processors = log.processors.map_or("-".to_owned(), |many| many.to_string());
            said.push(format!(
                "`{}`: {} jobs in the log, of which {} ran and are run again; {} lines are no jobs; by its header the \
                 machine had {processors} processors.",
                log.workload,
                count(log.jobs),
                count(log.ran),
                count(log.broken),
            ));
        }
        said
    }
}
