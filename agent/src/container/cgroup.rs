//! Control groups: where guests are frozen, counted and killed as one.
//!
//! ```text
//! BASE/            given, or the service's own delegated group, or /gleaner
//!   agent/         supervisor and worker, only in a delegated group
//!   guests/        killed as one when the agent dies
//!     p0/ p1/ ..   one per guest place: its keeper and its guest
//! ```
//!
//! The promise: freezing and killing a place is one write to a file that was
//! opened beforehand. Memory, process and CPU limits come from version 2
//! where the controllers are there and from version 1 where they are mounted
//! beside it. Knows nothing of guests, fences or keepers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_common::id::PlaceId;
use gleaner_shell::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a killed group may take to empty before we say so. Killing is a
/// matter of milliseconds; only a process stuck in the kernel takes longer.
pub(crate) const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// What can go wrong with control groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cgroup v2 is not mounted: expected it at /sys/fs/cgroup or /sys/fs/cgroup/unified")]
    NotMounted,
    #[error("cannot create control group {path}")]
    Create { path: PathBuf, source: io::Error },
    #[error("cannot open {path}")]
    Open { path: PathBuf, source: io::Error },
    #[error("processes in {path} survive being killed for {} s", EMPTY_WITHIN.as_secs())]
    Populated { path: PathBuf },
}

/// The most that version 1 has counted, since it was last written to.
const PEAK: &str = "memory.max_usage_in_bytes";
const PEAK_WITH_SWAP: &str = "memory.memsw.max_usage_in_bytes";

/// What the kernel may ask for at once, and not get.
const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// Limits of one place; 0 leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    pub memory_bytes_max: u64,
    pub processes_max: u32,
}

/// A version 1 hierarchy mounted beside version 2.
#[derive(Clone, Debug)]
struct Legacy {
    controller: &'static str,
    guests: PathBuf,
}

/// The agent's part of the machine's control groups.
#[derive(Clone, Debug)]
pub struct Tree {
    guests: PathBuf,
    legacy: Vec<Legacy>,
    /// Version 2 controllers that places can use.
    controllers: Vec<String>,
    /// What is missing, one line each.
    pub missing: Vec<String>,
}

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

