//! Reports: a campaign's results as tables and figures for people.
//!
//! ```text
//! DIR/results.parquet ─► cubes of means ─► report.md, tables/*.csv, figures/*.svg, figures/*.png
//! DIR/campaign.json ──────────────────────┘
//! ```

mod charts;
mod cube;
mod document;
mod general;
pub(crate) mod interval;
mod library;
mod phalen;
mod workload;

use std::path::{Path, PathBuf};

use charts::Named;
use cube::Cube;
pub use document::WriteReportError;
use document::count;

use crate::model::RulesOf;
use crate::results::manifest::{Manifest, ReportKind};
use crate::results::store::{Store, StoreError};
use crate::results::{Legend, Row, read_rows};
use crate::workload::campaign::WorkloadManifest;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Results(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] WriteReportError),
}

/// What a report is made from, beside the rows.
struct Source {
    manifest: Manifest,
    given_up: u64,
    rows: u64,
}

impl Source {
    /// What does not show in any table, one sentence each.
    fn left_out(&self) -> Vec<String> {
        let mut said = vec![format!(
            "{} executions; {} of them were given up because they had not ended with their period: they count in \
             `times undisturbed` with the time that they were given, and in no other mean.",
            count(self.rows),
            count(self.given_up)
        )];
        let setting = &self.manifest.setting;
        if let Some(about) = &setting.model {
            said.push(format!("The owners are made up: {about}."));
        }
        if !setting.fitted.is_empty() {
            let names: Vec<&str> = setting.fitted.iter().map(|(name, _)| name.as_str()).collect();
            said.push(format!(
                "Of the owners, these were found by a search for the slowdowns of Phalen 1994, Table 12: {}.",
                names.join(", ")
            ));
        }
        if !setting.interpretation.is_empty() {
            said.push(format!(
                "The times of the log's records were understood as `{}`; a period is {:.0} h.",
                setting.interpretation,
                setting.period_s as f64 / 3_600.0
            ));
        }
        if setting.rules == RulesOf::Live {
            let rules = "The ranks kept the rules of the live coordinator, not those of Phalen 1994, §6.4: all begin \
                         together, and one that has to leave stays until there is somewhere to go.";
            said.push(rules.to_owned());
        }
        said.extend(
            setting.ranked_lacks.iter().map(|lacks| format!("Of what was known: {lacks}.")),
        );
        for network in &self.manifest.networks {
            if network.passed_over > 0 || network.periods < network.periods_wanted {
                said.push(format!(
                    "{} workstations: {} periods were passed over because too few workstations had a transition before \
                     and one after them; {} of {} wanted were found.",
                    network.workstations, network.passed_over, network.periods, network.periods_wanted
                ));
            }
            said.push(format!(
                "{} workstations: chosen out of {} to {} that were eligible.",
                network.workstations, network.eligible_min, network.eligible_max
            ));
        }
        said
    }
}

/// Writes the report of a campaign's results, and says which files it wrote.
///
/// # Errors
/// Results that are not there, not complete or not readable, or a directory
/// that cannot be written.
pub fn write(dir: &Path, out: &Path) -> Result<Vec<PathBuf>, ReportError> {
    if is_of_workloads(dir) {
        return Ok(workload::write(dir, out)?.finish()?);
    }
    let (store, manifest) = Store::open_complete::<Manifest>(dir)?;
    let (mut source, mut legend) = (Source { manifest, given_up: 0, rows: 0 }, Legend::default());
    let mut collected = match source.manifest.report {
        ReportKind::General => Collected::Cube(general::cube()),
        ReportKind::Phalen1994 => Collected::Cube(phalen::cube()),
        ReportKind::Library => Collected::Pairs(library::pairs(&source.manifest)),
    };
    read_rows(&store.results(), &mut legend, |_, rows| {
        source.take(rows, &mut collected);
        Ok(())
    })
    .map_err(|why| StoreError::Read { path: store.results(), why })?;
    let document = match collected {
        Collected::Pairs(pairs) => library::write(&source, &pairs, &legend, out)?,
        Collected::Cube(cube) => {
            let named = Named { cube, legend };
            match source.manifest.report {
                ReportKind::Phalen1994 => phalen::write(&source, &named, out)?,
                ReportKind::General | ReportKind::Library => general::write(&source, &named, out)?,
            }
        }
    };
    Ok(document.finish()?)
}

/// The rows, as far as a report needs them.
enum Collected {
    Cube(Cube),
    Pairs([library::Pairs; 2]),
}

/// Is this a campaign of workloads, and not of executions?
fn is_of_workloads(dir: &Path) -> bool {
    Store::is_of::<WorkloadManifest>(dir)
}

impl Source {
    fn take(&mut self, rows: &[Row], collected: &mut Collected) {
        for row in rows {
            self.rows += 1;
            self.given_up += u64::from(!row.finished());
            match collected {
                Collected::Cube(cube) => cube.add(row),
                Collected::Pairs(pairs) => pairs.iter_mut().for_each(|pairs| pairs.add(row)),
            }
        }
    }
}
