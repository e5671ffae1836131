//! `glean agent`: from a configuration to a running event loop.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::{agent, guest};
use gleaner_common::amounts::Amounts;
use gleaner_common::id::{BootId, Incarnation};
use gleaner_common::job::Limits;
use gleaner_common::requirement::Attributes;
use gleaner_common::time::Spoken;
use gleaner_common::wire::Facts;
use gleaner_shell::clock::Clock;
use gleaner_shell::identity::{Home, Identity, IdentityError};
use gleaner_shell::lock::Lock;

use crate::config::{AgentConfig, InvalidConfig};
use crate::container::Site;
use crate::container::cgroup::{CgroupError, Tree};
use crate::container::keeper::{KeeperError, Program};
use crate::container::tree::clear;
use crate::event_loop::{EventLoop, LoopEnd, OwnerInfo};
use crate::failure::one_line;
use crate::link::{LinkHandle, LinkSetup};
use crate::machine;
use crate::moving::Mover;
use crate::speed;
use crate::spool::{Spool, SpoolError};
use crate::supervisor::{self, Beats, HOPELESS};

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot use the data directory {path}")]
    Data { path: PathBuf, source: io::Error },
    #[error("another agent runs with the data directory {path}: expected one agent for each")]
    Running { path: PathBuf },
    #[error(
        "the identity in {path} was made on another machine, and this one has a copy of it: \
         expected an identity of its own"
    )]
    Copied { path: PathBuf },
    #[error("cannot clear what a former agent left")]
    Cgroup(#[from] CgroupError),
    #[error("cannot start the worker")]
    Fork(#[source] io::Error),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error("cannot start the event loop")]
    EventLoop(#[source] io::Error),
}

/// How long a worker may take to die of its supervisor's death: until then it
/// holds the data directory.
const DYING: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs the agent until it is told to stop. Call it before there is any
/// thread: it forks.
///
/// # Errors
/// What keeps it from starting at all.
#[expect(clippy::needless_pass_by_value, reason = "an agent has its configuration to itself")]
pub fn run(config: AgentConfig) -> Result<ExitCode, AgentError> {
    config.check()?;
    Identity::load(&config.identity)?;
    check_home(&config.identity, &Home::here())?;
    let lock = claim_data(&config.data)?;
    let mut missing = vec![];
    let tree = claim_groups(&config, &mut missing)?;
    if !rustix::process::geteuid().is_root() {
        missing
            .push("root: guests run as this user, and other users' terminals are not seen".into());
    }
    let status = supervisor::supervise(tree.as_ref(), |beats| {
        match work(&config, tree.as_ref(), &missing, beats) {
            Ok(LoopEnd::Stopped) => ExitCode::SUCCESS,
            Ok(LoopEnd::LinkDied) => ExitCode::FAILURE,
            Err(error) => {
                tracing::error!("{}", one_line(&error));
                ExitCode::from(HOPELESS)
            }
        }
    })
    .map_err(AgentError::Fork)?;
    drop(lock);
    Ok(status)
}

/// One worker's life.
fn work(
    config: &AgentConfig,
    tree: Option<&Tree>,
    missing: &[String],
    beats: &Arc<Beats>,
) -> Result<LoopEnd, AgentError> {
    let now = crate::pause::Now { moment: Clock.now(), wall: Clock.wall() };
    let identity = Identity::load(&config.identity)?;
    let boot = boot_id();
    let (spool, notes) = Spool::open(&config.data, boot)?;
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    for note in &notes {
        tracing::warn!("{note}");
    }
    for left in ["outgoing", "places"] {
        clear(&config.data.join(left));
    }
    let cores = machine::cores();
    let places = config.places(cores);
    let mut missing = missing.to_vec();
    missing.extend(notes);
    let memory_bytes = memory_bytes();
    let facts = Facts {
        cores,
        places,
        memory_bytes,
        memory_lent_bytes: config.guests.memory_lent(memory_bytes),
        disk_lent_bytes: config.guests.disk_lent(places, machine::room(&config.data)),
        gpus: config.guests.gpus,
        machine_id: Home::here().name(),
        ..Facts::default()
    };
    let processes_max = config.guests.processes_max;
    let plain = facts.lends().part(Amounts::ONE_CORE);
    let limits = Limits {
        memory_bytes_max: plain.memory_bytes,
        processes_max,
        disk_bytes_max: plain.disk_bytes,
    };
    let begun = Clock.now();
    let mover = Mover::find(config, tree, boot).map(Arc::new);
    tracing::debug!(took = %Spoken(Clock.now().since(begun)), "knows whether guests can move");
    if let Err(why) = &mover {
        tracing::warn!("guests are not moved from or to here: {why}");
        missing.push(Facts::no_moves(why));
    }
    let fingerprint = mover.as_ref().ok().map(|mover| Box::new(mover.fingerprint.clone()));
    let site = Site {
        config: config.clone(),
        program: Program::own()?,
        tree: tree.cloned(),
        limits,
        mover,
        beats: Some(Arc::clone(beats)),
    };
    let attributes = crate::attributes::of_site(&config.attributes).unwrap_or_else(|why| {
        tracing::warn!("{why}");
        missing.push(why.to_string());
        Attributes::default()
    });
    let begun = Clock.now();
    missing.extend(site.try_out());
    tracing::debug!(took = %Spoken(Clock.now().since(begun)), "knows whether guests can start");
    let facts = Facts {
        speed: speed::of_this_machine(&config.data),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        missing: missing.clone(),
        addresses: vec![],
        fingerprint,
        machine: Box::new(machine::describe()),
        shared_directories: shared_directories(config),
        attributes,
        ..facts
    };
    let setup = agent::Setup {
        incarnation: incarnation(),
        boot,
        facts,
        criteria: config.criteria.clone(),
        site: guest::Site {
            limits: Limits { processes_max, ..Limits::default() },
            moves: site.mover.as_ref().map(|_| ()).map_err(Clone::clone),
        },
        pause: crate::pause::kept(&config.data, now),
    };
    let info = OwnerInfo {
        name: identity.name.clone(),
        coordinator: identity.coordinator.clone(),
        missing,
    };
    let signals = stop_signals().map_err(AgentError::EventLoop)?;
    let link = LinkHandle::start(LinkSetup { config: config.clone(), identity, spool })
        .map_err(AgentError::EventLoop)?;
    if let Err(error) = crate::realtime::claim() {
        // Ordinary for those who are not root: it only means a little later.
        tracing::debug!(%error, "the event loop queues for a core like everybody");
    }
    let event_loop =
        EventLoop::new(site, setup, link, signals, info).map_err(AgentError::EventLoop)?;
    Ok(event_loop.run())
}

/// As text, for the coordinator: a path that is none is offered to nobody.
fn shared_directories(config: &AgentConfig) -> Vec<String> {
    let paths = config.guests.shared_directories.iter();
    paths.filter_map(|path| path.to_str().map(str::to_owned)).collect()
}

/// An identity is one machine's. One that does not say which becomes this one's.
fn check_home(identity: &Path, here: &Home) -> Result<(), AgentError> {
    match Home::noted(identity) {
        Some(there) if there.is_another(here) => {
            Err(AgentError::Copied { path: identity.to_path_buf() })
        }
        Some(_) => Ok(()),
        None => {
            if let Err(error) = here.note(identity) {
                tracing::warn!("which machine this identity belongs to is not kept: {error}");
            }
            Ok(())
        }
    }
}

/// One agent per data directory; the lock goes with the process.
fn claim_data(data: &Path) -> Result<Lock, AgentError> {
    let failed = |source| AgentError::Data { path: data.to_path_buf(), source };
    // Guests must get through to their places, and see nothing else.
    DirBuilder::new().recursive(true).mode(0o711).create(data).map_err(failed)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(data.join("lock"))
        .map_err(failed)?;
    let give_up_at = Clock.now() + DYING;
    loop {
        let taken = Lock::take(file.try_clone().map_err(failed)?).map_err(failed)?;
        if let Some(lock) = taken {
            return Ok(lock);
        }
        if Clock.now() >= give_up_at {
            return Err(AgentError::Running { path: data.to_path_buf() });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Groups are wanted, and their absence said; only guests of a former agent
/// that cannot be killed keep us from starting.
fn claim_groups(
    config: &AgentConfig,
    missing: &mut Vec<String>,
) -> Result<Option<Tree>, AgentError> {
    match Tree::claim(config.cgroup.directory.as_deref()) {
        Ok(tree) => {
            missing.extend(tree.missing.iter().cloned());
            Ok(Some(tree))
        }
        Err(error @ CgroupError::Populated { .. }) => Err(error.into()),
        Err(error) => {
            missing.push(format!("control groups: {}", one_line(&error)));
            Ok(None)
        }
    }
}

/// Readable when we are told to stop.
fn stop_signals() -> io::Result<UnixStream> {
    let (ours, handlers) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, handlers.try_clone()?)?;
    }
    Ok(ours)
}

pub(crate) fn boot_id() -> BootId {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// A number no other life of an agent has had.
fn incarnation() -> Incarnation {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Incarnation(u64::from_ne_bytes(bytes)),
        Err(_) => Incarnation(Clock.now().0 ^ u64::from(std::process::id()).rotate_left(48)),
    }
}

fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map_or(0, |kib: u64| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_was_copied_to_another_machine_is_not_used_there() {
        let root = |product: &str| {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("sys/class/dmi/id")).unwrap();
            fs::write(root.path().join("sys/class/dmi/id/product_uuid"), product).unwrap();
            Home::of(root.path())
        };
        let (desk, clone) = (root("4c4c4544-0042"), root("4c4c4544-0043"));
        let identity = tempfile::tempdir().unwrap();
        check_home(identity.path(), &desk).unwrap();
        check_home(identity.path(), &desk).unwrap();
        let error = check_home(identity.path(), &clone).unwrap_err().to_string();
        assert!(error.contains("was made on another machine"), "{error}");
    }
}