impl Tree {
    /// Finds or makes the agent's groups and clears what a former agent left.
    ///
    /// # Errors
    /// No cgroup v2, no right to use it, or a guest that cannot be killed.
    pub fn claim(directory: Option<&Path>) -> Result<Self, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mount =
            mount_of(&mounts, |kind, _| kind == "cgroup2").ok_or(CgroupError::NotMounted)?;
        let base = directory.map_or_else(|| base_of(&mount, &own), Path::to_path_buf);
        create(&base)?;
        if own_group(&mount, &own).as_deref() == Some(&base) {
            move_aside(&base)?;
        }
        let guests = base.join("guests");
        create(&guests)?;
        let name = base.strip_prefix(&mount).unwrap_or(&base).to_string_lossy().replace('/', "-");
        let legacy: Vec<_> = CONTROLLERS
            .into_iter()
            .filter_map(|controller| {
                let mount = mount_of(&mounts, |kind, options| {
                    kind == "cgroup" && options.split(',').any(|option| option == controller)
                })?;
                let path = own_path(&own, controller).unwrap_or("/");
                let inside = mount.join(path.trim_start_matches('/'));
                let parent = if inside.is_dir() { inside } else { mount };
                let guests = parent.join(&name);
                create(&guests).ok()?;
                Some(Legacy { controller, guests })
            })
            .collect();
        let controllers = delegate(&base, &guests);
        let missing = CONTROLLERS
            .into_iter()
            .filter(|name| {
                !controllers.iter().any(|have| have == name)
                    && !legacy.iter().any(|have| have.controller == *name)
            })
            .map(|name| format!("cgroup controller {name}: not available in {}", base.display()))
            .collect();
        let tree = Self { guests, legacy, controllers, missing };
        // Groups compete with their siblings: the places' parent meets the
        // owner's sessions, and the places below it only each other.
        let cpu = tree.legacy.iter().find(|legacy| legacy.controller == "cpu");
        set_idle(cpu.map_or(&tree.guests, |legacy| &legacy.guests), true);
        tree.clear()?;
        // It may have been frozen by a supervisor that is dead.
        let _ = fs::write(tree.guests.join("cgroup.freeze"), "0");
        Ok(tree)
    }

    /// A tree beside the running agent's, to try things out.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub fn try_out(directory: Option<&Path>) -> Result<Self, CgroupError> {
        let beside = if let Some(path) = directory {
            path.to_path_buf()
        } else {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            let mount = mount_of(&mounts, |kind, _| kind == "cgroup2");
            base_of(&mount.ok_or(CgroupError::NotMounted)?, &own).with_file_name("gleaner-doctor")
        };
        Self::claim(Some(&beside))
    }

    /// Removes the groups of a tree that is not needed any more.
    pub fn remove(self) {
        self.remove_places();
        let base = self.guests.parent().map(Path::to_path_buf);
        for directory in self.hierarchies().map(PathBuf::clone).chain(base) {
            let _ = fs::remove_dir(directory);
        }
    }

    /// Removes the places' groups that are empty; the others are used again.
    pub fn remove_places(&self) {
        for guests in self.hierarchies() {
            for entry in fs::read_dir(guests).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// What holds the places' groups, in every hierarchy.
    fn hierarchies(&self) -> impl Iterator<Item = &PathBuf> {
        self.legacy.iter().map(|legacy| &legacy.guests).chain([&self.guests])
    }

    /// The directory that holds the places' groups.
    pub fn guests(&self) -> &Path {
        &self.guests
    }

    /// Does a place's group limit memory?
    pub fn limits_memory(&self) -> bool {
        self.has("memory")
    }

    /// Does a place's group limit the number of processes?
    pub fn limits_processes(&self) -> bool {
        self.has("pids")
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|have| have == controller)
            || self.legacy.iter().any(|have| have.controller == controller)
    }

    /// What freezes all places at once, above what each of them is told, and what
    /// kills them: to be written to.
    ///
    /// # Errors
    /// One of the files cannot be opened.
    pub(crate) fn guests_files(&self) -> io::Result<(File, File)> {
        let open = |name: &str| OpenOptions::new().write(true).open(self.guests.join(name));
        Ok((open("cgroup.freeze")?, open("cgroup.kill")?))
    }

    /// Kills every guest and keeper, without waiting.
    fn kill_all(&self) {
        // Nothing to kill if the file is gone; a failure shows when clearing.
        let _ = fs::write(self.guests.join("cgroup.kill"), "1");
    }

    /// Kills what is left of a former agent and waits until it is gone.
    fn clear(&self) -> Result<(), CgroupError> {
        self.kill_all();
        let events = self.guests.join("cgroup.events");
        let mut file = File::open(&events)
            .map_err(|source| CgroupError::Open { path: events.clone(), source })?;
        if !wait_for(&mut file, "populated 0", EMPTY_WITHIN) {
            return Err(CgroupError::Populated { path: self.guests.clone() });
        }
        self.remove_places();
        Ok(())
    }

    /// Makes a place's group, empty and thawed.
    ///
    /// # Errors
    /// The group or one of its files cannot be made or opened.
    pub fn place(&self, place: PlaceId) -> Result<PlaceGroup, CgroupError> {
        let dir = self.guests.join(place.to_string());
        create(&dir)?;
        let open = |name: &str, write: bool| {
            let path = dir.join(name);
            OpenOptions::new()
                .read(!write)
                .write(write)
                .open(&path)
                .map_err(|source| CgroupError::Open { path, source })
        };
        let mut legacy = vec![];
        for hierarchy in &self.legacy {
            let dir = hierarchy.guests.join(place.to_string());
            create(&dir)?;
            let path = dir.join("cgroup.procs");
            let procs = OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(|source| CgroupError::Open { path, source })?;
            legacy.push(LegacyGroup { controller: hierarchy.controller, dir, procs });
        }
        let group = PlaceGroup {
            freeze: open("cgroup.freeze", true)?,
            kill: open("cgroup.kill", true)?,
            events: open("cgroup.events", false)?,
            procs: open("cgroup.procs", true)?,
            path: dir,
            legacy,
            limits: GroupLimits::default(),
        };
        // A group is thawed when made; a reused one may not be.
        let _ = group.thaw();
        group.hurry(false);
        Ok(group)
    }
}

