//! The end of the lease, as a keeper sees to it: by a timer of the kernel, on a clock
//! that goes on while the machine sleeps, and a page that its agent writes.
//!
//! It is the last of three: the worker ends its guests itself, and the supervisor
//! those of a worker that hangs. This one holds if both hang. A renewal costs a
//! keeper nothing: it looks only where the lease was to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use gleaner_shell::clock::{Alarm, Clock};

use crate::supervisor::lease_end_in;

/// The page was being written when it was read: look again.
const AGAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct LeaseTimer {
    page: OwnedFd,
    alarm: Alarm,
}

impl LeaseTimer {
    pub(super) fn new(page: OwnedFd) -> io::Result<Self> {
        Ok(Self { page, alarm: Alarm::new()? })
    }

    /// There is a guest from now on.
    pub(super) fn begin(&self) -> io::Result<()> {
        let look = lease_end_in(&self.page).unwrap_or(Clock.now() + AGAIN);
        self.alarm.set(Some(look))
    }

    pub(super) fn end(&self) -> io::Result<()> {
        self.alarm.set(None)
    }

    /// It rang: is the lease over, or was it renewed meanwhile?
    pub(super) fn is_over(&self) -> io::Result<bool> {
        let is_over = lease_end_in(&self.page).is_some_and(|end| Clock.now() >= end);
        if !is_over {
            self.begin()?;
        }
        Ok(is_over)
    }
}

/// Readable when it rings.
impl AsFd for LeaseTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }
}
