//! `glean submit`: a job from a command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::amounts::{CORES_MAX, GPUS_MAX};
use gleaner_common::id::JobId;
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Reaction};
use gleaner_common::program::ProgramSpec;
use gleaner_common::report::{JobState, JobSummary};
use gleaner_common::requirement::Requirement;
use gleaner_common::shape::{Class, Shape, SpeedupSpec};
use gleaner_common::sizes::Allowed;
use gleaner_common::units;
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::client::Client;
use serde::Serialize;

use super::watch::{self, Watched};
use super::{fetch, jobs, show};
use crate::ask::{self, Access, ask};
use crate::failure::{Refusal, Verdict, hinted};
use crate::output;
use crate::staging::{self, Found};
use crate::values::{self, Input, Patience};

/// Below this, sending files shows no progress.
const QUIET_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each switch is one on the command line")]
pub struct Args {
    /// How many subprograms: {i} is 0, 1, .. [default: 1].
    #[arg(long, value_name = "N", value_parser = values::number, conflicts_with = "array")]
    pub count: Option<u32>,
    #[command(flatten)]
    pub program: Program,
    #[command(flatten)]
    pub sizing: Sizing,
    /// The values of {i}, such as 1-1000 or 0-90:10.
    #[arg(long, value_name = "FIRST-LAST[:STEP]", value_parser = values::array)]
    pub array: Option<IndexRange>,
    /// The job's name [default: the program's].
    #[arg(long)]
    pub name: Option<String>,
    /// How many failures of each subprogram are tried again; retreats cost none.
    #[arg(long, value_name = "N", default_value = "2", value_parser = values::number)]
    pub retries: u32,
    /// How long one attempt may run, suspensions not counted.
    #[arg(long, value_name = "SPAN", value_parser = units::parse_duration)]
    pub timeout: Option<Duration>,
    /// Set a variable of the subprograms' environment; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = values::variable)]
    pub environment: Vec<(String, String)>,
    /// Stage a file or directory into every subprogram's directory; may be repeated.
    #[arg(long = "input", value_name = "PATH[=DEST]", value_parser = values::input)]
    pub inputs: Vec<Input>,
    /// Keep what subprograms leave in `$GLEAN_OUTPUT`; with --wait, bring it to DIR/<index>/.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run in this directory of a file system that the workstations share.
    #[arg(long, value_name = "DIR")]
    pub shared: Option<String>,
    /// What happens to a subprogram when its workstation's owner returns: renice, suspend,
    /// migrate, rollback, retreat, or such as 'suspend 10min then migrate', 'suspend then migrate'
    /// (after as long as the move takes), 'suspend forever'
    /// [default: suspend; with --ranks: suspend then migrate].
    #[arg(long, value_name = "REACTION", value_parser = values::on_busy)]
    pub on_busy: Option<OnBusy>,
    /// How long a suspended subprogram waits before it moves or retreats, or `forever`
    /// [default: 10min].
    #[arg(long, value_name = "SPAN", value_parser = values::patience)]
    pub patience: Option<Patience>,
    #[command(flatten)]
    pub needs: Needs,
    /// Run each subprogram on so many different workstations, 2 to 5: its result counts when more
    /// than half of them (of 2: both) give the same exit status, standard output and files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5),
          conflicts_with_all = ["ranks", "shared"])]
    pub replicas: Option<u8>,
    /// Among your own jobs those of a higher priority go first, -100 to 100; to others it is nothing.
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-100..=100))]
    pub priority: i8,
    /// Let everybody see the job, what it prints and what it leaves.
    #[arg(long)]
    pub public: bool,
    /// Submit nothing: would the job be taken now, and would it start?
    #[arg(long, conflicts_with = "wait")]
    pub ask: bool,
    /// Wait for the end: a progress bar, then a summary.
    #[arg(long)]
    pub wait: bool,
    /// One record.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// What each subprogram asks of its workstation.
