//! The owners' control group: what its processes use, and how long they wait
//! for the processor, memory and disks.
//!
//! The kernel tells of the waiting by itself (pressure stall information),
//! when it is more than a threshold; what is used is read every few seconds.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_shell::clock::Clock;
use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Teller;
use crate::container::cgroup::is_inside;
use crate::messages::register;
use crate::sense::{Reread, parse_cpu};

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is waited for, and from how many microseconds in two seconds on it is
/// told. Whoever is not root may set no shorter span.
const PRESSURES: [(&str, &str, u32); 3] = [
    ("cpu.pressure", "the processor", 400_000),
    ("memory.pressure", "memory", 200_000),
    ("io.pressure", "disks", 600_000),
];
const SPAN_US: u32 = 2_000_000;

/// Where control groups of version 2 may be.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup/unified", "sys/fs/cgroup"];

pub(super) async fn watch(root: PathBuf, slice: String, mut teller: Teller) {
    let Some(path) = MOUNTS
        .iter()
        .map(|mount| root.join(mount).join(&slice))
        .find(|path| path.join("cgroup.procs").exists())
    else {
        return teller.health(Health::Absent(format!("no control group {slice}")));
    };
    if is_inside("self", &path) {
        let why = format!("guests are in {slice} themselves, with the agent");
        return teller.health(Health::Absent(why));
    }
    let mut deaf = vec![];
    for (file, what, threshold_us) in PRESSURES {
        match trigger(&path.join(file), threshold_us) {
            Ok(trigger) => {
                tokio::spawn(wait_for(
                    trigger,
                    format!("{slice} waits for {what}"),
                    teller.clone(),
                ));
            }
            Err(error) => deaf.push(format!("{file}: {error}")),
        }
    }
    let mut stat = match Reread::open(&path.join("cpu.stat")) {
        Ok(stat) => stat,
        Err(error) => return teller.health(Health::Absent(format!("{slice}/cpu.stat: {error}"))),
    };
    let mut before = None;
    loop {
        let used = stat.text().and_then(parse_cpu);
        teller.health(match &used {
            Ok(_) if deaf.is_empty() => Health::Well,
            Ok(_) => Health::Degraded(deaf.join(", ")),
            // The last owner has logged out, and the group has gone with them.
            Err(error) => Health::Degraded(format!("{slice}/cpu.stat: {error}")),
        });
        match used {
            // What has not moved needs no word, but for the next one's rate.
            Ok(used) => {
                if before.replace(used) != Some(used) {
                    teller.see(Observation::Slice { used });
                }
            }
            Err(_) => stat = Reread::open(&path.join("cpu.stat")).unwrap_or(stat),
        }
        Clock.sleep(LOOK_EVERY).await;
    }
}

/// A descriptor that tells when somebody in there waits so long in each span.
fn trigger(path: &Path, threshold_us: u32) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::io::write(&file, format!("some {threshold_us} {SPAN_US}\0").as_bytes())?;
    register(file, Interest::PRIORITY)
}

async fn wait_for(trigger: AsyncFd<OwnedFd>, what: String, teller: Teller) {
    loop {
        // It tells once in a span at most.
        match trigger.ready(Interest::PRIORITY).await {
            Ok(mut ready) if ready.ready().is_priority() => {
                ready.clear_ready();
                teller.see(Observation::Pressed { what: what.clone() });
            }
            // The group has gone.
            Ok(_) | Err(_) => return,
        }
    }
}