/// What want of memory has done to a group so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starvation {
    kills: u64,
    at_limit: u64,
}

impl Starvation {
    /// Was something killed since then for the group's own limit? What is killed
    /// because the machine is out of memory is not over its own.
    pub fn is_beyond(self, before: Self) -> bool {
        self.kills > before.kills && self.at_limit > before.at_limit
    }
}

#[derive(Debug)]
struct LegacyGroup {
    controller: &'static str,
    dir: PathBuf,
    procs: File,
}

/// The group of one guest place, with its files open.
#[derive(Debug)]
pub struct PlaceGroup {
    path: PathBuf,
    procs: File,
    freeze: File,
    kill: File,
    events: File,
    legacy: Vec<LegacyGroup>,
    limits: GroupLimits,
}

impl PlaceGroup {
    /// Orders the freeze; [`Self::is_frozen`] tells when every thread stands.
    ///
    /// # Errors
    /// The write fails.
    pub fn freeze(&self) -> io::Result<()> {
        (&self.freeze).write_all(b"1")
    }

    /// # Errors
    /// The write fails.
    pub fn thaw(&self) -> io::Result<()> {
        (&self.freeze).write_all(b"0")
    }

    /// Kills everything in the group, frozen or not.
    ///
    /// # Errors
    /// The write fails.
    pub fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// Does every thread in the group stand still?
    pub fn is_frozen(&self) -> bool {
        self.event("frozen 1")
    }

    /// Waits until everything stands still.
    pub fn wait_frozen(&mut self, at_most: Duration) -> bool {
        wait_for(&mut self.events, "frozen 1", at_most)
    }

    /// Waits until nothing is alive in the group.
    pub fn wait_empty(&mut self, at_most: Duration) -> bool {
        wait_for(&mut self.events, "populated 0", at_most)
    }

    /// Is nothing alive in the group?
    pub fn is_empty(&self) -> bool {
        self.event("populated 0")
    }