#[derive(Debug, clap::Args)]
pub struct Needs {
    /// How many cores of its workstation each subprogram takes.
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(CORES_MAX)))]
    pub cores: u16,
    /// How much memory each subprogram takes and may use, such as 512MiB: only workstations that
    /// lend so much get it [default: the part of what is lent that goes with its cores].
    #[arg(long, value_name = "SIZE", value_parser = values::some_size)]
    pub memory: Option<u64>,
    /// How much disk space each takes and may use, such as 20GiB [default: as with --memory].
    #[arg(long, value_name = "SIZE", value_parser = values::some_size)]
    pub disk: Option<u64>,
    /// How many GPUs of its workstation each subprogram takes: `CUDA_VISIBLE_DEVICES` says which
    /// [default: none].
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(GPUS_MAX)))]
    pub gpu: Option<u16>,
    /// What its workstations must be like, such as
    /// 'memory >= 8GiB && (os ~ "debian" || has("matlab"))': conditions on name, cores,
    /// `physical_cores`, places, gpus, memory, disk, speed, kernel, os, processor, moves, and on what the
    /// site says of them (`attributes` in the agent's configuration).
    #[arg(long, value_name = "CONDITIONS")]
    pub require: Option<Requirement>,
    /// Of those, take the ones first that meet most of these conditions, joined by &&.
    #[arg(long, value_name = "CONDITIONS")]
    pub prefer: Option<Requirement>,
}

impl Needs {
    /// May it be that no workstation will do?
    fn are_choosy(&self) -> bool {
        let amounts = self.memory.is_some() || self.disk.is_some() || self.gpu.is_some();
        amounts || self.cores > 1 || self.require.is_some()
    }

    fn put_into(&self, spec: &mut JobSpec) {
        spec.cores = self.cores;
        spec.gpus = self.gpu.unwrap_or(0);
        spec.limits.memory_bytes_max = self.memory.unwrap_or(0);
        spec.limits.disk_bytes_max = self.disk.unwrap_or(0);
        spec.require = self.require.clone().unwrap_or_default();
        spec.prefer = self.prefer.clone().unwrap_or_default();
    }
}

/// What makes the job one program of ranks.
#[derive(Debug, clap::Args)]
pub struct Program {
    /// One program of so many ranks that send each other messages.
    #[arg(long, value_name = "N", value_parser = values::number, conflicts_with_all = ["count", "array"])]
    pub ranks: Option<u32>,
    /// How many ranks it may come to have by spawning or growing [default: as many as --ranks].
    #[arg(long, value_name = "N", value_parser = values::number, requires = "ranks")]
    pub ranks_max: Option<u32>,
    /// The program's own parts may start more, and leave.
    #[arg(long, requires = "ranks")]
    pub spawns: bool,
    /// When workstations become idle, the program gets them: ranks that stand still move there,
    /// and more begin, up to --ranks-max.
    #[arg(long, requires = "ranks")]
    pub grows: bool,
    /// How often all of the program is saved together: it goes back there, instead of to its
    /// start, when a workstation dies.
    #[arg(long, value_name = "SPAN", value_parser = units::parse_duration, requires = "ranks")]
    pub checkpoint_every: Option<Duration>,
    /// Record what each rank computes, sends and receives, as outputs `trace.<rank>`.
    #[arg(long, requires = "ranks")]
    pub record: bool,
}

/// What the job says of its size.
#[derive(Debug, clap::Args)]
pub struct Sizing {
    /// Who decides on how many places it runs: rigid (you do), moldable (the scheduler does, at the
    /// start), malleable (the scheduler, at any time) or evolving (the program itself)
    /// [default: malleable; with --ranks: rigid].
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,
    /// The fewest places that it starts on; two ranks of a malleable program can share one
    /// [default: 1; rigid: as many as it has subprograms; with --ranks: as many as those].
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub min: Option<u32>,
    /// How many places it had best have [default: --min].
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub preferred: Option<u32>,
    /// The most places that it has at a time [default: as many as it has subprograms].
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub max: Option<u32>,
    /// Which numbers of places it can run on: any, powers (of two), multiples:K or list:2,4,8.
    #[arg(long, value_name = "SIZES", default_value = "any")]
    pub sizes: Allowed,
    /// How long it takes on its preferred number of places, as far as you know: policies that look
    /// ahead go by it.
    #[arg(long, value_name = "SPAN", value_parser = units::parse_duration)]
    pub estimate: Option<Duration>,
    /// How much faster it is on more places: linear, amdahl:PART, downey:PARALLELISM:VARIANCE or
    /// table:1=1,2=1.8,4=3.4.
    #[arg(long, value_name = "SPEEDUP", default_value = "linear")]
    pub speedup: SpeedupSpec,
}

