//! One workstation's usage stream: which frames are taken in, and what is answered.
//!
//! The promise: while a stream has records that were deferred, nothing behind them is
//! confirmed, for a confirmation tells the agent to forget all that came before.

use std::collections::BTreeMap;

use gleaner_common::id::SpoolLife;
use gleaner_common::usage::{LifeAccount, UsageRecord};
use gleaner_common::wire::{LIVES_MAX, RECORDS_MAX, UsageFrame, UsageReply};

use crate::log::Appended;
use crate::segment::{RecordError, check_record};

/// Lives whose records were deferred on one stream. An agent has its own and
/// perhaps the last ones.
const DEFERRED_LIVES_MAX: usize = LIVES_MAX;

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("{0} records in a frame: expected 1 to {RECORDS_MAX}")]
    Count(usize),
    #[error("{0} lives in a frame: expected at most {LIVES_MAX}")]
    Lives(usize),
    #[error("records of several lives in one frame")]
    SeveralLives,
    #[error("record {after} after record {before}: expected the order of sequence")]
    Order { before: u64, after: u64 },
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("records of more than {DEFERRED_LIVES_MAX} lives wait for the disk")]
    TooManyLives,
}

/// What is to be done with a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Intake {
    /// Keep them, and tell the stream how that went.
    Records(FrameRange, Vec<UsageRecord>),
    /// Look them up, and tell the stream.
    Lives(Vec<LifeAccount>),
    /// Nothing: this is the answer.
    Answer(UsageReply),
}

/// Which records a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    life: SpoolLife,
    first: u64,
    last: u64,
}

/// What was deferred on a stream and must come again before anything behind it.
#[derive(Debug, Default)]
pub struct UsageStream {
    deferred: BTreeMap<SpoolLife, (u64, String)>,
}

impl UsageStream {
    /// # Errors
    /// A frame that an agent of ours does not send.
    pub fn hear(&mut self, frame: UsageFrame) -> Result<Intake, BadFrame> {
        match frame {
            UsageFrame::Lives(lives) if lives.len() > LIVES_MAX => {
                Err(BadFrame::Lives(lives.len()))
            }
            UsageFrame::Lives(lives) => Ok(Intake::Lives(lives)),
            UsageFrame::Records(records) => {
                let range = check(&records)?;
                match self.deferred.get(&range.life) {
                    Some((first, reason)) if range.first > *first => {
                        Ok(Intake::Answer(UsageReply::Deferred { reason: reason.clone() }))
                    }
                    _ => Ok(Intake::Records(range, records)),
                }
            }
        }
    }

    /// The records are on disk. True if they had been deferred.
    pub fn kept(&mut self, range: FrameRange) -> (UsageReply, bool) {
        let waited = self.deferred.remove(&range.life).is_some();
        (UsageReply::Confirmed { life: range.life, sequence: range.last }, waited)
    }

    /// The records are not on disk. True if they are the first of their life.
    ///
    /// # Errors
    /// This happened to more lives than an agent has.
    pub fn failed(
        &mut self,
        range: FrameRange,
        reason: String,
    ) -> Result<(UsageReply, bool), BadFrame> {
        let is_new = self.deferred.insert(range.life, (range.first, reason.clone())).is_none();
        if self.deferred.len() > DEFERRED_LIVES_MAX {
            return Err(BadFrame::TooManyLives);
        }
        Ok((UsageReply::Deferred { reason }, is_new))
    }

    /// What is on disk of the lives that were asked for.
    pub fn looked_up(&self, appended: Appended) -> UsageReply {
        UsageReply::Kept(appended.kept)
    }
}

fn check(records: &[UsageRecord]) -> Result<FrameRange, BadFrame> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Err(BadFrame::Count(0));
    };
    if records.len() > RECORDS_MAX {
        return Err(BadFrame::Count(records.len()));
    }
    for pair in records.windows(2) {
        if pair[0].life != pair[1].life {
            return Err(BadFrame::SeveralLives);
        }
        let (before, after) = (pair[0].sequence, pair[1].sequence);
        if after <= before {
            return Err(BadFrame::Order { before, after });
        }
    }
    records.iter().try_for_each(check_record)?;
    Ok(FrameRange { life: first.life, first: first.sequence, last: last.sequence })
}

#[cfg(test)]
mod tests {
    use gleaner_common::usage::Cause;

    use super::*;
    use crate::samples::record;

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
        let mut two_lives = records(&[1, 2]);
        two_lives[1].life = SpoolLife([9; 16]);
        assert_eq!(check(&two_lives), Err(BadFrame::SeveralLives));
        let mut long = records(&[1]);
        long[0].reason = "x".repeat(201);
        let too_long = RecordError::ReasonTooLong { sequence: 1, bytes: 201 };
        assert_eq!(check(&long), Err(BadFrame::Record(too_long)));
    }

    #[test]
    fn nothing_behind_a_deferred_record_is_confirmed() {
        let mut stream = UsageStream::default();
        let hear = |stream: &mut UsageStream, sequences: &[u64]| match stream
            .hear(UsageFrame::Records(records(sequences)))
            .unwrap()
        {
            Intake::Records(range, _) => Some(range),
            Intake::Lives(_) | Intake::Answer(_) => None,
        };
        let range = hear(&mut stream, &[3, 4, 5]).unwrap();
        let (_, is_new) = stream.failed(range, "no space left".into()).unwrap();
        assert!(is_new);
        assert_eq!(hear(&mut stream, &[6, 9]), None);
        let range = hear(&mut stream, &[3, 4]).unwrap();
        assert!(stream.kept(range).1);
        assert!(hear(&mut stream, &[5, 9]).is_some());
    }
}
