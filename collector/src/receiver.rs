//! The collector's daemon: dials the coordinator and takes in the usage
//! streams that it passes on.
//!
//! ```text
//! agent ─► coordinator ─► relayed stream ─► frame checked ─► writer thread ─► append, fsync ─┐
//!   ▲                                                                                        │
//!   └───────────────── Confirmed, or Deferred: keep them and try again ◄─────────────────────┘
//! ```
//!
//! The promise: `Confirmed` leaves after the records are on disk. While a
//! stream has records that were deferred, nothing behind them is confirmed. What was
//! damaged since it was confirmed is told within a day.

mod relay;
mod writer;

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use gleaner_common::wire::Role;
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{ConnectError, Credentials, Ended, Link, connect};
use gleaner_shell::identity::{Identity, IdentityError};
use gleaner_shell::signals::stop_signal;
use quinn::VarInt;
use tokio::task::JoinSet;

use crate::config::CollectorConfig;
use crate::store::{OpenStoreError, Store};
use writer::LogWriter;

/// How long between two attempts to reach the coordinator.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_LONGEST: Duration = Duration::from_secs(10);

/// Below the idle timeout, for nights without a transition.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Every agent may keep its usage stream open; a coordinator has 10,000.
const STREAMS_MAX: u32 = 16_384;

/// What may lie unread in all streams together, so that no stream that waits
/// for the disk holds up the others.
const WINDOW_BYTES: u32 = 16 << 20;

/// One segment of 8 MiB in so long is no load to speak of, and nothing waits for it longer
/// than for a sync; 10,000 of them take three hours. A guess, not yet measured.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long after the last segment the first is looked at again.
const LOOK_AGAIN: Duration = Duration::from_hours(24);

/// Why the collector cannot run on. Each is one line with its sources.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the identity in {} is of role {}: expected {}", dir.display(), role.name(), Role::Collector.name())]
    Role { dir: std::path::PathBuf, role: Role },
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    #[error("cannot start a thread or wait for signals")]
    Start(#[source] io::Error),
    /// Trying again would be refused again.
    #[error(transparent)]
    Refused(#[from] ConnectError),
}

/// Runs until SIGTERM or SIGINT; a coordinator that is away is waited for.
///
/// # Errors
/// No identity, a data directory that cannot be used, or a coordinator that
/// refuses this identity for good.
pub fn run(config: CollectorConfig) -> Result<(), CollectorError> {
    let identity = Identity::load(&config.identity_dir)?;
    if identity.role != Role::Collector {
        return Err(CollectorError::Role { dir: config.identity_dir, role: identity.role });
    }
    let store = Store::open(&config.data_dir)?;
    tracing::info!(data = %config.data_dir.display(), "the collector keeps its logs here");
    let (writer, thread) = writer::start(store).map_err(CollectorError::Start)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CollectorError::Start)?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = receive(&identity, &writer) => outcome,
            () = look_through(&writer) => Ok(()),
        }
    });
    // With the last handle gone the writer ends, when all it has is on disk.
    drop((runtime, writer));
    // The thread's panic is ours: a collector without a writer is none.
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    tracing::info!("the collector has stopped");
    outcome
}

/// Has every segment read again, at the start and then once a day, and returns when the
/// writer has ended.
async fn look_through(writer: &LogWriter) {
    while let Some(more) = writer.look().await {
        let wait = if more { LOOK_EVERY } else { LOOK_AGAIN };
        tokio::select! {
            () = Clock::new().sleep(wait) => {}
            () = writer.gone() => return,
        }
    }
}

async fn receive(identity: &Identity, writer: &LogWriter) -> Result<(), CollectorError> {
    let mut stop = pin!(stop_signal().map_err(CollectorError::Start)?);
    let mut backoff = Backoff::new(WAIT_FIRST, WAIT_LONGEST);
    // Said once per absence, not once per attempt.
    let mut absence_said = false;
    loop {
        let Some(Over { why, served }) = session(identity, writer, stop.as_mut()).await else {
            return Ok(());
        };
        if why.is_final() {
            return Err(why.into());
        }
        if served {
            backoff.reset();
            absence_said = false;
        }
        if !absence_said {
            tracing::warn!("{why}; trying again");
            absence_said = true;
        }
        let wait = backoff.next().unwrap_or(WAIT_LONGEST);
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = Clock::new().sleep(wait) => {}
        }
    }
}

/// How a connection, or the attempt to make one, came to its end.
struct Over {
    why: ConnectError,
    /// Whether the connection was of use: the next is tried soon.
    served: bool,
}

/// One connection, from dialling to its end; `None` if we were asked to stop.
async fn session(
    identity: &Identity,
    writer: &LogWriter,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Option<Over> {
    let credentials = Credentials::Identity(identity);
    let dialled = tokio::select! {
        () = &mut stop => return None,
        dialled = connect(&identity.coordinator, credentials, Some(KEEP_ALIVE)) => dialled,
    };
    let link = match dialled {
        Ok(link) => link,
        Err(why) => return Some(Over { why, served: false }),
    };
    let mut served = false;
    let ended = tokio::select! {
        () = &mut stop => None,
        ended = serve(&link, writer, &mut served) => Some(ended),
    };
    let Some(ended) = ended else {
        link.close().await;
        return None;
    };
    // Two collectors with one identity must not chase each other.
    served &= ended != Ended::Replaced;
    Some(Over { why: link.refused(ended), served })
}

/// Takes in streams until the connection ends. `served` turns true with the
/// first: a refusal of our certificate arrives only now, as the end.
async fn serve(link: &Link, writer: &LogWriter, served: &mut bool) -> Ended {
    link.connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS_MAX));
    link.connection.set_receive_window(VarInt::from_u32(WINDOW_BYTES));
    tracing::info!("connected to the coordinator at {}", link.address);
    let mut streams = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = link.connection.accept_bi() => accepted,
            Some(_) = streams.join_next() => continue,
        };
        match accepted {
            Ok(stream) => {
                *served = true;
                streams.spawn(relay::serve(link.connection.clone(), stream, writer.clone()));
            }
            // Dropping the set ends what still waits; none of it was confirmed.
            Err(error) => return error.into(),
        }
    }
}
