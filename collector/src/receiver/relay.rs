//! One relayed usage stream: frames checked, kept, answered.

use std::collections::BTreeMap;
use std::error::Error;

use gleaner_common::id::BootId;
use gleaner_common::usage::UsageRecord;
use gleaner_common::wire::{Purpose, RECORDS_MAX, UsageFrame, UsageReply, close};
use gleaner_shell::stream::{FrameReader, FrameWriter, OpeningError, StreamError, read_opening};
use quinn::{Connection, RecvStream, SendStream};

use super::writer::LogWriter;
use crate::name::{NameError, WorkstationName};
use crate::segment::{RecordError, check_record};

/// Boots whose records were deferred on one stream. An agent has its own and
/// perhaps the last one's.
const DEFERRED_BOOTS_MAX: usize = 64;

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

/// Why a frame of records is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFrame {
    #[error("{0} records in a frame: expected 1 to {RECORDS_MAX}")]
    Count(usize),
    #[error("records of several boots in one frame")]
    SeveralBoots,
    #[error("record {after} after record {before}: expected the order of sequence")]
    Order { before: u64, after: u64 },
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("records of more than {DEFERRED_BOOTS_MAX} boots wait for the disk")]
    TooManyBoots,
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
    let mut order = DeferredBoots::default();
    loop {
        let next = frames.next::<UsageFrame>().await;
        let frame = next.map_err(|source| RelayError::Stream { name: name.clone(), source })?;
        let Some(UsageFrame::Records(records)) = frame else { return Ok(()) };
        let bad = |source| RelayError::Frame { name: name.clone(), source };
        let part = check(&records).map_err(bad)?;
        let reply = match order.may_take(part) {
            Ok(()) => {
                let Some(answer) = writer.append(name.clone(), records).await else {
                    return Ok(());
                };
                if let Err(error) = &answer {
                    order.defer(part, &name, &spoken(error.as_ref())).map_err(bad)?;
                }
                answer.map_err(|error| spoken(error.as_ref()))
            }
            Err(reason) => Err(reason),
        };
        let reply = match reply {
            Ok(_) => {
                order.taken(part, &name);
                UsageReply::Confirmed { boot: part.boot, sequence: part.last }
            }
            Err(reason) => UsageReply::Deferred { reason },
        };
        let sent = replies.send(&reply).await;
        sent.map_err(|source| RelayError::Stream { name: name.clone(), source })?;
    }
}

/// An error with its sources, on one line.
fn spoken(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Which records a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameRange {
    boot: BootId,
    first: u64,
    last: u64,
}

fn check(records: &[UsageRecord]) -> Result<FrameRange, BadFrame> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Err(BadFrame::Count(0));
    };
    if records.len() > RECORDS_MAX {
        return Err(BadFrame::Count(records.len()));
    }
    for pair in records.windows(2) {
        if pair[0].boot != pair[1].boot {
            return Err(BadFrame::SeveralBoots);
        }
        let (before, after) = (pair[0].sequence, pair[1].sequence);
        if after <= before {
            return Err(BadFrame::Order { before, after });
        }
    }
    records.iter().try_for_each(check_record)?;
    Ok(FrameRange { boot: first.boot, first: first.sequence, last: last.sequence })
}

/// What was deferred on this stream and must come again before anything
/// behind it: a confirmation tells the agent to forget all that came before.
#[derive(Debug, Default)]
struct DeferredBoots {
    deferred: BTreeMap<BootId, (u64, String)>,
}

impl DeferredBoots {
    /// # Errors
    /// The reason for which earlier records wait.
    fn may_take(&self, part: FrameRange) -> Result<(), String> {
        match self.deferred.get(&part.boot) {
            Some((first, reason)) if part.first > *first => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    fn defer(
        &mut self,
        part: FrameRange,
        name: &WorkstationName,
        reason: &str,
    ) -> Result<(), BadFrame> {
        if !self.deferred.contains_key(&part.boot) {
            tracing::error!(workstation = %name, "records wait at their agent: {reason}");
        }
        self.deferred.insert(part.boot, (part.first, reason.to_owned()));
        if self.deferred.len() > DEFERRED_BOOTS_MAX {
            return Err(BadFrame::TooManyBoots);
        }
        Ok(())
    }

    fn taken(&mut self, part: FrameRange, name: &WorkstationName) {
        if self.deferred.remove(&part.boot).is_some() {
            tracing::info!(workstation = %name, "records that waited are on disk");
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::usage::Cause;

    use super::*;
    use crate::segment::tests::{name, record};

    fn records(sequences: &[u64]) -> Vec<UsageRecord> {
        sequences.iter().map(|sequence| record(*sequence, *sequence, Cause::Tty)).collect()
    }

    #[test]
    fn a_frame_out_of_its_bounds_is_refused() {
        assert_eq!(check(&[]), Err(BadFrame::Count(0)));
        let many: Vec<_> = (1..=RECORDS_MAX as u64 + 1).collect();
        assert_eq!(check(&records(&many)), Err(BadFrame::Count(RECORDS_MAX + 1)));
        let order = BadFrame::Order { before: 2, after: 2 };
        assert_eq!(check(&records(&[1, 2, 2])), Err(order));
        let mut two_boots = records(&[1, 2]);
        two_boots[1].boot = BootId([8; 16]);
        assert_eq!(check(&two_boots), Err(BadFrame::SeveralBoots));
        let mut long = records(&[1]);
        long[0].reason = "x".repeat(201);
        let too_long = RecordError::ReasonTooLong { sequence: 1, bytes: 201 };
        assert_eq!(check(&long), Err(BadFrame::Record(too_long)));
    }

    #[test]
    fn nothing_behind_a_deferred_record_is_confirmed() {
        let part = |first, last| FrameRange { boot: BootId([7; 16]), first, last };
        let (mut order, ada) = (DeferredBoots::default(), name("ada"));
        order.defer(part(3, 5), &ada, "no space left").unwrap();
        assert_eq!(order.may_take(part(6, 9)), Err("no space left".into()));
        assert_eq!(order.may_take(part(3, 4)), Ok(()));
        order.taken(part(3, 4), &ada);
        assert_eq!(order.may_take(part(5, 9)), Ok(()));
    }
}
