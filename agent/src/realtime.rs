//! The event loop's place in the queue for a core: the first.
//!
//! A freeze is an order of microseconds that the owner waits for; it must not
//! queue behind the very load that makes the owner wait. What the event loop starts
//! (threads, keepers) does not inherit its place.

use std::io;

/// Above every ordinary task, below everything else that is real-time.
const PRIORITY: i32 = 1;

/// Where real-time scheduling is not allowed: how much nicer others must be.
const NICE: i32 = -10;

/// An event loop that runs for so long without a pause has gone mad, and the kernel
/// ends it (`SIGXCPU`, then `SIGKILL`); the supervisor starts another.
const RUNAWAY_US: u64 = 2_000_000;

/// Puts the calling thread first. An error means that it has to queue.
#[expect(unsafe_code, reason = "scheduling classes have no safe binding")]
pub(crate) fn claim() -> io::Result<()> {
    let runaway = libc::rlimit { rlim_cur: RUNAWAY_US, rlim_max: RUNAWAY_US * 2 };
    // SAFETY: plain system calls on locals; zeroes are a valid priority.
    unsafe {
        libc::setrlimit(libc::RLIMIT_RTTIME, &raw const runaway);
        let mut priority: libc::sched_param = std::mem::zeroed();
        priority.sched_priority = PRIORITY;
        let first = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
        if libc::sched_setscheduler(0, first, &raw const priority) == 0 {
            return Ok(());
        }
        priority.sched_priority = 0;
        let ordinary = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
        if libc::sched_setscheduler(0, ordinary, &raw const priority) == 0
            && libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0
        {
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}
