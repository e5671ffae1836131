//! The guests' share: what they use of the machine, to be taken out of the
//! owner's load.
//!
//! Their control group counts exactly, also for those that have ended. Where
//! there is none (an agent that is not root), the processes below their
//! keepers are walked.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::filesystem::Reread;

/// More processes than guests may have; a walk goes no further.
const PROCESSES_MAX: usize = 10_000;

/// Where the guests are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guests {
    /// Below this control group (v2).
    Cgroup(PathBuf),
    /// Below these processes.
    Keepers(Vec<u32>),
}

/// What processes have used and what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) cpu: Duration,
    /// Threads that are runnable, and that wait uninterruptibly.
    pub(super) running: u32,
    pub(super) blocked: u32,
}

impl Guests {
    /// What they have used, and what their threads do at this moment.
    pub(super) fn share(&self) -> io::Result<Share> {
        match self {
            Self::Cgroup(path) => {
                let (running, blocked) = threads_of(path);
                Ok(Share { cpu: cgroup_cpu(path)?, running, blocked })
            }
            Self::Keepers(keepers) => Ok(share_below(keepers)),
        }
    }
}

/// CPU time of all that is or was in a control group (v2) or below it.
pub(super) fn cgroup_cpu(path: &Path) -> io::Result<Duration> {
    parse_cpu(Reread::open(&path.join("cpu.stat"))?.text()?)
}

/// Reads `user_usec` and `system_usec`. Not `usage_usec`: at the root that
/// may hold time that a hypervisor stole.
pub(crate) fn parse_cpu(stat: &str) -> io::Result<Duration> {
    let value = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    match (value("user_usec"), value("system_usec")) {
        (Some(user), Some(system)) => Ok(Duration::from_micros(user.saturating_add(system))),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "cpu.stat without user_usec and system_usec",
        )),
    }
}

/// Runnable and blocked threads in a control group and below it.
pub(super) fn threads_of(path: &Path) -> (u32, u32) {
    let mut all = (0, 0);
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let threads = std::fs::read_to_string(directory.join("cgroup.threads"));
        for thread in threads.unwrap_or_default().lines() {
            count(thread_state(thread), &mut all);
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(below.map(|entry| entry.path()));
    }
    all
}

fn count(state: Option<u8>, (running, blocked): &mut (u32, u32)) {
    match state {
        Some(b'R') => *running += 1,
        Some(b'D') => *blocked += 1,
        Some(_) | None => {}
    }
}

/// The letter of its state in `/proc`. A thread can be asked for like a process.
fn thread_state(id: &str) -> Option<u8> {
    Stat::read(&format!("/proc/{id}/stat")).map(|stat| stat.state)
}

/// What `/proc/PID/stat` says.
struct Stat {
    state: u8,
    own_ticks: u64,
    /// The ticks of children it has waited for, and of theirs.
    children_ticks: u64,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// `proc_pid_stat(5)`: the name stands in brackets and may hold anything;
    /// after it come the state (3), and utime to cstime (14 to 17).
    fn parse(text: &str) -> Option<Self> {
        let after_name = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            own_ticks: ticks(11)? + ticks(12)?,
            children_ticks: ticks(13)? + ticks(14)?,
        })
    }
}

/// The keepers reap their guests, so the time of those that ended is theirs;
/// and that of keepers that ended is ours, who reap them.
fn share_below(keepers: &[u32]) -> Share {
    let mut ticks = Stat::read("/proc/self/stat").map_or(0, |stat| stat.children_ticks);
    let mut states = (0, 0);
    let mut seen = BTreeSet::new();
    let mut processes = keepers.to_vec();
    while let Some(process) = processes.pop() {
        if seen.len() >= PROCESSES_MAX || !seen.insert(process) {
            continue;
        }
        let stat = Stat::read(&format!("/proc/{process}/stat"));
        ticks += stat.map_or(0, |stat| stat.own_ticks + stat.children_ticks);
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let stat = task.path().join("stat");
            count(stat.to_str().and_then(Stat::read).map(|stat| stat.state), &mut states);
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            processes
                .extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let cpu = Duration::from_secs_f64(ticks as f64 / per_second as f64);
    Share { cpu, running: states.0, blocked: states.1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let text = "77 (a) b (c) R 1 77 77 0 -1 4194560 100 0 0 0 7 5 3 1 20 0 1 0 5 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.own_ticks, stat.children_ticks), (b'R', 12, 4));
        assert!(Stat::parse("77 (a").is_none());
        assert!(Stat::parse("77 (a) R 1").is_none());
    }

    #[test]
    fn a_control_groups_time_is_read_without_what_was_stolen() {
        let stat = "usage_usec 9000\nuser_usec 4000\nsystem_usec 1500\nnice_usec 0\n";
        assert_eq!(parse_cpu(stat).unwrap(), Duration::from_micros(5_500));
        assert!(parse_cpu("usage_usec 9000\n").is_err());
    }

    #[test]
    fn the_time_of_a_guest_outlives_its_keeper() {
        let mut keeper =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let guests = Guests::Keepers(vec![keeper.id()]);
        let before = Guests::Keepers(vec![]).share().unwrap().cpu;
        while guests.share().unwrap().cpu < before + Duration::from_millis(50) {
            std::thread::yield_now();
        }
        let alive = guests.share().unwrap().cpu;
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        assert!(guests.share().unwrap().cpu >= alive);
    }
}
