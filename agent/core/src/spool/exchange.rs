//! One usage stream to the collector, from the spool's side.
//!
//! ```text
//! Lives ─► Kept ─► .. ─► Records ─► Confirmed ─► Records ─► ..       one frame at a time
//! ```
//!
//! The promise: what the collector answers beside the question harms nothing.

use gleaner_common::disk::Disk;
use gleaner_common::id::SpoolLife;
use gleaner_common::wire::{RECORDS_MAX, UsageFrame, UsageReply};

use super::{Note, Spool};

/// The collector keeps nothing for now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred(pub String);

/// What the next reply should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Awaited {
    /// The stream has just been opened.
    #[default]
    Opening,
    Nothing,
    Kept,
    Confirmed(SpoolLife, u64),
}

/// A stream's state.
#[derive(Debug, Default)]
pub struct Exchange {
    awaited: Awaited,
}

impl Exchange {
    /// What is to be sent now; `None` while an answer is awaited, or nothing waits.
    pub fn next_frame(&mut self, spool: &mut Spool) -> Option<UsageFrame> {
        match self.awaited {
            Awaited::Kept | Awaited::Confirmed(..) => return None,
            Awaited::Nothing if !spool.untold => {}
            Awaited::Opening | Awaited::Nothing => {
                if self.awaited == Awaited::Opening {
                    spool.ask_for_all();
                }
                self.awaited = Awaited::Kept;
                return Some(UsageFrame::Lives(spool.ask()));
            }
        }
        let batch = spool.batch(RECORDS_MAX);
        let last = batch.last()?;
        self.awaited = Awaited::Confirmed(last.life, last.sequence);
        Some(UsageFrame::Records(batch))
    }

    /// Takes an answer; `fresh` is drawn for a life that may have to begin.
    ///
    /// # Errors
    /// The collector asks to be left alone for a while: the stream is to be given up.
    pub fn hear(
        &mut self,
        disk: &mut dyn Disk,
        spool: &mut Spool,
        reply: UsageReply,
        fresh: SpoolLife,
    ) -> Result<Vec<Note>, Deferred> {
        match reply {
            UsageReply::Kept(kept) => {
                if self.awaited != Awaited::Kept {
                    return Ok(vec![]);
                }
                self.awaited = Awaited::Nothing;
                Ok(spool.agree(disk, &kept, fresh))
            }
            UsageReply::Confirmed { life, sequence } => {
                let expected = self.awaited == Awaited::Confirmed(life, sequence);
                if !expected {
                    return Ok(vec![Note::Nonsense { life, sequence }]);
                }
                self.awaited = Awaited::Nothing;
                Ok(spool.confirm(disk, life, sequence).into_iter().collect())
            }
            UsageReply::Deferred { reason } => {
                // What was asked is asked again on the next stream.
                spool.untold |= self.awaited == Awaited::Kept;
                Err(Deferred(reason))
            }
        }
    }
}
