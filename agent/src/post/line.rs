//! The post's ways out: the coordinator, and through it other agents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::{Life, RELAYED_BYTES_MAX};
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::framing;
use gleaner_program_core::wire::{Between, FromRank};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How much may wait for the coordinator's connection. What comes on top is
/// lost; the ranks' endpoints keep it and send it again.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// What is on its way to the coordinator for other agents, in bytes. The link
/// takes off what it has written.
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

    /// This frame has left, or never will.
    pub(crate) fn done(&self, frame: &AgentFrame) {
        if let AgentFrame::Relay { bytes, .. } = frame {
            self.0.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}

/// Frames for the coordinator's connection of that number.
pub(crate) type Frames = WeakUnboundedSender<(u64, AgentFrame)>;

#[derive(Debug)]
pub(super) struct Line {
    frames: Frames,
    waiting: Waiting,
    /// The connection that is there.
    session: Option<u64>,
    /// What leaves with the next [`Line::flush`], for each workstation.
    batches: BTreeMap<WorkstationId, Vec<u8>>,
}

impl Line {
    pub(super) fn new(frames: Frames, waiting: Waiting) -> Self {
        Self { frames, waiting, session: None, batches: BTreeMap::new() }
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

    fn send(&self, frame: AgentFrame) {
        if let (Some(session), Some(frames)) = (self.session, self.frames.upgrade()) {
            // An error means that the link is ending.
            let _ = frames.send((session, frame));
        }
    }

    /// Hands a frame to another agent, with the next flush or before.
    pub(super) fn pass(&mut self, to: WorkstationId, frame: &Between) {
        if self.session.is_none() {
            return;
        }
        let batch = self.batches.entry(to).or_default();
        let before = batch.len();
        if let Err(error) = framing::encode_whole(frame, batch) {
            return tracing::error!(%error, "cannot write a parcel");
        }
        if batch.len() > RELAYED_BYTES_MAX && before > 0 {
            let last = batch.split_off(before);
            let full = std::mem::replace(batch, last);
            self.relay(to, full);
        }
    }

    /// Sends what was passed.
    pub(super) fn flush(&mut self) {
        while let Some((to, bytes)) = self.batches.pop_first() {
            self.relay(to, bytes);
        }
    }

    fn relay(&self, to: WorkstationId, bytes: Vec<u8>) {
        if self.session.is_some() && self.waiting.add(bytes.len()) {
            self.send(AgentFrame::Relay { to, bytes });
        }
    }
}
