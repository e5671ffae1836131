//! How long a rank has computed, also where it has moved meanwhile.
//!
//! A process that is restored elsewhere has new threads, whose CPU clocks
//! begin at zero. What does move is its timers: the remainder of one that
//! counts CPU time down and never ends says how much was used.

use std::io;

use rustix::time::{ClockId, clock_gettime};

/// Longer than any program computes.
const NEVER_S: i64 = 1 << 30;

/// A clock of CPU time.
#[derive(Clone, Copy, Debug)]
pub enum CpuClock {
    /// The time of the thread that looks.
    Thread,
    /// The time of the whole process, through all its moves. It takes the process's
    /// profiling timer.
    Process,
}

impl CpuClock {
    /// For a rank that is a process of its own; the thread's where the timer
    /// cannot be set.
    pub fn of_process() -> Self {
        if set_timer().is_ok() { Self::Process } else { Self::Thread }
    }

    /// Nanoseconds, from some moment on.
    pub fn nanos(self) -> u64 {
        match self {
            Self::Thread => {
                let time = clock_gettime(ClockId::ThreadCPUTime);
                nanos(time.tv_sec, time.tv_nsec)
            }
            Self::Process => {
                let left = remaining();
                nanos(NEVER_S, 0).saturating_sub(nanos(left.tv_sec, left.tv_usec * 1_000))
            }
        }
    }
}

fn nanos(seconds: i64, rest: i64) -> u64 {
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(seconds).saturating_mul(1_000_000_000).saturating_add(part(rest))
}

#[expect(unsafe_code, reason = "rustix has no interval timers")]
fn set_timer() -> io::Result<()> {
    let timer = libc::itimerval {
        it_interval: libc::timeval { tv_sec: NEVER_S, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: NEVER_S, tv_usec: 0 },
    };
    // SAFETY: the pointer is to a live, initialised structure; the old value
    // is not asked for.
    let set = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "rustix has no interval timers")]
fn remaining() -> libc::timeval {
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut timer = libc::itimerval { it_interval: zero, it_value: zero };
    // SAFETY: the pointer is to a live structure of the type that is filled.
    unsafe { libc::getitimer(libc::ITIMER_PROF, &raw mut timer) };
    timer.it_value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks of the slowest kernels: a hundred a second.
    const TICK_NS: u64 = 10_000_000;

    #[test]
    fn the_timer_counts_what_the_process_computes() {
        let clock = CpuClock::of_process();
        assert!(matches!(clock, CpuClock::Process));
        let (before, thread) = (clock.nanos(), CpuClock::Thread.nanos());
        let worked = (0..200_000_000_u64).fold(1_u64, |a, b| std::hint::black_box(a ^ b));
        assert!(std::hint::black_box(worked) > 0);
        let (here, own) = (clock.nanos() - before, CpuClock::Thread.nanos() - thread);
        // Both see the same loop; the process may have other threads. The timer is
        // counted in ticks, of which one may be missing at either end.
        assert!(here + 2 * TICK_NS >= own && own > 5 * TICK_NS, "{here} and {own} ns");
    }
}
