//! The supervisor's hold on all guests at once.
//!
//! With control groups that is one write to a file that is open already: the group
//! of all places is frozen above theirs, so that a place that its worker has frozen
//! stays so. Without, every process is stopped by a signal, and only those are set
//! going again that were not stopped before.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use gleaner_agent_core::watchdog::Order;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::container::cgroup::Tree;
use crate::container::keeper::descendants;

/// How often it is looked for processes that were born meanwhile.
const LOOKS_MAX: u32 = 10;

#[derive(Debug)]
pub(super) enum Hold {
    Group { freeze: File, kill: File },
    Signals { stopped: Vec<OwnedFd> },
}

impl Hold {
    pub(super) fn new(tree: Option<&Tree>) -> Self {
        match tree.map(Tree::guests_files) {
            Some(Ok((freeze, kill))) => Self::Group { freeze, kill },
            Some(Err(error)) => {
                tracing::error!(%error, "guests of a worker that hangs are stopped one by one");
                Self::Signals { stopped: vec![] }
            }
            None => Self::Signals { stopped: vec![] },
        }
    }

    /// What fails has nobody to tell: the keepers' own timers are behind it.
    pub(super) fn obey(&mut self, order: Order, worker: Pid) {
        match self {
            Self::Group { freeze, kill } => {
                let writes: &mut [(&mut File, &[u8])] = match order {
                    Order::Freeze => &mut [(freeze, b"1")],
                    Order::Thaw => &mut [(freeze, b"0")],
                    Order::Kill => &mut [(kill, b"1")],
                    Order::Clear => &mut [(kill, b"1"), (freeze, b"0")],
                };
                for (file, text) in writes {
                    let _ = file.write_all(text);
                }
            }
            Self::Signals { stopped } => match order {
                Order::Freeze => stop_all(worker, stopped),
                Order::Thaw => signal_all(stopped, Signal::CONT),
                Order::Kill | Order::Clear => {
                    stopped.clear();
                    for pid in guests_of(worker) {
                        let _ = rustix::process::kill_process(pid, Signal::KILL);
                    }
                }
            },
        }
    }
}

/// Everything below us but the worker: keepers, guests, and orphans of theirs.
fn guests_of(worker: Pid) -> impl Iterator<Item = Pid> {
    descendants().into_iter().filter_map(Pid::from_raw).filter(move |pid| *pid != worker)
}

fn stop_all(worker: Pid, stopped: &mut Vec<OwnedFd>) {
    for _ in 0..LOOKS_MAX {
        let before = stopped.len();
        for pid in guests_of(worker).filter(|pid| !is_stopped(*pid)) {
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if pidfd_send_signal(&process, Signal::STOP).is_ok() {
                stopped.push(process);
            }
        }
        if stopped.len() == before {
            return;
        }
    }
}

fn signal_all(stopped: &mut Vec<OwnedFd>, signal: Signal) {
    for process in stopped.drain(..) {
        let _ = pidfd_send_signal(&process, signal);
    }
}

/// Stopped already, by whom we do not undo; or about to be, by us.
fn is_stopped(pid: Pid) -> bool {
    matches!(gleaner_move::state_of(pid.as_raw_nonzero().get()), Some('T' | 't' | 'Z' | 'X'))
}
