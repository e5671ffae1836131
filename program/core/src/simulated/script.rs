//! Random programs that end: what each rank sends and receives, drawn as one
//! execution in which every receive finds its message.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::address::{Rank, Tag};
use crate::negotiation::Change;

/// What a rank does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Send {
        to: Rank,
        tag: Tag,
        bytes: usize,
    },
    /// `None`: any.
    Receive {
        from: Option<Rank>,
        tag: Option<Tag>,
    },
    Save,
    /// Stands until its agent lets it go on: an image may be taken there.
    Boundary,
    /// Asks how many processors there are: another number each time.
    Ask,
    /// Starts so many ranks more.
    Spawn(u32),
    /// Speaks for its program from now on.
    Negotiates,
    /// Asks for more ranks, or says that some will leave, and takes what it gets.
    Wants(Change),
    /// Puts a task into the bag.
    Put,
    CloseBag,
    /// Does what is in the bag, until all is done.
    Tasks,
}

/// What a program's ranks do how often.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub saves: f64,
    pub boundaries: f64,
    pub asks: f64,
    /// How many of the messages are of more than a piece, and of about a page.
    pub long: f64,
    pub middling: f64,
}

impl Habits {
    pub fn draw(random: &mut SmallRng) -> Self {
        let saves = random.random_range(0.0..0.15);
        let boundaries = if random.random_bool(0.4) { random.random_range(0.0..0.15) } else { 0.0 };
        Self { saves, boundaries, asks: 0.05, long: 0.05, middling: 0.2 }
    }
}

/// What may be between two ranks without a receive, so that no program
/// depends on more room than there is.
const BETWEEN_BYTES_MAX: usize = 180 << 10;

#[derive(Clone, Copy)]
struct Sent {
    from: usize,
    to: usize,
    tag: Tag,
    bytes: usize,
}

/// One script for each rank.
pub fn draw(random: &mut SmallRng, ranks: usize, steps: usize, habits: Habits) -> Vec<Vec<Op>> {
    let mut scripts = vec![vec![]; ranks];
    // Ranks that receive from whoever comes first.
    let any: Vec<bool> = (0..ranks).map(|_| random.random_bool(0.3)).collect();
    let mut under_way: Vec<Sent> = vec![];
    for _ in 0..steps {
        let rank = random.random_range(0..ranks);
        if random.random_bool(habits.saves) {
            scripts[rank].push(Op::Save);
        } else if random.random_bool(habits.boundaries) {
            scripts[rank].push(Op::Boundary);
        } else if random.random_bool(habits.asks) {
            scripts[rank].push(Op::Ask);
        } else if random.random_bool(0.55) {
            send(random, (rank, ranks), habits, &mut scripts, &mut under_way);
        } else {
            receive(random, rank, &any, &mut scripts, &mut under_way);
        }
    }
    // A few are never received.
    let left = if random.random_bool(0.2) { 2 } else { 0 };
    while under_way.len() > left {
        let rank = under_way[random.random_range(0..under_way.len())].to;
        receive(random, rank, &any, &mut scripts, &mut under_way);
    }
    scripts
}

fn send(
    random: &mut SmallRng,
    (rank, ranks): (usize, usize),
    habits: Habits,
    scripts: &mut [Vec<Op>],
    under_way: &mut Vec<Sent>,
) {
    let to = random.random_range(0..ranks);
    let bytes = match random.random::<f64>() {
        long if long < habits.long => random.random_range(60_000..150_000),
        other if other < habits.long + habits.middling => random.random_range(1_000..10_000),
        _ => random.random_range(24..100),
    };
    let between: usize = under_way
        .iter()
        .filter(|sent| (sent.from, sent.to) == (rank, to))
        .map(|sent| sent.bytes + 64)
        .sum();
    if between + bytes <= BETWEEN_BYTES_MAX {
        let tag = Tag(random.random_range(0..3));
        scripts[rank].push(Op::Send { to: Rank(number(to)), tag, bytes });
        under_way.push(Sent { from: rank, to, tag, bytes });
    }
}

fn receive(
    random: &mut SmallRng,
    rank: usize,
    any: &[bool],
    scripts: &mut [Vec<Op>],
    under_way: &mut Vec<Sent>,
) {
    let mine: Vec<usize> =
        (0..under_way.len()).filter(|&index| under_way[index].to == rank).collect();
    let Some(&chosen) = mine.get(random.random_range(0..mine.len().max(1))) else { return };
    let sent = under_way[chosen];
    if any[rank] {
        scripts[rank].push(Op::Receive { from: None, tag: None });
        under_way.remove(chosen);
        return;
    }
    scripts[rank].push(Op::Receive { from: Some(Rank(number(sent.from))), tag: Some(sent.tag) });
    // It gets the oldest of that sender and tag.
    let oldest = under_way
        .iter()
        .position(|other| (other.from, other.to, other.tag) == (sent.from, sent.to, sent.tag));
    under_way.remove(oldest.expect("it was chosen"));
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).expect("few ranks")
}
