//! From a key typed at a workstation to its guest at work on another one, with
//! its whole state. Beside it, in the same run, the least that this takes:
//! checkpoint to memory and restore from there, no network, no daemons.

pub(crate) mod guest;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_agent::config::GuestsConfig;
use gleaner_agent::container::cgroup::Tree;
use gleaner_agent::container::keeper::Program;
use gleaner_agent::probe::Probe;
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::JobState;
use gleaner_common::time::WallTime;
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_move::{Dump, Engine};
use gleaner_shell::clock::Clock;

use self::guest::Gap;
use crate::record::Record;
use crate::{Args, Progress, idle_lab, own_binary};
use gleaner_lab::blocking_client::BlockingClient;

/// How big the guests are, how often each moves, and the goal for the median.
const SIZES: [(u64, u32, Option<f64>); 3] =
    [(1, 15, None), (64, 15, Some(0.3)), (512, 7, Some(2.5))];

/// How long nothing happens before an owner comes.
const SETTLED: Duration = Duration::from_millis(500);

/// The goal: at most so many times the floor.
const RATIO: f64 = 1.5;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = |default: u32| args.times.unwrap_or(default).max(1);
    let steps = SIZES.iter().map(|(_, default, _)| u64::from(times(*default)) * 2).sum();
    let progress = Progress::new(args, "migrate", steps);
    let mut records = vec![];
    for (mib, default, goal) in SIZES {
        let times = times(default);
        let floor = floor(mib, times, &progress)?;
        let moves = moves(mib, times, &progress)?;
        records.extend(judge(mib, goal, &moves, &floor));
    }
    Ok(records)
}

/// One move, from the key on.
struct Move {
    typed: WallTime,
    gap: Gap,
}

fn judge(mib: u64, goal: Option<f64>, moves: &[Move], floor: &[Duration]) -> Vec<Record> {
    let case = |what: &str| format!("{mib} MiB: {what}");
    let spans = |of: fn(&Move) -> Duration| moves.iter().map(of).collect::<Vec<_>>();
    let floor = Record::spans("migrate", &case("floor: dump to memory and restore"), floor);
    let least = floor.p50.unwrap_or(f64::NAN);
    let stopped = spans(|one| one.gap.from.since(one.typed));
    let frozen = spans(|one| one.gap.to.since(one.gap.from));
    let whole = spans(|one| one.gap.to.since(one.typed));
    let frozen = Record::spans("migrate", &case("stopped to at work elsewhere"), &frozen)
        .over(least)
        .at_most("ratio", RATIO);
    let whole = Record::spans("migrate", &case("keystroke to at work elsewhere"), &whole);
    vec![
        Record::spans("migrate", &case("keystroke to stopped"), &stopped),
        frozen,
        match goal {
            Some(goal) => whole.at_most("p50", goal),
            None => whole,
        },
        floor,
    ]
}

fn moves(mib: u64, times: u32, progress: &Progress) -> Result<Vec<Move>> {
    let mut lab = idle_lab(2, |options| options.network = true)?;
    lab.expect_cgroups("migrate")?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let job = submit(&lab, mib, times)?;
    let mut typed = vec![];
    for moves in 0..times as usize {
        lab.wait_for_idle(2)?;
        let here = until("the guest is at work", PATIENCE, || Ok(at_work(&lab, moves)))?;
        // What an owner's leaving sets off is over when another one comes.
        std::thread::sleep(SETTLED);
        typed.push(Clock.wall());
        lab.hosts[here].type_key()?;
        until("the guest has moved", PATIENCE, || Ok(at_work(&lab, moves + 1)))
            .with_context(|| lab.text(&["job", &job.to_string()]).unwrap_or_default())?;
        progress.step();
    }
    let summary = talk.wait(job)?;
    if summary.state != JobState::Succeeded {
        bail!("the guest ended {}", summary.state.name());
    }
    let gaps = Gap::read(&talk.printed(SubprogramId { job, index: 0 })?);
    let after = |typed: WallTime| gaps.iter().find(|gap| gap.to > typed).copied();
    typed
        .into_iter()
        .map(|typed| Ok(Move { typed, gap: after(typed).context("a move that nobody felt")? }))
        .collect()
}

fn submit(lab: &Lab, mib: u64, times: u32) -> Result<JobId> {
    let program = format!("{}=holder", own_binary()?.display());
    let (mib, gaps) = (format!("--mib={mib}"), format!("--gaps={times}"));
    let options = ["--on-busy=migrate", "--input", &program];
    let job = lab.submit(&[&options[..], &["--", "./holder", "hold", &mib, &gaps]].concat())?;
    Ok(JobId(u32::try_from(job)?))
}

/// Where the guest is at work and has felt so many moves: only there has it
/// printed so.
fn at_work(lab: &Lab, moves: usize) -> Option<usize> {
    lab.hosts.iter().position(|host| {
        let printed = std::fs::read_to_string(host.dir.join("data/places/p0/stdout"));
        printed.is_ok_and(|text| Gap::is_looked_for(&text) && Gap::read(&text).len() >= moves)
    })
}

/// Of the same guest, in places like a keeper's.
fn floor(mib: u64, times: u32, progress: &Progress) -> Result<Vec<Duration>> {
    let home = tempfile::tempdir_in("/var/tmp")?;
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path(), open())?;
    let readable = home.path().join("programs");
    std::fs::create_dir(&readable)?;
    std::fs::set_permissions(&readable, open())?;
    let program = readable.join("holder");
    std::fs::copy(own_binary()?, &program)?;
    let tree = Tree::claim(Some(&groups()))?;
    let guests = GuestsConfig::default();
    let places = home.path().join("places");
    let mut probe = Probe::new(
        Engine::find(None)?,
        Program::at(&own_binary()?.with_file_name("glean"))?,
        &guests,
        &tree,
        places,
    )?;
    probe.readable.push(readable);
    let (program, mib) = (program.display().to_string(), mib.to_string());
    let guest = [program.as_str(), "hold", "--mib", &mib, "--gaps", "1"];
    let mut spans = vec![];
    for _ in 0..times {
        spans.push(moved(&probe, &guest)?);
        progress.step();
    }
    drop(probe);
    tree.remove();
    Ok(spans)
}

/// A guest that says something when it is ready, and again when it has moved, is
/// written to memory and restored from there.
fn moved(probe: &Probe, guest: &[&str]) -> Result<Duration> {
    let old = probe.start(0, guest)?;
    old.read(&mut [0])?;
    let begin = Clock.now();
    let image = Dump::into_memory(&probe.engine, &probe.fingerprint, &old.process())?;
    let dumped = Clock.now().since(begin);
    let expecting = probe.expect(1, &image.header, image.memory())?;
    let begin = Clock.now();
    let stopped = image.adapt(&probe.terms(1))?;
    let new = expecting.land(&stopped)?;
    old.group().kill()?;
    new.resume()?;
    new.read(&mut [0])?;
    Ok(dumped + Clock.now().since(begin))
}

fn groups() -> PathBuf {
    let unified = Path::new("/sys/fs/cgroup/unified");
    let mount = if unified.is_dir() { unified } else { Path::new("/sys/fs/cgroup") };
    mount.join(format!("gleaner-moves-{}", std::process::id()))
}
