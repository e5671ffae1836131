//! From a byte typed into a real terminal to every thread of the guests
//! stopped. Beside it, in the same run, the barest thing that does the same:
//! a thread that waits for inotify and writes to the freezer.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_lab::Terminal;
use gleaner_lab::cgroup::{self, Cgroup, FrozenWatch};
use gleaner_lab::daemon::Home;
use gleaner_lab::wait::{PATIENCE, spin_until, until};
use gleaner_shell::clock::Clock;
use rustix::fs::inotify;

use crate::record::Record;
use crate::{Args, Progress, idle_class, idle_lab};

/// Four busy threads, as four processes of one guest.
const FOUR_BUSY: &str = "for i in 1 2 3; do (while :; do :; done) & done; while :; do :; done";

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = args.times.unwrap_or(200).max(1);
    let progress = Progress::new(args, "owner-return", u64::from(times) * 2);
    let floor = floor(times, &progress)?;
    let ours = ours(times, &progress)?;
    let floor = Record::spans("owner-return", "floor: inotify and freezer, nothing else", &floor);
    let base = floor.p50.unwrap_or(f64::NAN);
    let ours = Record::spans("owner-return", "typed to all guest threads stopped", &ours)
        .over(base)
        .with("threads", 4)
        .at_most("p99", 0.005);
    Ok(vec![ours, floor])
}

fn ours(times: u32, progress: &Progress) -> Result<Vec<Duration>> {
    let mut lab = idle_lab(1, |_| ())?;
    lab.expect_cgroups("owner-return")?;
    lab.submit(&["--on-busy", "suspend", "--patience", "24h", "--", "sh", "-c", FOUR_BUSY])?;
    let host = &mut lab.hosts[0];
    until(
        "four guest threads are busy",
        PATIENCE,
        || Ok((host.guests().len() >= 4).then_some(())),
    )?;
    let place = host.places().into_iter().next().context("the guest has a place")?;
    let mut frozen = FrozenWatch::new(&place)?;
    let mut spans = vec![];
    for round in 0..times {
        wait_until_busy(&place, &mut frozen, round)?;
        let typed = Clock.now();
        host.type_key()?;
        spin_until("every guest thread is stopped", PATIENCE, || frozen.is_frozen())?;
        spans.push(Clock.now().since(typed));
        progress.step();
    }
    Ok(spans)
}

/// Waits until the guests compute, and then a little, never the same, while.
fn wait_until_busy(place: &std::path::Path, frozen: &mut FrozenWatch, round: u32) -> Result<()> {
    until("the guests run", PATIENCE, || Ok((!frozen.is_frozen()).then_some(())))?;
    let before = cgroup::cpu_us(place);
    until("the guests compute", PATIENCE, || {
        Ok((cgroup::cpu_us(place) > before + 20_000).then_some(()))
    })?;
    std::thread::sleep(Duration::from_micros(u64::from(round * 379 % 10_000)));
    Ok(())
}

fn floor(times: u32, progress: &Progress) -> Result<Vec<Duration>> {
    let name = format!("glean-floor-{}", std::process::id());
    let cgroup = Cgroup::at_top(&name).context("cannot make a cgroup")?;
    let mut busy = Busy::start(&cgroup)?;
    let mut terminal = Terminal::open(None)?;
    terminal.attach(Command::new("cat"), || Ok(()))?;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, &terminal.path, inotify::WatchFlags::ACCESS)?;
    let freeze = cgroup.path.join("cgroup.freeze");
    let mut freezer = fs::OpenOptions::new().write(true).open(&freeze)?;
    std::thread::spawn(move || {
        let mut buffer = [0_u8; 4096];
        while rustix::io::read(&watch, &mut buffer).is_ok_and(|read| read > 0) {
            if freezer.write_all(b"1").is_err() {
                return;
            }
        }
    });
    let mut frozen = FrozenWatch::new(&cgroup.path)?;
    let mut spans = vec![];
    for round in 0..times {
        wait_until_busy(&cgroup.path, &mut frozen, round)?;
        let typed = Clock.now();
        terminal.type_keys("x")?;
        spin_until("every thread is stopped", PATIENCE, || frozen.is_frozen())?;
        spans.push(Clock.now().since(typed));
        fs::write(&freeze, "0")?;
        progress.step();
    }
    busy.end();
    Ok(spans)
}

/// Four busy processes of the idle class in a cgroup.
struct Busy(Vec<Child>);

impl Busy {
    fn start(cgroup: &Cgroup) -> Result<Self> {
        let home = Home { network: None, cgroup: Some(cgroup.path.clone()) };
        let mut children = vec![];
        for _ in 0..4 {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            home.settle(&mut command)?;
            let child = command.spawn()?;
            idle_class(child.id())?;
            children.push(child);
        }
        Ok(Self(children))
    }

    fn end(&mut self) {
        for mut child in self.0.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end();
    }
}
