//! Random programs that end: what each rank sends and receives, drawn as one
//! execution in which every receive finds its message.

use gleaner_program_core::address::{Rank, Tag};
use rand::Rng;
use rand::rngs::SmallRng;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
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
    /// Asks the coordinator, whose answer is drawn anew each time.
    Ask,
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
pub(crate) fn draw(random: &mut SmallRng, ranks: usize, steps: usize) -> Vec<Vec<Op>> {
    let mut scripts = vec![vec![]; ranks];
    // Ranks that receive from whoever comes first.
    let any: Vec<bool> = (0..ranks).map(|_| random.random_bool(0.3)).collect();
    let saves = random.random_range(0.0..0.15);
    let marks = if random.random_bool(0.4) { random.random_range(0.0..0.15) } else { 0.0 };
    let mut under_way: Vec<Sent> = vec![];
    for _ in 0..steps {
        let rank = random.random_range(0..ranks);
        if random.random_bool(saves) {
            scripts[rank].push(Op::Save);
        } else if random.random_bool(marks) {
            scripts[rank].push(Op::Boundary);
        } else if random.random_bool(0.05) {
            scripts[rank].push(Op::Ask);
        } else if random.random_bool(0.55) {
            send(random, rank, ranks, &mut scripts, &mut under_way);
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
    rank: usize,
    ranks: usize,
    scripts: &mut [Vec<Op>],
    under_way: &mut Vec<Sent>,
) {
    let to = random.random_range(0..ranks);
    let bytes = match random.random_range(0..20) {
        0 => random.random_range(60_000..150_000),
        1..5 => random.random_range(1_000..10_000),
        _ => random.random_range(24..100),
    };
    let between: usize = under_way
        .iter()
        .filter(|sent| (sent.from, sent.to) == (rank, to))
        .map(|sent| sent.bytes + 64)
        .sum();
    if between + bytes <= BETWEEN_BYTES_MAX {
        let tag = Tag(random.random_range(0..3));
        scripts[rank].push(Op::Send { to: Rank(to as u32), tag, bytes });
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
    scripts[rank].push(Op::Receive { from: Some(Rank(sent.from as u32)), tag: Some(sent.tag) });
    // It gets the oldest of that sender and tag.
    let oldest = under_way
        .iter()
        .position(|other| (other.from, other.to, other.tag) == (sent.from, sent.to, sent.tag));
    under_way.remove(oldest.unwrap());
}
