//! Collective operations as messages between two ranks.
//!
//! | operation | messages |
//! |---|---|
//! | barrier | dissemination (Hensgen, Finkel and Manber 1988) |
//! | broadcast, reduce | binomial tree |
//! | allreduce | recursive doubling on 2^k ranks, else reduce and broadcast |
//! | gather, scatter | each rank and the root |
//! | allgather | round the ring |
//! | all-to-all, reduce-scatter | pairwise, step i with the ranks i to the right and left |
//! | scan | from rank to rank |
//!
//! Where an operation computes, every rank does so once, after its messages:
//! so `SimGrid`'s own replay does.

use super::super::input::RefusedLine;
use super::super::tags;
use super::expand::Writer;
use super::{Collective, CollectiveKind};

/// One rank's part in an operation of `size` ranks.
struct Part<'a> {
    rank: u32,
    size: u32,
    out: &'a mut Writer,
}

/// Writes one rank's part.
pub(super) fn expand(
    collective: &Collective,
    rank: u32,
    size: u32,
    out: &mut Writer,
) -> Result<(), RefusedLine> {
    let said = Arguments::of(collective, size)?;
    let mut part = Part { rank, size, out };
    let Arguments { bytes, ref each, root, nanos } = said;
    match collective.kind {
        CollectiveKind::Barrier => part.barrier(),
        CollectiveKind::Broadcast => part.broadcast(root, bytes),
        CollectiveKind::Reduce => part.reduce(root, bytes),
        CollectiveKind::AllReduce => part.allreduce(bytes),
        CollectiveKind::AllToAll | CollectiveKind::AllToAllV => {
            part.pairwise(tags::ALL_TO_ALL, each);
        }
        CollectiveKind::ReduceScatter => part.pairwise(tags::REDUCE_SCATTER, each),
        CollectiveKind::Gather | CollectiveKind::GatherV => part.gather(root, bytes),
        CollectiveKind::Scatter | CollectiveKind::ScatterV => part.scatter(root, each),
        CollectiveKind::AllGather | CollectiveKind::AllGatherV => part.all_gather(each),
        CollectiveKind::Scan => part.scan(bytes),
    }
    part.out.compute(nanos)
}

impl Part<'_> {
    fn right(&self, places: u32) -> u32 {
        (self.rank + places) % self.size
    }

    fn left(&self, places: u32) -> u32 {
        (self.rank + self.size - places) % self.size
    }

    fn barrier(&mut self) {
        let mut distance = 1;
        while distance < self.size {
            self.out.send(self.right(distance), 0, tags::BARRIER);
            self.out.receive(self.left(distance), tags::BARRIER);
            distance *= 2;
        }
    }

    fn broadcast(&mut self, root: u32, bytes: u64) {
        let here = self.left(root);
        // The lowest set bit says from how far the values come.
        let mut distance = 1;
        while distance < self.size && here & distance == 0 {
            distance *= 2;
        }
        if here != 0 {
            self.out.receive(self.left(distance), tags::BROADCAST);
        }
        while distance > 1 {
            distance /= 2;
            if here + distance < self.size {
                self.out.send(self.right(distance), bytes, tags::BROADCAST);
            }
        }
    }

    fn reduce(&mut self, root: u32, bytes: u64) {
        let here = self.left(root);
        let mut distance = 1;
        while distance < self.size {
            if here & distance != 0 {
                return self.out.send(self.left(distance), bytes, tags::REDUCE);
            }
            if here + distance < self.size {
                self.out.receive(self.right(distance), tags::REDUCE);
            }
            distance *= 2;
        }
    }

    fn allreduce(&mut self, bytes: u64) {
        if !self.size.is_power_of_two() {
            self.reduce(0, bytes);
            return self.broadcast(0, bytes);
        }
        let mut distance = 1;
        while distance < self.size {
            let partner = self.rank ^ distance;
            self.out.send(partner, bytes, tags::ALLREDUCE);
            self.out.receive(partner, tags::ALLREDUCE);
            distance *= 2;
        }
    }

    fn pairwise(&mut self, tag: u32, each: &[u64]) {
        for distance in 1..self.size {
            let to = self.right(distance);
            self.out.send(to, each[to as usize], tag);
            self.out.receive(self.left(distance), tag);
        }
    }

    fn gather(&mut self, root: u32, bytes: u64) {
        if self.rank != root {
            return self.out.send(root, bytes, tags::GATHER);
        }
        (0..self.size)
            .filter(|other| *other != root)
            .for_each(|other| self.out.receive(other, tags::GATHER));
    }

    fn scatter(&mut self, root: u32, each: &[u64]) {
        if self.rank != root {
            return self.out.receive(root, tags::SCATTER);
        }
        for (other, bytes) in (0..self.size).zip(each).filter(|(other, _)| *other != root) {
            self.out.send(other, *bytes, tags::SCATTER);
        }
    }

    /// Each step passes on the block that came in the step before.
    fn all_gather(&mut self, each: &[u64]) {
        for step in 0..self.size - 1 {
            let block = self.left(step);
            self.out.send(self.right(1), each[block as usize], tags::ALL_GATHER);
            self.out.receive(self.left(1), tags::ALL_GATHER);
        }
    }

    fn scan(&mut self, bytes: u64) {
        if self.rank > 0 {
            self.out.receive(self.rank - 1, tags::SCAN);
        }
        if self.rank + 1 < self.size {
            self.out.send(self.rank + 1, bytes, tags::SCAN);
        }
    }
}

