//! The one place that reads time.
//!
//! Moments are nanoseconds of `CLOCK_BOOTTIME`, which goes on while the
//! machine sleeps: a lease ends on time whether or not anybody was awake.
//! Sleeping uses the kernel's timer on the same clock, because the timers of
//! tokio and of `poll` stand still while the machine does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use gleaner_common::time::{Moment, WallTime};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
};
use tokio::io::unix::AsyncFd;

/// For waits of up to this long, tokio's timer does: a machine that sleeps meanwhile adds
/// less than this to the wait.
const SHORT: Duration = Duration::from_secs(1);

const SECOND_NS: u64 = 1_000_000_000;

/// Reads time. Copy it to wherever time is needed; a core gets the moments
/// themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    pub fn new() -> Self {
        Self
    }

    /// Nanoseconds since this machine's boot, sleep included.
    pub fn now(self) -> Moment {
        let now = rustix::time::clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let ns = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment(seconds.saturating_mul(SECOND_NS).saturating_add(ns))
    }

    /// The wall clock, for logs and people. It may jump.
    pub fn wall(self) -> WallTime {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        WallTime(now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec))
    }

    /// Returns at or just after the deadline; at once if it has passed, never
    /// for `None`. Dropping it loses nothing.
    pub async fn sleep_until(self, deadline: Option<Moment>) {
        let Some(at) = deadline.filter(|at| *at < Moment::MAX) else {
            return std::future::pending().await;
        };
        if at.since(self.now()) > SHORT
            && let Ok(alarm) = Alarm::at(at)
            && let Ok(ready) = register(alarm)
        {
            // An error means that the runtime is ending: fall through.
            let _ = ready.readable().await;
        }
        // Also the way out if there are no file descriptors left.
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SHORT)).await;
        }
    }

    /// Waits for a span of this clock.
    pub async fn sleep(self, span: Duration) {
        self.sleep_until(Some(self.now() + span)).await;
    }
}

#[expect(unsafe_code, reason = "tokio's safe way to wait for a descriptor is deprecated")]
fn register(alarm: Alarm) -> io::Result<AsyncFd<Alarm>> {
    // SAFETY: an `Alarm` owns its file descriptor, gives out the same one each
    // time, and neither replaces nor closes it before it is dropped.
    Ok(unsafe { AsyncFd::register(alarm) }?)
}

/// A kernel timer on the boot clock for a poll set: readable from its deadline
/// on, also if the machine slept across it.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// # Errors
    /// No file descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// # Errors
    /// No file descriptor left.
    pub fn at(deadline: Moment) -> io::Result<Self> {
        let alarm = Self::new()?;
        alarm.set(Some(deadline))?;
        Ok(alarm)
    }

    /// Moves the deadline; `None` disarms. Not readable any more until then.
    ///
    /// # Errors
    /// Those of the kernel, which knows none for these arguments.
    pub fn set(&self, deadline: Option<Moment>) -> io::Result<()> {
        // Zero would disarm: a deadline at the boot itself has passed anyway.
        let ns = deadline.filter(|at| *at < Moment::MAX).map_or(0, |at| at.0.max(1));
        let at = Timespec {
            tv_sec: i64::try_from(ns / SECOND_NS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % SECOND_NS).unwrap_or(0),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: at };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn sleeping_ends_after_the_deadline_with_either_timer() {
        let clock = Clock::new();
        for span in [Duration::ZERO, Duration::from_millis(20), SHORT + Duration::from_millis(20)] {
            let deadline = clock.now() + span;
            runtime().block_on(clock.sleep_until(Some(deadline)));
            assert!(clock.now() >= deadline, "{span:?}");
        }
    }

    #[test]
    fn without_a_deadline_nothing_ends_the_sleep() {
        let clock = Clock::new();
        runtime().block_on(async {
            for never in [None, Some(Moment::MAX)] {
                tokio::select! {
                    () = clock.sleep_until(never) => panic!("woke up"),
                    () = clock.sleep(Duration::from_millis(5)) => {}
                }
            }
        });
    }

    #[test]
    fn an_alarm_is_readable_once_due_and_not_when_disarmed() {
        let clock = Clock::new();
        let readable = |alarm: &Alarm, timeout_ms: i64| {
            let mut set = [rustix::event::PollFd::new(alarm, rustix::event::PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 };
            rustix::event::poll(&mut set, Some(&timeout)).unwrap() == 1
        };
        let alarm = Alarm::at(clock.now() + Duration::from_millis(5)).unwrap();
        assert!(readable(&alarm, 900));
        alarm.set(None).unwrap();
        assert!(!readable(&alarm, 10));
        alarm.set(Some(Moment::ZERO)).unwrap();
        assert!(readable(&alarm, 0));
    }
}
