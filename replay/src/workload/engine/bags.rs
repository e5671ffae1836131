//! Jobs that are bags of equal parts, on a processor each: how the coordinator
//! runs a bag of subprograms (its `core/schedule`), on a steady site.
//!
//! A processor goes on with the next part when one has ended. A malleable bag
//! that was asked for processors gives them there, so that no work is lost; and
//! gives them back where the policy keeps none for it. What is left of it
//! cannot use more processors than it has parts.

use std::cmp::Reverse;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Allowed, Class, Fact, Request, Sizes};

use super::super::measures::Outcome;
use super::super::rules::Order;
use super::{Engine, WorkloadJob};

/// What is left of a bag that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bag {
    /// How long a part takes on a processor.
    takes: Duration,
    /// Parts that wait for a processor.
    queued: u32,
}

impl Bag {
    pub(super) fn of(job: &WorkloadJob, parts: u32) -> Self {
        let takes = job.takes * job.request.sizes.preferred() / parts.max(1);
        Self { takes, queued: parts }
    }
}

impl<I: Iterator<Item = WorkloadJob>, T: FnMut(&Outcome)> Engine<'_, I, T> {
    /// So many parts begin, if there are as many.
    pub(super) fn begin_parts(&mut self, now: Moment, job: JobId, many: u32) -> u32 {
        let Some(it) = self.jobs.get_mut(&job) else { return 0 };
        let Some(bag) = it.run.as_mut().and_then(|run| run.bag.as_mut()) else { return 0 };
        let begun = many.min(bag.queued);
        bag.queued -= begun;
        let end = Reverse((now + bag.takes, job, it.so_far.plan));
        self.ends.extend(std::iter::repeat_n(end, begun as usize));
        begun
    }

    /// Has a part ended that was not the bag's last one? Its processor goes on
    /// with the next, or is given up.
    pub(super) fn end_of_part(&mut self, job: JobId) -> bool {
        let now = self.now;
        let Some(it) = self.jobs.get_mut(&job) else { return false };
        let Some(run) = it.run.as_mut() else { return false };
        let Some(bag) = run.bag else { return false };
        if bag.queued == 0 && run.size == 1 {
            return false;
        }
        let scheduler = &mut self.schedulers[it.group];
        let state = scheduler.state();
        let is_needed =
            state.get(job).is_some_and(|it| it.asked > 0) || state.lacking().next().is_some();
        let keeps = scheduler.keeps() || it.of.request.class != Class::Malleable;
        let goes_on = bag.queued > 0 && keeps && !is_needed;
        let left = bag.queued + run.size - 1;
        if let Some(sizes) = sizes_of_rest(&it.of.request, left) {
            scheduler.handle(now, Fact::Sized { job, sizes });
        }
        self.has_news[it.group] = true;
        if goes_on {
            self.begin_parts(now, job, 1);
            return true;
        }
        it.hold_until(now);
        let Some(run) = it.run.as_mut() else { return true };
        run.size -= 1;
        // A malleable bag of no processors waits again.
        let size = run.size;
        it.so_far.adaptations += u32::from(bag.queued > 0);
        self.schedulers[it.group].handle(now, Fact::Resized { job, size });
        true
    }

    /// A bag takes what it is offered, as far as it has parts; what it is asked
    /// for it gives at the ends of some.
    pub(super) fn order_bag(&mut self, job: JobId, order: Order) -> bool {
        self.summary.negotiations += 1;
        let Order::Grow(by) = order else { return false };
        let now = self.now;
        let by = self.begin_parts(now, job, by);
        let Some(it) = self.jobs.get_mut(&job) else { return false };
        it.hold_until(now);
        let group = it.group;
        if let Some(run) = &mut it.run {
            run.size += by;
            it.so_far.largest = it.so_far.largest.max(run.size);
            it.so_far.adaptations += u32::from(by > 0);
        }
        self.schedulers[group].handle(now, Fact::Answered { job, by });
        true
    }
}

/// The sizes of what is left, if that is less than it was meant for.
fn sizes_of_rest(request: &Request, left: u32) -> Option<Sizes> {
    let sizes = &request.sizes;
    if left >= sizes.max() {
        return None;
    }
    let three = [sizes.min(), sizes.preferred(), sizes.max()].map(|size| size.min(left));
    Sizes::new(three, sizes.allowed().clone()).or_else(|_| Sizes::new([left; 3], Allowed::Any)).ok()
}
