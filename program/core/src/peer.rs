//! All that an endpoint keeps about one other rank: both halves of the pair,
//! and how far the program itself has come.
//!
//! The program may be behind the pair: when it repeats a subtask it sends
//! again what was sent before. Those pieces are known by their numbers, are
//! compared with what is remembered of the first time, and go no further.

use std::collections::VecDeque;

use bytes::Bytes;
use gleaner_common::id::Fence;

use crate::address::{Envelope, Inside, Part, cost};
use crate::facts::End;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::packed::{COUNT_MAX, PackedPeer, Piece, Progress, ensure};

/// How much of a payload is compared when it is repeated.
const COMPARED_BYTES: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peer {
    window: u64,
    pub(crate) out: Outgoing,
    pub(crate) incoming: Incoming,
    /// The newest attempt that was heard of.
    pub(crate) fence: Fence,
    /// How it ended, and the number of its last piece to this rank if known.
    pub(crate) end: Option<(End, u64)>,
    /// Does it take nothing any more?
    pub(crate) gone: bool,
    /// Does the program's process know of its end?
    pub(crate) told_gone: bool,
    pub(crate) program_last: u64,
    pub(crate) program_sent: u64,
    pub(crate) program_room: u64,
    pub(crate) inside: Inside,
    /// What is remembered of the pieces after number `remembered_from`.
    remembered: VecDeque<u32>,
    remembered_from: u64,
}

/// What a piece of the program's is to the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    New,
    /// Sent before; stays here.
    Repeated,
    /// Sent before, and then it was another.
    Different,
}

impl Peer {
    pub(crate) fn new(window: u64, floor: Fence) -> Self {
        Self {
            window,
            out: Outgoing::new(window),
            incoming: Incoming::new(window),
            fence: floor,
            end: None,
            gone: false,
            told_gone: false,
            program_last: 0,
            program_sent: 0,
            program_room: window,
            inside: Inside::default(),
            remembered: VecDeque::new(),
            remembered_from: 0,
        }
    }

    /// Takes a piece of the program's. The caller has counted its cost.
    pub(crate) fn send(&mut self, envelope: Envelope, payload: Bytes, remember: bool) -> Sending {
        self.program_last += 1;
        let number = self.program_last;
        let sending = if number > self.out.last() { Sending::New } else { Sending::Repeated };
        if remember {
            let trace = trace(envelope, &payload);
            let index = usize::try_from(number - self.remembered_from - 1).unwrap_or(usize::MAX);
            match self.remembered.get(index) {
                Some(before) if *before != trace => return Sending::Different,
                None if index == self.remembered.len() => self.remembered.push_back(trace),
                Some(_) | None => {}
            }
        }
        if sending == Sending::New {
            self.out.append(Piece { envelope, payload });
            if self.gone {
                self.out.give_up();
            }
        }
        sending
    }

    /// What the program may send in all, if it should be told.
    pub(crate) fn room(&mut self) -> Option<u64> {
        let total = self.room_total();
        (total >= self.program_room + self.window / 4).then(|| {
            self.program_room = total;
            total
        })
    }

    fn room_total(&self) -> u64 {
        self.program_sent + self.window.saturating_sub(self.out.kept())
    }

    pub(crate) fn mark(&self) -> Progress {
        Progress {
            last: self.program_last,
            sent: self.program_sent,
            room: self.program_room,
            given: self.incoming.given,
            took: self.incoming.took,
            inside: self.inside,
        }
    }

    /// The program goes back to a boundary, with its process's memory as it
    /// was then. What was not given to it then is counted anew by the caller.
    pub(crate) fn go_back(&mut self, mark: Option<Progress>) {
        let mark = mark.unwrap_or(Progress { room: self.window, ..Progress::default() });
        self.told_gone = false;
        self.program_last = mark.last;
        self.program_sent = mark.sent;
        self.program_room = mark.room;
        self.inside = mark.inside;
        (self.incoming.given, self.incoming.took) = (mark.given, mark.took);
        self.incoming.waiting = 0;
    }

