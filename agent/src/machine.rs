//! What this machine is, and who loads it: looked at when the agent starts, and
//! once when load turns the workstation busy. Never while it is idle.

use std::path::Path;
use std::thread;

use gleaner_agent_core::occupancy::Culprit;
use gleaner_common::machine::{Disk, Machine, PARTS_MAX, Temperature};
use sysinfo::{
    Components, CpuRefreshKind, DiskRefreshKind, Disks, MINIMUM_CPU_UPDATE_INTERVAL, Pid, Process,
    ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System, UpdateKind,
};

/// Less than this share of a core is no reason to be busy.
const CULPRIT_PERCENT_MIN: f32 = 1.0;

/// How many cores this process may use.
pub(crate) fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}

/// This machine as it is now.
pub fn describe() -> Machine {
    let processors = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let processors = System::new_with_specifics(processors).ok();
    let first = processors.as_ref().and_then(|system| system.cpus().first());
    let cores = System::physical_core_count().unwrap_or(0);
    Machine {
        hostname: System::host_name().unwrap_or_default(),
        os: System::long_os_version().unwrap_or_default(),
        processor: first.map_or_else(String::new, |cpu| cpu.brand().trim().to_owned()),
        physical_cores: u16::try_from(cores).unwrap_or(u16::MAX),
        disks: disks(),
        temperatures: temperatures(),
    }
}

/// Each local file system once, wherever else it is mounted.
fn disks() -> Vec<Disk> {
    let storage = DiskRefreshKind::nothing().with_storage();
    let Ok(disks) = Disks::new_with_refreshed_list_specifics(storage) else { return vec![] };
    let mut disks: Vec<_> = disks.iter().collect();
    disks.sort_by_key(|disk| (disk.id(), disk.mount_point().as_os_str().len()));
    disks.dedup_by_key(|disk| disk.id());
    disks.sort_by_key(|disk| disk.mount_point());
    disks
        .into_iter()
        .filter(|disk| disk.total_space() > 0)
        .take(PARTS_MAX)
        .map(|disk| Disk {
            path: disk.mount_point().to_string_lossy().into_owned(),
            total_bytes: disk.total_space(),
            free_bytes: disk.available_space(),
        })
        .collect()
}

/// How much is free where this directory lies, for those who are not root; `None`
/// if nobody knows.
pub(crate) fn room(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn temperatures() -> Vec<Temperature> {
    let Ok(components) = Components::new_with_refreshed_list() else { return vec![] };
    let told = components.iter().filter_map(|component| {
        let celsius = component.temperature().filter(|celsius| celsius.is_finite())?;
        let critical_celsius = component.critical().filter(|celsius| celsius.is_finite());
        Some(Temperature { label: component.label().to_owned(), celsius, critical_celsius })
    });
    told.take(PARTS_MAX).collect()
}

/// Whose process uses most just now, but for the agent's and its guests'. Takes
/// a fifth of a second. With a control group, only what is in it counts.
pub(crate) fn busiest(group: Option<&Path>) -> Option<Culprit> {
    let mut system = System::new().ok()?;
    let what = ProcessRefreshKind::nothing().with_cpu().with_user(UpdateKind::OnlyIfNotSet);
    system.refresh_processes_specifics(ProcessesToUpdate::All, false, what);
    thread::sleep(MINIMUM_CPU_UPDATE_INTERVAL);
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    let counts = |process: &&Process| {
        let pid = process.pid().to_string();
        process.cpu_usage() >= CULPRIT_PERCENT_MIN
            && !is_ours(&system, process)
            && group.is_none_or(|group| crate::container::cgroup::is_inside(&pid, group))
    };
    let all = system.processes().values().filter(counts);
    let busiest = all.max_by(|a, b| a.cpu_usage().total_cmp(&b.cpu_usage()))?;
    let name = busiest.name().to_string_lossy().into_owned();
    Some(Culprit { name, uid: **busiest.user_id()? })
}

/// This process, or one that descends from it: keepers and guests do.
fn is_ours(system: &System, process: &Process) -> bool {
    let ours = Pid::from_u32(std::process::id());
    let parent = |process: &&Process| process.parent().and_then(|pid| system.process(pid));
    std::iter::successors(Some(process), parent).any(|process| process.pid() == ours)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use gleaner_shell::clock::Clock;

    use super::*;

    #[test]
    fn a_machine_knows_what_it_is() {
        let machine = describe();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(machine.hostname, kernel.trim());
        assert!(!machine.os.is_empty(), "{machine:?}");
        let mut paths: Vec<_> = machine.disks.iter().map(|disk| &disk.path).collect();
        assert!(machine.disks.iter().all(|disk| disk.free_bytes <= disk.total_bytes));
        paths.dedup();
        assert_eq!(paths.len(), machine.disks.len());
    }

    /// A control group, which leaves out whatever else runs on this machine.
    struct Group(PathBuf);

    impl Group {
        fn new() -> Option<Self> {
            let mount = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
            let mount = mount.into_iter().find(|mount| mount.join("cgroup.procs").exists())?;
            let path = mount.join(format!("gleaner-culprit-{}", std::process::id()));
            std::fs::create_dir(&path).ok().map(|()| Self(path))
        }

        /// A shell that begins in it, and what it then does.
        fn shell(&self, wrapped: impl Fn(&str) -> String) -> Command {
            let join = format!("echo 0 > {}/cgroup.procs", self.0.display());
            let mut command = Command::new("sh");
            let silent = || Stdio::null();
            command.stdin(silent()).stdout(silent()).stderr(silent());
            command.args(["-c", &wrapped(&format!("{join}; while :; do :; done"))]);
            command
        }

        fn count(&self) -> usize {
            std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap().lines().count()
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            std::fs::write(self.0.join("cgroup.kill"), "1").unwrap();
            let end = Clock.now() + LONG;
            while std::fs::remove_dir(&self.0).is_err() && Clock.now() < end {
                thread::yield_now();
            }
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[track_caller]
    fn until(holds: impl Fn() -> bool) {
        let end = Clock.now() + LONG;
        while !holds() {
            assert!(Clock.now() < end);
            thread::yield_now();
        }
    }

    #[test]
    fn whoever_loads_a_machine_is_named_and_a_guest_is_not() {
        let Some(group) = Group::new() else {
            return eprintln!("no right to make control groups: nothing to show here");
        };
        // A child of ours could be a guest; whom its parent has left is somebody's.
        let mut guest = group.shell(str::to_owned).spawn().unwrap();
        until(|| group.count() == 1);
        assert_eq!(busiest(Some(&group.0)), None);
        let orphan = |script: &str| format!("({script}) & :");
        assert!(group.shell(orphan).status().unwrap().success());
        let uid = rustix::process::getuid().as_raw();
        let expected = Some(Culprit { name: "sh".into(), uid });
        until(|| busiest(Some(&group.0)) == expected);
        drop(group);
        guest.wait().unwrap();
    }
}
