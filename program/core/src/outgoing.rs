//! The sending half of one pair: what has not arrived yet is kept here.
//!
//! Pieces are numbered from 1 and kept until the receiver's agent has them.
//! Pieces are sent in order as far as the receiver allows; where something was
//! lost, all from there on are sent again (the ways are reliable streams:
//! losses come with broken connections and moves, and then all is lost).

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::time::Moment;

use crate::address::{PIECE_BYTES_MAX, Tag, cost};
use crate::packed::{COUNT_MAX, PackedOutgoing, Piece, ensure};
use crate::wire::Ack;

/// How long a sender hears nothing before it asks, at first; doubled each
/// time. A guess: forty times the longest delay of an acknowledgement.
const ASK_AFTER: Duration = Duration::from_millis(200);
const ASK_AFTER_MAX: Duration = Duration::from_secs(5);

impl Piece {
    fn cost(&self) -> u64 {
        cost(self.payload.len())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    /// The pieces from `acked + 1` on.
    queue: VecDeque<Piece>,
    acked: u64,
    /// All up to this one have been sent since the last rewind.
    sent: u64,
    /// Costs of all pieces up to these, from the first.
    acked_cost: u64,
    sent_cost: u64,
    appended_cost: u64,
    /// What the receiver allows.
    limit: u64,
    /// The receiver was asked where it stands.
    asked: bool,
    ask_at: Option<Moment>,
    asks: u32,
}

impl Outgoing {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            acked: 0,
            sent: 0,
            acked_cost: 0,
            sent_cost: 0,
            appended_cost: 0,
            limit: window,
            asked: false,
            ask_at: None,
            asks: 0,
        }
    }

    /// The number of the newest piece.
    pub(crate) fn last(&self) -> u64 {
        self.acked + self.queue.len() as u64
    }

    /// The cost of what is kept.
    pub(crate) fn kept(&self) -> u64 {
        self.appended_cost - self.acked_cost
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn append(&mut self, piece: Piece) {
        self.appended_cost += piece.cost();
        self.queue.push_back(piece);
    }

    /// The next piece to send, with its number, as far as the receiver
    /// allows. It counts as sent.
    pub(crate) fn next(&mut self, now: Moment) -> Option<(u64, Piece)> {
        let piece = self.queue.get(usize::try_from(self.sent - self.acked).ok()?)?;
        if self.sent_cost + piece.cost() > self.limit {
            self.ask_at.get_or_insert(now + ASK_AFTER);
            return None;
        }
        self.sent += 1;
        self.sent_cost += piece.cost();
        self.ask_at.get_or_insert(now + ASK_AFTER);
        Some((self.sent, piece.clone()))
    }

    /// Takes what the receiver says. `false`: it claims what was never sent.
    #[must_use]
    pub(crate) fn acknowledge(&mut self, now: Moment, ack: Ack) -> bool {
        if ack.received > self.last() {
            return false;
        }
        let news = ack.received > self.acked || ack.limit > self.limit;
        self.limit = self.limit.max(ack.limit);
        // Overtaken by a later one.
        if ack.received < self.acked {
            return true;
        }
        while self.acked < ack.received {
            let Some(piece) = self.queue.pop_front() else { break };
            self.acked += 1;
            self.acked_cost += piece.cost();
        }
        if self.sent < self.acked {
            (self.sent, self.sent_cost) = (self.acked, self.acked_cost);
        }
        if ack.lost || self.asked {
            self.rewind();
        }
        // A receiver that merely stands still is asked less and less.
        if news {
            self.asks = 0;
            self.ask_at = None;
        }
        if self.queue.is_empty() {
            self.ask_at = None;
        } else {
            self.ask_at.get_or_insert(now + ASK_AFTER);
        }
        true
    }

    /// Sends all that is kept again.
    pub(crate) fn rewind(&mut self) {
        (self.sent, self.sent_cost, self.asked) = (self.acked, self.acked_cost, false);
    }

    /// Forgets all that is kept: nobody will receive it. What was the first
    /// of it?
    pub(crate) fn give_up(&mut self) -> Option<Tag> {
        let first = self.queue.front().map(|piece| piece.envelope.tag);
        self.acked = self.last();
        self.queue.clear();
        self.acked_cost = self.appended_cost;
        self.rewind();
        self.ask_at = None;
        first
    }

    pub(crate) fn ask_at(&self) -> Option<Moment> {
        self.ask_at
    }

    /// Is it time to ask the receiver where it stands? Then it counts as asked.
    pub(crate) fn ask(&mut self, now: Moment) -> bool {
        if self.ask_at.is_none_or(|at| now < at) {
            return false;
        }
        self.asked = true;
        self.asks = self.asks.saturating_add(1);
        let wait = ASK_AFTER.saturating_mul(1 << self.asks.min(10)).min(ASK_AFTER_MAX);
        self.ask_at = Some(now + wait);
        true
    }

    /// Asks at the next opportunity: the times of another workstation's clock
    /// mean nothing here.
    pub(crate) fn restart_clock(&mut self, now: Moment) {
        self.asks = 0;
        self.asked = !self.queue.is_empty();
        self.ask_at = self.asked.then(|| now + ASK_AFTER);
    }

    pub(crate) fn pack(&self) -> PackedOutgoing {
        PackedOutgoing {
            queue: self.queue.clone(),
            acked: self.acked,
            sent: self.sent,
            acked_cost: self.acked_cost,
            limit: self.limit,
        }
    }

    /// The costs of it are computed, and so must not overflow.
    pub(crate) fn unpack(window: u64, packed: PackedOutgoing) -> Result<Self, &'static str> {
        let PackedOutgoing { queue, acked, sent, acked_cost, limit } = packed;
        let under_way = sent.checked_sub(acked).and_then(|pieces| usize::try_from(pieces).ok());
        let under_way = under_way.filter(|pieces| *pieces <= queue.len());
        let under_way = under_way.ok_or("more is sent than there is")?;
        ensure(acked.max(acked_cost) <= COUNT_MAX, "too high a count")?;
        let cost_of = |pieces: usize| queue.iter().take(pieces).map(Piece::cost).sum::<u64>();
        let (sent_cost, appended_cost) =
            (acked_cost + cost_of(under_way), acked_cost + cost_of(queue.len()));
        let new = Self::new(window);
        Ok(Self { queue, acked, sent, acked_cost, sent_cost, appended_cost, limit, ..new })
    }

    /// What must always hold; `Err` names what does not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let kept: u64 = self.queue.iter().map(Piece::cost).sum();
        let skipped = usize::try_from(self.sent.wrapping_sub(self.acked)).unwrap_or(usize::MAX);
        let sent: u64 = self.queue.iter().take(skipped).map(Piece::cost).sum();
        let appended = self.appended_cost.checked_sub(self.acked_cost);
        ensure(appended == Some(kept), "the kept pieces do not add up")?;
        let under_way =
            self.sent_cost.checked_sub(self.acked_cost).filter(|_| skipped <= self.queue.len());
        ensure(under_way == Some(sent), "the sent pieces do not add up")?;
        let longest = self.queue.iter().map(|piece| piece.payload.len()).max();
        ensure(longest.is_none_or(|bytes| bytes <= PIECE_BYTES_MAX), "too long a piece is kept")?;
        ensure(self.sent_cost <= self.limit, "more is sent than allowed")
    }
}
