//! Where time went.

use std::ops::AddAssign;
use std::time::Duration;

use gleaner_replay::Breakdown;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) compute: u64,
    pub(crate) repeated: u64,
    pub(crate) slowed: u64,
    pub(crate) messages: u64,
    pub(crate) waiting: u64,
    pub(crate) frozen: u64,
    pub(crate) moving: u64,
    pub(crate) busy: u32,
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.compute += other.compute;
        self.repeated += other.repeated;
        self.slowed += other.slowed;
        self.messages += other.messages;
        self.waiting += other.waiting;
        self.frozen += other.frozen;
        self.moving += other.moving;
        self.busy += other.busy;
    }
}

impl Account {
    pub(crate) fn breakdown(self) -> Breakdown {
        Breakdown {
            compute: Duration::from_nanos(self.compute),
            repeated: Duration::from_nanos(self.repeated),
            slowed: Duration::from_nanos(self.slowed),
            messages: Duration::from_nanos(self.messages),
            waiting: Duration::from_nanos(self.waiting),
            frozen: Duration::from_nanos(self.frozen),
            moving: Duration::from_nanos(self.moving),
        }
    }
}