impl Sizing {
    /// A program's most is in its own spec.
    fn shape(&self, is_program: bool) -> Shape {
        Shape {
            class: self.class,
            min: self.min,
            preferred: self.preferred,
            max: self.max.filter(|_| !is_program),
            allowed: self.sizes.clone(),
            estimate: self.estimate,
            speedup: self.speedup.clone(),
        }
    }
}

impl Program {
    fn spec(&self, sizing: &Sizing) -> Option<ProgramSpec> {
        self.ranks.map(|ranks| ProgramSpec {
            increases: self.grows || sizing.class == Some(Class::Malleable),
            spawns: self.spawns || sizing.class == Some(Class::Evolving),
            ranks_max: self.ranks_max.or(sizing.max).unwrap_or(ranks),
            checkpoint_every: self.checkpoint_every,
            record: self.record,
        })
    }
}

impl Args {
    /// May it be that no workstation will do?
    fn is_choosy(&self) -> bool {
        self.needs.are_choosy() || self.shared.is_some() || self.replicas.is_some()
    }
}

/// # Errors
/// A job that cannot be, files that cannot be staged, or no answer.
pub fn run(args: &Args) -> Result<Verdict> {
    let (spec, found) = prepare(args)?;
    if args.ask {
        return would_take(args, spec);
    }
    let (job, watched) = ask(&args.access, async |client| {
        let program = spec.program;
        let job = submit(client, spec, &found).await?;
        if args.is_choosy() {
            output::notes(&jobs::one(client, job).await?.notes);
        }
        if let Some(program) = program.filter(|_| !args.json) {
            output::say(&format!("when a workstation dies, {}", program.goes_back()));
        }
        if !args.wait {
            return Ok((job, None));
        }
        Ok((job, Some(watch::until_end(client, &args.access, job).await?)))
    })?;
    match watched {
        None => announce(args, job),
        Some(Watched::Interrupted) => Err(hinted(
            format!("stopped waiting: job {job} goes on"),
            format!("glean job {job} shows it, glean cancel {job} ends it"),
        )),
        Some(Watched::Ended(summary)) => conclude(args, &summary),
    }
}

#[derive(Serialize)]
struct WouldTake {
    taken: bool,
    reason: String,
}

fn would_take(args: &Args, spec: JobSpec) -> Result<Verdict> {
    let request = Request::Ask(Box::new(spec));
    let reply = ask(&args.access, async |client| ask::one(client, &request).await)?;
    let Reply::WouldTake { taken, reason } = reply else { return Err(ask::unexpected(&request)) };
    if args.json {
        output::record(&WouldTake { taken, reason })?;
    } else {
        output::line(&reason)?;
    }
    Ok(Verdict::from(taken))
}

/// Everything that can be wrong is found before the coordinator is asked.
fn prepare(args: &Args) -> Result<(JobSpec, Vec<Found>)> {
    let mut spec = spec(args)?;
    if let Some(dir) = &args.out {
        fetch::check_writable(dir).context("--out")?;
    }
    let mut inputs = args.inputs.clone();
    if args.shared.is_none() {
        inputs.extend(staging::program(&args.command, &inputs)?);
    }
    let found = staging::collect(&inputs)?;
    spec.inputs = found.iter().map(|file| file.staged.clone()).collect();
    spec.check().context("this job cannot be")?;
    Ok((spec, found))
}

