//! Usage streams, passed through to the collector: its records are none of
//! the coordinator's business, it only knows where both ends are.

use std::sync::{Arc, Mutex, PoisonError};

use gleaner_common::wire::{Purpose, Role, close};
use gleaner_coordinator_core::directory::IdentityRecord;
use gleaner_shell::stream::{FrameReader, FrameWriter};
use quinn::{Connection, RecvStream, SendStream, VarInt};

use super::splice::{self, OpenError};
use super::{Peer, Shared};

/// The collector's connection, the newest if there were several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(Arc<Mutex<Option<Connection>>>);

impl Collector {
    pub(crate) fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Remembers the connection if it is a collector's, until the result is
    /// dropped. An older one is closed.
    pub(super) fn enter(
        &self,
        identity: &IdentityRecord,
        connection: &Connection,
    ) -> Option<Entered> {
        if identity.role != Role::Collector {
            return None;
        }
        let older = self.slot().replace(connection.clone());
        if let Some(older) = older {
            older.close(VarInt::from_u32(close::REPLACED), b"another connection took over");
        }
        tracing::info!("collector {} connected", identity.name);
        Some(Entered { collector: self.clone(), id: connection.stable_id() })
    }

    fn current(&self) -> Option<Connection> {
        self.slot().clone()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The collector counts as connected while this lives.
pub(super) struct Entered {
    collector: Collector,
    id: usize,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut slot = self.collector.slot();
        if slot.as_ref().is_some_and(|connection| connection.stable_id() == self.id) {
            *slot = None;
            tracing::info!("the collector left");
        }
    }
}

/// Passes an agent's stream on. Without a collector the stream is given up
/// with a code that says so, and the agent keeps its records.
pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    let Some(streams) = open(&shared, &peer).await else {
        writer.reset(close::NO_COLLECTOR);
        reader.stop(close::NO_COLLECTOR);
        return;
    };
    splice::splice((writer, reader), streams, close::NO_COLLECTOR).await;
}

async fn open(shared: &Arc<Shared>, peer: &Arc<Peer>) -> Option<(SendStream, RecvStream)> {
    let collector = shared.collector.current()?;
    let workstation = peer.identity.workstation?;
    let purpose = Purpose::Relay { workstation, name: peer.name().to_owned() };
    let opened = splice::open(&collector, purpose).await;
    match &opened {
        Ok(_) => {}
        Err(late @ OpenError::Late) => shared.limited_log.log(format_args!("the collector {late}")),
        Err(error @ OpenError::Stream(_)) => tracing::debug!("the collector {error}"),
    }
    opened.ok()
}
