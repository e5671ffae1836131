//! The source's end: a guest's state on its way to another agent, while it is
//! written down.
//!
//! The promise: nothing of it waits on a disk, and the guest is let be before
//! anybody hears that the carrying has ended, so that it can be thawed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{self, Departure};
use gleaner_common::id::Fence;
use gleaner_common::program::{Handover, HandoverReply};
use gleaner_common::wire::{Purpose, close};
use gleaner_move::{Dump, DumpError, GuestProcess, Outlet, Sent};
use gleaner_shell::clock::Clock;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{KeptImage, Mover};
use crate::failure::one_line;
use crate::link::peers::Peers;
use crate::link::{Current, ToEventLoop};

/// Small writes are collected up to here.
const COLLECTED_BYTES: usize = 256 << 10;

/// How many pieces wait: big ones, each with its head before it.
const PIECES: usize = 16;

/// Something goes out all the time, and somebody takes it.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// How long the other side may take to bring it to life.
const LANDED_WITHIN: Duration = Duration::from_secs(60);

/// What is to be carried.
#[derive(Debug)]
pub(crate) struct Cargo {
    pub(crate) departure: Departure,
    /// The process that goes along, and what writes it down.
    pub(crate) process: Option<(GuestProcess, Arc<Mover>)>,
    /// The image that goes along instead, of a rank that goes back to it.
    pub(crate) image: Option<KeptImage>,
    /// A rank's endpoint, packed.
    pub(crate) endpoint: Bytes,
}

/// All that is on its way from here.
#[derive(Debug)]
pub(crate) struct Departures {
    peers: Peers,
    current: Current,
    event_loop: ToEventLoop,
    running: BTreeMap<Fence, (watch::Sender<bool>, JoinHandle<()>)>,
}

/// Why it was not carried.
#[derive(Debug, thiserror::Error)]
enum CarryError {
    #[error("called back")]
    CalledBack,
    #[error("{0}")]
    Cannot(String),
    #[error("no way there: {0}, and no coordinator to pass it on")]
    NoWay(String),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("nothing moves for {} s", STALLED_AFTER.as_secs())]
    Stalled,
    #[error("not taken there: {0}")]
    NotTaken(String),
    #[error("{0}")]
    Dump(DumpError),
}

impl Departures {
    pub(crate) fn new(peers: Peers, current: Current, event_loop: ToEventLoop) -> Self {
        Self { peers, current, event_loop, running: BTreeMap::new() }
    }

    /// Starts to carry. What was under way of the same attempt is called back
    /// and ends first.
    pub(crate) fn send(&mut self, cargo: Cargo) {
        self.running.retain(|_, (_, task)| !task.is_finished());
        let fence = cargo.departure.at.fence;
        self.call_back(fence);
        let former = self.running.remove(&fence).map(|(_, task)| task);
        let (stop, stopped) = watch::channel(false);
        let (peers, current, event_loop) =
            (self.peers.clone(), self.current.clone(), self.event_loop.clone());
        let task = tokio::spawn(async move {
            if let Some(former) = former {
                let _ = former.await;
            }
            let name = cargo.departure.to.at.name.clone();
            match carry(cargo, &peers, &current, stopped).await {
                Ok((bytes, took)) => {
                    tracing::info!(%fence, to = %name, bytes, ?took, "a guest was taken over");
                    event_loop.core(Event::Carried { bytes, took });
                }
                Err(CarryError::Cannot(reason)) => {
                    tracing::info!(%fence, %reason, "a guest cannot be moved");
                    event_loop.guest(fence, guest::Event::CannotLeave(reason));
                }
                Err(error) => tracing::info!(%fence, to = %name, "a guest was not moved: {error}"),
            }
            event_loop.guest(fence, guest::Event::CarryingEnded);
        });
        self.running.insert(fence, (stop, task));
    }