fn spec(args: &Args) -> Result<JobSpec> {
    let indexes = match (args.array, args.program.ranks, args.count) {
        (Some(array), ..) => array,
        (None, Some(ranks), _) => {
            IndexRange::count_of(ranks).context("--ranks 0: expected at least one rank")?
        }
        (None, None, count) => IndexRange::count_of(count.unwrap_or(1))
            .context("--count 0: expected at least one subprogram")?,
    };
    let mut spec = JobSpec::new(args.command.clone(), indexes);
    let program = args.command.first().map(Path::new).and_then(Path::file_name);
    let name = program.map(|name| name.to_string_lossy().into_owned());
    spec.name = args.name.clone().or(name).unwrap_or_default();
    spec.retries = args.retries;
    spec.timeout = args.timeout;
    spec.environment.clone_from(&args.environment);
    spec.collect_output = args.out.is_some() || args.program.record;
    spec.program = args.program.spec(&args.sizing);
    spec.shape = args.sizing.shape(spec.program.is_some());
    spec.shared_directory.clone_from(&args.shared);
    spec.on_busy = on_busy(args)?;
    (spec.priority, spec.public) = (args.priority, args.public);
    spec.replicas = args.replicas.unwrap_or(1);
    args.needs.put_into(&mut spec);
    Ok(spec)
}

fn on_busy(args: &Args) -> Result<OnBusy> {
    let chosen = args.on_busy.unwrap_or_else(|| {
        if args.program.ranks.is_some() {
            OnBusy::suspend_by_cost(Reaction::Migrate)
        } else {
            OnBusy::default()
        }
    });
    match args.patience {
        None => Ok(chosen),
        Some(Patience(patience)) if chosen.reaction == Reaction::Suspend => {
            Ok(OnBusy::suspend(patience, chosen.then))
        }
        Some(_) => bail!("--patience is for a suspended subprogram: expected --on-busy suspend"),
    }
}

/// Sends what the coordinator lacks, and submits.
///
/// # Errors
/// No answer, or the job is refused.
pub(super) async fn submit(client: &Client, spec: JobSpec, found: &[Found]) -> Result<JobId> {
    if !found.is_empty() {
        send(client, found).await?;
    }
    let request = Request::Submit(Box::new(spec));
    match client.request(&request).await {
        Ok(Reply::Submitted(job)) => Ok(job),
        Ok(Reply::No { reason }) => bail!("the job is refused: {reason}"),
        Ok(_) => Err(ask::unexpected(&request)),
        Err(error) => Err(hinted(
            ask::failed(error).to_string(),
            "the job may have been taken all the same: glean jobs tells",
        )),
    }
}

/// Sends what the coordinator does not have.
async fn send(client: &Client, found: &[Found]) -> Result<()> {
    let request = Request::Missing(found.iter().map(|file| file.staged.hash).collect());
    let Reply::Missing(missing) = ask::one(client, &request).await? else {
        return Err(ask::unexpected(&request));
    };
    let files = staging::to_send(found, &missing);
    let bytes = files.iter().map(|file| file.staged.size_bytes).sum();
    let bar = watch::bytes_bar("sending", bytes, bytes < QUIET_BYTES);
    ask::each(&files, async |file| {
        let Found { from, staged } = file;
        client
            .put_file(from, staged.hash, staged.size_bytes)
            .await
            .map_err(ask::failed)
            .with_context(|| format!("cannot stage {}", from.display()))?;
        bar.inc(staged.size_bytes);
        Ok(())
    })
    .await?;
    bar.finish_and_clear();
    Ok(())
}

#[derive(Serialize)]
struct Submitted {
    job: JobId,
}

fn announce(args: &Args, job: JobId) -> Result<Verdict> {
    if args.json {
        output::record(&Submitted { job })?;
        return Ok(Verdict::Yes);
    }
    // The number alone on standard output, so that $(..) takes it.
    output::line(&job.to_string())?;
    output::say(&format!("submitted: glean job {job} shows how it is"));
    if let Some(dir) = &args.out {
        output::say(&format!("when it has ended: glean fetch {job} --out {}", dir.display()));
    }
    Ok(Verdict::Yes)
}

fn conclude(args: &Args, summary: &JobSummary) -> Result<Verdict> {
    let job = summary.job;
    if let Some(dir) = &args.out {
        let fetched = ask(&args.access, async |client| fetch::fetch(client, job, dir).await);
        fetched.map_err(|error| match error.downcast::<Refusal>() {
            Ok(Refusal(reason)) => anyhow::anyhow!(reason),
            Err(error) => error,
        })?;
    }
    if args.json {
        output::record(summary)?;
    } else {
        output::line(&summarise(summary))?;
        if summary.state != JobState::Succeeded {
            output::say(&format!("glean job {job} and glean logs {job} --stderr tell more"));
        }
    }
    Ok(Verdict::from(summary.state == JobState::Succeeded))
}

