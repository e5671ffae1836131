//! The connected agents, for what they send each other through the coordinator.
//!
//! The promise: what is relayed never delays the coordinator's own frames to an
//! agent for long, and costs no memory beyond a bound: what does not fit is
//! dropped, as a network would.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_common::id::WorkstationId;
use gleaner_common::wire::CoordinatorFrame;
use gleaner_coordinator_core::Link;
use quinn::Connection;

use crate::brain::LinkedPeer;

/// What may wait for one agent when something relayed is added: an eighth of
/// a second on a 100 Mb/s network.
const RELAYED_WAITING_BYTES_MAX: usize = 1 << 20;

/// The connected agents, each with the serial number of its connection. Clone
/// it freely.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents(Arc<Mutex<BTreeMap<WorkstationId, (u64, LinkedPeer)>>>);

impl Agents {
    /// An agent has been welcomed on this connection.
    pub(crate) fn enter(&self, link: Link, peer: LinkedPeer) {
        self.agents().insert(link.workstation, (link.serial, peer));
    }

    /// An agent does not use this connection any more.
    pub(crate) fn leave(&self, link: Link) {
        let mut agents = self.agents();
        if agents.get(&link.workstation).is_some_and(|(serial, _)| *serial == link.serial) {
            agents.remove(&link.workstation);
        }
    }

    /// Passes bytes on to another agent, if that is possible now.
    pub(crate) fn relay(&self, from: WorkstationId, to: WorkstationId, bytes: Vec<u8>) {
        let outbox = self.agents().get(&to).map(|(_, peer)| peer.outbox.clone());
        if let Some(outbox) = outbox {
            let frame = CoordinatorFrame::Relayed { from, bytes };
            outbox.put_if_room(&frame, RELAYED_WAITING_BYTES_MAX);
        }
    }

    pub(crate) fn connection(&self, to: WorkstationId) -> Option<Connection> {
        self.agents().get(&to).map(|(_, peer)| peer.connection.clone())
    }

    fn agents(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkstationId, (u64, LinkedPeer)>> {
        // Nothing under this lock leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
