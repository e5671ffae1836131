//! The receiving half of one pair: what has arrived, what was given to the
//! program, and how much more may come.
//!
//! What may come is a cumulative cost that only grows: what has arrived, and
//! as much more as the window has place for beside what the program has not
//! taken yet. A program that does not take slows its sender.

use std::time::Duration;

use gleaner_common::time::Moment;

use crate::address::Part;
use crate::packed::{COUNT_MAX, PackedIncoming, Progress, ensure};
use crate::wire::Ack;

/// How long an acknowledgement waits for a frame that takes it along.
const ACK_DELAY: Duration = Duration::from_millis(5);

/// What a piece is to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Next,
    Repeated,
    /// Pieces before it are missing; the first time this is seen it is said.
    Early {
        say: bool,
    },
    /// More than was allowed.
    Over,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Incoming {
    window: u64,
    received: u64,
    received_cost: u64,
    /// What the sender was told last.
    told_cost: u64,
    told_limit: u64,
    /// The `received` for which the sender was told that something is missing.
    said_lost: Option<u64>,
    ack_at: Option<Moment>,
    /// Something was thrown away; the sender is told with the next word.
    pub(crate) skipped: bool,
    /// Arrived and not given to the program.
    pub(crate) waiting: u64,
    /// Given to the program's process, and taken by it, since it began.
    pub(crate) given: u64,
    pub(crate) took: u64,
    /// The number under which the begun message was delivered.
    message: u64,
}

impl Incoming {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            window,
            received: 0,
            received_cost: 0,
            told_cost: 0,
            told_limit: window,
            said_lost: None,
            ack_at: None,
            skipped: false,
            waiting: 0,
            given: 0,
            took: 0,
            message: 0,
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// The cost of what the program has not taken.
    pub(crate) fn untaken(&self) -> u64 {
        self.waiting + self.given - self.took
    }

    pub(crate) fn arrive(&mut self, now: Moment, number: u64, cost: u64) -> Arrival {
        if number <= self.received {
            self.ack_at.get_or_insert(now + ACK_DELAY);
            return Arrival::Repeated;
        }
        if number > self.received + 1 {
            // If the answer is lost as well, the sender asks.
            let say = self.said_lost != Some(self.received);
            self.said_lost = Some(self.received);
            self.skipped |= say;
            return Arrival::Early { say };
        }
        if self.received_cost + cost > self.told_limit {
            return Arrival::Over;
        }
        self.received = number;
        self.received_cost += cost;
        self.waiting += cost;
        self.ack_at.get_or_insert(now + ACK_DELAY);
        Arrival::Next
    }

    /// The number of the message that the piece delivered as `number` belongs
    /// to: the number of its first piece.
    pub(crate) fn message(&mut self, part: Part, number: u64) -> u64 {
        if matches!(part, Part::Whole | Part::First { .. }) {
            self.message = number;
        }
        self.message
    }

    /// Where this half stands, to be told now.
    pub(crate) fn ack(&mut self) -> Ack {
        self.told_limit = self.limit();
        self.told_cost = self.received_cost;
        self.ack_at = None;
        let lost = std::mem::take(&mut self.skipped);
        Ack { received: self.received, limit: self.told_limit, lost }
    }

    fn limit(&self) -> u64 {
        let free = self.window.saturating_sub(self.untaken());
        self.told_limit.max(self.received_cost + free)
    }

    /// Is there so much to tell that it should not wait?
    pub(crate) fn is_ack_urgent(&self) -> bool {
        self.received_cost - self.told_cost >= self.window / 4
            || self.limit() - self.told_limit >= self.window / 4
    }

    pub(crate) fn ack_at(&self) -> Option<Moment> {
        self.ack_at
    }

    /// Acknowledges soon: the times of another workstation's clock mean
    /// nothing here.
    pub(crate) fn restart_clock(&mut self, now: Moment) {
        self.ack_at = (self.received > 0).then_some(now);
    }

    pub(crate) fn pack(&self) -> PackedIncoming {
        PackedIncoming {
            received: self.received,
            received_cost: self.received_cost,
            told_cost: self.told_cost,
            told_limit: self.told_limit,
            said_lost: self.said_lost,
            skipped: self.skipped,
            message: self.message,
        }
    }

    pub(crate) fn unpack(
        window: u64,
        waiting: u64,
        progress: Progress,
        packed: &PackedIncoming,
    ) -> Self {
        Self {
            window,
            received: packed.received,
            received_cost: packed.received_cost,
            told_cost: packed.told_cost,
            told_limit: packed.told_limit,
            said_lost: packed.said_lost,
            ack_at: None,
            skipped: packed.skipped,
            waiting,
            given: progress.given,
            took: progress.took,
            message: packed.message,
        }
    }

    /// What must always hold; `Err` names what does not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let Self { received, received_cost, told_cost, told_limit, window, .. } = *self;
        ensure(received.max(received_cost) <= COUNT_MAX, "too high a count")?;
        ensure(received_cost <= told_limit, "more has arrived than was allowed")?;
        ensure(told_limit <= received_cost + window, "more was allowed than the window")?;
        ensure(told_cost <= received_cost, "more was acknowledged than has arrived")
    }
}
