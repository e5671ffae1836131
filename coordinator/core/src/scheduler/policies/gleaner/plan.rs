//! Where nobody can change its size: the order of those who wait that brings
//! their ends nearest, found by trying.
//!
//! The promise: as many orders are tried as [`TRIED`] says and no more, and what
//! comes out is never later, in the sum, than the best of the orders it began
//! with. Each order is carried out on paper as conservative backfilling does:
//! everybody gets the first gap that is left (Zheng et al. 2016, "Exploring
//! plan-based scheduling for large-scale computing systems", who anneal where
//! this descends).

/// Orders, in all.
const TRIED: usize = 160;
/// Whoever is further behind keeps its place.
const MOVED: usize = 20;
/// So much less, in seconds, is less.
const LESS_S: f64 = 1e-6;

/// One that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) size: u32,
    pub(super) takes_s: f64,
    /// Nobody passes whoever has a lower one.
    pub(super) rank: u32,
}

/// From now on, in seconds: what is free then.
type Steps = Vec<(f64, u32)>;

/// Starts, each by the position of its item.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) starts_s: Vec<f64>,
    sum_s: f64,
}

/// `items` are in an order to begin with; `ends` says when how many become free.
pub(super) fn plan(items: &[Item], free: u32, ends: Vec<(f64, u32)>) -> Plan {
    let steps = steps_of(free, ends);
    let by = |key: &dyn Fn(&Item) -> f64| {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&items[*a], &items[*b]);
            a.rank.cmp(&b.rank).then(key(a).total_cmp(&key(b)))
        });
        order
    };
    let orders = [
        by(&|_| 0.0),
        by(&|item| item.takes_s),
        by(&|item| item.takes_s * f64::from(item.size)),
    ];
    let tried = orders.map(|order| (carried_out(items, &order, &steps), order));
    let mut best = tried.into_iter().reduce(|a, b| if b.0.sum_s < a.0.sum_s - LESS_S { b } else { a });
    if let Some((plan, order)) = &mut best {
        descend(items, &steps, plan, order);
    }
    best.map_or_else(|| Plan { starts_s: vec![], sum_s: 0.0 }, |(plan, _)| plan)
}

fn steps_of(free: u32, mut ends: Vec<(f64, u32)>) -> Steps {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut steps = vec![(0.0, free)];
    for (end_s, size) in ends {
        let (at_s, free) = steps[steps.len() - 1];
        if end_s <= at_s {
            steps.pop();
        }
        steps.push((end_s.max(at_s), free + size));
    }
    steps
}

/// Puts one before another as long as that is better.
fn descend(items: &[Item], steps: &Steps, plan: &mut Plan, order: &mut [usize]) {
    let (mut left, among) = (TRIED - 3, order.len().min(MOVED));
    let mut is_better = true;
    while std::mem::take(&mut is_better) {
        for to in 0..among {
            for from in to + 1..among {
                let passes = items[order[from]].rank == items[order[to]].rank;
                if !passes || left == 0 {
                    break;
                }
                left -= 1;
                order[to..=from].rotate_right(1);
                let other = carried_out(items, order, steps);
                if other.sum_s < plan.sum_s - LESS_S {
                    (*plan, is_better) = (other, true);
                } else {
                    order[to..=from].rotate_left(1);
                }
            }
        }
    }
}

fn carried_out(items: &[Item], order: &[usize], steps: &Steps) -> Plan {
    let mut steps = steps.clone();
    let mut plan = Plan { starts_s: vec![f64::INFINITY; items.len()], sum_s: 0.0 };
    for index in order {
        let item = &items[*index];
        let Some(start_s) = first_gap(&steps, item) else { continue };
        take(&mut steps, start_s, item);
        plan.starts_s[*index] = start_s;
        plan.sum_s += start_s + item.takes_s;
    }
    plan
}

/// `None` if there are never so many.
fn first_gap(steps: &Steps, item: &Item) -> Option<f64> {
    let mut start: Option<f64> = None;
    for (at_s, free) in steps {
        if let Some(start_s) = start.filter(|start_s| start_s + item.takes_s <= *at_s) {
            return Some(start_s);
        }
        start = (*free >= item.size).then(|| start.unwrap_or(*at_s));
    }
    start
}

fn take(steps: &mut Steps, start_s: f64, item: &Item) {
    // The later one first: it does not move what is before it.
    step_at(steps, start_s + item.takes_s);
    let from = step_at(steps, start_s);
    let until_s = start_s + item.takes_s;
    for (_, free) in steps[from..].iter_mut().take_while(|(at_s, _)| *at_s < until_s) {
        *free -= item.size;
    }
}

/// The step that begins then; there is one afterwards.
fn step_at(steps: &mut Steps, at_s: f64) -> usize {
    let next = steps.partition_point(|(step_s, _)| *step_s < at_s);
    if steps.get(next).is_none_or(|(step_s, _)| *step_s > at_s) {
        let free = next.checked_sub(1).map_or(0, |before| steps[before].1);
        steps.insert(next, (at_s, free));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROCESSORS: u32 = 8;

    fn any_items() -> impl Strategy<Value = Vec<Item>> {
        let item = (1..=PROCESSORS, 1..50_u32, 0..2_u32);
        prop::collection::vec(item, 1..7).prop_map(|items| {
            let item = |(size, takes, rank)| Item { size, takes_s: f64::from(takes), rank };
            items.into_iter().map(item).collect()
        })
    }

    /// Of what runs, each (end, processors).
    fn any_ends() -> impl Strategy<Value = Vec<(f64, u32)>> {
        prop::collection::vec((1..60_u32, 1..=2_u32), 0..4)
            .prop_map(|ends| ends.into_iter().map(|(end, size)| (f64::from(end), size)).collect())
    }

    proptest! {
        /// Nobody starts where too few are free, and no order by length, by
        /// area or as they come is better.
        #[test]
        fn a_plan_can_be_carried_out_and_no_order_it_begins_with_is_better(
            items in any_items(), ends in any_ends()
        ) {
            let held: u32 = ends.iter().map(|(_, size)| size).sum();
            let found = plan(&items, PROCESSORS - held, ends.clone());
            let starts = &found.starts_s;
            for at_s in starts {
                let runs = |(item, start_s): (&Item, &f64)| {
                    (start_s <= at_s && *at_s < start_s + item.takes_s).then_some(item.size)
                };
                let new: u32 = items.iter().zip(starts).filter_map(runs).sum();
                let old = ends.iter().filter(|(end_s, _)| end_s > at_s);
                prop_assert!(new + old.map(|(_, size)| size).sum::<u32>() <= PROCESSORS);
            }
            let total = |starts: &[f64]| {
                starts.iter().zip(&items).map(|(start_s, item)| start_s + item.takes_s).sum::<f64>()
            };
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by(|a, b| {
                let (a, b) = (&items[*a], &items[*b]);
                a.rank.cmp(&b.rank).then(a.takes_s.total_cmp(&b.takes_s))
            });
            let other = carried_out(&items, &order, &steps_of(PROCESSORS - held, ends));
            prop_assert!(total(starts) <= total(&other.starts_s) + 1e-3);
        }
    }

    #[test]
    fn the_short_one_goes_first_and_nobody_passes_who_is_overdue() {
        let item = |takes_s, rank| Item { size: 8, takes_s, rank };
        let found = plan(&[item(100.0, 0), item(10.0, 0)], 8, vec![]);
        assert_eq!(found.starts_s, [10.0, 0.0]);
        let found = plan(&[item(100.0, 0), item(10.0, 1)], 8, vec![]);
        assert_eq!(found.starts_s, [0.0, 100.0]);
    }
}
