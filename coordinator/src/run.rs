//! Starting and stopping the coordinator.
//!
//! ```text
//! lock ─► store ─► authority ─► port ─► admin ─► core ─► ready ── stop ──► store closed
//! ```

use std::fs::{DirBuilder, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::validity::{LIFE_MAX, Validity};
use gleaner_common::wire::{Role, close};
use gleaner_coordinator_core::directory::{Directory, KeyStanding};
use gleaner_coordinator_core::outlook::Forgotten;
use gleaner_coordinator_core::{Core, Restored, TicketKey};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{self, Admission, BindError};
use gleaner_shell::identity::{Authority, Identity, IdentityError, IssueError};
use gleaner_shell::lock::Lock;
use gleaner_shell::signals::stop_signal;
use quinn::{Endpoint, VarInt};
use tokio::sync::{mpsc, watch};

use crate::agents::Agents;
use crate::blobs::{BlobLimits, Blobs, OpenBlobsError};
use crate::brain::{Brain, BrainHandle, BrainState, Input};
use crate::cleanup::Cleanup;
use crate::config::{ConfigMistake, CoordinatorConfig};
use crate::limited_log::LimitedLog;
use crate::parts::{self, PartCleanup};
use crate::placement::PlacementTimes;
use crate::server::{self, Shared};
use crate::staging_room::StagingRoom;
use crate::store::{self, Checked, OpenStoreError, Store, StoreHealth, StoreThread, Write};

/// Where the coordinator's own administrator's identity is kept, in the data
/// directory: for the command line on the same machine.
pub const ADMIN: &str = "admin";
const ADMIN_NAME: &str = "admin";
const LOCK: &str = "lock";
const BLOBS: &str = "blobs";

/// How long peers may take to hear that the coordinator stops.
const CLOSING: Duration = Duration::from_millis(500);

/// Why the coordinator does not run. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    Config(#[from] ConfigMistake),
    #[error("cannot use the data directory {}: {why}", path.display())]
    Data { path: PathBuf, why: io::Error },
    #[error("another coordinator uses {}: expected one for each data directory", path.display())]
    InUse { path: PathBuf },
    #[error(
        "the authority in {} is gone, and the database knows whom it has certified: expected both or neither, `glean coordinator restore FILE` brings a backup back", path.display())]
    NoAuthority { path: PathBuf },
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    #[error(transparent)]
    Blobs(#[from] OpenBlobsError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the system gives no more threads: {why}")]
    Thread { why: io::Error },
    #[error("the store's thread ended: see the log above")]
    StoreEnded,
}

/// Runs a coordinator until SIGTERM or SIGINT.
///
/// # Errors
/// It could not start; see [`CoordinatorError`].
pub fn run(config: &CoordinatorConfig) -> Result<(), CoordinatorError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Reading and writing files; each costs memory only while it is used.
        .max_blocking_threads(8)
        .thread_stack_size(512 << 10)
        .build()
        .map_err(|why| CoordinatorError::Thread { why })?;
    runtime.block_on(async {
        let stop = stop_signal().map_err(|why| CoordinatorError::Thread { why })?;
        Box::pin(serve(config, |_| (), stop)).await
    })
}