/// What the arguments of an operation mean.
struct Arguments {
    /// What this rank gives.
    bytes: u64,
    /// What goes to or comes from each rank.
    each: Vec<u64>,
    root: u32,
    nanos: u64,
}

impl Arguments {
    fn of(said: &Collective, size: u32) -> Result<Self, RefusedLine> {
        let mut from = Reader { said, at: 0 };
        let n = size as usize;
        let (mut counts, mut flops, mut root) = (vec![0.0], 0.0, 0.0);
        match said.kind {
            CollectiveKind::Barrier => {}
            CollectiveKind::Broadcast => {
                counts = from.counts(1)?;
                root = from.maybe();
            }
            CollectiveKind::Reduce => {
                counts = from.counts(1)?;
                flops = from.counts(1)?[0];
                root = from.maybe();
            }
            CollectiveKind::AllReduce | CollectiveKind::Scan => {
                counts = from.counts(1)?;
                flops = from.counts(1)?[0];
            }
            CollectiveKind::AllToAll | CollectiveKind::AllGather => {
                counts = vec![from.counts(2)?[0]; n];
            }
            CollectiveKind::AllToAllV => {
                from.counts(1)?;
                counts = from.counts(n)?;
                from.counts(1 + n)?;
            }
            CollectiveKind::Gather => {
                counts = from.counts(2)?;
                root = from.maybe();
            }
            CollectiveKind::GatherV => {
                counts = from.counts(1)?;
                from.counts(n)?;
                root = from.maybe();
            }
            CollectiveKind::Scatter => {
                counts = vec![from.counts(2)?[0]; n];
                root = from.maybe();
            }
            CollectiveKind::ScatterV => {
                counts = from.counts(n)?;
                from.counts(1)?;
                root = from.maybe();
            }
            CollectiveKind::AllGatherV => {
                from.counts(1)?;
                counts = from.counts(n)?;
                // In the older spelling, where each block goes; of two ranks,
                // that cannot be told from two types.
                let rest = said.arguments.len() - from.at;
                if rest >= n && rest != 2 {
                    from.counts(n)?;
                }
            }
            CollectiveKind::ReduceScatter => {
                counts = from.counts(n)?;
                flops = from.counts(1)?[0];
            }
        }
        let unit = from.unit()?;
        let each: Vec<u64> =
            counts.iter().map(|count| bytes(*count, unit)).collect::<Result<_, _>>()?;
        let root = root_of(root, size)?;
        let nanos = nanos(flops * said.nanos_per_flop)?;
        Ok(Self { bytes: each[0], each, root, nanos })
    }
}

fn root_of(root: f64, size: u32) -> Result<u32, RefusedLine> {
    let found = whole(root).and_then(|root| u32::try_from(root).ok()).filter(|root| *root < size);
    found.ok_or_else(|| RefusedLine::Meaning(format!("root {root}: expected 0 to {}", size - 1)))
}

fn bytes(count: f64, unit: u64) -> Result<u64, RefusedLine> {
    let refused = || RefusedLine::field(&count.to_string(), "a number of values");
    whole(count * unit as f64).ok_or_else(refused)
}

/// A number that is whole, and not so large that a double leaves some out.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
pub(super) fn whole(value: f64) -> Option<u64> {
    let exact = value >= 0.0 && value < (1_u64 << 53) as f64 && value.fract() == 0.0;
    exact.then_some(value as u64)
}

/// To the nearest nanosecond.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
pub(super) fn nanos(nanos: f64) -> Result<u64, RefusedLine> {
    let good = nanos >= 0.0 && nanos < (1_u64 << 62) as f64;
    let refused =
        || RefusedLine::Meaning(format!("{nanos:e} ns of computation: expected 0 to 4.6e18"));
    if good { Ok(nanos.round() as u64) } else { Err(refused()) }
}

/// Takes arguments one after the other.
struct Reader<'a> {
    said: &'a Collective,
    at: usize,
}

impl Reader<'_> {
    fn counts(&mut self, n: usize) -> Result<Vec<f64>, RefusedLine> {
        let found = self.said.arguments.len();
        let counts = self.said.arguments.get(self.at..self.at + n).ok_or_else(|| {
            let kind = self.said.kind;
            RefusedLine::Meaning(format!(
                "{found} arguments of {kind:?}: expected {} or more",
                self.at + n
            ))
        })?;
        self.at += n;
        Ok(counts.to_vec())
    }

    /// 0 if it is not said.
    fn maybe(&mut self) -> f64 {
        let value = self.said.arguments.get(self.at).copied();
        self.at += 1;
        value.unwrap_or(0.0)
    }

    /// Bytes of a value: by the type that comes last, if one does.
    fn unit(&self) -> Result<u64, RefusedLine> {
        match self.said.arguments.get(self.at) {
            Some(code) => super::time_independent::type_bytes(*code),
            None => Ok(self.said.unit),
        }
    }
}
