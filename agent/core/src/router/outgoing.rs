//! The router's ways out: the coordinator, other agents, and the coordinator
//! for other agents that cannot be reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use gleaner_common::frame::FrameError;
use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::{Life, RELAYED_BYTES_MAX};
use gleaner_common::time::Moment;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::framing;
use gleaner_program_core::wire::{Between, FromRank};

use super::command::Peer;
use super::shell::{IoRequest, Note, Shell, Wanted, Way as _};

/// How long the other way is taken before the direct one is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Reach<W> {
    /// Through the coordinator; the direct one may be tried from then on.
    Relayed {
        again_at: Moment,
    },
    /// Through the coordinator as long as it is being opened.
    Opening,
    Open(W),
}

#[derive(Debug)]
struct Neighbour<W> {
    name: String,
    addresses: Vec<SocketAddr>,
    way: Reach<W>,
    /// What leaves with the next flush through the coordinator.
    batch: Vec<u8>,
    /// There is something to flush.
    dirty: bool,
}

impl<W> Neighbour<W> {
    /// Somebody of whom only the number is known.
    fn new() -> Self {
        let way = Reach::Relayed { again_at: Moment::ZERO };
        Self { name: String::new(), addresses: vec![], way, batch: vec![], dirty: false }
    }
}

#[derive(Debug)]
pub(super) struct Outgoing<S: Shell> {
    pub(super) shell: S,
    /// The connection that is there.
    session: Option<u64>,
    neighbours: BTreeMap<WorkstationId, Neighbour<S::Way>>,
    dirty: Vec<WorkstationId>,
}

impl<S: Shell> Outgoing<S> {
    pub(super) fn new(shell: S) -> Self {
        Self { shell, session: None, neighbours: BTreeMap::new(), dirty: vec![] }
    }

    pub(super) fn up(&mut self, session: u64) {
        self.session = Some(session);
    }

    pub(super) fn down(&mut self) {
        self.session = None;
    }

    /// Tells the coordinator something of a rank. Without a connection it is
    /// lost: whatever counts is said again on the next one.
    pub(super) fn tell(&mut self, fence: Fence, life: Life, what: &FromRank) {
        match postcard::to_stdvec(what) {
            Ok(bytes) => self.send(AgentFrame::FromRank { fence, life, bytes }),
            Err(error) => self.shell.note(Note::Unwritten { error: error.to_string() }),
        }
    }

    fn send(&mut self, frame: AgentFrame) {
        if let Some(session) = self.session {
            self.shell.send(session, frame);
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
            if let Reach::Relayed { again_at } = &mut neighbour.way {
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
                let of = |(_, neighbour): &(_, &Neighbour<_>)| neighbour.name == **name;
                self.neighbours.iter().rev().find(of).map(|(at, _)| *at)
            }
        }
    }

    /// Has the direct way opened if it is time to try.
    fn want(shell: &mut S, now: Moment, at: WorkstationId, neighbour: &mut Neighbour<S::Way>) {
        let Neighbour { name, addresses, way, .. } = neighbour;
        if matches!(way, Reach::Relayed { again_at } if *again_at <= now) && !addresses.is_empty() {
            let (name, addresses) = (name.clone(), addresses.clone());
            if shell.have(IoRequest::PeerStream(Wanted { at, name, addresses })) {
                *way = Reach::Opening;
            }
        }
    }

    pub(super) fn opened(&mut self, at: WorkstationId, way: S::Way) {
        self.neighbours.entry(at).or_insert_with(Neighbour::new).way = Reach::Open(way);
    }

    /// The direct way is no more, or there is none.
    pub(super) fn lost(&mut self, now: Moment, at: WorkstationId) {
        if let Some(neighbour) = self.neighbours.get_mut(&at) {
            neighbour.way = Reach::Relayed { again_at: now + AGAIN_AFTER };
        }
    }

    /// Hands a frame to another agent, with the next flush or before.
    pub(super) fn pass(&mut self, now: Moment, to: WorkstationId, frame: &Between) {
        let neighbour = self.neighbours.entry(to).or_insert_with(Neighbour::new);
        Self::want(&mut self.shell, now, to, neighbour);
        if !std::mem::replace(&mut neighbour.dirty, true) {
            self.dirty.push(to);
        }
        let passed = match &mut neighbour.way {
            Reach::Open(way) => way.push(frame).map(|()| None),
            Reach::Relayed { .. } | Reach::Opening => add(&mut neighbour.batch, frame),
        };
        match passed {
            Ok(None) => {}
            Ok(Some(full)) => self.relay(to, full),
            Err(error) => self.shell.note(Note::Unwritten { error: error.to_string() }),
        }
    }

    /// Sends what was passed.
    pub(super) fn flush(&mut self, now: Moment) {
        while let Some(to) = self.dirty.pop() {
            let Some(neighbour) = self.neighbours.get_mut(&to) else { continue };
            neighbour.dirty = false;
            if let Reach::Open(way) = &mut neighbour.way
                && !way.flush()
            {
                neighbour.way = Reach::Relayed { again_at: now + AGAIN_AFTER };
            }
            let batch = std::mem::take(&mut neighbour.batch);
            if !batch.is_empty() {
                self.relay(to, batch);
            }
        }
    }

    fn relay(&mut self, to: WorkstationId, bytes: Vec<u8>) {
        self.send(AgentFrame::Relay { to, bytes });
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
