//! The supervisor's wait: for its worker's end, for a request to stop, and for the
//! moment from which nobody vouches for guests.
//!
//! Nothing here allocates, logs or waits for anybody while there are control groups:
//! whoever watches over one that hangs must not hang for the same reason. The worker
//! tells of it once it is back. Decides nothing about guests:
//! [`Watchdog`] does.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use gleaner_agent_core::watchdog::{Event, Order, Watchdog};
use gleaner_common::time::Moment;
use gleaner_shell::clock::{Alarm, Clock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::STOP_WITHIN;
use super::beats::Beats;
use super::hold::Hold;

/// The signals that the supervisor takes from a descriptor.
#[derive(Debug)]
pub(super) struct Signals {
    set: libc::sigset_t,
    fd: OwnedFd,
}

impl Signals {
    /// Blocks them: a worker lets them through again.
    #[expect(unsafe_code, reason = "signal sets are the C library's")]
    pub(super) fn block() -> io::Result<Self> {
        // SAFETY: the set is ours and initialised before use; the descriptor is new.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { set, fd: OwnedFd::from_raw_fd(fd) })
        }
    }

    pub(super) fn set(&self) -> &libc::sigset_t {
        &self.set
    }

    /// Takes what has come; was there a request to stop?
    fn take(&self) -> bool {
        let mut stop = false;
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.fd, &mut info).is_ok_and(|n| n == info.len()) {
            // Its number comes first.
            let number = info.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
            stop |= number != libc::SIGCHLD.unsigned_abs();
        }
        stop
    }

    /// Waits until then; `true` if told to stop before.
    pub(super) fn stops_before(&self, alarm: &Alarm, end: Moment) -> bool {
        let _ = alarm.set(Some(end));
        while Clock.now() < end {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(alarm, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            if self.take() {
                return true;
            }
        }
        false
    }
}

/// One worker's life, watched.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    pub(super) worker: Pid,
    pub(super) signals: &'a Signals,
    pub(super) alarm: &'a Alarm,
    pub(super) beats: &'a Beats,
    pub(super) hold: &'a mut Hold,
    pub(super) watchdog: Watchdog,
    /// A worker that was told to stop is killed then.
    pub(super) give_up_at: Option<Moment>,
}

impl Watch<'_> {
    /// Waits for the worker's end; was it told to stop? Its guests are dead then.
    pub(super) fn until_its_end(mut self) -> (Option<WaitStatus>, bool) {
        loop {
            if let Err(end) = self.see_children() {
                self.handle(Event::Ended);
                return (end, self.give_up_at.is_some());
            }
            self.look();
            self.give_up();
            self.wait();
        }
    }

    /// Collects whoever has ended, orphans that have come to us included, whatever
    /// their process group (`waitpid` without a process knows only ours); the
    /// worker's end is an error.
    fn see_children(&mut self) -> Result<(), Option<WaitStatus>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        loop {
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if pid == self.worker => {
                    if !status.stopped() {
                        return Err(Some(status));
                    }
                    self.handle(Event::Stopped(self.beats.said()));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(()),
                Err(_) => return Err(None),
            }
        }
    }

    /// What does the worker say? What it says after the last look rings, unless the
    /// watchdog looks by itself.
    fn look(&mut self) {
        loop {
            let looks = self.watchdog.looks();
            self.beats.want_bell(!looks);
            let ordered = self.handle(Event::Says(self.beats.said()));
            if !ordered && self.watchdog.looks() == looks {
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) -> bool {
        let order = self.watchdog.handle(Clock.now(), event);
        if let Some(order) = order {
            self.hold.obey(order, self.worker);
            match order {
                Order::Freeze => self.beats.count_freeze(),
                Order::Kill => self.beats.count_kill(),
                Order::Thaw | Order::Clear => {}
            }
        }
        order.is_some()
    }

    fn give_up(&mut self) {
        if self.give_up_at.is_some_and(|at| Clock.now() >= at) {
            let _ = rustix::process::kill_process(self.worker, Signal::KILL);
            self.give_up_at = Some(Moment::MAX);
        }
    }

    fn wait(&mut self) {
        let deadline = [self.watchdog.deadline(), self.give_up_at].into_iter().flatten().min();
        // An alarm that cannot be set was none: the kernel knows no error here.
        let _ = self.alarm.set(deadline);
        let mut fds = [
            PollFd::new(&self.signals.fd, PollFlags::IN),
            PollFd::new(self.alarm, PollFlags::IN),
            PollFd::from_borrowed_fd(self.beats.bell(), PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        self.beats.quiet_bell();
        if self.signals.take() && self.give_up_at.is_none() {
            let _ = rustix::process::kill_process(self.worker, Signal::TERM);
            self.give_up_at = Some(Clock.now() + STOP_WITHIN);
        }
    }
}
