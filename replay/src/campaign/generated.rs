//! Owners that are made up for a campaign.

use std::path::Path;
use std::time::Duration;

use gleaner_collector::generate::{self, Form, OwnerModel, records};
use gleaner_collector::threads::{cores, side_by_side};
use gleaner_collector::timeline::{Interpretation, Reading, Timeline, interpret};
use gleaner_common::time::WallTime;
use jiff::ToSpan;

use super::criterion::CriterionChoice;
use super::file::{Campaign, Generate, WORKSTATIONS_MAX};
use crate::Usage;

/// How often rwho looks (Phalen 1994, §5).
const SNAPSHOTS_EVERY: Duration = Duration::from_secs(180);

/// Makes a log up and reads it, the workstations side by side. Which thread
/// makes which makes no difference: each has a seed of its own.
///
/// # Errors
/// A model, a date or a number that cannot be, in words.
pub(super) fn make_log(
    path: &Path,
    campaign: &Campaign,
    generate: &Generate,
) -> Result<Vec<Usage>, String> {
    let model = owner_model(path, generate)?;
    let plan = generator_plan(campaign, generate)?;
    let interpretation = match plan.form {
        Form::Exact => Interpretation::Exact,
        Form::Snapshots => Interpretation::Snapshots { every: SNAPSHOTS_EVERY },
    };
    let timelines_of = |number: u32| -> Vec<Timeline> {
        let records = records(&model, &plan, number);
        let criteria = campaign.criteria.0.iter();
        let read = |choice: &CriterionChoice| {
            let criterion = choice.criterion;
            interpret(records.iter(), Reading { interpretation, criterion })
        };
        criteria.map(read).collect()
    };
    let mut usages = vec![Usage::from_timelines([]); campaign.criteria.0.len()];
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
    Ok(usages)
}

/// Workstations that one thread makes before all are waited for.
const BATCH: usize = 4;

/// A model that is built in, or one in a file beside the campaign's.
fn owner_model(path: &Path, generate: &Generate) -> Result<OwnerModel, String> {
    if generate.model == "phalen1994" {
        return Ok(OwnerModel::phalen1994());
    }
    if Path::new(&generate.model).extension().is_none_or(|ending| ending != "toml") {
        return Err(format!(
            "`{}` is not a model: expected phalen1994, or a file such as owners.toml",
            generate.model
        ));
    }
    let file = path.parent().unwrap_or(Path::new(".")).join(&generate.model);
    let said = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|why| said(why.to_string()))?;
    OwnerModel::from_toml(&text).map_err(|why| said(why.to_string()))
}

/// The owners keep the hours of the campaign's time zone.
fn generator_plan(
    campaign: &Campaign,
    generate: &Generate,
) -> Result<generate::GeneratorPlan, String> {
    let zone = campaign.periods.get_ref().time_zone().map_err(|why| why.to_string())?;
    let midnight = |day: jiff::civil::Date| {
        let zoned = day.at(0, 0, 0, 0).to_zoned(zone.clone()).map_err(|why| why.to_string())?;
        let nanos =
            i64::try_from(zoned.timestamp().as_nanosecond()).map_err(|why| why.to_string())?;
        Ok::<_, String>(WallTime(nanos))
    };
    let last = generate.from.checked_add(i64::from(generate.months).months());
    let last = last.map_err(|why| why.to_string())?;
    if generate.workstations == 0
        || generate.workstations > WORKSTATIONS_MAX
        || generate.months == 0
    {
        return Err(format!("expected 1 to {WORKSTATIONS_MAX} workstations and a month at least"));
    }
    Ok(generate::GeneratorPlan {
        workstations: generate.workstations,
        from: midnight(generate.from)?,
        to: midnight(last)?,
        seed: generate.seed.unwrap_or(campaign.seed),
        form: if generate.snapshots { Form::Snapshots } else { Form::Exact },
        zone,
    })
}