    /// Stops carrying it, if it is carried.
    pub(crate) fn call_back(&mut self, fence: Fence) {
        if let Some((stop, _)) = self.running.get(&fence) {
            let _ = stop.send(true);
        }
    }
}

/// What was carried and how long it took, from the first look at it to the
/// word that it stands there.
async fn carry(
    cargo: Cargo,
    peers: &Peers,
    current: &Current,
    mut stopped: watch::Receiver<bool>,
) -> Result<(u64, Duration), CarryError> {
    let begin = Clock.now();
    tracing::debug!(fence = %cargo.departure.at.fence, to = %cargo.departure.to.at.name, "a guest is to leave");
    let (pieces, mut coming) = mpsc::channel(PIECES);
    let (started, starts) = oneshot::channel();
    let (ended, ends) = oneshot::channel();
    let no_thread = |error| CarryError::Cannot(format!("no thread to write it down: {error}"));
    if let Some((guest, mover)) = cargo.process.clone() {
        let dumping = std::thread::Builder::new().name("dump".into()).spawn(move || {
            let _ = ended.send(dump(&guest, &mover, started, pieces));
        });
        dumping.map_err(no_thread)?;
    } else if let Some(image) = cargo.image.clone() {
        let _ = started.send(Ok(()));
        let thread = std::thread::Builder::new().name("image".into());
        thread.spawn(move || image.hand_on(&pieces)).map_err(no_thread)?;
    } else {
        let _ = started.send(Ok(()));
        drop((ended, pieces));
    }
    let sent = tokio::select! {
        sent = send(&cargo, peers, current, starts, &mut coming) => sent,
        _ = stopped.wait_for(|stop| *stop) => Err(CarryError::CalledBack),
    };
    // CRIU gives up when nobody takes what it writes, and lets the guest be.
    drop(coming);
    let dumped = if cargo.process.is_some() { ends.await.ok() } else { None };
    match (sent, dumped) {
        // What the guest or this machine lacks says more than what came of it.
        (sent, Some(Some(Err(cause)))) => match (sent, judge(cause)) {
            (Err(CarryError::CalledBack), _) => Err(CarryError::CalledBack),
            (Err(error), CarryError::Dump(_)) => Err(error),
            (_, cause) => Err(cause),
        },
        (Err(error), _) => Err(error),
        (Ok(()), Some(Some(Ok(Sent { bytes, .. })))) => Ok((bytes, Clock.now().since(begin))),
        (Ok(()), _) => {
            let image = cargo.image.as_ref().map_or(0, |image| image.bytes);
            Ok((cargo.endpoint.len() as u64 + image, Clock.now().since(begin)))
        }
    }
}

/// Is it the guest's own fault, or this machine's, that it cannot leave?
fn judge(error: DumpError) -> CarryError {
    match error {
        DumpError::Send(_) | DumpError::Lost => CarryError::Dump(error),
        DumpError::NotRoot
        | DumpError::Restless
        | DumpError::Cannot(_)
        | DumpError::Look(_)
        | DumpError::Start(_) => CarryError::Cannot(one_line(&error)),
    }
}

/// The thread that writes it down. `None` if it could not begin, which was told.
fn dump(
    guest: &GuestProcess,
    mover: &Mover,
    started: oneshot::Sender<Result<(), DumpError>>,
    pieces: mpsc::Sender<Bytes>,
) -> Option<Result<Sent, DumpError>> {
    match Dump::start(&mover.engine, &mover.fingerprint, guest) {
        Ok(dump) => {
            let _ = started.send(Ok(()));
            let mut out = Pieces { pieces, filled: vec![] };
            let done = dump.run(&mut out);
            let flushed = out.flush();
            Some(done.and_then(|done| flushed.map(|()| done).map_err(DumpError::Send)))
        }
        Err(error) => {
            let _ = started.send(Err(error));
            None
        }
    }
}

/// Hands on what is written, piece by piece; waits where nobody takes it.
struct Pieces {
    pieces: mpsc::Sender<Bytes>,
    /// What is handed on next.
    filled: Vec<u8>,
}