    /// Urgent when something of that has changed since it was last asked for.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn event(&self, line: &str) -> bool {
        let mut bytes = [0; 128];
        rustix::io::pread(&self.events, &mut bytes, 0)
            .is_ok_and(|n| String::from_utf8_lossy(&bytes[..n]).lines().any(|have| have == line))
    }

    /// The files that a new process writes "0" into to join.
    pub fn procs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.legacy.iter().map(|group| &group.procs).chain([&self.procs]).map(AsFd::as_fd)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// User and system time of everything that ever ran in the group.
    pub fn cpu_time(&self) -> Duration {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        Duration::from_micros(number_after(&text, "usage_usec"))
    }

    /// Memory of the processes in the group, without what they have read.
    pub fn memory_bytes(&self) -> u64 {
        let (dir, field) = match self.legacy_dir("memory") {
            Some(dir) => (dir, "rss"),
            None => (self.path.as_path(), "anon"),
        };
        number_after(&fs::read_to_string(dir.join("memory.stat")).unwrap_or_default(), field)
    }

    /// How often the kernel has killed something here, and how often the limit on
    /// memory was in the way.
    pub fn starvation(&self) -> Starvation {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let Some(dir) = self.legacy_dir("memory") else {
            let events = read(self.path.join("memory.events"));
            let [kills, at_limit] = ["oom_kill", "oom"].map(|name| number_after(&events, name));
            return Starvation { kills, at_limit };
        };
        let bytes = |name: &str| read(dir.join(name)).trim().parse().unwrap_or(0_u64);
        // Its count of failures leaves out those of memory and swap together.
        let most = bytes(PEAK).max(bytes(PEAK_WITH_SWAP));
        Starvation {
            kills: number_after(&read(dir.join("memory.oom_control")), "oom_kill"),
            at_limit: u64::from(most + LARGE_PAGE_BYTES >= bytes("memory.limit_in_bytes")),
        }
    }

    /// Is what runs here in a hurry? Usually it comes below every other group, as
    /// `SCHED_IDLE` is below every other task: the policy alone orders tasks only
    /// within their own group, and the kernel gives each session a group of its
    /// own (autogroup). A guest that is being written down or brought to life
    /// stands still, and what is done to it should not take for ever: all places
    /// together then have a quarter of what anybody else has.
    pub fn hurry(&self, hurries: bool) {
        let group = self.legacy_dir("cpu").unwrap_or(&self.path);
        set_idle(group, !hurries);
        let Some(guests) = group.parent() else { return };
        // Another place may still be in a hurry.
        let places = fs::read_dir(guests).into_iter().flatten().flatten();
        let any = hurries || places.into_iter().any(|place| is_in_hurry(&place.path()));
        set_idle(guests, !any);
        if hurries {
            let _ = fs::write(guests.join("cpu.shares"), "256");
            let _ = fs::write(guests.join("cpu.weight"), "25");
        }
    }

    /// Sets the limits of the next guest where controllers are there, and forgets what
    /// the one before it used at most.
    pub fn set_limits(&mut self, limits: GroupLimits) {
        if let Some(dir) = self.legacy_dir("memory") {
            let _ = fs::write(dir.join(PEAK_WITH_SWAP), "0");
            let _ = fs::write(dir.join(PEAK), "0");
        }
        if limits.memory_bytes_max != self.limits.memory_bytes_max {
            let text = limits.memory_bytes_max.to_string();
            if let Some(dir) = self.legacy_dir("memory") {
                // Memory and swap together, where the kernel counts swap. Whichever of
                // the two is the lower must be written first, so both orders are tried.
                let both = dir.join("memory.memsw.limit_in_bytes");
                let _ = fs::write(&both, &text);
                let _ = fs::write(dir.join("memory.limit_in_bytes"), &text);
                let _ = fs::write(&both, &text);
            } else {
                let _ = fs::write(self.path.join("memory.max"), &text);
                let _ = fs::write(self.path.join("memory.swap.max"), "0");
            }
        }
        if limits.processes_max != self.limits.processes_max {
            let dir = self.legacy_dir("pids").unwrap_or(&self.path);
            // The keeper is one of them.
            let _ =
                fs::write(dir.join("pids.max"), limits.processes_max.saturating_add(1).to_string());
        }
        self.limits = limits;
    }

    fn legacy_dir(&self, controller: &str) -> Option<&Path> {
        self.legacy
            .iter()
            .find(|group| group.controller == controller)
            .map(|group| group.dir.as_path())
    }
}

/// Is this process in that control group (v2), or below it?
pub(crate) fn is_inside(pid: &str, group: &Path) -> bool {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    // The path leads through a mount point, whose place does not matter.
    let path = group.to_string_lossy();
    let mounts = ["/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"];
    let inner = mounts.iter().find_map(|mount| path.strip_prefix(mount)).unwrap_or("");
    let inner = inner.trim_end_matches('/');
    !inner.is_empty() && Path::new(own).starts_with(inner)
}

fn is_in_hurry(group: &Path) -> bool {
    fs::read_to_string(group.join("cpu.idle")).is_ok_and(|idle| idle.trim() == "0")
}

/// Where the controller is missing, `missing` says so.
fn set_idle(group: &Path, idle: bool) {
    let _ = fs::write(group.join("cpu.idle"), if idle { "1" } else { "0" });
}

/// `NAME 123` in a file of such lines; 0 if it is not there.
fn number_after(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// A group that is there already must be ours to use: it may be that of another
/// user's agent.
fn create(path: &Path) -> Result<(), CgroupError> {
    let refused = |source| CgroupError::Create { path: path.to_path_buf(), source };
    fs::create_dir_all(path).map_err(refused)?;
    let procs = path.join("cgroup.procs");
    rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK).map_err(|error| refused(error.into()))
}

