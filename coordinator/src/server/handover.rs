//! Handing an attempt over between two agents that cannot reach each other: the
//! stream is passed on to the other's connection, unread.
//!
//! The promise: nothing is passed on but what the coordinator has ordered to
//! be carried from the one to the other.

use std::sync::Arc;

use gleaner_common::id::{SubprogramId, WorkstationId};
use gleaner_common::program::{Handover, HandoverReply};
use gleaner_common::wire::{Purpose, close};
use gleaner_shell::stream::{FrameReader, FrameWriter};
use quinn::{RecvStream, SendStream};

use super::splice::{self, OpenError};
use super::{Peer, Shared};
use crate::brain::Stopping;

/// Why an attempt is not passed on.
#[derive(Debug, thiserror::Error)]
enum HandoverError {
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error("{subprogram} is not to be carried to {name}")]
    NotOrdered { subprogram: SubprogramId, name: String },
    #[error("{name} is not connected to the coordinator")]
    NotConnected { name: String },
    #[error("{name} {why}")]
    NotOpened { name: String, why: OpenError },
}

pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    (to, what): (WorkstationId, Box<Handover>),
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    match open(&shared, &peer, to, what).await {
        Ok(streams) => splice::splice((writer, reader), streams, close::NO_AGENT).await,
        Err(error) => {
            tracing::debug!("{} cannot hand over: {error}", peer.name());
            // The agent reads the answer, or finds its stream stopped.
            let reason = error.to_string();
            if writer.send(&HandoverReply::No { reason }).await.is_ok() {
                writer.finish();
            }
            reader.stop(close::NO_AGENT);
        }
    }
}

async fn open(
    shared: &Arc<Shared>,
    peer: &Peer,
    to: WorkstationId,
    what: Box<Handover>,
) -> Result<(SendStream, RecvStream), HandoverError> {
    let name = shared.workstation_name(to);
    let (from, asked) = (peer.identity.workstation, what.clone());
    let look = |from| shared.brain.look(move |core, _| core.carries(from, to, &asked));
    let is_ordered = match from {
        Some(from) => look(from).await?,
        None => false,
    };
    if !is_ordered {
        return Err(HandoverError::NotOrdered { subprogram: what.subprogram, name });
    }
    let Some(connection) = shared.agents.connection(to) else {
        return Err(HandoverError::NotConnected { name });
    };
    let opened = splice::open(&connection, Purpose::Handover { to, what }).await;
    opened.map_err(|why| HandoverError::NotOpened { name, why })
}