    /// The same with a new process, which has been given nothing and knows of
    /// no room but what it will be told.
    pub(crate) fn begin_anew(&mut self, last: u64) {
        self.go_back(Some(Progress { last, ..Progress::default() }));
        self.program_room = self.room_total().min(self.window);
    }

    /// Nothing before this number will be repeated.
    pub(crate) fn forget(&mut self, last: u64) {
        let gone = usize::try_from(last.saturating_sub(self.remembered_from)).unwrap_or(usize::MAX);
        self.remembered.drain(..gone.min(self.remembered.len()));
        self.remembered_from = self.remembered_from.max(last);
    }

    /// Remembers from the program's next piece on.
    pub(crate) fn remember_from_here(&mut self) {
        self.remembered.clear();
        self.remembered_from = self.program_last;
    }

    pub(crate) fn remembers(&self) -> usize {
        self.remembered.len()
    }

    /// Has everything arrived that it will ever send?
    pub(crate) fn is_exhausted(&self) -> bool {
        self.end.is_some_and(|(_, last)| self.incoming.received() >= last)
    }

    /// Was there ever anything between the two?
    pub(crate) fn is_known(&self) -> bool {
        self.incoming.received() > 0 || self.incoming.skipped || self.out.last() > 0
    }

    pub(crate) fn pack(&self) -> PackedPeer {
        PackedPeer {
            outgoing: self.out.pack(),
            incoming: self.incoming.pack(),
            fence: self.fence,
            end: self.end,
            gone: self.gone,
            told_gone: self.told_gone,
            progress: self.mark(),
            remembered: self.remembered.clone(),
            remembered_from: self.remembered_from,
        }
    }

    pub(crate) fn unpack(
        window: u64,
        waiting: u64,
        packed: PackedPeer,
    ) -> Result<Self, &'static str> {
        let progress = packed.progress;
        Ok(Self {
            window,
            out: Outgoing::unpack(window, packed.outgoing)?,
            incoming: Incoming::unpack(window, waiting, progress, &packed.incoming),
            fence: packed.fence,
            end: packed.end,
            gone: packed.gone,
            told_gone: packed.told_gone,
            program_last: progress.last,
            program_sent: progress.sent,
            program_room: progress.room,
            inside: progress.inside,
            remembered: packed.remembered,
            remembered_from: packed.remembered_from,
        })
    }

    /// What must always hold; `Err` names what does not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.out.check()?;
        self.incoming.check()?;
        self.check_progress(self.mark())?;
        ensure(self.out.kept() <= self.window, "more is kept than the window")?;
        let remembered = self.remembered_from + self.remembered.len() as u64;
        ensure(remembered <= self.out.last(), "what was not sent is remembered")
    }

    /// What must hold of the program's progress, now or at a boundary.
    pub(crate) fn check_progress(&self, progress: Progress) -> Result<(), &'static str> {
        let Progress { last, sent, room, given, took, inside } = progress;
        ensure(sent.max(given) <= COUNT_MAX, "too high a count")?;
        ensure(last <= self.out.last(), "the program has sent more than the pair")?;
        ensure(self.remembered_from <= last, "what the program has not sent is forgotten")?;
        ensure(sent <= room, "the program has sent more than there was room for")?;
        ensure(room <= sent + self.window, "the program has more room than the window")?;
        ensure(took <= given, "the program has taken what it was not given")?;
        ensure(inside.is_possible(), "a message is begun that would be too long")
    }
}

/// What is remembered of a piece: enough to notice a program that does not
/// repeat itself, not a proof that it does.
fn trace(envelope: Envelope, payload: &[u8]) -> u32 {
    let part = match envelope.part {
        Part::Whole => 0,
        Part::First { bytes } => bytes,
        Part::Middle => 1,
        Part::Last => 2,
    };
    let mut head = [0; 32];
    let numbers =
        [u64::from(envelope.communicator.0), u64::from(envelope.tag.0), part, cost(payload.len())];
    for (place, number) in head.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    crc32c::crc32c_append(crc32c::crc32c(&head), &payload[..payload.len().min(COMPARED_BYTES)])
}
