//! A place on this machine to run guests at, and ways to wait for facts.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent::container::cgroup::{PlaceGroup, Tree};
use gleaner_agent::container::keeper::{
    Ended, Keeper, Order, Program, Report, Sandbox, StartGuest,
};
use gleaner_common::id::{Fence, PlaceId};
use gleaner_shell::clock::Clock;
use tempfile::TempDir;

/// Generous: a test that waits this long has failed. Guests come after
/// everybody else who wants a core, and may have to wait for minutes.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Clock.now() + LONG;
    while !holds() {
        assert!(Clock.now() <= end, "never: {what}");
        // Guests come after everybody else who wants a core: leave them one.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Who guests and keepers are here.
pub(crate) const GUEST: u32 = 61_900;
pub(crate) const KEEPER: u32 = 61_899;

/// One guest place with its keeper.
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) group: Option<PlaceGroup>,
    pub(crate) missing: Vec<String>,
    cgroup: Option<PathBuf>,
    _home: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A place whose sandbox is changed first.
    pub(crate) fn with(change: impl FnOnce(&mut Sandbox)) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = home.path().join("p0");
        let uid = is_root().then_some(GUEST);
        for dir in ["guest/work", "guest/output", "tmp"] {
            fs::create_dir_all(directory.join(dir)).unwrap();
        }
        for file in ["stdout", "stderr"] {
            fs::write(directory.join(file), "").unwrap();
        }
        for path in ["guest/work", "guest/output", "tmp", "stdout", "stderr"] {
            chown(directory.join(path), uid, uid).unwrap();
        }
        let cgroup = is_root().then(|| {
            let unique = home.path().file_name().unwrap().to_string_lossy().replace('.', "");
            let mount = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
                .into_iter()
                .find(|mount| Path::new(mount).join("cgroup.procs").exists())
                .unwrap();
            Path::new(mount).join(format!("gleaner-test-{unique}"))
        });
        let group = cgroup
            .as_deref()
            .map(|path| Tree::claim(Some(path)).unwrap().place(PlaceId(0)).unwrap());
        let mut sandbox = Sandbox {
            directory: directory.clone(),
            uid,
            keeper_uid: KEEPER,
            readable: ["/usr", "/bin", "/lib", "/lib64", "/etc"].map(PathBuf::from).to_vec(),
            filter: true,
            ..Sandbox::default()
        };
        change(&mut sandbox);
        let program = Program::own().unwrap();
        let (keeper, lacking) = Keeper::spawn(&program, group.as_ref(), true, sandbox).unwrap();
        let mut place = Self {
            directory,
            keeper: Some(keeper),
            group,
            missing: lacking.into_iter().collect(),
            cgroup,
            _home: home,
        };
        let Report::Ready { missing } = place.report() else { panic!("a keeper says it is ready") };
        place.missing.extend(missing);
        place
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        self.keeper.as_ref().unwrap()
    }

    #[track_caller]
    pub(crate) fn report(&mut self) -> Report {
        let mut report = None;
        until("a report", || {
            report = self.keeper.as_mut().unwrap().receive().unwrap();
            report.is_some()
        });
        report.unwrap()
    }

    pub(crate) fn start(&self, command: &[&str]) {
        self.start_as(StartGuest {
            command: command.iter().map(ToString::to_string).collect(),
            ..self.order()
        });
    }

    pub(crate) fn order(&self) -> StartGuest {
        StartGuest {
            fence: Fence::of(1),
            fresh: true,
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            directory: self.keeper().as_seen(&self.directory, &self.directory.join("guest/work")),
            ..StartGuest::default()
        }
    }

    pub(crate) fn start_as(&self, start: StartGuest) {
        self.keeper().send(&Order::Start(Box::new(start))).unwrap();
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) -> Ended {
        match self.report() {
            Report::Ended(ended) => *ended,
            other => panic!("not an end: {other:?}"),
        }
    }

    /// Runs a shell script to its end.
    #[track_caller]
    pub(crate) fn shell(&mut self, script: &str) -> Ended {
        self.start(&["sh", "-c", script]);
        self.ended()
    }

    /// Waits for a file that a guest makes in its directory.
    #[track_caller]
    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        let path = self.directory.join("guest/work").join(name);
        let mut text = String::new();
        until(name, || {
            text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keeper = None;
        self.group = None;
        let Some(cgroup) = &self.cgroup else { return };
        for dir in ["guests/p0", "guests", ""] {
            let _ = fs::remove_dir(cgroup.join(dir));
        }
        for controller in ["memory", "pids", "cpu"] {
            let name = cgroup.file_name().unwrap();
            let guests = Path::new("/sys/fs/cgroup").join(controller).join(name);
            let _ = fs::remove_dir(guests.join("p0"));
            let _ = fs::remove_dir(guests);
        }
    }
}

/// All processes whose command line holds a text.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (pid != own && line.contains(text)).then_some(pid)
        })
        .collect()
}
