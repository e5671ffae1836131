//! The queues of the router's ways out: to the coordinator and to other agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gleaner_agent_core::router;
use gleaner_common::frame::FrameError;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::framing;
use gleaner_program_core::wire::Between;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender};

/// How much may wait for one way. What comes on top is lost; the ranks'
/// endpoints keep it and send it again.
const WAITING_BYTES_MAX: usize = 64 << 20;

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

    /// This frame waits now, if there is room for it.
    pub(super) fn begin(&self, frame: &AgentFrame) -> bool {
        if let AgentFrame::Relay { bytes, .. } = frame { self.add(bytes.len()) } else { true }
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
}

impl router::Way for PeerStream {
    fn push(&mut self, frame: &Between) -> Result<(), FrameError> {
        let apart = framing::encode(frame, &mut self.tail)?;
        if !apart.is_empty() {
            self.batch.push(std::mem::take(&mut self.tail).into());
            self.batch.push(apart);
        }
        Ok(())
    }

    fn flush(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        if !self.tail.is_empty() {
            batch.push(std::mem::take(&mut self.tail).into());
        }
        let bytes = batch.iter().map(Bytes::len).sum();
        !self.waiting.add(bytes) || self.pieces.send(batch).is_ok()
    }
}
