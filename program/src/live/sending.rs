//! What the program sends: pieces, each when there is room for it at its
//! receiver. Receivers do not hold each other up.

use super::pipes::Pipes;
use super::{BTreeMap, BTreeSet, Envelope, Error, ProgramFrame, Rank, VecDeque, Welcome, cost};

#[derive(Debug)]
struct Piece {
    order: u64,
    envelope: Envelope,
    payload: bytes::Bytes,
}

/// Towards one rank.
#[derive(Debug)]
struct Way {
    /// Costs since the process began: sent, and allowed.
    sent: u64,
    room: u64,
    queue: VecDeque<Piece>,
}

#[derive(Debug)]
pub(super) struct Sending {
    window: u64,
    ways: BTreeMap<u32, Way>,
    /// Orders, numbered from 1 as the communicator does.
    orders: u64,
    /// Ranks for which something waits for room.
    held_up: BTreeSet<u32>,
}

impl Sending {
    pub(super) fn new(welcome: &Welcome) -> Self {
        let way = |room| Way { sent: 0, room, queue: VecDeque::new() };
        let ways = welcome.rooms.iter().map(|&(rank, room)| (rank.0, way(room))).collect();
        Self { window: welcome.window, ways, orders: 0, held_up: BTreeSet::new() }
    }

    pub(super) fn begin_order(&mut self) {
        self.orders += 1;
    }

    fn way(&mut self, to: u32) -> &mut Way {
        let room = self.window;
        self.ways.entry(to).or_insert_with(|| Way { sent: 0, room, queue: VecDeque::new() })
    }

    /// A piece of the present order.
    pub(super) fn push(&mut self, to: u32, envelope: Envelope, payload: bytes::Bytes) {
        let order = self.orders;
        self.way(to).queue.push_back(Piece { order, envelope, payload });
    }

    pub(super) fn room(&mut self, to: u32, total: u64) {
        let way = self.way(to);
        way.room = way.room.max(total);
    }

    /// May a piece of that length leave, after all that was sent before it?
    pub(super) fn has_room(&mut self, to: u32, bytes: usize) -> bool {
        let way = self.way(to);
        way.queue.is_empty() && way.sent + cost(bytes) <= way.room
    }

    /// A piece of that length leaves.
    pub(super) fn sent(&mut self, to: u32, bytes: usize) {
        self.way(to).sent += cost(bytes);
    }

    pub(super) fn send_what_fits(&mut self, to: u32, pipes: &mut Pipes) -> Result<(), Error> {
        let way = self.way(to);
        while let Some(piece) = way.queue.pop_front() {
            let cost = cost(piece.payload.len());
            if way.sent + cost > way.room {
                way.queue.push_front(piece);
                break;
            }
            way.sent += cost;
            let Piece { envelope, payload, .. } = piece;
            pipes.write(&ProgramFrame::Send { to: Rank(to), envelope, payload })?;
        }
        if way.queue.is_empty() {
            self.held_up.remove(&to);
        } else {
            self.held_up.insert(to);
        }
        Ok(())
    }

    /// A rank for which something waits for room.
    pub(super) fn held_up(&self) -> Option<u32> {
        self.held_up.first().copied()
    }

    /// The rank for which this order waits, if it does.
    pub(super) fn holds_up(&self, order: u64) -> Option<u32> {
        let waits = |to: &&u32| {
            self.ways.get(to).is_some_and(|way| {
                way.queue.binary_search_by_key(&order, |piece| piece.order).is_ok()
            })
        };
        self.held_up.iter().find(waits).copied()
    }
}
