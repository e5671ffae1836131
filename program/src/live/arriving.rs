//! What arrives: pieces become messages, and what the program takes is counted
//! for each sender.

use super::{BTreeMap, BTreeSet, Envelope, Error, Message, Rank, UNRECEIVED_BYTES_MAX, cost};
use gleaner_program_core::address::{Inside, Part};

/// What is set aside for a message before it comes; longer ones grow.
const SET_ASIDE_BYTES_MAX: u64 = 64 << 20;

/// What is written on a piece of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The number of the message's first piece.
    pub(super) number: u64,
    pub(super) from: Rank,
    pub(super) envelope: Envelope,
    /// How long its payload is.
    pub(super) bytes: usize,
}

/// From one rank.
#[derive(Debug, Default)]
struct Way {
    inside: Inside,
    /// A message of which pieces are still to come.
    begun: Option<Message>,
    /// Costs of what came and is not taken, by the message's number.
    untaken: BTreeMap<u64, u64>,
    /// Costs since the process began: taken, and told to the agent.
    took: u64,
    told: u64,
}

#[derive(Debug)]
pub(super) struct Arriving {
    window: u64,
    ways: BTreeMap<u32, Way>,
    /// Ranks of which something was taken that is not told.
    untold: BTreeSet<u32>,
    /// Taken, and not received.
    unreceived: BTreeMap<u64, u64>,
    unreceived_bytes: u64,
}

impl Arriving {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            ways: BTreeMap::new(),
            untold: BTreeSet::new(),
            unreceived: BTreeMap::new(),
            unreceived_bytes: 0,
        }
    }

    /// Takes a piece, of which the payload is appended by `payload` to what it
    /// is given; gives the message that it makes whole.
    pub(super) fn piece(
        &mut self,
        piece: Piece,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Option<Message>, Error> {
        let Piece { number, from, envelope: Envelope { tag, part, .. }, bytes } = piece;
        let way = self.ways.entry(from.0).or_default();
        if !way.inside.accept(part, bytes) {
            return Err(Error::Lost("the agent's pieces make no message".to_owned()));
        }
        let mut message = match (part, way.begun.take()) {
            (Part::Middle | Part::Last, Some(begun)) => begun,
            _ => Message { from: from.0, tag: tag.0, bytes: vec![], number },
        };
        if let Part::First { bytes } = part {
            let aside = usize::try_from(bytes.min(SET_ASIDE_BYTES_MAX)).unwrap_or(0);
            message.bytes.reserve_exact(aside);
        }
        payload(&mut message.bytes)?;
        *way.untaken.entry(message.number).or_default() += cost(bytes);
        if matches!(part, Part::Whole | Part::Last) {
            return Ok(Some(message));
        }
        way.begun = Some(message);
        Ok(None)
    }

    pub(super) fn received(&mut self, message: &Message) {
        let cost = self.ways.get_mut(&message.from).and_then(|w| w.untaken.remove(&message.number));
        if let Some(cost) = cost {
            self.took(message.from, cost);
        }
        if let Some(cost) = self.unreceived.remove(&message.number) {
            self.unreceived_bytes -= cost;
        }
    }

    /// Takes all that came from this rank, or from every rank, and was not
    /// received; as long as that is not too much.
    pub(super) fn take_all_of(&mut self, from: Option<u32>) {
        let ranks: Vec<u32> = match from {
            Some(from) => vec![from],
            None => self.ways.keys().copied().collect(),
        };
        for rank in ranks {
            let Some(way) = self.ways.get_mut(&rank) else { continue };
            if self.unreceived_bytes > UNRECEIVED_BYTES_MAX {
                return;
            }
            let untaken = std::mem::take(&mut way.untaken);
            let mut all = 0;
            for (number, cost) in untaken {
                all += cost;
                *self.unreceived.entry(number).or_default() += cost;
            }
            self.unreceived_bytes += all;
            if all > 0 {
                self.took(rank, all);
            }
        }
    }

    fn took(&mut self, from: u32, cost: u64) {
        if let Some(way) = self.ways.get_mut(&from) {
            way.took += cost;
            self.untold.insert(from);
        }
    }

    /// A rank and what was taken of it in all, that should be told: with
    /// `all` any, otherwise where it is much. It counts as told.
    pub(super) fn tell(&mut self, all: bool) -> Option<(u32, u64)> {
        let much = self.window / 4;
        let ways = &self.ways;
        let is_due = |rank: &&u32| ways.get(rank).is_some_and(|w| all || w.took - w.told >= much);
        let rank = *self.untold.iter().find(is_due)?;
        self.untold.remove(&rank);
        let way = self.ways.get_mut(&rank)?;
        way.told = way.took;
        Some((rank, way.told))
    }
}
