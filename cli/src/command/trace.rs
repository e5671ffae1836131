//! `glean trace`: what message-passing programs computed, sent and received.

pub(crate) mod play;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Subcommand, ValueEnum};
use gleaner_common::trace::import::{self, ImportOptions};
use gleaner_common::trace::{self, Lined, Op, ReadTraceError, Trace, ring};
use gleaner_common::units::{ParseUnitError, parse_duration, spoken_size};
use gleaner_program::RECORD_TO;
use gleaner_shell::atomic;
use serde::Serialize;

use crate::failure::{Verdict, hinted};
use crate::flags::OutFile;
use crate::output::{self, Form, Listing};
use crate::values::ParseValueError;

const MODE: u32 = 0o644;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Say whether traces can be replayed, and if not, on which line they go wrong.
    #[command(after_help = "Example:
  glean trace check data/traces/*.trace

Exit code: 0 all can be replayed, 1 some cannot.")]
    Check(CheckArgs),
    /// Show a trace: its ranks, what they compute and send, its critical path.
    #[command(
        visible_alias = "info",
        after_help = "Example:\n  glean trace show data/traces/fft.trace"
    )]
    Show(ShowArgs),
    /// Make a trace of what another program recorded.
    #[command(after_help = "Examples:
  glean trace import npb-lu.W.16.ti.gz --out lu.trace
  glean trace import sweep3d-2x2.liballprof.tar.gz --out sweep3d.trace")]
    Import(ImportArgs),
    /// Stretch a trace's compute times so that its critical path takes so long.
    #[command(
        after_help = "Example:\n  glean trace scale data/traces/msh.trace 200ms --out short.trace"
    )]
    Scale(ScaleArgs),
    /// Run a program here and record its compute times and messages.
    #[command(after_help = "Example:
  glean trace record --out mesh.trace --duration 195.663s -- ./mesh --size 128

The program is one that records itself where $GLEAN_RECORD names, as those in program/examples do.")]
    Record(RecordArgs),
    /// Run a trace as a program: compute, send and receive what it says.
    #[command(after_help = "Example:
  glean submit --ranks 17 --input short.trace --wait -- glean trace play short.trace")]
    Play(play::PlayArgs),
    /// Join what the ranks of a live program have recorded, each by itself.
    #[command(after_help = "Example:
  glean submit --ranks 17 --record --out recorded --wait -- ./fft --size 12
  glean trace join --out fft.trace recorded/*/trace.*")]
    Join(JoinArgs),
    /// Write ring17, the program that replay's speed is measured with.
    #[command(after_help = "Example:\n  glean trace ring --out ring17.trace")]
    Ring(RingArgs),
}

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The traces; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub form: Form,
}

/// How a recording is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recorded {
    /// Time-independent traces: `rank action arguments`.
    Simgrid,
    /// A tar archive of liballprof's files.
    Liballprof,
}

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// The recording, plain or compressed with gzip; - is standard input.
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    #[command(flatten)]
    pub out: OutFile,
    /// How it is written [default: liballprof for .tar, .tar.gz and .tgz, else simgrid].
    #[arg(long)]
    pub format: Option<Recorded>,
    /// The program's name [default: the source's].
    #[arg(long)]
    pub name: Option<String>,
    /// Operations that a rank computes in a second.
    #[arg(long, value_name = "N", default_value = "1e9", value_parser = speed)]
    pub flops_per_s: f64,
    /// One record of what was written.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct ScaleArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// How long its critical path is to take, such as 304.032s or 10min.
    #[arg(value_name = "DURATION", value_parser = span)]
    pub duration: Duration,
    #[command(flatten)]
    pub out: OutFile,
}

#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    #[command(flatten)]
    pub out: OutFile,
    /// Stretch it so that its critical path takes so long.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub duration: Option<Duration>,
    /// The program and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct JoinArgs {
    /// What each rank has recorded, in any order.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub out: OutFile,
    /// The program's name [default: that of the trace to write].
    #[arg(long)]
    pub name: Option<String>,
    /// Stretch it so that its critical path takes so long.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub duration: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub struct RingArgs {
    #[command(flatten)]
    pub out: OutFile,
}

fn speed(text: &str) -> Result<f64, ParseValueError> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or(ParseValueError::Speed)
}

/// Decimal seconds, or whole numbers of any units.
fn span(text: &str) -> Result<Duration, ParseUnitError> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.map_or_else(|| parse_duration(text), Ok)
}

