//! The free workstations, in the order in which they are to be chosen.
//!
//! A winner tree: the workstations, by number, are the leaves of a binary tree,
//! and every inner node holds the cheaper of its two children. So to choose is
//! to look at the root, a change compares only on the way up from its leaf, and
//! the second best is among those that lost to the best one. All of it lies in
//! one array that is copied as a block and, once as large as the highest
//! number, never allocates again: replay, which starts a lab thousands of times
//! a second, lives on that.
//!
//! Beside its cost a workstation may have something: every inner node then has as
//! much of it as any below, and whoever needs more than that does not look there.
//!
//! Figures of the day, on a busy machine: to take one out, choose and put one
//! in, 70 to 90 ns among 30 and among 10,000 (a `BTreeSet`: 210 to 490 ns); a
//! copy of 100 in 60 ns (900 ns).

use std::marker::PhantomData;

use super::Cost;

/// A free workstation, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Player {
    cost: Cost,
    number: u32,
}

const NOBODY: Player = Player { cost: Cost::NONE, number: u32::MAX };

impl Player {
    /// Ties go to the lower number.
    fn beats(self, other: Self) -> bool {
        #[cfg(test)]
        super::compared::COUNT.with(|count| count.set(count.get() + 1));
        self.order() < other.order()
    }

    /// Cost and number as one, which is compared without a branch.
    fn order(self) -> u128 {
        u128::from(self.cost.0) << 32 | u128::from(self.number)
    }
}

/// What a free workstation has; nobody has the default.
pub trait Has: Copy + Default + PartialEq {
    /// As much as either has.
    #[must_use]
    fn or_more(self, other: Self) -> Self;
}

impl Has for () {
    fn or_more(self, (): Self) -> Self {}
}

/// The cheapest one below, and as much as any there has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node<H> {
    player: Player,
    has: H,
}

impl<H: Has> Node<H> {
    fn nobody() -> Self {
        Self { player: NOBODY, has: H::default() }
    }

    fn above(self, other: Self) -> Self {
        let player = if other.player.beats(self.player) { other.player } else { self.player };
        Self { player, has: self.has.or_more(other.has) }
    }
}

/// An ordered index of free workstations. Their numbers are to be small, such
/// as positions in a list: it takes room for the highest.
#[derive(Debug)]
pub struct Free<Id, H = ()> {
    /// The root is 1, the children of `n` are `2n` and `2n + 1`, the leaves
    /// are the upper half. Empty or a power of two long.
    nodes: Vec<Node<H>>,
    len: usize,
    ids: PhantomData<Id>,
}

impl<Id, H> Default for Free<Id, H> {
    fn default() -> Self {
        Self { nodes: vec![], len: 0, ids: PhantomData }
    }
}

impl<Id, H: Clone> Clone for Free<Id, H> {
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), len: self.len, ids: PhantomData }
    }

    /// Allocates nothing where there is room already.
    fn clone_from(&mut self, source: &Self) {
        self.nodes.clone_from(&source.nodes);
        self.len = source.len;
    }
}

impl<Id: Copy + From<u32> + Into<u32>> Free<Id> {
    /// Sets what a free workstation costs; `None`: it is not free.
    pub fn set(&mut self, id: Id, cost: Option<Cost>) {
        self.set_having(id, cost.map(|cost| (cost, ())));
    }

    /// Computes all costs anew, for a policy whose costs change by themselves.
    pub fn refresh(&mut self, mut cost: impl FnMut(Id) -> Cost) {
        let leaves = self.leaves();
        for node in self.nodes.iter_mut().skip(leaves).filter(|node| node.player != NOBODY) {
            node.player.cost = cost(Id::from(node.player.number));
        }
        self.play_all();
    }

    /// Makes these the free ones, all at once, in linear time.
    pub fn fill(&mut self, these: impl IntoIterator<Item = (Id, Cost)>) {
        self.clear();
        for (id, cost) in these {
            let number = id.into();
            if number as usize >= self.leaves() {
                self.grow(number as usize + 1);
            }
            let leaf = self.leaves() + number as usize;
            self.len += usize::from(self.nodes[leaf].player == NOBODY);
            self.nodes[leaf].player = Player { cost, number };
        }
        self.play_all();
    }
}

