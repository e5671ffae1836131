//! What was delivered to the program, in order: the queue while there is no
//! process, and afterwards what a rollback needs.
//!
//! A program goes back to a boundary. What it had received before is in its
//! saved state; everything else that was ever delivered has to be delivered
//! again, in the same order. So an entry is kept until the first boundary
//! after it was received ("matched").
//!
//! The same order is enough for a program that waits for any rank or tag to
//! receive the same again: receives take the earliest delivered message that
//! fits, in the order of the receives, and that matching does not depend on
//! when each arrives (both sides prefer the earlier, so it is the only stable
//! one). A program that asks whether something has arrived can see more.

use std::collections::VecDeque;

use crate::address::{PIECE_BYTES_MAX, Part, Rank, Request, cost};
use crate::packed::{COUNT_MAX, Entry, Mark, PackedLog, What, ensure};
use crate::wire::Answer;

impl What {
    fn cost(&self) -> u64 {
        match self {
            Self::Piece { payload, .. } => cost(payload.len()),
            Self::Answer { answer, .. } => match answer {
                Answer::Task { bytes, .. } | Answer::Result { bytes, .. } => cost(bytes.len()),
                Answer::Spawned { .. }
                | Answer::Left
                | Answer::Processors { .. }
                | Answer::NoMoreTasks
                | Answer::Done { .. }
                | Answer::Returned
                | Answer::Put { .. }
                | Answer::Closed
                | Answer::NoMoreResults
                | Answer::BagClosed
                | Answer::TooMany { .. }
                | Answer::Declined { .. }
                | Answer::Noted
                | Answer::Negotiated(_) => cost(0),
            },
        }
    }
}

/// Is there still place?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Enough,
    /// Half full: the program should save.
    Half,
    /// What was received since the last boundary is forgotten: there is no
    /// way back before the next one.
    Full,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Log {
    /// 0: nothing is kept once it is given to the program.
    bytes_max: u64,
    entries: VecDeque<Entry>,
    /// The newest number, and up to which all is given to the process.
    last: u64,
    given: u64,
    saves: u64,
    bytes: u64,
    /// Half full was said.
    said: bool,
    /// The process holds more than could be kept.
    given_up: bool,
}

