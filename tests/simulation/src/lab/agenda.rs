//! What is to happen, by time, then in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gleaner_common::time::Moment;

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    /// The last number is where the happening lies: it is large, and is not
    /// moved about.
    order: BinaryHeap<Reverse<(Moment, u64, u32)>>,
    happenings: Vec<Option<T>>,
    free: Vec<u32>,
    planned: u64,
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self { order: BinaryHeap::new(), happenings: vec![], free: vec![], planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Moment, happening: T) {
        self.planned += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            u32::try_from(self.happenings.len() - 1).expect("it fits into memory")
        });
        self.happenings[slot as usize] = Some(happening);
        self.order.push(Reverse((at, self.planned, slot)));
    }

    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.order.peek().map(|Reverse((at, ..))| *at)
    }

    /// What is due, if anything is.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<T> {
        self.next_at().filter(|at| *at <= now)?;
        let Reverse((.., slot)) = self.order.pop()?;
        self.free.push(slot);
        self.happenings[slot as usize].take()
    }
}