impl<Id: Copy + From<u32> + Into<u32>, H: Has> Free<Id, H> {
    /// Sets what a free workstation costs, and what it has; `None`: it is not
    /// free.
    pub fn set_having(&mut self, id: Id, of: Option<(Cost, H)>) {
        let number = id.into();
        let leaf = number as usize;
        if leaf >= self.leaves() {
            if of.is_none() {
                return;
            }
            self.grow(leaf + 1);
        }
        let after = of
            .map_or_else(Node::nobody, |(cost, has)| Node { player: Player { cost, number }, has });
        let mut node = self.leaves() + leaf;
        let before = std::mem::replace(&mut self.nodes[node], after);
        self.len = self.len + usize::from(of.is_some()) - usize::from(before.player != NOBODY);
        let mut winner = after;
        while node > 1 {
            winner = winner.above(self.nodes[node ^ 1]);
            node /= 2;
            // From here on up nothing changes.
            if self.nodes[node] == winner {
                break;
            }
            self.nodes[node] = winner;
        }
    }

    /// The cheapest one.
    pub fn choose(&self) -> Option<Id> {
        let best = self.nodes.get(1)?.player;
        (best != NOBODY).then(|| Id::from(best.number))
    }

    /// The cheapest one that will do. Below nodes of which `may` says that none
    /// there has enough, and below those that a better one was found than, nobody
    /// looks.
    pub(crate) fn choose_among(
        &self,
        may: &impl Fn(&H) -> bool,
        will_do: &impl Fn(Id) -> bool,
    ) -> Option<Id> {
        let mut best = NOBODY;
        if self.len > 0 {
            self.look_below(1, may, will_do, &mut best);
        }
        (best != NOBODY).then(|| Id::from(best.number))
    }

    fn look_below(
        &self,
        at: usize,
        may: &impl Fn(&H) -> bool,
        will_do: &impl Fn(Id) -> bool,
        best: &mut Player,
    ) {
        let node = self.nodes[at];
        if !node.player.beats(*best) || !may(&node.has) {
            return;
        }
        if at >= self.leaves() {
            if will_do(Id::from(node.player.number)) {
                *best = node.player;
            }
            return;
        }
        let (left, right) = (2 * at, 2 * at + 1);
        let right_first = self.nodes[right].player.beats(self.nodes[left].player);
        for next in if right_first { [right, left] } else { [left, right] } {
            self.look_below(next, may, will_do, best);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All free ones, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, Cost)> + '_ {
        let players = self.leaf_nodes().iter().filter(|node| node.player != NOBODY);
        players.map(|node| (Id::from(node.player.number), node.player.cost))
    }

    /// Those that may have enough, by number; `each` says whether to go on.
    pub(crate) fn each_among(&self, may: impl Fn(&H) -> bool, mut each: impl FnMut(Id) -> bool) {
        let mut below = if self.len > 0 { vec![1] } else { vec![] };
        while let Some(at) = below.pop() {
            let node = self.nodes[at];
            if node.player == NOBODY || !may(&node.has) {
                continue;
            }
            if at < self.leaves() {
                below.extend([2 * at + 1, 2 * at]);
            } else if !each(Id::from(node.player.number)) {
                return;
            }
        }
    }

