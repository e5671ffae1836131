//! What arrives: pieces become messages, and what the program takes is counted
//! for each sender.

use super::{BTreeMap, BTreeSet, Envelope, Error, Message, UNRECEIVED_BYTES_MAX, cost};
use gleaner_program_core::address::{Inside, Part};

/// What is set aside for a message before it comes; longer ones grow.
const SET_ASIDE_BYTES_MAX: u64 = 64 << 20;

/// A message of which pieces are still to come.
#[derive(Debug)]
struct Begun {
    number: u64,
    tag: u32,
    bytes: Vec<u8>,
}

/// From one rank.
#[derive(Debug, Default)]
struct Way {
    inside: Inside,
    begun: Option<Begun>,
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

    /// Takes a piece; gives the message that it makes whole.
    pub(super) fn piece(
        &mut self,
        number: u64,
        from: u32,
        envelope: Envelope,
        payload: bytes::Bytes,
    ) -> Result<Option<Message>, Error> {
        let way = self.ways.entry(from).or_default();
        if !way.inside.accept(envelope.part, payload.len()) {
            return Err(Error::Lost("the agent's pieces make no message".to_owned()));
        }
        let (cost, tag) = (cost(payload.len()), envelope.tag.0);
        let message = match (envelope.part, way.begun.take()) {
            (Part::Whole, _) => {
                way.untaken.insert(number, cost);
                return Ok(Some(Message { from, tag, bytes: payload.into(), number }));
            }
            (Part::First { bytes: total }, _) => {
                let aside = usize::try_from(total.min(SET_ASIDE_BYTES_MAX)).unwrap_or(0);
                let mut bytes = Vec::with_capacity(aside);
                bytes.extend_from_slice(&payload);
                way.begun = Some(Begun { number, tag, bytes });
                number
            }
            (Part::Middle | Part::Last, Some(mut begun)) => {
                begun.bytes.extend_from_slice(&payload);
                *way.untaken.entry(begun.number).or_default() += cost;
                if envelope.part == Part::Last {
                    let Begun { number, tag, bytes } = begun;
                    return Ok(Some(Message { from, tag, bytes, number }));
                }
                way.begun = Some(begun);
                return Ok(None);
            }
            // `inside` accepts none without a first.
            (Part::Middle | Part::Last, None) => return Ok(None),
        };
        way.untaken.insert(message, cost);
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