/// Waits for a line in a `cgroup.events` file; the kernel wakes us at changes.
fn wait_for(events: &mut File, line: &str, at_most: Duration) -> bool {
    let until = Clock.now() + at_most;
    loop {
        let mut text = String::new();
        if events.rewind().and_then(|()| events.read_to_string(&mut text)).is_err() {
            return false;
        }
        if text.lines().any(|have| have == line) {
            return true;
        }
        let left = until.since(Clock.now());
        if left.is_zero() {
            return false;
        }
        let timeout = Timespec::try_from(left).ok();
        // Interrupted or timed out: the loop looks again.
        let _ = poll(&mut [PollFd::new(events, PollFlags::PRI)], timeout.as_ref());
    }
}

/// Where a file system is mounted: the first line of `mountinfo` that fits.
fn mount_of(mountinfo: &str, fits: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1).unwrap_or(""));
        fits(kind, options).then(|| PathBuf::from(mount.split(' ').nth(4).unwrap_or("/")))
    })
}

/// The path of our own group in a hierarchy; "" names version 2.
fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        controllers.split(',').any(|have| have == controller).then(|| parts.next())?
    })
}

fn own_group(mount: &Path, own: &str) -> Option<PathBuf> {
    Some(mount.join(own_path(own, "")?.trim_start_matches('/')))
}

/// The service's own group if a service manager started us in one (it
/// delegates it: `Delegate=yes`), otherwise a group of our own name.
fn base_of(mount: &Path, own: &str) -> PathBuf {
    match own_group(mount, own) {
        Some(group) if group.extension().is_some_and(|kind| kind == "service") => group,
        // Without root, only a group below our own can be ours.
        Some(group) if !rustix::process::geteuid().is_root() && group.is_dir() => {
            group.join("gleaner")
        }
        _ => mount.join("gleaner"),
    }
}

/// A group with processes cannot give controllers to its children: move
/// ourselves into a leaf. Others that are there are not ours to move.
fn move_aside(base: &Path) -> Result<(), CgroupError> {
    let leaf = base.join("agent");
    create(&leaf)?;
    // Without it, controllers are missing, which is said.
    let _ = fs::write(leaf.join("cgroup.procs"), "0");
    Ok(())
}

/// Turns controllers on for the places; which of them work.
fn delegate(base: &Path, guests: &Path) -> Vec<String> {
    let available = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    available
        .split_whitespace()
        .filter(|name| CONTROLLERS.contains(name))
        .filter(|name| {
            let on = format!("+{name}");
            [base, guests]
                .iter()
                .all(|dir| fs::write(dir.join("cgroup.subtree_control"), &on).is_ok())
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 22 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 22 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 22 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn mounts_are_found_by_kind_and_controller() {
        let unified = mount_of(MOUNTS, |kind, _| kind == "cgroup2");
        assert_eq!(unified, Some("/sys/fs/cgroup/unified".into()));
        let cpu = mount_of(MOUNTS, |kind, options| {
            kind == "cgroup" && options.split(',').any(|option| option == "cpu")
        });
        assert_eq!(cpu, Some("/sys/fs/cgroup/cpu,cpuacct".into()));
    }

    #[test]
    fn a_service_uses_its_own_group_and_anybody_else_one_beside() {
        let mount = Path::new("/cg");
        let own = "4:memory:/x\n0::/system.slice/gleaner-agent.service\n";
        assert_eq!(base_of(mount, own), Path::new("/cg/system.slice/gleaner-agent.service"));
        assert_eq!(own_path(own, "memory"), Some("/x"));
    }

    #[test]
    fn numbers_are_read_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(number_after(text, "oom_kill"), 3);
        assert_eq!(number_after("", "oom_kill"), 0);
    }

    #[test]
    fn what_the_whole_machine_has_no_memory_for_is_not_over_its_own_limit() {
        let before = Starvation { kills: 1, at_limit: 5 };
        assert!(Starvation { kills: 2, at_limit: 6 }.is_beyond(before));
        assert!(!Starvation { kills: 2, at_limit: 5 }.is_beyond(before));
        assert!(!Starvation { kills: 1, at_limit: 9 }.is_beyond(before));
    }
}
