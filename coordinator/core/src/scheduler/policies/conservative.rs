//! Conservative backfilling: everybody in the queue is promised a start, and
//! whoever delays nobody overtakes.

use std::time::Duration;

use gleaner_common::time::Moment;

use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::state::{State, Turn};

pub(super) const CONSERVATIVE: Named = Named {
    name: "conservative",
    line: "everybody in the queue is promised a start; whoever delays nobody overtakes",
    source: "Mu'alem and Feitelson 2001, §2; planned anew in the order of the queue",
    build: |_| Box::new(Conservative { plan: Profile::default() }),
};

#[derive(Debug)]
struct Conservative {
    /// What is free when, all promises kept; as of the last stage.
    plan: Profile,
}

impl Scheduling for Conservative {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        if cycle.waiting_count() == 0 {
            self.plan = Profile::default();
            return;
        }
        let changes = cycle.changes();
        let has_due = self.plan.is_stale(cycle.now());
        let mut arrived = changes.arrived.clone();
        arrived.sort_unstable();
        let last_before = self.plan.last;
        let in_order = arrived.first().zip(last_before).is_none_or(|(a, last)| *a > last);
        let only_arrivals = !changes.other && !has_due && in_order && self.plan.is_made();
        let turns: Vec<Turn> = if only_arrivals {
            arrived
        } else {
            self.plan = Profile::of(cycle, cycle.now());
            cycle.waiting().map(|(turn, _)| turn).collect()
        };
        for turn in turns {
            self.place(cycle, turn);
        }
    }
}

impl Conservative {
    fn place(&mut self, cycle: &mut Cycle<'_>, turn: Turn) {
        let Some(job) = cycle.waiting_at(turn) else { return };
        let size = job.request.sizes.preferred();
        let takes = job.request.takes(size).unwrap_or(Duration::MAX);
        let now = cycle.now();
        self.plan.last = Some(turn);
        let Some(start) = self.plan.earliest(now, size, takes) else {
            return cycle.wait(turn, without_promise(cycle, size));
        };
        self.plan.take(start, takes, size);
        if start > now {
            let first = self.plan.promised.map_or(start, |first| first.min(start));
            self.plan.promised = Some(first);
            cycle.reserve(turn, size, start);
        } else {
            cycle.start(turn, size);
        }
    }
}

/// It never fits, or not as long as nobody knows when a promise before it is over.
fn without_promise(cycle: &Cycle<'_>, needs: u32) -> Reason {
    let free = cycle.free();
    match cycle.first_waiting() {
        Some(((.., first), _)) if needs <= free => Reason::Behind(first),
        Some(_) | None => Reason::TooFewFree { needs, free },
    }
}

/// What is free from when on: steps, ascending. A last one at [`Moment::MAX`] is
/// what is free when all have ended of whom nobody knows when they do.
#[derive(Debug, Default)]
struct Profile {
    steps: Vec<(Moment, u32)>,
    /// The first promise, and who was planned last.
    promised: Option<Moment>,
    last: Option<Turn>,
    is_last_promised: bool,
}

impl Profile {
    fn is_made(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Was something to happen by now? Then it did not, or not so.
    fn is_stale(&self, now: Moment) -> bool {
        let next = self.steps.get(1).map(|(at, _)| *at);
        self.promised.into_iter().chain(next).any(|at| at <= now)
    }

    fn of(state: &State, now: Moment) -> Self {
        let mut steps = vec![(now, state.free())];
        for (end, size) in state.ends() {
            // A job that outlives its estimate ends any moment now, not now.
            let end = end.max(now + Duration::from_nanos(1));
            let (at, free) = steps[steps.len() - 1];
            if at == end {
                steps.last_mut().expect("the first step").1 += size;
            } else {
                steps.push((end, free + size));
            }
        }
        Self { steps, ..Self::default() }
    }

    /// When so many are free for so long: through the last step too, if nobody
    /// knows for how long.
    fn earliest(&self, now: Moment, size: u32, takes: Duration) -> Option<Moment> {
        let first = self.steps.partition_point(|(at, _)| *at <= now).saturating_sub(1);
        let mut start: Option<Moment> = None;
        for (at, free) in &self.steps[first..] {
            let is_over = |start: &Moment| (*start + takes) < Moment::MAX && *start + takes <= *at;
            if let Some(start) = start.filter(is_over) {
                return Some(start);
            }
            start = (*free >= size).then(|| start.unwrap_or((*at).max(now)));
        }
        start
    }

    /// Whose end nobody knows gives back in the last step, unless somebody before it
    /// was promised a start there.
    fn take(&mut self, start: Moment, takes: Duration, size: u32) {
        let (from, end) = (self.step_at(start), start + takes);
        let lasts = end == Moment::MAX && (start == end || self.is_last_promised);
        self.is_last_promised |= start == Moment::MAX;
        let to = if lasts { self.steps.len() } else { self.step_at(end) };
        for (_, free) in &mut self.steps[from..to] {
            *free -= size;
        }
    }

    /// The step that begins then; there is one afterwards.
    fn step_at(&mut self, at: Moment) -> usize {
        match self.steps.binary_search_by_key(&at, |(step, _)| *step) {
            Ok(found) => found,
            Err(next) => {
                let free = next.checked_sub(1).map_or(0, |before| self.steps[before].1);
                self.steps.insert(next, (at, free));
                next
            }
        }
    }
}
