//! The router's ways out: the coordinator, other agents, and the coordinator
//! for other agents that cannot be reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_common::id::{ContentHash, Fence, WorkstationId};
use gleaner_common::program::{Life, RELAYED_BYTES_MAX};
use gleaner_common::time::Moment;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::address::Snapshot;
use gleaner_program_core::framing;
use gleaner_program_core::wire::{Between, FromRank};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender};

use super::Peer;
use crate::moving::KeptImage;

/// How much may wait for one way. What comes on top is lost; the ranks'
/// endpoints keep it and send it again.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// How long the other way is taken before the direct one is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What waits for one way, in bytes. The link takes off what it has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn add(&self, bytes: usize) -> bool {
        let room = self.0.load(Ordering::Relaxed) + bytes <= WAITING_BYTES_MAX;
        if room {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
        room
    }

    /// So much has left, or never will.
    pub(crate) fn take_off(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// This frame has left, or never will.
    pub(crate) fn done(&self, frame: &AgentFrame) {
        if let AgentFrame::Relay { bytes, .. } = frame {
            self.take_off(bytes.len());
        }
    }
}

/// Frames for the coordinator's connection of that number.
pub(crate) type Frames = WeakUnboundedSender<(u64, AgentFrame)>;

/// A direct way that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) at: WorkstationId,
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What the link is to do for the router.
#[derive(Debug)]
pub(crate) enum IoRequest {
    /// Open a direct way; [`RouterCommand::PeerStreamOpened`](super::RouterCommand::PeerStreamOpened),
    /// [`RouterCommand::PeerStreamLost`](super::RouterCommand::PeerStreamLost).
    PeerStream(Wanted),
    /// Stage a rank's part of a snapshot at the coordinator;
    /// [`RouterCommand::Staged`](super::RouterCommand::Staged). The image follows the bytes.
    Stage { fence: Fence, snapshot: Snapshot, bytes: Bytes, image: Option<KeptImage> },
    /// Get one; [`RouterCommand::Fetched`](super::RouterCommand::Fetched).
    Fetch { fence: Fence, hash: ContentHash },
}

/// The direct way to another agent.
#[derive(Debug)]
pub(crate) struct PeerStream {
    pieces: UnboundedSender<Vec<Bytes>>,
    waiting: Waiting,
    /// What leaves with the next flush: whole pieces, then frames' heads.
    batch: Vec<Bytes>,
    tail: Vec<u8>,
}

impl PeerStream {
    /// A way, and what is to be written to its stream.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Vec<Bytes>>, Waiting) {
        let (pieces, written) = tokio::sync::mpsc::unbounded_channel();
        let waiting = Waiting::default();
        let stream = Self { pieces, waiting: waiting.clone(), batch: vec![], tail: vec![] };
        (stream, written, waiting)
    }

    fn push(&mut self, frame: &Between) -> Result<(), FrameError> {
        let apart = framing::encode(frame, &mut self.tail)?;
        if !apart.is_empty() {
            self.batch.push(std::mem::take(&mut self.tail).into());
            self.batch.push(apart);
        }
        Ok(())
    }

    /// `false`: the way is no more.
    fn flush(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        if !self.tail.is_empty() {
            batch.push(std::mem::take(&mut self.tail).into());
        }
        let bytes = batch.iter().map(Bytes::len).sum();
        !self.waiting.add(bytes) || self.pieces.send(batch).is_ok()
    }
}

#[derive(Debug)]
enum Way {
    /// Through the coordinator; the direct one may be tried from then on.
    Relayed {
        again_at: Moment,
    },
    /// Through the coordinator as long as it is being opened.
    Opening,
    Open(PeerStream),
}

#[derive(Debug)]
struct Neighbour {
    name: String,
    addresses: Vec<SocketAddr>,
    way: Way,
    /// What leaves with the next flush through the coordinator.
    batch: Vec<u8>,
    /// There is something to flush.
    dirty: bool,
}

impl Neighbour {
    /// Somebody of whom only the number is known.
    fn new() -> Self {
        let way = Way::Relayed { again_at: Moment::ZERO };
        Self { name: String::new(), addresses: vec![], way, batch: vec![], dirty: false }
    }
}

#[derive(Debug)]
pub(super) struct Outgoing {
    frames: Frames,
    requests: UnboundedSender<IoRequest>,
    waiting: Waiting,
    /// The connection that is there.
    session: Option<u64>,
    neighbours: BTreeMap<WorkstationId, Neighbour>,
    dirty: Vec<WorkstationId>,
}

impl Outgoing {
    pub(super) fn new(
        frames: Frames,
        requests: UnboundedSender<IoRequest>,
        waiting: Waiting,
    ) -> Self {
        let (neighbours, dirty) = (BTreeMap::new(), vec![]);
        Self { frames, requests, waiting, session: None, neighbours, dirty }
    }

    pub(super) fn up(&mut self, session: u64) {
        self.session = Some(session);
    }

    pub(super) fn down(&mut self) {
        self.session = None;
    }

