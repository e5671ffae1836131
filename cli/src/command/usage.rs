//! `glean usage`: the usage records that the collector keeps, on its host.

mod generate;
mod import;
mod plot;
mod reading;
mod stats;

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use gleaner_collector::rows::{LogRow, PeriodRow, RecordRow};
use gleaner_collector::usage::{self, Content, ExportFormat, Progress, Selection, Shown};
use gleaner_common::time::Spoken;
use gleaner_common::units::spoken_size;
use indicatif::ProgressBar;

use super::watch;
use crate::failure::{Verdict, hinted, one_line};
use crate::flags::{OutFile, Span, UsageArchive};
use crate::output::{self, Column, Form, Listing};

pub use import::ImportArgs;
pub use reading::ReadingArgs;
pub use stats::StatsArgs;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: UsageCommand,
}

#[derive(Debug, Subcommand)]
pub enum UsageCommand {
    /// List the logs, one for each workstation.
    #[command(after_help = "Example:\n  glean usage ls --json")]
    Ls(ListArgs),
    /// Show a workstation's records, or the idle and busy periods they come to.
    #[command(after_help = "Examples:
  glean usage show ws-042 --from 2026-11-20T00:00:00Z
  glean usage show ws-042 --periods")]
    Show(ShowArgs),
    /// Add up: how long and how often workstations are idle.
    #[command(after_help = "Examples:
  glean usage stats ws-042 --hours
  glean usage stats --survival --idle-load 0.5")]
    Stats(Box<StatsArgs>),
    /// Write records or periods to a file for other programs.
    #[command(
        after_help = "Example:\n  glean usage export --format parquet --out november.parquet"
    )]
    Export(ExportArgs),
    /// Take in records from elsewhere; the collector must not be running.
    #[command(after_help = "Examples:
  glean usage import --format rwho snapshots.txt --data lab
  glean usage import --format uncg --zone America/New_York state-2015.csv.gz state-2016.csv.gz --usage uncg")]
    Import(Box<ImportArgs>),
    /// Draw the week, how long periods last, or availability, as SVG or PNG.
    #[command(after_help = "Examples:
  glean usage plot --kind week --out week.png
  glean usage plot --kind survival --from 2026-11-01T00:00:00Z > survival.svg")]
    Plot(plot::PlotArgs),
    /// Make up the logs of owners, for replay.
    #[command(after_help = "Examples:
  glean usage generate --workstations 30 --from 1993-09-01T00:00:00Z --months 6 --usage owners
  glean usage generate --print-model > model.toml
  glean usage generate --fit-from owners --print-model")]
    Generate(generate::GenerateArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub usage: UsageArchive,
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The workstation's name.
    #[arg(value_name = "WORKSTATION")]
    pub workstation: String,
    /// The periods that the records come to, instead of the records.
    #[arg(long)]
    pub periods: bool,
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub span: Span,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// csv or parquet.
    #[arg(long)]
    pub format: ExportFormat,
    #[command(flatten)]
    pub out: OutFile,
    /// Only these workstations.
    #[arg(value_name = "WORKSTATION")]
    pub workstations: Vec<String>,
    /// The periods that the records come to, instead of the records.
    #[arg(long)]
    pub periods: bool,
    /// One record of what was written.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub span: Span,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// # Errors
/// Logs that cannot be read or written.
pub fn run(command: UsageCommand) -> Result<Verdict> {
    let result = match command {
        UsageCommand::Ls(args) => list(&args),
        UsageCommand::Show(args) => show(&args),
        UsageCommand::Stats(args) => stats::stats(*args),
        UsageCommand::Export(args) => export(args),
        UsageCommand::Import(args) => import::import(&args),
        UsageCommand::Plot(args) => plot::run(args),
        UsageCommand::Generate(args) => generate::run(&args),
    };
    result.map_err(elsewhere)
}

/// The records are in one place only, and not for everybody's eyes.
fn elsewhere(error: anyhow::Error) -> anyhow::Error {
    let kind = error.chain().find_map(|cause| cause.downcast_ref().map(io::Error::kind));
    if kind == Some(io::ErrorKind::PermissionDenied) {
        hinted(one_line(&error), "the records are the collector's own: the same with sudo")
    } else if kind == Some(io::ErrorKind::NotFound) {
        hinted(one_line(&error), "the collector's host has the records; --usage DIR says where")
    } else {
        error
    }
}

fn list(args: &ListArgs) -> Result<Verdict> {
    let rows = usage::ls(&args.usage.directory()?)?;
    args.form.print(&rows, |rows| Listing::new(&LOGS, rows, log_line))?;
    Ok(Verdict::Yes)
}

const LOGS: [Column; 7] = [
    Column::new("workstation", 9).shortens(12),
    Column::new("records", 8),
    Column::new("first", 6),
    Column::new("last", 7),
    Column::new("boots", 3),
    Column::new("size", 4),
    Column::new("health", 8).shortens(24),
];

fn log_line(row: &LogRow) -> Vec<String> {
    vec![
        row.workstation.to_string(),
        row.records.to_string(),
        row.first.clone().unwrap_or_default(),
        row.last.clone().unwrap_or_default(),
        row.boots.to_string(),
        spoken_size(row.bytes),
        row.health.join("; "),
    ]
}

fn show(args: &ShowArgs) -> Result<Verdict> {
    let data = args.usage.directory()?;
    let (name, span) = (args.workstation.as_str(), args.span.span());
    let shown = if args.periods {
        let mut listing = Gathered::new(args.form, period_line);
        let shown =
            usage::show_periods(&data, name, span, &args.reading.readings()?, &mut |row| {
                listing.take(&row)
            })?;
        listing.finish(&PERIODS)?;
        shown
    } else {
        let mut listing = Gathered::new(args.form, record_line);
        let shown = usage::show(&data, name, span, &mut |row| listing.take(&row))?;
        listing.finish(&RECORDS)?;
        shown
    };
    Ok(noted(&shown))
}

const PERIODS: [Column; 6] = [
    Column::new("state", 9),
    Column::new("start", 8),
    Column::new("end", 6),
    Column::new("lasted", 9),
    Column::new("cause", 5),
    Column::new("slots", 4),
];

const RECORDS: [Column; 7] = [
    Column::new("at", 9),
    Column::new("cause", 9),
    Column::new("load", 6),
    Column::new("users", 4),
    Column::new("input idle", 5),
    Column::new("slots", 3),
    Column::new("reason", 7).shortens(24),
];

/// Rows that go out at once as records, or are gathered for a table.
struct Gathered<T> {
    form: Form,
    line: fn(&T) -> Vec<String>,
    rows: Vec<Vec<String>>,
    failure: Option<anyhow::Error>,
}

impl<T: serde::Serialize> Gathered<T> {
    fn new(form: Form, line: fn(&T) -> Vec<String>) -> Self {
        Self { form, line, rows: vec![], failure: None }
    }

    fn take(&mut self, row: &T) -> ControlFlow<()> {
        if !self.form.json {
            self.rows.push((self.line)(row));
            return ControlFlow::Continue(());
        }
        match output::record(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn finish(self, columns: &[Column]) -> Result<()> {
        match self.failure {
            Some(error) => Err(error),
            None if self.form.json => Ok(()),
            None => self.form.show(&Listing { columns: columns.to_vec(), rows: self.rows }),
        }
    }
}

fn record_line(row: &RecordRow) -> Vec<String> {
    vec![
        row.at.clone(),
        row.cause.to_string(),
        format!("{:.2}", row.load_1m),
        row.users.to_string(),
        row.input_idle_s.map_or_else(String::new, seconds),
        row.slots.to_string(),
        row.reason.clone(),
    ]
}

fn period_line(row: &PeriodRow) -> Vec<String> {
    vec![
        row.state.name().to_owned(),
        row.start.clone(),
        row.end.clone(),
        seconds(row.duration_s),
        row.cause.map_or_else(String::new, |cause| cause.to_string()),
        row.slots.to_string(),
    ]
}

fn noted(shown: &Shown) -> Verdict {
    for note in &shown.notes {
        eprintln!("{note}");
    }
    Verdict::from(shown.rows > 0)
}

fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds)
        .map_or_else(|_| "?".into(), |span| Spoken(span).to_string())
}

fn export(args: ExportArgs) -> Result<Verdict> {
    let data = args.usage.directory()?;
    let selection = Selection { names: args.workstations, span: args.span.span() };
    let content =
        if args.periods { Content::Periods(args.reading.readings()?) } else { Content::Records };
    let mut bar = Bar::new("exporting");
    let summary =
        usage::export(&data, &selection, content, args.format, &args.out.out, &mut |progress| {
            bar.show(progress);
        })?;
    bar.end();
    for line in &summary.damage {
        eprintln!("{line}");
    }
    if args.json {
        output::record(&summary)?;
    } else {
        eprintln!(
            "{} rows of {} workstations, {}, are in {}",
            summary.rows,
            summary.workstations,
            spoken_size(summary.bytes),
            args.out.out.display()
        );
    }
    Ok(Verdict::from(summary.rows > 0))
}

/// A bar whose length is known with its first step.
struct Bar {
    what: &'static str,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(what: &'static str) -> Self {
        Self { what, bar: None }
    }

    fn show(&mut self, progress: Progress) {
        let bar = self.bar.get_or_insert_with(|| watch::count_bar(self.what, progress.total));
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }

    fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
