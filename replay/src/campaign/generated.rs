//! Owners that are made up for a campaign.

use std::path::Path;
use std::thread;
use std::time::Duration;

use gleaner_collector::generate::{self, Form, OwnerModel, records};
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
    let threads =
        u32::try_from(thread::available_parallelism().map_or(1, usize::from)).unwrap_or(1);
    let each = plan.workstations.div_ceil(threads).max(1);
    let made: Vec<Vec<Vec<Timeline>>> = thread::scope(|scope| {
        let parts: Vec<_> = (0..plan.workstations)
            .step_by(each as usize)
            .map(|first| {
                let numbers = first..(first + each).min(plan.workstations);
                scope.spawn(|| numbers.map(timelines_of).collect())
            })
            .collect();
        let join = |part: thread::ScopedJoinHandle<'_, _>| {
            part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        parts.into_iter().map(join).collect()
    });
    let mut by_criterion: Vec<Vec<(String, Timeline)>> = vec![vec![]; campaign.criteria.0.len()];
    for (number, timelines) in (0..).zip(made.into_iter().flatten()) {
        for (usage, timeline) in by_criterion.iter_mut().zip(timelines) {
            usage.push((generate::Plan::name(number).to_string(), timeline));
        }
    }
    Ok(by_criterion.into_iter().map(Usage::from_timelines).collect())
}

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
fn generator_plan(campaign: &Campaign, generate: &Generate) -> Result<generate::Plan, String> {
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
    Ok(generate::Plan {
        workstations: generate.workstations,
        from: midnight(generate.from)?,
        to: midnight(last)?,
        seed: generate.seed.unwrap_or(campaign.seed),
        form: if generate.snapshots { Form::Snapshots } else { Form::Exact },
        zone,
    })
}