/// # Errors
/// Traces that cannot be read, replayed or written.
pub fn run(command: TraceCommand) -> Result<Verdict> {
    match command {
        TraceCommand::Check(args) => check(&args),
        TraceCommand::Show(args) => show(&args),
        TraceCommand::Import(args) => import(&args),
        TraceCommand::Scale(args) => {
            let scaled = load_sound(&args.file)?.scaled_to(args.duration)?;
            write(&args.out.out, &scaled)
        }
        TraceCommand::Record(args) => record(&args),
        TraceCommand::Play(args) => play::play(&args),
        TraceCommand::Join(args) => join(&args),
        TraceCommand::Ring(args) => write(&args.out.out, &ring::ring17()),
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path.as_os_str() == STANDARD_INPUT {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(file))
}

fn load(path: &Path) -> Result<Lined> {
    trace::read(open(path)?).map_err(|error| anyhow!(error.in_file(path)))
}

/// A trace that can be replayed.
fn load_sound(path: &Path) -> Result<Trace> {
    sound(path, load(path)?)
}

fn sound(path: &Path, lined: Lined) -> Result<Trace> {
    match lined.check().first() {
        Some(problem) => bail!(problem.in_file(path, &lined.lines)),
        None => Ok(lined.trace),
    }
}

fn write(path: &Path, trace: &Trace) -> Result<Verdict> {
    let mut text = vec![];
    trace::write(trace, &mut text).with_context(|| format!("cannot write {}", path.display()))?;
    atomic::replace(path, &text, MODE)?;
    Ok(Verdict::Yes)
}

/// One trace's row of `check`.
#[derive(Debug, Serialize)]
struct CheckRow {
    file: String,
    ok: bool,
    program: Option<String>,
    ranks: Option<usize>,
    operations: Option<usize>,
    critical_path_s: Option<f64>,
    problems: Vec<String>,
}

fn check(args: &CheckArgs) -> Result<Verdict> {
    let mut all = true;
    let mut sound = vec![];
    for path in &args.files {
        let row = check_row(path, trace::read(open(path)?));
        all &= row.ok;
        if args.form.json {
            output::record(&row)?;
        } else if row.ok {
            sound.push(row);
        } else {
            row.problems.iter().try_for_each(|problem| output::line(problem))?;
        }
    }
    if !sound.is_empty() {
        args.form.show(&checked(&sound))?;
    }
    Ok(Verdict::from(all))
}

fn checked(rows: &[CheckRow]) -> Listing {
    Listing::of(rows)
        .shortened("trace", (9, 12), |row| row.file.clone())
        .shortened("program", (7, 12), |row| row.program.clone().unwrap_or_default())
        .column("ranks", 8, |row| row.ranks.unwrap_or(0).to_string())
        .column("operations", 6, |row| row.operations.unwrap_or(0).to_string())
        .column("critical path", 9, |row| spoken(row.critical_path_s.unwrap_or(0.0)))
        .listing()
}

fn check_row(path: &Path, read: Result<Lined, ReadTraceError>) -> CheckRow {
    let file = path.display().to_string();
    let lined = match read {
        Ok(lined) => lined,
        Err(error) => {
            let problems = vec![error.in_file(path)];
            let (program, ranks, operations, critical_path_s) = (None, None, None, None);
            let ok = false;
            return CheckRow { file, ok, program, ranks, operations, critical_path_s, problems };
        }
    };
    let problems = lined.check();
    let problems: Vec<String> =
        problems.iter().map(|problem| problem.in_file(path, &lined.lines)).collect();
    let trace = lined.trace;
    CheckRow {
        file,
        ok: problems.is_empty(),
        ranks: Some(trace.ranks.len()),
        operations: Some(trace.operations()),
        critical_path_s: trace.critical_path().ok().map(|path| path.as_secs_f64()),
        program: Some(trace.name),
        problems,
    }
}

/// To the millisecond, as Phalen 1994, Table 8 gives the lengths of her traces.
fn spoken(seconds: f64) -> String {
    format!("{seconds:.3} s")
}

/// One rank's row of `show`.
#[derive(Debug, Default, Serialize)]
struct RankRow {
    rank: usize,
    operations: usize,
    computes_s: f64,
    sends: u64,
    bytes: u64,
    receives: u64,
    spawns: u64,
}

fn rank_row(trace: &Trace, rank: usize) -> RankRow {
    let ops = &trace.ranks[rank];
    let computes_s = Duration::from_nanos(trace.computed(rank)).as_secs_f64();
    let mut row = RankRow { rank, operations: ops.len(), computes_s, ..RankRow::default() };
    for op in ops {
        match *op {
            Op::Compute { .. } => {}
            Op::Send { bytes, .. } => {
                row.sends += 1;
                row.bytes = row.bytes.saturating_add(bytes);
            }
            Op::Receive { .. } => row.receives += 1,
            Op::Spawn { .. } => row.spawns += 1,
        }
    }
    row
}

fn show(args: &ShowArgs) -> Result<Verdict> {
    let trace = load_sound(&args.file)?;
    let rows: Vec<_> = (0..trace.ranks.len()).map(|rank| rank_row(&trace, rank)).collect();
    if !args.form.json {
        output::block(&summary(&trace, &rows)?)?;
    }
    args.form.print(&rows, ranks)?;
    Ok(Verdict::Yes)
}

fn summary(trace: &Trace, rows: &[RankRow]) -> Result<String> {
    let path = trace.critical_path()?;
    let computed: f64 = rows.iter().map(|row| row.computes_s).sum();
    let (messages, bytes) = trace.messages();
    let share = computed / path.as_secs_f64().max(1e-9) / trace.ranks.len() as f64;
    Ok(format!(
        "{}: {} ranks, {} operations, {messages} messages of {} in all; critical path {}, on which \
         a rank computes {:.0} % of the time on average\n",
        trace.name,
        trace.ranks.len(),
        trace.operations(),
        spoken_size(bytes),
        spoken(path.as_secs_f64()),
        100.0 * share,
    ))
}

fn ranks(rows: &[RankRow]) -> Listing {
    Listing::of(rows)
        .column("rank", 9, |row| row.rank.to_string())
        .column("operations", 5, |row| row.operations.to_string())
        .column("computes s", 9, |row| format!("{:.3}", row.computes_s))
        .column("sends", 7, |row| row.sends.to_string())
        .column("bytes", 8, |row| spoken_size(row.bytes))
        .column("receives", 6, |row| row.receives.to_string())
        .listing()
}

fn import(args: &ImportArgs) -> Result<Verdict> {
    let file = args.source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let packed = [".tar", ".tar.gz", ".tgz"];
    let guessed = || {
        let is_archive = packed.iter().any(|end| file.ends_with(end));
        if is_archive { Recorded::Liballprof } else { Recorded::Simgrid }
    };
    let options = ImportOptions {
        name: args.name.clone().unwrap_or_else(|| stem(&file)),
        flops_per_s: args.flops_per_s,
    };
    let source = open(&args.source)?;
    let lined = match args.format.unwrap_or_else(guessed) {
        Recorded::Simgrid => import::time_independent(source, &options),
        Recorded::Liballprof => import::liballprof(source, &options),
    };
    let lined = lined.map_err(|error| anyhow!(error.in_file(&args.source)))?;
    let trace = sound(&args.source, lined)?;
    write(&args.out.out, &trace)?;
    let row = check_row(&args.out.out, Ok(Lined { trace, ..Lined::default() }));
    if args.json {
        output::record(&row)?;
    } else {
        output::line(&format!(
            "{}: {} ranks, {} operations, critical path {}",
            row.file,
            row.ranks.unwrap_or(0),
            row.operations.unwrap_or(0),
            spoken(row.critical_path_s.unwrap_or(0.0)),
        ))?;
    }
    Ok(Verdict::Yes)
}

/// `npb-lu.W.16.ti.gz` is a recording of `npb-lu.W.16`.
fn stem(file: &str) -> String {
    let mut stem = file;
    for end in [".gz", ".tgz", ".tar", ".txt", ".ti", ".actions", ".liballprof"] {
        stem = stem.strip_suffix(end).unwrap_or(stem);
    }
    stem.to_owned()
}

/// The program writes the trace beside the last one, which stays if it fails.
fn record(args: &RecordArgs) -> Result<Verdict> {
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let recorded = directory.path().join("recorded.trace");
    let (program, arguments) = args.command.split_first().context("no command")?;
    let status = Command::new(program)
        .args(arguments)
        .env(RECORD_TO, &recorded)
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} failed ({status}), so nothing was recorded");
    }
    let file = match File::open(&recorded) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("{program} recorded nothing");
            let hint = format!("it has to write its trace where ${RECORD_TO} says");
            return Err(hinted(message, hint));
        }
        file => file.context("cannot read what was recorded")?,
    };
    let lined = trace::read(file).map_err(|error| anyhow!(error.in_file(&recorded)))?;
    write(&args.out.out, &scaled(sound(&recorded, lined)?, args.duration)?)
}

fn scaled(trace: Trace, to: Option<Duration>) -> Result<Trace> {
    Ok(match to {
        Some(duration) => trace.scaled_to(duration)?,
        None => trace,
    })
}

fn join(args: &JoinArgs) -> Result<Verdict> {
    let parts = args.files.iter().map(|path| Ok(load(path)?.trace));
    let file = args.out.out.file_name().unwrap_or_default().to_string_lossy();
    let name = args.name.clone().unwrap_or_else(|| file.trim_end_matches(".trace").to_owned());
    let trace = Trace::join(name, parts.collect::<Result<Vec<_>>>()?)?;
    let lined = Lined { trace, ..Lined::default() };
    write(&args.out.out, &scaled(sound(&args.out.out, lined)?, args.duration)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_may_have_decimals_or_units() {
        let claims = [("304.032s", 304_032), ("304.032", 304_032), ("2min 28s", 148_000)];
        for (text, millis) in claims {
            assert_eq!(span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1s", "soon", "nan"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_program_is_named_like_its_recording() {
        assert_eq!(stem("npb-lu.W.16.ti.gz"), "npb-lu.W.16");
        assert_eq!(stem("sweep3d-2x2.liballprof.tar.gz"), "sweep3d-2x2");
    }
}