fn summarise(summary: &JobSummary) -> String {
    format!(
        "job {} {}: subprograms {}; {} suspensions, {} retreats, {} lost with their workstation, {} retried",
        summary.job,
        summary.state.name(),
        show::progress(summary),
        summary.counts.suspensions,
        summary.counts.retreats,
        summary.counts.lost,
        summary.counts.retried
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gleaner_common::amounts::Amounts;

    use super::*;
    use crate::arguments::{Cli, Command};

    fn parse(line: &str) -> Result<Args, String> {
        let words = ["glean", "submit"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Submit(args) = cli.command else { unreachable!("submit is submit") };
        Ok(*args)
    }

    #[test]
    fn a_whole_command_line_becomes_a_job() {
        let args = parse(
            "--array 1-9:2 --name p --retries 0 --timeout 90s --env A=b=c --shared /srv --on-busy suspend \
             --patience 30s --cores 2 --memory 1GiB --disk 20GiB --gpu 1 --require memory>=4GiB&&os~\"debian\" \
             --prefer cores>3&&has(\"ssd\") -- sh -c {i}",
        )
        .unwrap();
        let (spec, _) = prepare(&args).unwrap();
        assert_eq!(spec.indexes, IndexRange { first: 1, last: 9, step: 2 });
        assert_eq!((spec.name.as_str(), spec.retries, spec.replicas), ("p", 0, 1));
        assert_eq!(spec.timeout, Some(Duration::from_secs(90)));
        assert_eq!(spec.environment, [("A".to_owned(), "b=c".to_owned())]);
        let thirty = Some(Duration::from_secs(30));
        assert_eq!(spec.on_busy, OnBusy::suspend(thirty, Reaction::Retreat));
        assert_eq!(spec.require.to_string(), "memory>=4GiB&&os~\"debian\"");
        assert_eq!(spec.prefer.conditions().len(), 2);
        let (memory_bytes, disk_bytes) = (1 << 30, 20 << 30);
        assert_eq!(spec.asked(), Amounts { cores: 2, gpus: 1, memory_bytes, disk_bytes });
        assert_eq!(spec.command, ["sh", "-c", "{i}"]);
    }

    #[test]
    fn a_plain_command_runs_once_under_its_own_name() {
        let (spec, found) = prepare(&parse("-- /bin/true").unwrap()).unwrap();
        assert_eq!(spec, JobSpec { name: "true".into(), ..spec.clone() });
        assert_eq!((spec.indexes.len(), spec.on_busy), (1, OnBusy::default()));
        assert_eq!(spec.asked(), Amounts::ONE_CORE);
        assert!(found.is_empty());
    }

    #[test]
    fn ranks_make_one_program_that_moves() {
        let args = parse("--ranks 4 --ranks-max 8 --grows --checkpoint-every 10s -- /bin/true");
        let spec = spec(&args.unwrap()).unwrap();
        let program = spec.program.unwrap();
        assert_eq!((spec.indexes.len(), program.ranks_max, program.increases), (4, 8, true));
        assert_eq!(program.checkpoint_every, Some(Duration::from_secs(10)));
        assert_eq!(spec.on_busy.to_string(), "suspend then migrate");
    }

    #[test]
    fn what_a_job_says_of_its_size_is_one_vocabulary_for_bags_and_programs() {
        let spec = |line: &str| prepare(&parse(line).unwrap()).map(|(spec, _)| spec);
        let bag = spec(
            "--count 99 --class malleable --min 2 --max 16 --sizes powers --estimate 2h -- /bin/true",
        );
        let bag = bag.unwrap();
        let sizes = bag.shape.sizes_of_bag(99).unwrap();
        assert_eq!((sizes.min(), sizes.preferred(), sizes.max()), (2, 2, 16));
        assert_eq!(bag.shape.estimate, Some(Duration::from_secs(7_200)));
        let program = spec("--ranks 2 --class malleable --max 8 -- /bin/true").unwrap();
        assert_eq!((program.class(), program.program.unwrap().ranks_max), (Class::Malleable, 8));
        let program = spec("--ranks 5 --class malleable --min 1 -- /bin/true").unwrap();
        assert_eq!(program.needs_at_once(), 3, "two share a place");
        let program = spec("--ranks 2 --class evolving --max 8 -- /bin/true").unwrap();
        assert!(program.program.unwrap().spawns);
        assert_eq!(spec("--ranks 2 -- /bin/true").unwrap().class(), Class::Rigid);
        for (line, told) in [
            ("--count 9 --min 4 --max 2", "the minimum of 4 processors is above the maximum of 2"),
            ("--count 9 --min 12", "the minimum of 12 processors is above the maximum of 9"),
            ("--count 9 --sizes list:", "the list of sizes is empty"),
            (
                "--count 9 --class rigid --min 2",
                "a rigid job of 2 to 9 places: expected one number",
            ),
            ("--count 9 --class evolving", "a bag of subprograms does not ask for more by itself"),
            ("--ranks 4 --min 2", "each of the 4 ranks has a place of its own"),
            (
                "--ranks 4 --class malleable --min 5",
                "share places or have one each: expected 1 to 4",
            ),
            ("--ranks 4 --class moldable", "the program is moldable and rigid"),
        ] {
            let error = spec(&format!("{line} -- /bin/true")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(told) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn bad_units_and_contradictions_are_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--timeout 90 -- x", "`90` is not a duration: expected a number with a unit"),
            ("--require memory=>4GiB -- x", "does not read from `=>4GiB` on: expected `==`"),
            ("--memory 1G -- x", "`1G` is not a size: expected a whole number with a unit"),
            ("--memory 0B -- x", "expected a size above 0, such as 512MiB"),
            ("--disk much -- x", "`much` is not a size: expected a whole number with a unit"),
            ("--cores 0 -- x", "0 is not in 1..=1024"),
            ("--cores two -- x", "invalid digit found in string"),
            ("--gpu 65 -- x", "65 is not in 1..=64"),
            ("--patience soon -- x", "`soon` is not a duration"),
            ("--array 9-1 -- x", "the array is empty"),
            ("--env A -- x", "expected NAME=VALUE"),
            ("--input a=../b -- x", "DEST stays inside the working directory"),
            ("--on-busy stay -- x", "`stay` is not a reaction: expected renice, suspend, migrate"),
            ("--ranks 2 --count 2 -- x", "cannot be used with"),
            ("--grows -- x", "--ranks <N>"),
            ("--replicas 6 -- x", "6 is not in 1..=5"),
            ("--replicas 2 --ranks 3 -- x", "cannot be used with"),
            ("--replicas 2 --shared /srv -- x", "cannot be used with"),
            ("--count 2 --array 1-2 -- x", "cannot be used with"),
            ("--count 2", "<CMD>"),
            ("--class fluid -- x", "`fluid` is not one of rigid, moldable, malleable, evolving"),
            ("--sizes odd -- x", "expected any, powers, multiples:K or list:2,4,8"),
            ("--speedup fast -- x", "expected linear, amdahl:PART"),
            ("--estimate 2 -- x", "`2` is not a duration"),
            ("--ask --wait -- x", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        let none = prepare(&parse("--count 0 -- x").unwrap()).unwrap_err();
        assert_eq!(none.to_string(), "--count 0: expected at least one subprogram");
        let at_once = prepare(&parse("--on-busy retreat --patience 1s -- x").unwrap()).unwrap_err();
        assert!(at_once.to_string().contains("expected --on-busy suspend"), "{at_once}");
        let out = prepare(&parse("--out /proc/version/results -- /bin/true").unwrap()).unwrap_err();
        assert!(format!("{out:#}").contains("/proc/version is no directory"), "{out:#}");
        let many = prepare(&parse("--count 20000000 -- x").unwrap()).unwrap_err();
        assert!(format!("{many:#}").contains("expected 1 to 10000000"), "{many:#}");
    }
}
