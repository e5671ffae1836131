//! `glean usage stats`.

use anyhow::Result;
use gleaner_collector::stats::{CauseRow, DayRow, HourRow, Hours, StatsRow, SurvivalRow, WeekRow};
use gleaner_collector::usage::{self, Stats, StatsOptions};
use jiff::tz::TimeZone;

use super::{ReadingArgs, during};
use crate::failure::Verdict;
use crate::flags::{Span, UsageArchive};
use crate::output::{self, Form, Listing, seconds};

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
        span: args.span.span()?,
        readings: args.reading.readings()?,
        zone: args.zone,
    };
    let stats = during("reading", |show| usage::stats(&data, &options, show))?;
    output::notes(&stats.notes);
    let any = Verdict::from(!stats.workstations.is_empty());
    print(&args.by, args.form, &stats)?;
    Ok(any)
}

fn print(by: &By, form: Form, stats: &Stats) -> Result<()> {
    if by.hours {
        let hour = |row: &HourRow| format!("{:02}", row.hour);
        form.print(&stats.hours, |rows| hours(rows, "hour", hour, |row| &row.hours))
    } else if by.days {
        let day = |row: &DayRow| row.day.to_owned();
        form.print(&stats.days, |rows| hours(rows, "day", day, |row| &row.hours))
    } else if by.week {
        let hour = |row: &WeekRow| format!("{} {:02}", row.day, row.hour);
        form.print(&stats.week, |rows| hours(rows, "hour", hour, |row| &row.hours))
    } else if by.causes {
        form.print(&stats.causes, causes)
    } else if by.survival {
        form.print(&stats.survival, survival)
    } else {
        form.print(&stats.workstations, workstations)
    }
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(String::new, |fraction| format!("{:.1} %", fraction * 100.0))
}

fn tenths(figure: f64) -> String {
    format!("{figure:.1}")
}

fn workstations(rows: &[StatsRow]) -> Listing {
    let transitions = |row: &StatsRow| row.transitions_per_day.map_or_else(String::new, tenths);
    Listing::of(rows)
        .column("workstation", 9, |row| row.workstation.clone())
        .column("idle", 9, |row| percent(row.idle_fraction))
        .column("idle h", 8, |row| tenths(row.idle_h))
        .column("busy h", 6, |row| tenths(row.busy_h))
        .column("unknown h", 4, |row| tenths(row.unknown_h))
        .column("harvestable core h", 3, |row| tenths(row.harvestable_core_h))
        .column("idle mean", 4, |row| seconds(row.idle.mean_s))
        .column("idle median", 7, |row| seconds(row.idle.median_s))
        .column("idle p90", 2, |row| seconds(row.idle.p90_s))
        .column("busy mean", 1, |row| seconds(row.busy.mean_s))
        .column("busy median", 5, |row| seconds(row.busy.median_s))
        .column("returns", 6, |row| row.returns.to_string())
        .column("transitions a day", 0, transitions)
        .listing()
}

/// Rows of hours, each under what `first` calls it.
fn hours<T>(
    rows: &[T],
    title: &'static str,
    first: impl Fn(&T) -> String,
    of: fn(&T) -> &Hours,
) -> Listing {
    Listing::of(rows)
        .column(title, 9, first)
        .column("idle", 9, |row| percent(of(row).idle_fraction))
        .column("idle h", 7, |row| tenths(of(row).idle_h))
        .column("busy h", 6, |row| tenths(of(row).busy_h))
        .column("unknown h", 5, |row| tenths(of(row).unknown_h))
        .column("returns", 8, |row| of(row).returns.to_string())
        .listing()
}

fn causes(rows: &[CauseRow]) -> Listing {
    Listing::of(rows)
        .column("state", 9, |row| row.state.name().to_owned())
        .column("cause", 9, |row| row.cause.to_string())
        .column("periods", 8, |row| row.lengths.count.to_string())
        .column("hours", 7, |row| tenths(row.hours))
        .column("mean", 5, |row| seconds(row.lengths.mean_s))
        .column("median", 6, |row| seconds(row.lengths.median_s))
        .column("p90", 4, |row| seconds(row.lengths.p90_s))
        .column("p99", 3, |row| seconds(row.lengths.p99_s))
        .listing()
}

fn survival(rows: &[SurvivalRow]) -> Listing {
    Listing::of(rows)
        .column("state", 9, |row| row.state.name().to_owned())
        .column("longer than", 9, |row| seconds(row.longer_than_s))
        .column("part", 9, |row| percent(Some(row.part)))
        .column("95 % from", 6, |row| percent(Some(row.low)))
        .column("to", 6, |row| percent(Some(row.high)))
        .column("periods", 5, |row| row.periods.to_string())
        .column("cut off", 4, |row| row.cut_off.to_string())
        .column("half", 7, |row| row.median_s.map_or_else(String::new, seconds))
        .listing()
}
