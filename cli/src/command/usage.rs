//! `glean usage`: the usage records that the collector keeps, on its host.

mod generate;
mod import;
mod plot;
mod reading;
mod report;
mod stats;

use std::io;
use std::ops::ControlFlow;

use anyhow::Result;
use clap::Subcommand;
use gleaner_collector::rows::{LogRow, PeriodRow, RecordRow};
use gleaner_collector::usage::{self, Content, ExportFormat, Progress, Selection, Shown};
use gleaner_common::units::spoken_size;
use indicatif::ProgressBar;

use super::watch;
use crate::failure::{Verdict, hinted, one_line};
use crate::flags::{OutFile, Span, UsageArchive};
use crate::output::{self, Form, Listing, seconds};

pub use import::ImportArgs;
pub use reading::{InterpretArgs, ReadingArgs};
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
  glean usage import --format rwho snapshots.txt --usage lab
  glean usage import --format sessions data/sessions.csv --usage sessions
  glean usage import --format last --zone Europe/Berlin data/last --usage last
  glean usage import --format uncg --zone America/New_York state-2015.csv.gz state-2016.csv.gz --usage uncg")]
    Import(Box<ImportArgs>),
    /// Draw the week, how long periods last, or availability, as SVG, PNG or PDF.
    #[command(after_help = "Examples:
  glean usage plot --kind week --out week.png
  glean usage plot --kind survival --from 2026-11-01T00:00:00Z > survival.svg")]
    Plot(plot::PlotArgs),
    /// Write one page, as HTML and PDF, about how much stands idle, what it is worth, when, and whom its use would disturb.
    #[command(after_help = "Examples:
  glean usage report --out report
  glean usage report --price 0.03 --currency EUR --price-source 'our computing centre, 2026' --out report")]
    Report(Box<report::ReportArgs>),
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
        UsageCommand::Report(args) => report::run(*args),
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
    let data = args.usage.directory()?;
    let (rows, notes) = (usage::ls(&data)?, usage::notes(&data)?);
    args.form.print(&rows, logs)?;
    output::notes(&notes);
    Ok(Verdict::Yes)
}

fn logs(rows: &[LogRow]) -> Listing {
    Listing::of(rows)
        .shortened("workstation", (9, 12), |row| row.workstation.to_string())
        .column("records", 8, |row| row.records.to_string())
        .column("first", 6, |row| row.first.clone().unwrap_or_default())
        .column("last", 7, |row| row.last.clone().unwrap_or_default())
        .column("boots", 3, |row| row.boots.to_string())
        .column("size", 4, |row| spoken_size(row.bytes))
        .shortened("health", (8, 24), |row| row.health.join("; "))
        .listing()
}

fn show(args: &ShowArgs) -> Result<Verdict> {
    let data = args.usage.directory()?;
    let (name, span) = (args.workstation.as_str(), args.span.span()?);
    let shown = if args.periods {
        let mut listing = Gathered::new(args.form);
        let shown =
            usage::show_periods(&data, name, span, &args.reading.readings()?, &mut |row| {
                listing.take(row)
            })?;
        listing.finish(periods)?;
        shown
    } else {
        let mut listing = Gathered::new(args.form);
        let shown = usage::show(&data, name, span, &mut |row| listing.take(row))?;
        listing.finish(records)?;
        shown
    };
    Ok(noted(&shown))
}

/// Rows that go out at once as records, or are gathered for a table.
struct Gathered<T> {
    form: Form,
    rows: Vec<T>,
    failure: Option<anyhow::Error>,
}

impl<T: serde::Serialize> Gathered<T> {
    fn new(form: Form) -> Self {
        Self { form, rows: vec![], failure: None }
    }

    fn take(&mut self, row: T) -> ControlFlow<()> {
        if !self.form.json {
            self.rows.push(row);
            return ControlFlow::Continue(());
        }
        match output::record(&row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn finish(self, listing: fn(&[T]) -> Listing) -> Result<()> {
        match self.failure {
            Some(error) => Err(error),
            None if self.form.json => Ok(()),
            None => self.form.show(&listing(&self.rows)),
        }
    }
}

fn records(rows: &[RecordRow]) -> Listing {
    Listing::of(rows)
        .column("at", 9, |row| row.at.clone())
        .column("cause", 9, |row| row.cause.to_string())
        .column("load", 6, |row| format!("{:.2}", row.load_1m))
        .column("users", 4, |row| row.users.to_string())
        .column("input idle", 5, |row| row.input_idle_s.map_or_else(String::new, seconds))
        .column("slots", 3, |row| row.slots.to_string())
        .shortened("reason", (7, 24), |row| row.reason.clone())
        .listing()
}

fn periods(rows: &[PeriodRow]) -> Listing {
    let cause = |row: &PeriodRow| row.cause.map_or_else(String::new, |cause| cause.to_string());
    Listing::of(rows)
        .column("state", 9, |row| row.state.name().to_owned())
        .column("start", 8, |row| row.start.clone())
        .column("end", 6, |row| row.end.clone())
        .column("lasted", 9, |row| seconds(row.duration_s))
        .column("cause", 5, cause)
        .column("slots", 4, |row| row.slots.to_string())
        .listing()
}

fn noted(shown: &Shown) -> Verdict {
    output::notes(&shown.notes);
    Verdict::from(shown.rows > 0)
}

fn export(args: ExportArgs) -> Result<Verdict> {
    let data = args.usage.directory()?;
    let selection = Selection { names: args.workstations, span: args.span.span()? };
    let content =
        if args.periods { Content::Periods(args.reading.readings()?) } else { Content::Records };
    let summary = during("exporting", |show| {
        usage::export(&data, &selection, content, args.format, &args.out.out, show)
    })?;
    output::notes(&summary.damage);
    output::told(args.json, &summary, || {
        let (size, out) = (spoken_size(summary.bytes), args.out.out.display());
        format!(
            "{} rows of {} workstations, {size}, are in {out}",
            summary.rows, summary.workstations
        )
    })?;
    Ok(Verdict::from(summary.rows > 0))
}

/// Shows a bar while work is done, from the first step on, which knows its length.
fn during<T>(what: &'static str, work: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
    let mut bar = None;
    let done = work(&mut |progress: Progress| {
        let bar: &mut ProgressBar =
            bar.get_or_insert_with(|| watch::count_bar(what, progress.total));
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    done
}
