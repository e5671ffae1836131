//! What the lab takes of this machine, as the kernel counts it: what a fault leaves
//! behind shows as growth.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gleaner_lab::daemon::Daemon;
use gleaner_lab::{Lab, cgroup};
use serde::Serialize;

/// What one daemon holds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Held {
    pub memory_bytes: u64,
    pub descriptors: u64,
}

/// One daemon, from when it had got going to when it was last seen.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Life {
    /// Between the two.
    pub faults: u64,
    pub first: Held,
    pub last: Held,
    #[serde(skip)]
    since: Option<u64>,
}

/// What a daemon may take more in a thousand faults, with everything that is done
/// meanwhile: an archive and a table of jobs do grow.
const MEMORY_GROWTH_MAX: f64 = 4.0 * 1_048_576.0;
const DESCRIPTOR_GROWTH_MAX: f64 = 4.0;

/// A life is judged that has seen so many.
const FAULTS_MIN: u64 = 500;

/// What a thousand faults may leave of anything else.
const LEFT_MAX: u64 = 4;

impl Life {
    /// Does it hold ever more?
    pub fn grows(&self) -> bool {
        self.faults >= FAULTS_MIN
            && (self.memory_growth() > MEMORY_GROWTH_MAX
                || self.descriptor_growth() > DESCRIPTOR_GROWTH_MAX)
    }

    /// Bytes in a thousand faults.
    pub fn memory_growth(&self) -> f64 {
        self.growth(|held| held.memory_bytes)
    }

    /// Descriptors in a thousand faults.
    pub fn descriptor_growth(&self) -> f64 {
        self.growth(|held| held.descriptors)
    }

    fn growth(&self, of: impl Fn(&Held) -> u64) -> f64 {
        let grown = of(&self.last) as f64 - of(&self.first) as f64;
        grown * 1e3 / self.faults.max(1) as f64
    }
}

/// All daemons that were seen more than once.
#[derive(Debug, Default)]
pub struct Lives(BTreeMap<(&'static str, u32), Life>);

impl Lives {
    /// How it is after so many faults. What a daemon needs to get going, it has at
    /// the second look.
    pub fn look(&mut self, lab: &Lab, faults: u64) {
        for (role, pid) in daemons(lab) {
            let held = Held { memory_bytes: memory_bytes(pid), descriptors: descriptors(pid) };
            let Some(life) = self.0.get_mut(&(role, pid)) else {
                self.0.insert((role, pid), Life::default());
                continue;
            };
            let since = *life.since.get_or_insert(faults);
            if since == faults {
                life.first = held;
            }
            (life.faults, life.last) = (faults - since, held);
        }
    }

    /// Of each role the one that was there for most faults.
    pub fn longest(&self) -> BTreeMap<&'static str, Life> {
        let mut found = BTreeMap::<_, Life>::new();
        for ((role, _), life) in &self.0 {
            if found.get(role).is_none_or(|known| known.faults < life.faults) {
                found.insert(*role, *life);
            }
        }
        found
    }
}

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
        for (role, pid) in daemons(lab) {
            roles.entry(role).or_default().push(pid);
        }
        let all: Vec<u32> = roles.values().flatten().copied().collect();
        let group = lab.cgroup.as_ref().map(|group| group.path.clone());
        let mounts = all.iter().map(|pid| lines(&format!("/proc/{pid}/mountinfo")));
        let descendants = descendants(std::process::id());
        Self {
            memory_bytes: averages(&roles, memory_bytes),
            descriptors: averages(&roles, descriptors),
            mounts: mounts.sum::<usize>() + lines("/proc/thread-self/mountinfo"),
            cgroups: group.as_deref().map_or(0, groups),
            processes: descendants.len(),
            zombies: descendants.iter().filter(|pid| is_zombie(**pid)).count(),
            outgoing: lab.hosts.iter().map(|host| entries(&host.data().join("outgoing"))).sum(),
        }
    }
}

/// The daemons that live, by role.
fn daemons(lab: &Lab) -> Vec<(&'static str, u32)> {
    let central = [("coordinator", &lab.coordinator), ("collector", &lab.collector)];
    let pid = |daemon: &Option<Daemon>| daemon.as_ref().and_then(Daemon::pid);
    let mut found: Vec<_> =
        central.into_iter().filter_map(|(role, daemon)| Some((role, pid(daemon)?))).collect();
    for supervisor in lab.hosts.iter().filter_map(|host| pid(&host.agent)) {
        found.push(("supervisor", supervisor));
        found.extend(worker(supervisor).map(|pid| ("worker", pid)));
    }
    found
}

/// What is left after so many faults that was not there before, beyond what each
/// workstation may keep for its places: one line each.
pub fn left(before: &Taken, after: &Taken, faults: u64, places: usize) -> Vec<String> {
    let most = (LEFT_MAX * faults / 1_000) as usize;
    let left = |what, before: usize, after: usize, kept| {
        let over = after > before + kept + most;
        over.then(|| format!("{what}: {after}, and {before} before the faults"))
    };
    // Who waits at a lent place is a process, and two guests may share one: each seat that
    // was ever taken keeps its group.
    let found = [
        left("mounts", before.mounts, after.mounts, 0),
        left("control groups", before.cgroups, after.cgroups, 2 * places),
        left("processes", before.processes, after.processes, places),
        left("zombies", before.zombies, after.zombies, 0),
        left("outgoing", before.outgoing, after.outgoing, 0),
    ];
    found.into_iter().flatten().collect()
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

fn descriptors(pid: u32) -> u64 {
    entries(Path::new(&format!("/proc/{pid}/fd"))) as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    fn life(faults: u64, memory_bytes: u64, descriptors: u64) -> Life {
        let first = Held { memory_bytes: 1 << 20, descriptors: 10 };
        Life { faults, first, last: Held { memory_bytes, descriptors }, since: Some(0) }
    }

    #[test]
    fn who_holds_ever_more_is_seen() {
        assert!(!life(2_000, 8 << 20, 17).grows());
        assert!(life(2_000, 10 << 20, 10).grows());
        assert!(life(2_000, 1 << 20, 19).grows());
        assert!(!life(2_000, 0, 0).grows());
        assert!(!life(400, 20 << 20, 90).grows(), "a short life says nothing");
    }

    #[test]
    fn what_faults_leave_behind_is_seen() {
        let before = Taken { mounts: 100, cgroups: 10, ..Taken::default() };
        let after = |mounts, zombies| Taken { mounts, cgroups: 15, zombies, ..Taken::default() };
        assert_eq!(left(&before, &after(104, 4), 1_000, 3), [""; 0]);
        let found = left(&before, &after(105, 5), 1_000, 2);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(left(&before, &after(100, 0), 0, 2).len(), 1);
    }
}
