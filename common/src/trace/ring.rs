//! `ring17`, the program that replay's speed is measured with.

use super::{Op, Trace};

const RING: u32 = 16;
const HOST: u32 = RING;
const SEGMENTS: u64 = 500;
/// Every tenth segment ends at the host.
const ROUND: u64 = 10;
const BYTES: u64 = 1_000;

/// Seventeen ranks: sixteen in a ring of 500 segments each, every segment a
/// computation that ends with a send to the right and a receive from the left,
/// every tenth also with a send to and a receive from the host. The host
/// computes 500 segments of its own: 27,700 operations.
///
/// A segment takes half a second to three quarters, different from rank to
/// rank and from segment to segment, so that somebody always waits; the
/// host's are short.
pub fn ring17() -> Trace {
    let mut ranks: Vec<Vec<Op>> = (0..RING).map(around).collect();
    ranks.push(host());
    Trace { name: "ring17".to_owned(), ranks }
}

fn around(rank: u32) -> Vec<Op> {
    let (right, left) = ((rank + 1) % RING, (rank + RING - 1) % RING);
    let segment = |segment: u64| {
        let late = (u64::from(rank) * 7 + segment * 13) % 26;
        let mut ops = vec![
            Op::Compute { nanos: 500_000_000 + late * 10_000_000 },
            Op::Send { to: right, bytes: BYTES, tag: 0 },
            Op::Receive { from: left, tag: 0 },
        ];
        if segment % ROUND == ROUND - 1 {
            ops.push(Op::Send { to: HOST, bytes: BYTES, tag: 1 });
            ops.push(Op::Receive { from: HOST, tag: 1 });
        }
        ops
    };
    (0..SEGMENTS).flat_map(segment).collect()
}

fn host() -> Vec<Op> {
    let segment = |segment: u64| {
        let mut ops = vec![Op::Compute { nanos: 10_000_000 }];
        if segment % ROUND == ROUND - 1 {
            ops.extend((0..RING).map(|from| Op::Receive { from, tag: 1 }));
            ops.extend((0..RING).map(|to| Op::Send { to, bytes: BYTES, tag: 1 }));
        }
        ops
    };
    (0..SEGMENTS).flat_map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Lines, check};
    use super::*;

    #[test]
    fn the_ring_has_17_ranks_and_turns() {
        let ring = ring17();
        assert_eq!((ring.ranks.len(), ring.operations()), (17, 27_700));
        assert_eq!(check(&ring, &Lines::default()), []);
    }
}
