//! Which send each receive takes its message from.

use std::collections::BTreeMap;

use gleaner_common::trace::{Op, Trace};

use super::{CompileError, NONE, index, ranks};

/// What a message is known by, beside its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Tag(u32),
    Spawn,
}

/// The messages of one sender, receiver and mark.
#[derive(Debug, Default)]
struct Channel {
    /// The messages in the order in which they are received; and for errors,
    /// where.
    messages: Vec<(u32, u32)>,
    sent: usize,
    received: usize,
}

pub(super) type Ends = (u32, u32, Mark);

/// Who receives which message. Numbers them in the order in which each rank
/// receives, rank by rank, so that a rank finds its messages side by side.
#[derive(Debug, Default)]
pub(super) struct Matching {
    channels: BTreeMap<Ends, Channel>,
    pub(super) spawner: Vec<u32>,
    pub(super) ends: Vec<(u32, u32)>,
    pub(super) delays: Vec<u64>,
}

impl Matching {
    pub(super) fn of(trace: &Trace) -> Result<Self, CompileError> {
        let mut matching = Self { spawner: Self::spawners(trace)?, ..Self::default() };
        for (rank, ops) in ranks(trace) {
            let spawner = matching.spawner[rank as usize];
            if spawner != NONE {
                matching.expect((spawner, rank, Mark::Spawn), 0);
            }
            for (operation, op) in (0..).zip(ops) {
                if let Op::Receive { from, tag } = *op {
                    matching.expect((from, rank, Mark::Tag(tag)), operation);
                }
            }
        }
        Ok(matching)
    }

    /// Who spawns whom; checks all names on the way.
    fn spawners(trace: &Trace) -> Result<Vec<u32>, CompileError> {
        let mut spawner = vec![NONE; trace.ranks.len()];
        for (rank, ops) in ranks(trace) {
            for (operation, op) in (0..).zip(ops) {
                let named = match *op {
                    Op::Compute { .. } => continue,
                    Op::Send { to: named, .. }
                    | Op::Receive { from: named, .. }
                    | Op::Spawn { rank: named } => named,
                };
                let Some(place) = spawner.get_mut(named as usize) else {
                    return Err(CompileError::BadRank { rank, operation, named });
                };
                if matches!(op, Op::Spawn { .. }) && std::mem::replace(place, rank) != NONE {
                    return Err(CompileError::SpawnedTwice { rank, operation, spawned: named });
                }
            }
        }
        Ok(spawner)
    }

    fn expect(&mut self, ends: Ends, operation: u32) {
        let message = self.new_message(ends);
        self.channels.entry(ends).or_default().messages.push((message, operation));
    }

    fn new_message(&mut self, (from, to, _): Ends) -> u32 {
        self.ends.push((from, to));
        self.delays.push(0);
        index(self.ends.len() - 1)
    }

    /// What lets a rank begin, if it does not begin by itself.
    pub(super) fn begin(&mut self, rank: u32) -> Option<u32> {
        let spawner = self.spawner[rank as usize];
        (spawner != NONE).then(|| self.receive((spawner, rank, Mark::Spawn)))
    }

    /// The next message of a channel that is received.
    pub(super) fn receive(&mut self, ends: Ends) -> u32 {
        let channel = self.channels.entry(ends).or_default();
        channel.received += 1;
        channel.messages[channel.received - 1].0
    }

    /// The next message of a channel that is sent.
    pub(super) fn send(&mut self, ends: Ends, delay: u64) -> u32 {
        let channel = self.channels.entry(ends).or_default();
        channel.sent += 1;
        let message = match channel.messages.get(channel.sent - 1) {
            Some((message, _)) => *message,
            None => self.new_message(ends), // Nobody ever receives it.
        };
        self.delays[message as usize] = delay;
        message
    }

    pub(super) fn check_all_sent(&self) -> Result<(), CompileError> {
        let missing = |(ends, channel): (&Ends, &Channel)| {
            let (_, operation) = *channel.messages.get(channel.sent)?;
            Some((ends.1, operation, ends.0, ends.2))
        };
        match self.channels.iter().filter_map(missing).min() {
            Some((rank, operation, from, Mark::Tag(tag))) => {
                Err(CompileError::Unmatched { rank, operation, from, tag })
            }
            Some((.., Mark::Spawn)) => unreachable!("a spawner's trace holds the spawn"),
            None => Ok(()),
        }
    }
}