/// Runs a coordinator until `stop` is done. `ready` is told where it listens.
/// Dropping the future is like a crash, as far as the peers can tell; what was
/// acknowledged is on the disk.
///
/// # Errors
/// It could not start; see [`CoordinatorError`].
pub async fn serve(
    config: &CoordinatorConfig,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), CoordinatorError> {
    config.check()?;
    let _lock = lock(&config.data)?;
    let mut store = Store::open(&config.data)?;
    let (mut restored, records) = store.load()?;
    if !records.is_empty() && !Authority::is_in(&config.data) {
        return Err(CoordinatorError::NoAuthority { path: config.data.clone() });
    }
    store.commit(&[Write::Change(restored.begin_generation(Clock::new().wall()))])?;
    let directory = Directory::restore(records).with_certificate_life(config.certificate_life);
    let directory = Arc::new(RwLock::new(directory));
    let authority = Authority::load_or_create(&config.data)?;
    let limits = BlobLimits {
        blob_bytes_max: config.blob_bytes_max,
        blobs_bytes_max: config.blobs_bytes_max,
    };
    let blobs = Blobs::open(&config.data.join(BLOBS), limits)?;
    let endpoint = bind(config.listen, &authority, &directory)?;
    let address =
        endpoint.local_addr().map_err(|why| BindError::Socket { address: config.listen, why })?;
    ensure_admin(&config.data, address, &authority, &directory, &mut store)?;

    let (reader, quiet_reader) = (store.reader()?, store.reader()?);
    let database = store.path().to_owned();
    let tickets = TicketKey(authority.derive("gleaner: tickets of moves"));
    let Started { brain, thread, handle, health, placement, agents, unneeded } =
        start_brain(config, restored, tickets, &directory, store)?;
    let parts = PartCleanup {
        clock: Clock::new(),
        blobs: blobs.clone(),
        reader: quiet_reader.clone(),
        unneeded,
    };
    let cleanup = Cleanup {
        clock: Clock::new(),
        brain: handle.clone(),
        reader: quiet_reader,
        blobs: blobs.clone(),
        health: health.clone(),
        keep_ended: config.keep_ended,
    };
    let shared = Arc::new(Shared {
        clock: Clock::new(),
        brain: handle,
        directory,
        authority,
        blobs,
        reader,
        store_health: health,
        placement,
        limited_log: LimitedLog::default(),
        collector: server::Collector::default(),
        agents,
        next_serial: AtomicU64::new(1),
        shares: config.shares.clone(),
        staging_room: StagingRoom::new(config.user_bytes_a_day_max),
        revocations: brain.revocations.clone(),
    });
    let quiet_handle = shared.brain.clone();
    let checked_health = shared.store_health.clone();
    tokio::task::spawn_blocking(move || look_through(&database, &checked_health));
    tracing::info!("listening on {address}");
    ready(address);
    let ended = tokio::select! {
        () = server::accept(shared, endpoint.clone()) => Ok(()),
        () = brain.run() => Err(CoordinatorError::StoreEnded),
        () = cleanup.run() => Ok(()),
        () = parts.run() => Ok(()),
        () = keep_usage(stop, &quiet_handle) => Ok(()),
    };
    tracing::info!("stopping");
    endpoint.close(VarInt::from_u32(close::DONE), b"the coordinator stops");
    let _ = tokio::time::timeout(CLOSING, endpoint.wait_idle()).await;
    // The brain is gone and with it the sender of batches: the thread ends.
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    ended
}

/// Waits for the order to stop, and then until all usage and what was learned of
/// owners is on the disk: what ended within the last minute, and what was seen
/// within the last hour, is not there otherwise.
async fn keep_usage(stop: impl Future<Output = ()>, brain: &BrainHandle) {
    stop.await;
    let kept = brain.ask(|reply| Input::KeepUsage {
        // Whoever stops may not wait.
        then: Box::new(move || {
            let _: Result<(), ()> = reply.send(());
        }),
    });
    let _ = tokio::time::timeout(CLOSING, kept).await;
}

/// The brain before it runs, and what is shared with it.
struct Started {
    brain: Brain,
    thread: JoinHandle<()>,
    handle: BrainHandle,
    health: StoreHealth,
    placement: Arc<PlacementTimes>,
    agents: Agents,
    unneeded: mpsc::Receiver<Vec<ContentHash>>,
}

fn start_brain(
    config: &CoordinatorConfig,
    restored: Restored,
    tickets: TicketKey,
    directory: &Arc<RwLock<Directory>>,
    store: Store,
) -> Result<Started, CoordinatorError> {
    let clock = Clock::new();
    let (tell, from_store) = mpsc::unbounded_channel();
    let StoreThread { batches, health, thread } =
        store::start(store.into_writer(), move |told| drop(tell.send(told)))
            .map_err(|why| CoordinatorError::Thread { why })?;
    let (handle, inputs) = BrainHandle::channel();
    let placement = Arc::new(PlacementTimes::default());
    let agents = Agents::default();
    let (tell_unneeded, unneeded) = parts::channel();
    let core = Core::restore(clock.now(), clock.wall(), core_config(config, tickets), restored);
    tell_of_forgotten(&core, directory);
    let brain = Brain {
        clock,
        core,
        directory: directory.clone(),
        inputs,
        batches,
        from_store,
        health: health.clone(),
        placement: placement.clone(),
        agents: agents.clone(),
        unneeded: tell_unneeded,
        revocations: watch::Sender::default(),
        state: BrainState::default(),
    };
    Ok(Started { brain, thread, handle, health, placement, agents, unneeded })
}

/// Says whether the database is whole, while it is in use already: of a large one
/// that takes minutes.
fn look_through(database: &Path, health: &StoreHealth) {
    match store::check(database) {
        Ok(Checked::Whole { rows }) => tracing::info!("the database is whole: {rows} rows"),
        Ok(Checked::Damaged(detail)) => {
            tracing::error!(
                "the database {} is damaged: {detail}: \
                 `glean coordinator restore FILE` brings a backup back",
                database.display()
            );
            health.found_damaged(detail);
        }
        Err(error) => tracing::warn!("the database was not looked through: {error}"),
    }
}

