//! What the lab takes of this machine, as the kernel counts it: what a fault leaves
//! behind shows as growth.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gleaner_lab::daemon::Daemon;
use gleaner_lab::{Lab, cgroup};
use serde::Serialize;

/// All of it at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Taken {
    /// Proportional memory of the daemons, by role, in bytes; on average where there
    /// are several.
    pub memory_bytes: BTreeMap<&'static str, u64>,
    /// Open descriptors of the daemons, by role; on average.
    pub descriptors: BTreeMap<&'static str, u64>,
    /// In all mount namespaces of the daemons, and the lab's own.
    pub mounts: usize,
    pub cgroups: usize,
    pub processes: usize,
    pub zombies: usize,
    /// Left at the places of all hosts: entries of `outgoing`.
    pub outgoing: usize,
}

impl Taken {
    pub fn by(lab: &Lab) -> Self {
        let mut roles: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
        let daemons = [("coordinator", &lab.coordinator), ("collector", &lab.collector)];
        for (role, daemon) in daemons {
            roles.entry(role).or_default().extend(daemon.as_ref().and_then(Daemon::pid));
        }
        for host in &lab.hosts {
            let supervisor = host.agent.as_ref().and_then(Daemon::pid);
            roles.entry("supervisor").or_default().extend(supervisor);
            roles.entry("worker").or_default().extend(supervisor.and_then(worker));
        }
        let all: Vec<u32> = roles.values().flatten().copied().collect();
        let group = lab.cgroup.as_ref().map(|group| group.path.clone());
        let mounts = all.iter().map(|pid| lines(&format!("/proc/{pid}/mountinfo")));
        let descendants = descendants(std::process::id());
        Self {
            memory_bytes: averages(&roles, memory_bytes),
            descriptors: averages(&roles, |pid| {
                entries(Path::new(&format!("/proc/{pid}/fd"))) as u64
            }),
            mounts: mounts.sum::<usize>() + lines("/proc/thread-self/mountinfo"),
            cgroups: group.as_deref().map_or(0, groups),
            processes: descendants.len(),
            zombies: descendants.iter().filter(|pid| is_zombie(**pid)).count(),
            outgoing: lab.hosts.iter().map(|host| entries(&host.data().join("outgoing"))).sum(),
        }
    }
}

fn averages(
    roles: &BTreeMap<&'static str, Vec<u32>>,
    of: impl Fn(u32) -> u64,
) -> BTreeMap<&'static str, u64> {
    let average =
        |pids: &Vec<u32>| pids.iter().map(|pid| of(*pid)).sum::<u64>() / pids.len().max(1) as u64;
    roles.iter().map(|(role, pids)| (*role, average(pids))).collect()
}

/// The worker of a supervisor: the oldest of its children that lives. Those of its
/// predecessors come after it, if they are not dead.
pub(crate) fn worker(supervisor: u32) -> Option<u32> {
    children(supervisor).into_iter().find(|pid| !is_zombie(*pid))
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |text: String| {
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
    };
    texts.flat_map(pids).collect()
}

fn descendants(pid: u32) -> Vec<u32> {
    let found = children(pid);
    found.iter().flat_map(|child| descendants(*child)).chain(found.iter().copied()).collect()
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn memory_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

fn lines(path: &str) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

fn groups(path: &Path) -> usize {
    1 + cgroup::subgroups(path).iter().map(|below| groups(below)).sum::<usize>()
}