    /// Nobody is free any more; the room stays.
    pub fn clear(&mut self) {
        self.nodes.fill(Node::nobody());
        self.len = 0;
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn leaf_nodes(&self) -> &[Node<H>] {
        &self.nodes[self.leaves()..]
    }

    fn play_all(&mut self) {
        for node in (1..self.leaves()).rev() {
            self.nodes[node] = self.nodes[2 * node].above(self.nodes[2 * node + 1]);
        }
    }

    fn grow(&mut self, room: usize) {
        let leaves = room.next_power_of_two().max(2);
        let mut nodes = vec![Node::nobody(); 2 * leaves];
        nodes[leaves..leaves + self.leaves()].copy_from_slice(self.leaf_nodes());
        self.nodes = nodes;
        self.play_all();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The obvious way.
    fn first(of: &BTreeMap<u32, u64>) -> Option<u32> {
        of.iter().min_by_key(|(id, cost)| (**cost, **id)).map(|(id, _)| *id)
    }

    #[track_caller]
    fn check_agrees(free: &Free<u32>, obvious: &BTreeMap<u32, u64>) {
        assert_eq!(free.len, obvious.len());
        let listed: Vec<_> = obvious.iter().map(|(id, cost)| (*id, Cost::new(*cost))).collect();
        assert_eq!(free.iter().collect::<Vec<_>>(), listed);
        assert_eq!(free.choose(), first(obvious));
    }

    proptest! {
        #[test]
        fn it_chooses_as_the_obvious_way_does(
            steps in prop::collection::vec((0u32..40, prop::option::of(0u64..20)), 1..200)
        ) {
            let (mut free, mut obvious) = (Free::default(), BTreeMap::new());
            for (id, cost) in steps {
                free.set(id, cost.map(Cost::new));
                match cost {
                    Some(cost) => obvious.insert(id, cost),
                    None => obvious.remove(&id),
                };
                check_agrees(&free, &obvious);
            }
            free.refresh(|id| Cost::new(u64::from(id * 7 % 5)));
            for (id, cost) in &mut obvious {
                *cost = u64::from(id * 7 % 5);
            }
            check_agrees(&free, &obvious);
            free.fill(obvious.iter().map(|(id, cost)| (*id, Cost::new(*cost))));
            check_agrees(&free, &obvious);
            free.clear();
            check_agrees(&free, &BTreeMap::new());
        }
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Pair(u8, u8);

    impl Has for Pair {
        fn or_more(self, other: Self) -> Self {
            Self(self.0.max(other.0), self.1.max(other.1))
        }
    }

    impl Pair {
        fn covers(self, other: Self) -> bool {
            self.0 >= other.0 && self.1 >= other.1
        }
    }

    proptest! {
        #[test]
        fn of_those_that_have_enough_it_finds_the_cheapest_and_all(
            steps in prop::collection::vec(
                (0u32..40, prop::option::of((0u64..9, 0u8..4, 0u8..4))), 1..80),
            wanted in (0u8..5, 0u8..5), odd in any::<bool>(),
        ) {
            let (mut free, mut obvious) = (Free::default(), BTreeMap::new());
            for (id, of) in steps {
                free.set_having(id, of.map(|(cost, a, b)| (Cost::new(cost), Pair(a, b))));
                match of {
                    Some((cost, a, b)) => obvious.insert(id, (cost, Pair(a, b))),
                    None => obvious.remove(&id),
                };
            }
            let wanted = Pair(wanted.0, wanted.1);
            let will_do = |id: u32| !odd || id % 2 == 1;
            let fits = |(id, (_, has)): &(&u32, &(u64, Pair))| has.covers(wanted) && will_do(**id);
            let best = obvious.iter().filter(fits).min_by_key(|(id, (cost, _))| (*cost, **id));
            let found = free.choose_among(
                &|has: &Pair| has.covers(wanted),
                // A node above may have enough of both, and none below it.
                &|id| obvious[&id].1.covers(wanted) && will_do(id),
            );
            prop_assert_eq!(found, best.map(|(id, _)| *id));
            let mut all = vec![];
            free.each_among(|has: &Pair| has.covers(wanted), |id| {
                all.push(id);
                true
            });
            let enough = obvious.iter().filter(|(_, (_, has))| has.covers(wanted));
            prop_assert_eq!(all, enough.map(|(id, _)| *id).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_worst_rank_of_all_is_still_a_rank() {
        let mut free = Free::<u32>::default();
        free.set(1, Some(Cost::new(u64::MAX)));
        assert_eq!(free.choose(), Some(1));
    }
}