    /// Tells the coordinator something of a rank. Without a connection it is
    /// lost: whatever counts is said again on the next one.
    pub(super) fn tell(&self, fence: Fence, life: Life, what: &FromRank) {
        match postcard::to_stdvec(what) {
            Ok(bytes) => self.send(AgentFrame::FromRank { fence, life, bytes }),
            Err(error) => tracing::error!(%error, "cannot write what a rank says"),
        }
    }

    /// Has the link do something.
    pub(super) fn have(&self, request: IoRequest) {
        // An error means that the link is ending.
        let _ = self.requests.send(request);
    }

    fn send(&self, frame: AgentFrame) {
        if let (Some(session), Some(frames)) = (self.session, self.frames.upgrade()) {
            // An error means that the link is ending.
            let _ = frames.send((session, frame));
        }
    }

    // ── other agents ───────────────────────────────────────────────────────

    /// Learns where another agent may be reached. The way there is opened when
    /// there is something to say.
    pub(super) fn learn(&mut self, at: WorkstationId, name: &str, addresses: &[SocketAddr]) {
        let neighbour = self.neighbours.entry(at).or_insert_with(Neighbour::new);
        if neighbour.name != name || neighbour.addresses != addresses {
            name.clone_into(&mut neighbour.name);
            addresses.clone_into(&mut neighbour.addresses);
            if let Way::Relayed { again_at } = &mut neighbour.way {
                *again_at = Moment::ZERO;
            }
        }
    }

    /// The workstation of whoever said something; `None` if the coordinator has
    /// not told of that agent. A name that was given away belongs to the newest
    /// number: no number is given twice.
    pub(super) fn number(&self, peer: &Peer) -> Option<WorkstationId> {
        match peer {
            Peer::Relayed(at) => Some(*at),
            Peer::Direct(name) => {
                let of = |(_, neighbour): &(_, &Neighbour)| neighbour.name == **name;
                self.neighbours.iter().rev().find(of).map(|(at, _)| *at)
            }
        }
    }

    /// Has the direct way opened if it is time to try.
    fn want(
        requests: &UnboundedSender<IoRequest>,
        now: Moment,
        at: WorkstationId,
        neighbour: &mut Neighbour,
    ) {
        let Neighbour { name, addresses, way, .. } = neighbour;
        if matches!(way, Way::Relayed { again_at } if *again_at <= now) && !addresses.is_empty() {
            let (name, addresses) = (name.clone(), addresses.clone());
            if requests.send(IoRequest::PeerStream(Wanted { at, name, addresses })).is_ok() {
                *way = Way::Opening;
            }
        }
    }

    pub(super) fn opened(&mut self, at: WorkstationId, stream: PeerStream) {
        self.neighbours.entry(at).or_insert_with(Neighbour::new).way = Way::Open(stream);
    }

    /// The direct way is no more, or there is none.
    pub(super) fn lost(&mut self, now: Moment, at: WorkstationId) {
        if let Some(neighbour) = self.neighbours.get_mut(&at) {
            neighbour.way = Way::Relayed { again_at: now + AGAIN_AFTER };
        }
    }

    /// Hands a frame to another agent, with the next flush or before.
    pub(super) fn pass(&mut self, now: Moment, to: WorkstationId, frame: &Between) {
        let neighbour = self.neighbours.entry(to).or_insert_with(Neighbour::new);
        Self::want(&self.requests, now, to, neighbour);
        if !std::mem::replace(&mut neighbour.dirty, true) {
            self.dirty.push(to);
        }
        let passed = match &mut neighbour.way {
            Way::Open(stream) => stream.push(frame).map(|()| None),
            Way::Relayed { .. } | Way::Opening => add(&mut neighbour.batch, frame),
        };
        match passed {
            Ok(None) => {}
            Ok(Some(full)) => self.relay(to, full),
            Err(error) => tracing::error!(%error, "cannot write a packet"),
        }
    }

    /// Sends what was passed.
    pub(super) fn flush(&mut self, now: Moment) {
        while let Some(to) = self.dirty.pop() {
            let Some(neighbour) = self.neighbours.get_mut(&to) else { continue };
            neighbour.dirty = false;
            if let Way::Open(stream) = &mut neighbour.way
                && !stream.flush()
            {
                neighbour.way = Way::Relayed { again_at: now + AGAIN_AFTER };
            }
            let batch = std::mem::take(&mut neighbour.batch);
            if !batch.is_empty() {
                self.relay(to, batch);
            }
        }
    }

    fn relay(&self, to: WorkstationId, bytes: Vec<u8>) {
        if self.session.is_some() && self.waiting.add(bytes.len()) {
            self.send(AgentFrame::Relay { to, bytes });
        }
    }
}

/// Adds a frame to a batch; gives the batch before it if both are too much.
fn add(batch: &mut Vec<u8>, frame: &Between) -> Result<Option<Vec<u8>>, FrameError> {
    let before = batch.len();
    framing::encode_whole(frame, batch)?;
    if batch.len() <= RELAYED_BYTES_MAX || before == 0 {
        return Ok(None);
    }
    let last = batch.split_off(before);
    Ok(Some(std::mem::replace(batch, last)))
}
