//! Owners that are made up for a campaign.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_collector::generate::{self, Form, ModelError, OwnerModel, records};
use gleaner_collector::threads::{cores, side_by_side};
use gleaner_collector::timeline::{Interpretation, Reading, Timeline, interpret};
use gleaner_common::time::WallTime;
use gleaner_shell::text;
use jiff::ToSpan;

use super::criterion::CriterionChoice;
use super::file::{Generate, WORKSTATIONS_MAX};
use super::inputs::OwnersOf;
use super::periods::{PeriodError, zone};
use crate::Usage;

/// How often rwho looks (Phalen 1994, §5).
const SNAPSHOTS_EVERY: Duration = Duration::from_secs(180);

/// Why owners cannot be made up as a campaign asks for them.
#[derive(Debug, thiserror::Error)]
pub enum MakeLogError {
    #[error("`{0}` is not a model: expected phalen1994, or a file such as owners.toml")]
    NoModel(String),
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("{}: {why}", path.display())]
    Model { path: PathBuf, why: Box<ModelError> },
    #[error(transparent)]
    Zone(#[from] PeriodError),
    #[error(transparent)]
    Date(#[from] jiff::Error),
    #[error("{0} is further from 1970 than 292 years")]
    TooFar(jiff::civil::Date),
    #[error("expected 1 to {WORKSTATIONS_MAX} workstations and 1 to {MONTHS_MAX} months")]
    OutOfRange,
}

/// How a log was made up and read.
pub(crate) struct MadeLog {
    pub(super) model: OwnerModel,
    pub(super) interpretation: Interpretation,
}

/// Makes a log up and reads it, the workstations side by side. Which thread
/// makes which makes no difference: each has a seed of its own.
///
/// # Errors
/// A model, a date or a number that cannot be.
pub(super) fn make_log(
    path: &Path,
    owners: &OwnersOf<'_>,
    generate: &Generate,
) -> Result<(Vec<Usage>, MadeLog), MakeLogError> {
    let model = owner_model(path, generate)?;
    let plan = generator_plan(owners, generate)?;
    let interpretation = owners.interpret.unwrap_or(match plan.form {
        Form::Exact => Interpretation::Exact,
        Form::Snapshots => Interpretation::Snapshots { every: SNAPSHOTS_EVERY },
    });
    let timelines_of = |number: u32| -> Vec<Timeline> {
        let records = records(&model, &plan, number);
        let criteria = owners.criteria.iter();
        let read = |choice: &CriterionChoice| {
            let criterion = choice.criterion;
            interpret(records.iter(), Reading { interpretation, criterion })
        };
        criteria.map(read).collect()
    };
    let mut usages = vec![Usage::from_timelines([]); owners.criteria.len()];
    // A batch at a time: the timelines of months are far larger than what is
    // kept of them.
    let numbers: Vec<u32> = (0..plan.workstations).collect();
    for batch in numbers.chunks(cores() * BATCH) {
        let made = side_by_side(batch.iter().copied(), cores(), timelines_of);
        for (number, timelines) in batch.iter().zip(made) {
            for (usage, timeline) in usages.iter_mut().zip(&timelines) {
                usage.push(generate::GeneratorPlan::name(*number).to_string(), timeline);
            }
        }
    }
    Ok((usages, MadeLog { model, interpretation }))
}

/// A century, as `glean usage generate` takes.
const MONTHS_MAX: u32 = 1_200;

/// Workstations that one thread makes before all are waited for.
const BATCH: usize = 4;

/// A model that is built in, or one in a file beside the campaign's.
fn owner_model(path: &Path, generate: &Generate) -> Result<OwnerModel, MakeLogError> {
    if generate.model == "phalen1994" {
        return Ok(OwnerModel::phalen1994());
    }
    if Path::new(&generate.model).extension().is_none_or(|ending| ending != "toml") {
        return Err(MakeLogError::NoModel(generate.model.clone()));
    }
    let path = path.parent().unwrap_or(Path::new(".")).join(&generate.model);
    let text =
        text::read(&path).map_err(|why| MakeLogError::Unreadable { path: path.clone(), why })?;
    OwnerModel::from_toml(&text).map_err(|why| MakeLogError::Model { path, why: why.into() })
}

/// The owners keep the hours of the campaign's time zone.
fn generator_plan(
    owners: &OwnersOf<'_>,
    generate: &Generate,
) -> Result<generate::GeneratorPlan, MakeLogError> {
    let zone = zone(owners.zone)?;
    let midnight = |day: jiff::civil::Date| {
        let moment = day.at(0, 0, 0, 0).to_zoned(zone.clone())?.timestamp();
        let nanos = i64::try_from(moment.as_nanosecond());
        nanos.map(WallTime).map_err(|_| MakeLogError::TooFar(day))
    };
    if !(1..=WORKSTATIONS_MAX).contains(&generate.workstations)
        || !(1..=MONTHS_MAX).contains(&generate.months)
    {
        return Err(MakeLogError::OutOfRange);
    }
    let last = generate.from.checked_add(i64::from(generate.months).months())?;
    Ok(generate::GeneratorPlan {
        workstations: generate.workstations,
        from: midnight(generate.from)?,
        to: midnight(last)?,
        seed: generate.seed.unwrap_or(owners.seed),
        form: if generate.snapshots { Form::Snapshots } else { Form::Exact },
        zone,
    })
}
