//! `glean usage generate`: made-up owners.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gleaner_collector::generate::{Form, GeneratorPlan, OwnerModel, generate_into, generate_table};
use gleaner_collector::load::{LoadOptions, timelines};
use gleaner_collector::usage::ExportFormat;
use gleaner_collector::wall::system_zone;
use gleaner_common::time::WallTime;
use gleaner_shell::text;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::during;
use crate::failure::{Verdict, hinted};
use crate::flags::time;
use crate::output;
use crate::values::ParseValueError;

/// The model that comes with gleaner.
const BUILT_IN: &str = "phalen1994";

/// A century is longer than any study.
const MONTHS_MAX: i64 = 1_200;

#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// How many workstations.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(required_unless_present = "print_model")]
    pub workstations: Option<u32>,
    /// When their logs begin, such as 1993-09-01T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[arg(required_unless_present = "print_model")]
    pub from: Option<WallTime>,
    /// For how many months.
    #[arg(long, value_name = "M", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(i64).range(1..=MONTHS_MAX))]
    pub months: i64,
    /// The same seed gives the same logs; more workstations do not change the first ones.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// A file as --print-model writes it, or phalen1994.
    #[arg(long, value_name = "MODEL", default_value = BUILT_IN)]
    pub model: String,
    /// Fit the model to the logs of this usage archive.
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub fit_from: Option<PathBuf>,
    /// Whose hours and days the owners keep, such as `America/New_York` [default: this machine's].
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    pub zone: Option<TimeZone>,
    /// As rwho would have shown them every three minutes, instead of every transition.
    #[arg(long)]
    pub snapshots: bool,
    /// Write logs into this directory, which holds no others: made up and real ones do not mix.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["out", "print_model"])]
    pub usage: Option<PathBuf>,
    /// Write one file, .csv or .parquet, instead of logs.
    #[arg(long, value_name = "FILE", conflicts_with = "usage")]
    pub out: Option<PathBuf>,
    /// Print the model as TOML and generate nothing.
    #[arg(long)]
    pub print_model: bool,
    /// One record of what was generated.
    #[arg(long)]
    pub json: bool,
}

/// A time zone of the system's database.
pub(super) fn zone(text: &str) -> Result<TimeZone, ParseValueError> {
    TimeZone::get(text).map_err(|_| ParseValueError::Zone)
}

pub(super) fn run(args: &GenerateArgs) -> Result<Verdict> {
    let zone = args.zone.clone().unwrap_or_else(system_zone);
    let model = model(args, &zone)?;
    if args.print_model {
        output::bytes(model.to_toml().as_bytes())?;
        return Ok(Verdict::Yes);
    }
    let (Some(workstations), Some(from)) = (args.workstations, args.from) else {
        unreachable!("required, unless the model is printed");
    };
    let form = if args.snapshots { Form::Snapshots } else { Form::Exact };
    let to = later(from, args.months, &zone)?;
    let plan = GeneratorPlan { workstations, from, to, seed: args.seed, form, zone };
    let generated = match (&args.out, &args.usage) {
        (Some(path), _) => {
            let format = ending(path)?;
            during("generating", |show| generate_table(path, format, &model, &plan, show))
        }
        (None, Some(archive)) => {
            during("generating", |show| generate_into(archive, &model, &plan, show))
        }
        (None, None) => unreachable!("one of them is required"),
    }?;
    output::told(args.json, &generated, || {
        format!("{} records of {} workstations", generated.records, generated.workstations)
    })?;
    Ok(Verdict::Yes)
}

fn model(args: &GenerateArgs, zone: &TimeZone) -> Result<OwnerModel> {
    if let Some(data) = &args.fit_from {
        return fit(data, zone);
    }
    if args.model == BUILT_IN {
        return Ok(OwnerModel::phalen1994());
    }
    let text = text::read(Path::new(&args.model)).map_err(|error| {
        hinted(
            format!("cannot read the model {}: {error}", args.model),
            format!("--model {BUILT_IN} comes with gleaner; --print-model writes it as TOML"),
        )
    })?;
    OwnerModel::from_toml(&text).with_context(|| args.model.clone())
}

fn fit(data: &Path, zone: &TimeZone) -> Result<OwnerModel> {
    let loaded = during("reading", |show| timelines(data, &LoadOptions::default(), show))?;
    output::notes(&loaded.notes());
    let timelines = loaded.timelines.iter().map(|(_, timeline)| timeline);
    OwnerModel::fit(timelines, zone)
        .with_context(|| format!("cannot fit a model to the logs of {}", data.display()))
}

fn later(from: WallTime, months: i64, zone: &TimeZone) -> Result<WallTime> {
    let beyond = || format!("{months} months from there is beyond what a log can hold");
    let start = Timestamp::from_nanosecond(i128::from(from.0)).with_context(beyond)?;
    let end = start.to_zoned(zone.clone()).checked_add(months.months()).with_context(beyond)?;
    let nanos = i64::try_from(end.timestamp().as_nanosecond()).with_context(beyond)?;
    Ok(WallTime(nanos))
}

fn ending(path: &Path) -> Result<ExportFormat> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ending.parse().with_context(|| {
        format!("{}: expected a file that ends in .csv or .parquet", path.display())
    })
}
