//! Which paths a guest may have open, by their names.
//!
//! What a name leads to is for whoever opens it to see to: the kernel, with no
//! more rights than the guest has.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::rules::Wrong;
use crate::stage::{DEVICES, TREES};

/// What a guest sees of the machine, beside what is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
}

/// What the kernel tells everybody, below `/proc`.
const OF_THE_KERNEL: [&str; 8] =
    ["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"];

/// What it tells a process of itself, below `/proc/PID`.
const OF_A_PROCESS: [&str; 12] = [
    "cgroup",
    "cmdline",
    "comm",
    "io",
    "limits",
    "maps",
    "mountinfo",
    "mounts",
    "smaps",
    "stat",
    "statm",
    "status",
];

impl Reach {
    /// May a guest with these processes have it open, for writing if `writes`?
    pub(super) fn permits(
        &self,
        name: &[u8],
        writes: bool,
        processes: &BTreeSet<i32>,
    ) -> Result<(), Wrong> {
        let out_of_reach = |act| {
            let path = String::from_utf8_lossy(name).escape_default().to_string();
            Err(Wrong::OutOfReach { path, act })
        };
        let path = Path::new(OsStr::from_bytes(name));
        if !is_plain(name) || !(self.is_seen(path) || is_told(path, processes)) {
            return out_of_reach("have open");
        }
        if writes && !self.is_written(path) {
            return out_of_reach("write to");
        }
        Ok(())
    }

    /// Is it below what is the guest's own, or shared with it?
    pub(crate) fn is_written(&self, path: &Path) -> bool {
        is_own(path)
            || self.writable.iter().any(|tree| path.starts_with(tree))
            || DEVICES.iter().any(|device| path == Path::new(device))
    }

    fn is_seen(&self, path: &Path) -> bool {
        path == Path::new("/")
            || self.is_written(path)
            || self.readable.iter().any(|tree| path.starts_with(tree))
    }

    /// May a symbolic link that lies at `at` lead there? It may lead to what the
    /// guest sees, or to nothing, but not to what others could be made to follow.
    pub(crate) fn permits_link(&self, at: &Path, target: &Path) -> bool {
        let mut led = at.parent().unwrap_or(at).to_path_buf();
        for part in target.components() {
            match part {
                Component::RootDir => led = PathBuf::from("/"),
                Component::ParentDir => drop(led.pop()),
                Component::Normal(name) => led.push(name),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        self.is_seen(&led)
    }
}

/// Is it the guest's own, and nobody else's?
pub(super) fn is_own(path: &Path) -> bool {
    TREES.iter().any(|(_, tree)| path.starts_with(tree))
}

/// As the kernel writes the path of an open file: from the root, without a step
/// back or aside.
pub(super) fn is_plain(name: &[u8]) -> bool {
    let steps = |name: &[u8]| {
        name.split(|byte| *byte == b'/').all(|step| !matches!(step, b"" | b"." | b".."))
    };
    !name.contains(&0) && (name == b"/" || name.strip_prefix(b"/").is_some_and(steps))
}

/// Words of the kernel, which nobody changes by reading them.
fn is_told(path: &Path, processes: &BTreeSet<i32>) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let steps: Option<Vec<&str>> = below.iter().map(OsStr::to_str).collect();
    match steps.as_deref() {
        Some([name]) => OF_THE_KERNEL.contains(name),
        Some([process, name]) => {
            let is_its = process.parse().is_ok_and(|process| processes.contains(&process));
            is_its && OF_A_PROCESS.contains(name)
        }
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach() -> Reach {
        let paths = |of: &[&str]| of.iter().map(PathBuf::from).collect();
        Reach { readable: paths(&["/usr", "/etc"]), writable: paths(&["/shared"]) }
    }

    #[test]
    fn a_guest_has_open_what_it_sees_and_writes_to_what_is_its_own() {
        let processes = BTreeSet::from([7]);
        let may = |name: &str, writes| reach().permits(name.as_bytes(), writes, &processes).is_ok();
        for name in ["/place/guest/work/a", "/tmp", "/dev/shm/x", "/shared/b", "/dev/null"] {
            assert!(may(name, true), "{name}");
        }
        for name in ["/", "/usr/bin/sh", "/etc/passwd", "/proc/7/maps", "/proc/meminfo"] {
            assert!(may(name, false) && !may(name, true), "{name}");
        }
        for name in [
            "",
            "usr/bin/sh",
            "/root/x",
            "/usrx",
            "/place/../root",
            "/place//x",
            "/place/./x",
            "/place/x/",
            "/tmp/x\0y",
            "/proc/1/mem",
            "/proc/7/mem",
            "/proc/1/maps",
            "/proc/07/../1/maps",
            "/proc/7/fd/3",
            "/proc/self/maps",
            "/proc/sys/kernel/hostname",
            "/dev/sda",
            "/dev/shmx",
            "/run/criu.kdat",
        ] {
            assert!(!may(name, false), "{name}");
        }
    }

    #[test]
    fn a_link_leads_to_what_the_guest_sees() {
        let at = Path::new("/place/guest/work/link");
        let may = |target: &str| reach().permits_link(at, Path::new(target));
        for target in ["a", "../output/b", "/usr/bin/python3", "/etc/passwd", "../../../tmp/x"] {
            assert!(may(target), "{target}");
        }
        for target in ["/proc/1/mem", "../../../../root", "/run/x", "/place/../var"] {
            assert!(!may(target), "{target}");
        }
    }
}