impl Log {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            entries: VecDeque::new(),
            last: 0,
            given: 0,
            saves: 0,
            bytes: 0,
            said: false,
            given_up: false,
        }
    }

    pub(crate) fn keeps(&self) -> bool {
        self.bytes_max > 0 && !self.given_up
    }

    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Takes what has arrived. With `present` the caller gives it to the
    /// program at once.
    pub(crate) fn push(&mut self, message: u64, what: What, present: bool) {
        self.last += 1;
        if present {
            self.given = self.last;
            if !self.keeps() {
                return;
            }
        }
        self.bytes += what.cost();
        self.entries.push_back(Entry { number: self.last, message, what, matched: None });
    }

    /// Gives what is waiting to `give`, in order.
    pub(crate) fn give(&mut self, mut give: impl FnMut(&Entry)) {
        let first = self.entries.partition_point(|entry| entry.number <= self.given);
        self.entries.range(first..).for_each(&mut give);
        self.given = self.last;
        if !self.keeps() {
            self.entries.clear();
            self.bytes = 0;
        }
    }

    /// What is waiting for a process.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        let first = self.entries.partition_point(|entry| entry.number <= self.given);
        self.entries.range(first..)
    }

    /// The program has received the message that begins with this number.
    pub(crate) fn matched(&mut self, message: u64) {
        let first = self.entries.partition_point(|entry| entry.number < message);
        // Forgotten, or never delivered.
        if self.entries.get(first).is_none_or(|entry| entry.number != message) {
            return;
        }
        let saves = self.saves;
        for entry in self.entries.range_mut(first..).filter(|entry| entry.message == message) {
            entry.matched = Some(saves);
            if let What::Piece { envelope, .. } = &entry.what
                && matches!(envelope.part, Part::Whole | Part::Last)
            {
                return;
            }
        }
    }

    /// The program saves its state: what it receives from now on is after
    /// the boundary. Returns what to say to `forget_before` once it is kept.
    pub(crate) fn save(&mut self) -> u64 {
        self.saves += 1;
        self.saves
    }

    /// What was received before this save will not be delivered again, nor
    /// the answers to questions up to `asked`: who asks waits. An image is
    /// taken while somebody waits, so it has only what was `given` until then.
    pub(crate) fn forget_before(&mut self, save: u64, asked: Request, given: Option<u64>) {
        self.retain(|entry| match entry.what {
            What::Piece { .. } => entry.matched.is_none_or(|matched| matched >= save),
            What::Answer { request, .. } => {
                request > asked || given.is_some_and(|given| entry.number > given)
            }
        });
        self.said = false;
    }

    /// Looks whether there is still place, and makes some if there is none.
    pub(crate) fn fill(&mut self, asked: Request) -> Fill {
        if !self.keeps() || self.bytes <= self.bytes_max / 2 {
            return Fill::Enough;
        }
        if self.bytes <= self.bytes_max {
            let said = std::mem::replace(&mut self.said, true);
            return if said { Fill::Enough } else { Fill::Half };
        }
        self.forget_received(asked);
        Fill::Full
    }

    /// Makes place: forgets what the program has received, and the answers up
    /// to what it has asked. A program that has not received more than there is place
    /// for has no way back as long as its process lives.
    pub(crate) fn forget_received(&mut self, asked: Request) {
        let given = self.given;
        self.retain(|entry| match entry.what {
            _ if entry.number > given => true,
            What::Piece { .. } => entry.matched.is_none(),
            What::Answer { request, .. } => request > asked,
        });
        self.said = false;
        if self.bytes > self.bytes_max {
            self.given_up = true;
            self.retain(|entry| entry.number > given);
        }
    }

    /// A process at a boundary begins. An image's memory has what was given
    /// until then (and what was given up while that was in it stays so); a
    /// new process has nothing.
    pub(crate) fn go_back(&mut self, image: Option<u64>) {
        self.given = image.unwrap_or(0);
        self.given_up &= image.is_some();
        self.entries.iter_mut().for_each(|entry| entry.matched = None);
    }

    /// The process that was given all this is gone, and no way leads back.
    pub(crate) fn forget_given(&mut self) {
        let given = self.given;
        self.retain(|entry| entry.number > given);
        self.given_up = false;
    }

    /// Whoever asked is gone.
    pub(crate) fn forget_answers(&mut self) {
        self.retain(|entry| matches!(entry.what, What::Piece { .. }));
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.entries.retain(keep);
        self.bytes = self.entries.iter().map(|entry| entry.what.cost()).sum();
    }

    /// Whose pieces are kept.
    pub(crate) fn senders(&self) -> impl Iterator<Item = Rank> {
        self.entries.iter().filter_map(|entry| match entry.what {
            What::Piece { from, .. } => Some(from),
            What::Answer { .. } => None,
        })
    }

    pub(crate) fn pack(&self) -> PackedLog {
        PackedLog {
            entries: self.entries.clone(),
            last: self.last,
            given: self.given,
            saves: self.saves,
            said: self.said,
            given_up: self.given_up,
        }
    }

    pub(crate) fn unpack(bytes_max: u64, packed: PackedLog) -> Self {
        let PackedLog { entries, last, given, saves, said, given_up } = packed;
        let bytes = entries.iter().map(|entry| entry.what.cost()).sum();
        Self { bytes_max, entries, last, given, saves, bytes, said, given_up }
    }

    /// What must always hold; `Err` names what does not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let Self { entries, last, given, saves, .. } = self;
        let cost: u64 = entries.iter().map(|entry| entry.what.cost()).sum();
        let newest = entries.back().map_or(0, |entry| entry.number);
        ensure(*last.max(saves) <= COUNT_MAX, "too high a count")?;
        ensure(entries.iter().is_sorted_by(|a, b| a.number < b.number), "the log is out of order")?;
        ensure(newest.max(*given) <= *last, "more was given than delivered")?;
        ensure(entries.iter().all(Entry::is_possible), "the log has what was never delivered")?;
        ensure(cost == self.bytes, "the log does not add up")
    }

    /// What must hold of a boundary.
    pub(crate) fn check_mark(&self, mark: &Mark) -> Result<(), &'static str> {
        ensure(mark.given <= self.last, "at a boundary more was given than delivered")?;
        ensure(mark.save <= self.saves, "a boundary without a save")
    }
}

impl Entry {
    fn is_possible(&self) -> bool {
        let is_piece = |payload: &bytes::Bytes| payload.len() <= PIECE_BYTES_MAX;
        let fits = match &self.what {
            What::Piece { payload, .. } => is_piece(payload),
            What::Answer { .. } => true,
        };
        fits && self.message <= self.number
    }
}