impl Pieces {
    fn hand_on(&mut self, piece: Bytes) -> io::Result<()> {
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.filled.extend_from_slice(bytes);
        if self.filled.len() >= COLLECTED_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        if filled.is_empty() { Ok(()) } else { self.hand_on(filled.into()) }
    }
}

impl Outlet for Pieces {
    fn hand(&mut self, bytes: Bytes) -> io::Result<()> {
        self.flush()?;
        self.hand_on(bytes)
    }
}

async fn send(
    cargo: &Cargo,
    peers: &Peers,
    current: &Current,
    starts: oneshot::Receiver<Result<(), DumpError>>,
    coming: &mut mpsc::Receiver<Bytes>,
) -> Result<(), CarryError> {
    let to = &cargo.departure.to.at;
    // The way is found while the guest is looked at.
    let (direct, started) = tokio::join!(peers.connect(&to.name, &to.addresses), starts);
    started
        .map_err(|_| CarryError::Cannot("the thread that writes it down ended".into()))?
        .map_err(judge)?;
    tracing::debug!("it is being written down");
    let purpose = Purpose::Handover { to: to.workstation, what: Box::new(what(cargo)) };
    let coordinator = current.borrow().clone();
    let (mut writer, mut reader) = match (direct, coordinator) {
        (Ok(connection), _) => stream::open(&connection, purpose).await?,
        (Err(error), Some(coordinator)) => {
            tracing::debug!("{error}: the coordinator passes it on");
            stream::open(&coordinator, purpose).await?
        }
        (Err(error), None) => return Err(CarryError::NoWay(error.to_string())),
    };
    match pass(cargo, &mut writer, coming).await {
        Ok(()) => {}
        // Who does not take it says why.
        Err(error) => return Err(refusal(&mut reader).await.unwrap_or(error)),
    }
    writer.finish();
    tracing::debug!("all of it is sent");
    let reply = timeout(LANDED_WITHIN, reader.expect::<HandoverReply>()).await;
    match reply.map_err(|_| CarryError::Stalled)?? {
        HandoverReply::Taken => Ok(()),
        HandoverReply::No { reason } => Err(CarryError::NotTaken(reason)),
    }
}

fn what(cargo: &Cargo) -> Handover {
    let Departure { at, subprogram, keep, to, since } = &cargo.departure;
    Handover {
        subprogram: *subprogram,
        old: at.fence,
        new: to.at.fence,
        ticket: to.ticket,
        keep: *keep,
        endpoint_bytes: cargo.endpoint.len() as u64,
        frozen: Clock.now().since(*since),
    }
}

async fn pass(
    cargo: &Cargo,
    writer: &mut FrameWriter,
    coming: &mut mpsc::Receiver<Bytes>,
) -> Result<(), CarryError> {
    writer.flush().await?;
    write(writer, cargo.endpoint.clone()).await?;
    loop {
        let piece = timeout(STALLED_AFTER, coming.recv()).await.map_err(|_| {
            writer.reset(close::DONE);
            CarryError::Stalled
        })?;
        let Some(piece) = piece else { return Ok(()) };
        write(writer, piece).await?;
    }
}

async fn write(writer: &mut FrameWriter, bytes: Bytes) -> Result<(), CarryError> {
    let written = timeout(STALLED_AFTER, writer.send_bytes(bytes)).await;
    Ok(written.map_err(|_| CarryError::Stalled)??)
}

async fn refusal(reader: &mut FrameReader) -> Option<CarryError> {
    let said = timeout(Duration::from_secs(1), reader.expect::<HandoverReply>()).await;
    match said {
        Ok(Ok(HandoverReply::No { reason })) => Some(CarryError::NotTaken(reason)),
        Ok(Ok(HandoverReply::Taken) | Err(_)) | Err(_) => None,
    }
}
