//! Which groups of workstations (a lab, a floor) the components of a job go to
//! (Buisson et al. 2007, §IV.A).
//!
//! Sizes are decided by then. The promise: what is chosen fits, or nothing is
//! chosen: a job starts with all of its components or not at all. Which
//! workstations of a group are taken is placement.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// A group of workstations, as far as this choice goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    pub free: u32,
    /// How long it takes until the job's input files are there; 0 if they are.
    pub transfer_s: f64,
}

/// How groups are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Each component where most processors are idle.
    #[default]
    WorstFit,
    /// Each component where the input files are, or soonest will be.
    CloseToFiles,
    /// Components are kept together: as few groups as will do.
    ClusterMinimisation,
    /// The job is cut into components as its groups have room: as few groups
    /// as can be.
    FlexibleClusterMinimisation,
}

impl Spread {
    pub const ALL: [Self; 4] = [
        Self::WorstFit,
        Self::CloseToFiles,
        Self::ClusterMinimisation,
        Self::FlexibleClusterMinimisation,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::WorstFit => "worst-fit",
            Self::CloseToFiles => "close-to-files",
            Self::ClusterMinimisation => "cluster-minimisation",
            Self::FlexibleClusterMinimisation => "flexible-cluster-minimisation",
        }
    }

    /// The group of each component, with its size; a flexible job's components
    /// are made here. `None` if they do not all fit.
    pub fn choose(self, components: &[u32], groups: &[Group]) -> Option<Vec<(usize, u32)>> {
        let mut free: Vec<u32> = groups.iter().map(|group| group.free).collect();
        match self {
            Self::FlexibleClusterMinimisation => cut(components.iter().sum(), &free),
            Self::ClusterMinimisation => pack(components, &mut free),
            Self::WorstFit => each(components, &mut free, |index, free| (Reverse(free), index)),
            Self::CloseToFiles => each(components, &mut free, |index, free| {
                // Times are not negative, so their bits are in their order; nor are
                // they the zero below zero, which a sum of nothing is.
                ((groups[index].transfer_s.max(0.0) + 0.0).to_bits(), Reverse(free), index)
            }),
        }
    }
}

/// Each component in turn where the key is least, of those with room.
fn each<K: Ord>(
    components: &[u32],
    free: &mut [u32],
    key: impl Fn(usize, u32) -> K,
) -> Option<Vec<(usize, u32)>> {
    let mut chosen = vec![];
    for size in components {
        let with_room = (0..free.len()).filter(|index| free[*index] >= *size);
        let best = with_room.min_by_key(|index| key(*index, free[*index]))?;
        free[best] -= size;
        chosen.push((best, *size));
    }
    Some(chosen)
}

/// The group that holds most of what is left, again and again; the largest
/// components first. Sonmez et al. 2006 has more to say, of which Buisson et
/// al. give the aim only: the least number of groups is not always found.
fn pack(components: &[u32], free: &mut [u32]) -> Option<Vec<(usize, u32)>> {
    let mut left: Vec<usize> = (0..components.len()).collect();
    left.sort_by_key(|index| Reverse(components[*index]));
    let mut chosen = vec![(0, 0); components.len()];
    while !left.is_empty() {
        let held = |free: u32| {
            let mut room = free;
            let fits = |index: &&usize| {
                let size = components[**index];
                room.checked_sub(size).map(|less| room = less).is_some()
            };
            left.iter().filter(fits).copied().collect::<Vec<usize>>()
        };
        let sum = |held: &[usize]| held.iter().map(|index| components[*index]).sum::<u32>();
        let options = (0..free.len()).map(|group| (group, held(free[group])));
        let (group, held) = options.max_by_key(|(group, held)| (sum(held), Reverse(*group)))?;
        if held.is_empty() {
            return None;
        }
        free[group] -= sum(&held);
        left.retain(|index| !held.contains(index));
        for index in held {
            chosen[index] = (group, components[index]);
        }
    }
    Some(chosen)
}

/// The largest groups, until it fits; the smallest that does for the rest.
fn cut(size: u32, free: &[u32]) -> Option<Vec<(usize, u32)>> {
    let mut order: Vec<usize> = (0..free.len()).collect();
    order.sort_by_key(|index| (Reverse(free[*index]), *index));
    let (mut left, mut chosen) = (size, vec![]);
    while left > 0 {
        let enough = order.iter().rposition(|index| free[*index] >= left);
        let next = if order.is_empty() { None } else { Some(order.remove(enough.unwrap_or(0))) };
        let group = next.filter(|group| free[*group] > 0)?;
        let part = left.min(free[group]);
        chosen.push((group, part));
        left -= part;
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups(free: &[u32]) -> Vec<Group> {
        free.iter().map(|free| Group { free: *free, transfer_s: 0.0 }).collect()
    }

    #[track_caller]
    fn check(spread: Spread, components: &[u32], free: &[u32], expected: Option<&[(usize, u32)]>) {
        let chosen = spread.choose(components, &groups(free));
        assert_eq!(chosen.as_deref(), expected, "{}", spread.name());
    }

    #[test]
    fn worst_fit_levels_what_is_idle() {
        check(Spread::WorstFit, &[2, 2, 2], &[3, 6, 5], Some(&[(1, 2), (2, 2), (1, 2)]));
        // Its disadvantage: levelled groups have no room for what is large.
        check(Spread::WorstFit, &[2, 4], &[4, 4], Some(&[(0, 2), (1, 4)]));
        check(Spread::WorstFit, &[2, 2, 4], &[4, 4], None);
    }

    #[test]
    fn close_to_files_goes_where_the_files_are_and_then_where_they_soonest_come() {
        let mut groups = groups(&[9, 4, 9]);
        (groups[0].transfer_s, groups[2].transfer_s) = (80.0, 3.0);
        let chosen = Spread::CloseToFiles.choose(&[3, 3, 9], &groups);
        assert_eq!(chosen, Some(vec![(1, 3), (2, 3), (0, 9)]));
    }

    #[test]
    fn few_groups_are_combined_and_fewer_where_components_can_be_cut() {
        let free = [4, 6, 5];
        check(Spread::ClusterMinimisation, &[3, 3, 4], &free, Some(&[(1, 3), (1, 3), (0, 4)]));
        check(Spread::ClusterMinimisation, &[4, 4, 4, 3], &free, None);
        check(
            Spread::FlexibleClusterMinimisation,
            &[4, 4, 4, 3],
            &free,
            Some(&[(1, 6), (2, 5), (0, 4)]),
        );
        check(Spread::FlexibleClusterMinimisation, &[4], &free, Some(&[(0, 4)]));
    }

    proptest! {
        #[test]
        fn whatever_is_chosen_fits_and_is_all_of_the_job(
            components in prop::collection::vec(1..9_u32, 1..6),
            free in prop::collection::vec(0..12_u32, 1..6)
        ) {
            for spread in Spread::ALL {
                let Some(chosen) = spread.choose(&components, &groups(&free)) else { continue };
                let total: u32 = chosen.iter().map(|(_, size)| *size).sum();
                prop_assert_eq!(total, components.iter().sum::<u32>());
                for (group, free) in free.iter().enumerate() {
                    let taken = chosen.iter().filter(|(at, _)| *at == group).map(|(_, size)| *size);
                    prop_assert!(taken.sum::<u32>() <= *free);
                }
            }
        }
    }
}
