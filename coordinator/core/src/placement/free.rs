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

/// An ordered index of free workstations. Their numbers are to be small, such
/// as positions in a list: it takes room for the highest.
#[derive(Debug)]
pub struct Free<Id> {
    /// The root is 1, the children of `n` are `2n` and `2n + 1`, the leaves
    /// are the upper half. Empty or a power of two long.
    nodes: Vec<Player>,
    len: usize,
    ids: PhantomData<Id>,
}

impl<Id> Default for Free<Id> {
    fn default() -> Self {
        Self { nodes: vec![], len: 0, ids: PhantomData }
    }
}

impl<Id> Clone for Free<Id> {
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
        let number = id.into();
        let leaf = number as usize;
        if leaf >= self.leaves() {
            if cost.is_none() {
                return;
            }
            self.grow(leaf + 1);
        }
        let player = cost.map_or(NOBODY, |cost| Player { cost, number });
        let mut node = self.leaves() + leaf;
        let before = std::mem::replace(&mut self.nodes[node], player);
        self.len = self.len + usize::from(cost.is_some()) - usize::from(before != NOBODY);
        let mut winner = player;
        while node > 1 {
            let rival = self.nodes[node ^ 1];
            winner = if rival.beats(winner) { rival } else { winner };
            node /= 2;
            // From here on up nothing changes.
            if self.nodes[node] == winner {
                break;
            }
            self.nodes[node] = winner;
        }
    }

    /// The cheapest one that is not the avoided one.
    pub fn choose(&self, avoided: Option<Id>) -> Option<Id> {
        let best = *self.nodes.get(1)?;
        let chosen = match avoided.map(Into::into) {
            Some(number) if number == best.number => self.beaten_by(best),
            Some(_) | None => best,
        };
        (chosen != NOBODY).then(|| Id::from(chosen.number))
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All free ones, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, Cost)> + '_ {
        let players = self.players().iter().filter(|player| **player != NOBODY);
        players.map(|player| (Id::from(player.number), player.cost))
    }

    /// Computes all costs anew, for a policy whose costs change by themselves.
    pub fn refresh(&mut self, mut cost: impl FnMut(Id) -> Cost) {
        let leaves = self.leaves();
        for player in self.nodes.iter_mut().skip(leaves).filter(|player| **player != NOBODY) {
            player.cost = cost(Id::from(player.number));
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
            self.len += usize::from(self.nodes[leaf] == NOBODY);
            self.nodes[leaf] = Player { cost, number };
        }
        self.play_all();
    }

    /// Nobody is free any more; the room stays.
    pub fn clear(&mut self) {
        self.nodes.fill(NOBODY);
        self.len = 0;
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn players(&self) -> &[Player] {
        &self.nodes[self.leaves()..]
    }

    fn play_all(&mut self) {
        for node in (1..self.leaves()).rev() {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            self.nodes[node] = if right.beats(left) { right } else { left };
        }
    }

    /// The best of those that lost to the best one, on its way up.
    fn beaten_by(&self, best: Player) -> Player {
        let mut node = self.leaves() + best.number as usize;
        let mut second = NOBODY;
        while node > 1 {
            let rival = self.nodes[node ^ 1];
            if rival.beats(second) {
                second = rival;
            }
            node /= 2;
        }
        second
    }

    fn grow(&mut self, room: usize) {
        let leaves = room.next_power_of_two().max(2);
        let mut nodes = vec![NOBODY; 2 * leaves];
        nodes[leaves..leaves + self.leaves()].copy_from_slice(self.players());
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
    fn first(of: &BTreeMap<u32, u64>, avoided: Option<u32>) -> Option<u32> {
        let others = of.iter().filter(|(id, _)| Some(**id) != avoided);
        others.min_by_key(|(id, cost)| (**cost, **id)).map(|(id, _)| *id)
    }

    #[track_caller]
    fn check_agrees(free: &Free<u32>, obvious: &BTreeMap<u32, u64>) {
        assert_eq!(free.len, obvious.len());
        let listed: Vec<_> = obvious.iter().map(|(id, cost)| (*id, Cost::new(*cost))).collect();
        assert_eq!(free.iter().collect::<Vec<_>>(), listed);
        for avoided in [None, Some(0), first(obvious, None)] {
            assert_eq!(free.choose(avoided), first(obvious, avoided), "avoiding {avoided:?}");
        }
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

    #[test]
    fn the_worst_rank_of_all_is_still_a_rank() {
        let mut free = Free::<u32>::default();
        free.set(1, Some(Cost::new(u64::MAX)));
        assert_eq!((free.choose(None), free.choose(Some(1))), (Some(1), None));
    }
}
