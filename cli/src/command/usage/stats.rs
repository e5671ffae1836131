//! `glean usage stats`.

use anyhow::Result;
use gleaner_collector::stats::{CauseRow, DayRow, HourRow, Hours, StatsRow, SurvivalRow, WeekRow};
use gleaner_collector::usage::{self, Stats, StatsOptions};
use jiff::tz::TimeZone;

use super::{Bar, ReadingArgs, seconds};
use crate::failure::Verdict;
use crate::flags::{Span, UsageArchive};
use crate::output::{Column, Form, Listing};

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
    #[command(flatten)]
    pub form: Form,
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
    print(&args.by, args.form, &stats)?;
    Ok(any)
}

fn print(by: &By, form: Form, stats: &Stats) -> Result<()> {
    let hours = |first| {
        [(first, 9), ("idle", 9), ("idle h", 7), ("busy h", 6), ("unknown h", 5), ("returns", 8)]
            .map(column)
    };
    if by.hours {
        form.print(&stats.hours, |rows| {
            let line = |row: &HourRow| hours_line(format!("{:02}", row.hour), &row.hours);
            Listing::new(&hours("hour"), rows, line)
        })
    } else if by.days {
        form.print(&stats.days, |rows| {
            let line = |row: &DayRow| hours_line(row.day.to_owned(), &row.hours);
            Listing::new(&hours("day"), rows, line)
        })
    } else if by.week {
        form.print(&stats.week, |rows| {
            let line =
                |row: &WeekRow| hours_line(format!("{} {:02}", row.day, row.hour), &row.hours);
            Listing::new(&hours("hour"), rows, line)
        })
    } else if by.causes {
        form.print(&stats.causes, |rows| Listing::new(&CAUSES.map(column), rows, cause_line))
    } else if by.survival {
        form.print(&stats.survival, |rows| Listing::new(&SURVIVAL.map(column), rows, survival_line))
    } else {
        form.print(&stats.workstations, |rows| {
            Listing::new(&WORKSTATIONS.map(column), rows, stats_line)
        })
    }
}

/// A title and its weight.
type Weighed = (&'static str, u8);

fn column((title, weight): Weighed) -> Column {
    Column::new(title, weight)
}

const CAUSES: [Weighed; 8] = [
    ("state", 9),
    ("cause", 9),
    ("periods", 8),
    ("hours", 7),
    ("mean", 5),
    ("median", 6),
    ("p90", 4),
    ("p99", 3),
];

const SURVIVAL: [Weighed; 8] = [
    ("state", 9),
    ("longer than", 9),
    ("part", 9),
    ("95 % from", 6),
    ("to", 6),
    ("periods", 5),
    ("cut off", 4),
    ("half", 7),
];

const WORKSTATIONS: [Weighed; 13] = [
    ("workstation", 9),
    ("idle", 9),
    ("idle h", 8),
    ("busy h", 6),
    ("unknown h", 4),
    ("harvestable core h", 3),
    ("idle mean", 4),
    ("idle median", 7),
    ("idle p90", 2),
    ("busy mean", 1),
    ("busy median", 5),
    ("returns", 6),
    ("transitions a day", 0),
];

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
