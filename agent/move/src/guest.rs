//! The process tree that is to move, as `/proc` shows it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_shell::clock::Clock;

/// How long a tree may take to stand still; it takes well under a millisecond.
const STILL_WITHIN: Duration = Duration::from_secs(5);

/// A guest in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProcess {
    /// The place's version 2 control group: holds the keeper and the guest,
    /// and nobody else.
    pub group: PathBuf,
    /// The place's keeper, which stays.
    pub keeper: i32,
    /// The guest's first process.
    pub root: i32,
    /// The first process's descriptors that are pipes to the agent.
    pub plugs: Vec<i32>,
    /// Files below [`crate::stage::GROUND`] that whoever takes it in lays
    /// there: they do not go along.
    pub left_out: Vec<String>,
}

/// One process of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// As we see it.
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) name: String,
    /// As its own namespace sees it.
    pub(crate) inner: i32,
    pub(crate) resident_bytes: u64,
    /// Real user and group.
    pub(crate) user: (u32, u32),
}

impl Process {
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |name: &str| {
            let text = field(name).unwrap_or("0").split_whitespace();
            // Of several, as for nested namespaces, the innermost.
            let last = if name == "NSpid" { text.last() } else { text.into_iter().next() };
            last.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
        };
        let id = |name: &str| i32::try_from(number(name)).unwrap_or(0);
        let user = |name: &str| u32::try_from(number(name)).unwrap_or(0);
        Ok(Self {
            pid,
            parent: id("PPid"),
            name: field("Name").unwrap_or("?").to_owned(),
            inner: id("NSpid"),
            resident_bytes: number("VmRSS").unsigned_abs() << 10,
            user: (user("Uid"), user("Gid")),
        })
    }
}

/// Everything in a guest's group but its keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessTree {
    /// The first process and its descendants, parents first.
    pub(crate) processes: Vec<Process>,
    /// Whoever is there and is no descendant.
    pub(crate) strays: Vec<Process>,
    /// Of all, as their namespace counts.
    pub(crate) threads: Vec<i32>,
}

impl ProcessTree {
    pub(crate) fn read(guest: &GuestProcess) -> io::Result<Self> {
        let mut all: BTreeMap<i32, Process> = BTreeMap::new();
        for pid in numbers_in(&guest.group.join("cgroup.procs"))? {
            // Who has ended meanwhile is not missed.
            if pid != guest.keeper
                && let Ok(process) = Process::read(pid)
            {
                all.insert(pid, process);
            }
        }
        let threads = numbers_in(&guest.group.join("cgroup.threads"))?.into_iter();
        let inner = |tid: i32| Process::read(tid).map_or(0, |thread| thread.inner);
        let threads = threads.filter(|tid| *tid != guest.keeper).map(inner).collect();
        let mut processes: Vec<Process> = all.remove(&guest.root).into_iter().collect();
        let mut next = 0;
        while let Some(parent) = processes.get(next).map(|process| process.pid) {
            let children: Vec<i32> = all
                .values()
                .filter(|process| process.parent == parent)
                .map(|process| process.pid)
                .collect();
            processes.extend(children.iter().filter_map(|pid| all.remove(pid)));
            next += 1;
        }
        Ok(Self { processes, strays: all.into_values().collect(), threads })
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.resident_bytes).sum()
    }
}

fn numbers_in(path: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(path)?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Does somebody in a frozen group wait for a child that has not yet become
/// another program (`vfork`)? The kernel lets nobody look into such a one, so
/// the group must run on for a moment before it can be written down.
///
/// A runnable one may be on its way there: the kernel counts it as frozen from a
/// moment before it waits, which is long for who hardly gets a core.
///
/// # Errors
/// The group cannot be read.
pub fn awaits_exec(group: &Path) -> io::Result<bool> {
    let threads = numbers_in(&group.join("cgroup.threads"))?;
    Ok(threads.iter().any(|thread| matches!(state_of(*thread), Some('D' | 'R'))))
}

/// What a process or thread does, by the kernel's letter; `None` if it is gone.
pub fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, so count from its closing bracket.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Brings the group to a stand; `false` if it does not stand in time.
pub(crate) fn freeze(group: &Path) -> io::Result<bool> {
    fs::write(group.join("cgroup.freeze"), "1")?;
    let end = Clock.now() + STILL_WITHIN;
    loop {
        if is_frozen(group)? {
            return Ok(true);
        }
        if Clock.now() >= end {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub(crate) fn thaw(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.freeze"), "0")
}

/// Was it told to stand, and not to go on since?
pub(crate) fn is_to_stand(group: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(group.join("cgroup.freeze"))?.trim() == "1")
}

pub(crate) fn is_frozen(group: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(group.join("cgroup.events"))?;
    Ok(text.lines().any(|line| line == "frozen 1"))
}
