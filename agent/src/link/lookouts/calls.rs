//! Microphones and cameras in use: somebody is in a call, perhaps without a
//! touch.
//!
//! A watch tells when a device is opened or closed; who has it is looked up
//! then only. A microphone counts while its stream runs, a camera while
//! somebody has it open. Headsets on Bluetooth have no such device: they are
//! not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_shell::clock::Clock;
use rustix::fs::inotify::{self, WatchFlags};
use tokio::io::Interest;

use super::Teller;
use crate::messages::register;
use crate::sense::read_notices;

/// For devices that are plugged in, and where nothing can be watched.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A stream starts, and a program that only asks has closed again, within this
/// time of the opening.
const SETTLES: Duration = Duration::from_millis(500);

const PROCESSES_MAX: usize = 10_000;

pub(super) async fn watch(root: PathBuf, mut teller: Teller) {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let opened = inotify::init(flags)
        .map_err(io::Error::from)
        .and_then(|fd| register(fd, Interest::READABLE));
    let notices = match opened {
        Ok(notices) => notices,
        Err(error) => return teller.health(Health::Absent(format!("inotify: {error}"))),
    };
    let mut held = BTreeSet::new();
    // Whether somebody has a camera open is asked when one was opened or closed.
    let (mut opened, mut camera) = (true, false);
    loop {
        let devices = devices(&root);
        teller.health(if devices.is_empty() {
            Health::Absent("no microphone and no camera".into())
        } else {
            Health::Well
        });
        for device in devices.keys() {
            let flags = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
            // One that cannot be watched is looked at all the same.
            let _ = inotify::add_watch(notices.get_ref(), device, flags);
        }
        let mut used: BTreeSet<String> = microphone(&devices).into_iter().collect();
        if opened && devices.values().any(|device| *device == Device::Camera) {
            let root = root.clone();
            let looked = tokio::task::spawn_blocking(move || has_camera_open(&root, &devices));
            camera = looked.await.unwrap_or(false);
        }
        used.extend(camera.then(|| "the camera is in use".to_owned()));
        tell(&mut held, used, &teller);
        opened = false;
        tokio::select! {
            ready = notices.readable() => {
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Clock.sleep(SETTLES).await;
                read_notices(notices.get_ref(), |_, _, _| {});
                opened = true;
            }
            () = Clock.sleep(LOOK_EVERY) => {}
        }
    }
}

fn tell(held: &mut BTreeSet<String>, now: BTreeSet<String>, teller: &Teller) {
    for what in now.difference(held) {
        teller.see(Observation::Held { id: format!("call/{what}"), what: what.clone() });
    }
    for what in held.difference(&now) {
        teller.see(Observation::Released { id: format!("call/{what}") });
    }
    *held = now;
}

/// What a device is, for people, and where its stream's state is read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Device {
    /// The directory of its substreams in `/proc/asound`.
    Microphone(PathBuf),
    Camera,
}

/// All of them, by the files that programs open.
fn devices(root: &Path) -> BTreeMap<PathBuf, Device> {
    let mut found = BTreeMap::new();
    for (path, name) in files(&root.join("dev")) {
        if name.strip_prefix("video").is_some_and(|number| number.parse::<u32>().is_ok()) {
            found.insert(path, Device::Camera);
        }
    }
    for (path, name) in files(&root.join("dev/snd")) {
        // pcmC0D6c: card 0, device 6, capture.
        let stream = name.strip_prefix("pcmC").and_then(|rest| rest.strip_suffix('c'));
        if let Some((card, device)) = stream.and_then(|rest| rest.split_once('D')) {
            let stream = root.join(format!("proc/asound/card{card}/pcm{device}c"));
            found.insert(path, Device::Microphone(stream));
        }
    }
    found
}

fn files(directory: &Path) -> impl Iterator<Item = (PathBuf, String)> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.file_name().to_str()?.to_owned())))
}

/// Is one in use? In words.
fn microphone(devices: &BTreeMap<PathBuf, Device>) -> Option<String> {
    let used = devices.values().any(|device| match device {
        Device::Microphone(stream) => runs(stream),
        Device::Camera => false,
    });
    used.then(|| "the microphone is in use".to_owned())
}

/// Does one of its substreams carry sound? `closed` is all that a free one says.
fn runs(stream: &Path) -> bool {
    files(stream).any(|(path, _)| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        status.lines().any(|line| line.trim() == "state: RUNNING")
    })
}

/// Has any process a camera open?
fn has_camera_open(root: &Path, devices: &BTreeMap<PathBuf, Device>) -> bool {
    let is_camera = |device: &PathBuf| devices.get(device) == Some(&Device::Camera);
    let processes = files(&root.join("proc"));
    let numbered = processes.filter(|(_, name)| name.parse::<u32>().is_ok());
    numbered.take(PROCESSES_MAX).any(|(process, _)| {
        files(&process.join("fd"))
            .any(|(file, _)| std::fs::read_link(file).is_ok_and(|target| is_camera(&target)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A laptop's devices, as the kernel lays them out.
    fn laptop() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "dev/snd",
            "proc/asound/card0/pcm0c/sub0",
            "proc/asound/card0/pcm0p/sub0",
            "proc/4711/fd",
        ] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        for name in [
            "dev/video0",
            "dev/videodev",
            "dev/snd/pcmC0D0c",
            "dev/snd/pcmC0D0p",
            "dev/snd/controlC0",
        ] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        set(&root, "pcm0c", "closed\n");
        set(&root, "pcm0p", "closed\n");
        root
    }

    fn set(root: &tempfile::TempDir, stream: &str, status: &str) {
        let path = root.path().join(format!("proc/asound/card0/{stream}/sub0/status"));
        std::fs::write(path, status).unwrap();
    }

    const RUNNING: &str = "state: RUNNING\nowner_pid   : 1234\ntrigger_time: 1034.223\n\
                           tstamp      : 0.000\ndelay       : 512\navail       : 512\n";

    fn records(root: &tempfile::TempDir) -> bool {
        microphone(&devices(root.path())).is_some()
    }

    #[test]
    fn a_microphone_counts_while_it_records_and_a_loudspeaker_does_not() {
        let root = laptop();
        assert_eq!(devices(root.path()).len(), 2, "{:?}", devices(root.path()));
        set(&root, "pcm0p", RUNNING);
        assert!(!records(&root));
        set(&root, "pcm0c", "state: PREPARED\nowner_pid   : 1234\n");
        assert!(!records(&root));
        set(&root, "pcm0c", RUNNING);
        assert!(records(&root));
    }

    #[test]
    fn a_camera_counts_while_somebody_has_it_open() {
        let root = laptop();
        let open = || has_camera_open(root.path(), &devices(root.path()));
        let descriptor = root.path().join("proc/4711/fd/7");
        std::os::unix::fs::symlink(root.path().join("dev/video0"), &descriptor).unwrap();
        assert!(open());
        std::fs::remove_file(descriptor).unwrap();
        assert!(!open());
    }
}
