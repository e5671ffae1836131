//! One relayed usage stream: frames checked, kept, answered.

use gleaner_collector_core::stream::{BadFrame, FrameRange, Intake, UsageStream};
use gleaner_common::wire::{Purpose, UsageFrame, UsageReply, close};
use gleaner_shell::stream::{FrameReader, FrameWriter, OpeningError, StreamError, read_opening};
use quinn::{Connection, RecvStream, SendStream};

use super::writer::{Answer, LogWriter};
use crate::name::{NameError, WorkstationName};
use crate::store::{Batch, spoken};

/// Why a stream is given up.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error(transparent)]
    Opening(#[from] OpeningError),
    #[error("a stream that is not a relayed usage stream")]
    OtherPurpose,
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("usage of {name}: {source}")]
    Frame { name: WorkstationName, source: BadFrame },
    #[error("usage of {name}: {source}")]
    Stream { name: WorkstationName, source: StreamError },
}

pub(super) async fn serve(
    connection: Connection,
    stream: (SendStream, RecvStream),
    writer: LogWriter,
) {
    match relay(stream, &writer).await {
        Ok(()) => {}
        Err(RelayError::Opening(error @ OpeningError::Version { .. })) => {
            tracing::warn!("{error}");
            error.refuse(&connection);
        }
        // Agents come and go, and their streams with them.
        Err(
            error @ RelayError::Stream {
                source: StreamError::Reset { .. } | StreamError::Ended(_),
                ..
            },
        ) => {
            tracing::debug!("{error}");
        }
        Err(error) => tracing::warn!("{error}"),
    }
}

async fn relay(stream: (SendStream, RecvStream), writer: &LogWriter) -> Result<(), RelayError> {
    let (purpose, mut replies, mut frames) = read_opening(stream).await?;
    let outcome = match purpose {
        Purpose::Relay { name, .. } => match name.parse() {
            Ok(name) => take_in(name, &mut replies, &mut frames, writer).await,
            Err(error) => Err(error.into()),
        },
        Purpose::Agent
        | Purpose::Usage
        | Purpose::Request
        | Purpose::Put { .. }
        | Purpose::Get { .. }
        | Purpose::Enrol
        | Purpose::Packets
        | Purpose::Handover { .. } => Err(RelayError::OtherPurpose),
    };
    if outcome.is_ok() {
        replies.finish();
    } else {
        replies.reset(close::PROTOCOL);
        frames.stop(close::PROTOCOL);
    }
    outcome
}

async fn take_in(
    name: WorkstationName,
    replies: &mut FrameWriter,
    frames: &mut FrameReader,
    writer: &LogWriter,
) -> Result<(), RelayError> {
    tracing::debug!(workstation = %name, "receiving usage records");
    let mut stream = UsageStream::default();
    loop {
        let next = frames.next::<UsageFrame>().await;
        let frame = next.map_err(|source| RelayError::Stream { name: name.clone(), source })?;
        let Some(frame) = frame else { return Ok(()) };
        let bad = |source| RelayError::Frame { name: name.clone(), source };
        let reply = match stream.hear(frame).map_err(bad)? {
            Intake::Answer(reply) => reply,
            Intake::Lives(lives) => {
                let batch = Batch { name: name.clone(), lives, records: vec![] };
                let Some(answer) = writer.append(batch).await else { return Ok(()) };
                looked_up(&stream, &name, answer)
            }
            Intake::Records(range, records) => {
                let batch = Batch::of(name.clone(), records);
                let Some(answer) = writer.append(batch).await else { return Ok(()) };
                kept(&mut stream, &name, range, answer).map_err(bad)?
            }
        };
        let sent = replies.send(&reply).await;
        sent.map_err(|source| RelayError::Stream { name: name.clone(), source })?;
    }
}

fn looked_up(stream: &UsageStream, name: &WorkstationName, answer: Answer) -> UsageReply {
    match answer {
        Ok(appended) => {
            if appended.gone > 0 {
                tracing::error!(
                    workstation = %name,
                    "{} usage records that were confirmed are not here any more: was an older \
                     copy of the data restored? Their agent sends what it still has",
                    appended.gone
                );
            }
            stream.looked_up(appended)
        }
        Err(error) => UsageReply::Deferred { reason: spoken(error.as_ref()) },
    }
}

fn kept(
    stream: &mut UsageStream,
    name: &WorkstationName,
    range: FrameRange,
    answer: Answer,
) -> Result<UsageReply, BadFrame> {
    match answer {
        Ok(_) => {
            let (reply, waited) = stream.kept(range);
            if waited {
                tracing::info!(workstation = %name, "records that waited are on disk");
            }
            Ok(reply)
        }
        Err(error) => {
            let reason = spoken(error.as_ref());
            let (reply, is_new) = stream.failed(range, reason.clone())?;
            if is_new {
                tracing::error!(workstation = %name, "records wait at their agent: {reason}");
            }
            Ok(reply)
        }
    }
}