/// What cannot be read is learned anew: the policy knows less for some weeks.
fn tell_of_forgotten(core: &Core, directory: &Arc<RwLock<Directory>>) {
    let directory = directory.read().unwrap_or_else(PoisonError::into_inner);
    for Forgotten { workstation, why } in core.forgotten() {
        let whose = match workstation {
            Some(id) => {
                directory.workstation_name(*id).map_or_else(|| id.to_string(), str::to_owned)
            }
            None => "the lab as a whole".to_owned(),
        };
        tracing::warn!("what was learned of the owners' hours of {whose} begins anew: {why}");
    }
}

fn core_config(config: &CoordinatorConfig, tickets: TicketKey) -> gleaner_coordinator_core::Config {
    gleaner_coordinator_core::Config {
        policy: config.policy,
        idle_needed: config.idle_needed,
        lease: config.lease,
        heartbeat: config.heartbeat,
        heartbeat_without_guests: config.heartbeat_without_guests,
        shares: config.shares.clone(),
        scheduler: config.scheduler.clone(),
        tickets,
        prices: config.prices,
        ..gleaner_coordinator_core::Config::default()
    }
}

/// Takes the data directory's lock: one coordinator for each.
pub(crate) fn lock(data: &Path) -> Result<Lock, CoordinatorError> {
    let unusable = |why| CoordinatorError::Data { path: data.to_owned(), why };
    // The directory has users' files and everybody's keys.
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(unusable)?;
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(data.join(LOCK))
        .map_err(unusable)?;
    let taken = Lock::take(file).map_err(unusable)?;
    taken.ok_or_else(|| CoordinatorError::InUse { path: data.to_owned() })
}

fn bind(
    listen: SocketAddr,
    authority: &Authority,
    directory: &Arc<RwLock<Directory>>,
) -> Result<Endpoint, BindError> {
    let (clock, directory) = (Clock::new(), directory.clone());
    let admit = Arc::new(move |key: &[u8]| {
        let directory = directory.read().unwrap_or_else(PoisonError::into_inner);
        match directory.standing(key, clock.wall()) {
            KeyStanding::Enrolled(_) => Admission::Enrolled,
            KeyStanding::Newcomer(_) => Admission::Token,
            KeyStanding::Expired => Admission::Expired,
            KeyStanding::RunOut => Admission::RunOut,
            KeyStanding::Revoked => Admission::Revoked,
            KeyStanding::Unknown => Admission::Unknown,
        }
    });
    match endpoint::serve(listen, authority, admit.clone()) {
        // The kernel has no IPv6.
        Err(BindError::Socket { address, why })
            if listen.is_ipv6()
                && listen.ip().is_unspecified()
                && why.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) =>
        {
            tracing::warn!("no IPv6 here ({address}: {why}): listening on IPv4 only");
            let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            endpoint::serve(all, authority, admit)
        }
        other => other,
    }
}

/// The identity in `DATA/admin`: made at the first start, and again if it is
/// gone, does not read or has run out; told when the port has changed.
fn ensure_admin(
    data: &Path,
    address: SocketAddr,
    authority: &Authority,
    directory: &Arc<RwLock<Directory>>,
    store: &mut Store,
) -> Result<(), CoordinatorError> {
    let dir = data.join(ADMIN);
    let dial = dial_address(address);
    let wall = Clock::new().wall();
    let mut directory = directory.write().unwrap_or_else(PoisonError::into_inner);
    if let Ok(mut admin) = Identity::load(&dir)
        && matches!(directory.standing(&admin.spki(), wall), KeyStanding::Enrolled(_))
    {
        if admin.coordinator != dial {
            admin.coordinator = dial;
            admin.store(&dir)?;
        }
        return Ok(());
    }
    let admin = authority.issue_identity(Role::Admin, ADMIN_NAME, &dial)?;
    let validity = admin.validity().unwrap_or(Validity::beginning(wall, LIFE_MAX));
    let records = directory.appoint(admin.spki(), Role::Admin, ADMIN_NAME, validity);
    store.commit(&records.into_iter().map(Write::Record).collect::<Vec<_>>())?;
    Ok(admin.store(&dir)?)
}

/// The address at which this machine reaches the coordinator.
fn dial_address(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())).to_string()
    } else {
        address.to_string()
    }
}
