//! `glean usage stats`.

use anyhow::Result;
use gleaner_collector::stats::{CauseRow, Hours, StatsRow, SurvivalRow};
use gleaner_collector::usage::{self, Stats, StatsOptions};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{Bar, ReadingArgs, seconds};
use crate::failure::Verdict;
use crate::flags::{Span, UsageArchive};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    /// Only these workstations.
    #[arg(value_name = "WORKSTATION")]
    pub workstations: Vec<String>,
    #[command(flatten)]
    pub by: By,
    /// Whose hours and days, such as `America/New_York` [default: this machine's].
    #[arg(long, value_name = "ZONE", value_parser = super::generate::zone)]
    pub zone: Option<TimeZone>,
    /// One record a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub span: Span,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// By what else than by workstation.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "one flag of several, as clap reads them")]
pub struct By {
    /// By hour of the day instead of by workstation.
    #[arg(long)]
    pub hours: bool,
    /// By day of the week.
    #[arg(long)]
    pub days: bool,
    /// By hour of the week.
    #[arg(long)]
    pub week: bool,
    /// By what began the periods.
    #[arg(long)]
    pub causes: bool,
    /// How long periods last: the part that outlasts each length (Kaplan-Meier).
    #[arg(long)]
    pub survival: bool,
}

pub(super) fn stats(args: StatsArgs) -> Result<Verdict> {
    let data = args.usage.directory()?;
    let options = StatsOptions {
        names: args.workstations,
        span: args.span.span(),
        readings: args.reading.readings()?,
        zone: args.zone,
    };
    let mut bar = Bar::new("reading");
    let stats = usage::stats(&data, &options, &mut |progress| bar.show(progress))?;
    bar.end();
    for line in &stats.notes {
        eprintln!("{line}");
    }
    let any = Verdict::from(!stats.workstations.is_empty());
    print(&args.by, args.json, &stats)?;
    Ok(any)
}

fn print(by: &By, json: bool, stats: &Stats) -> Result<()> {
    let hours = |first: &'static str| {
        [first, "idle", "idle h", "busy h", "unknown h", "returns"].map(str::to_owned).to_vec()
    };
    if by.hours {
        rows(json, &stats.hours, &hours("hour"), |row| {
            hours_line(format!("{:02}", row.hour), &row.hours)
        })
    } else if by.days {
        rows(json, &stats.days, &hours("day"), |row| hours_line(row.day.to_owned(), &row.hours))
    } else if by.week {
        rows(json, &stats.week, &hours("hour"), |row| {
            hours_line(format!("{} {:02}", row.day, row.hour), &row.hours)
        })
    } else if by.causes {
        let header = ["state", "cause", "periods", "hours", "mean", "median", "p90", "p99"];
        rows(json, &stats.causes, &header.map(str::to_owned), cause_line)
    } else if by.survival {
        let header =
            ["state", "longer than", "part", "95 % from", "to", "periods", "cut off", "half"];
        rows(json, &stats.survival, &header.map(str::to_owned), survival_line)
    } else {
        let header = [
            "workstation",
            "idle",
            "idle h",
            "busy h",
            "unknown h",
            "harvestable core h",
            "idle mean",
            "idle median",
            "idle p90",
            "busy mean",
            "busy median",
            "returns",
            "transitions a day",
        ];
        rows(json, &stats.workstations, &header.map(str::to_owned), stats_line)
    }
}

fn rows<T: Serialize>(
    json: bool,
    rows: &[T],
    header: &[String],
    line: impl Fn(&T) -> Vec<String>,
) -> Result<()> {
    if json {
        return rows.iter().try_for_each(output::record);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    output::table(&header, &rows.iter().map(line).collect::<Vec<_>>())
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(String::new, |fraction| format!("{:.1} %", fraction * 100.0))
}

fn stats_line(row: &StatsRow) -> Vec<String> {
    vec![
        row.workstation.clone(),
        percent(row.idle_fraction),
        format!("{:.1}", row.idle_h),
        format!("{:.1}", row.busy_h),
        format!("{:.1}", row.unknown_h),
        format!("{:.1}", row.harvestable_core_h),
        seconds(row.idle.mean_s),
        seconds(row.idle.median_s),
        seconds(row.idle.p90_s),
        seconds(row.busy.mean_s),
        seconds(row.busy.median_s),
        row.returns.to_string(),
        row.transitions_per_day.map_or_else(String::new, |many| format!("{many:.1}")),
    ]
}

fn hours_line(first: String, hours: &Hours) -> Vec<String> {
    vec![
        first,
        percent(hours.idle_fraction),
        format!("{:.1}", hours.idle_h),
        format!("{:.1}", hours.busy_h),
        format!("{:.1}", hours.unknown_h),
        hours.returns.to_string(),
    ]
}

fn cause_line(row: &CauseRow) -> Vec<String> {
    vec![
        row.state.name().to_owned(),
        row.cause.to_string(),
        row.lengths.count.to_string(),
        format!("{:.1}", row.hours),
        seconds(row.lengths.mean_s),
        seconds(row.lengths.median_s),
        seconds(row.lengths.p90_s),
        seconds(row.lengths.p99_s),
    ]
}

fn survival_line(row: &SurvivalRow) -> Vec<String> {
    vec![
        row.state.name().to_owned(),
        seconds(row.longer_than_s),
        percent(Some(row.part)),
        percent(Some(row.low)),
        percent(Some(row.high)),
        row.periods.to_string(),
        row.cut_off.to_string(),
        row.median_s.map_or_else(String::new, seconds),
    ]
}
