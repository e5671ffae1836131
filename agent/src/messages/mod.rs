//! What is around the router ([`gleaner_agent_core::router`], which decides
//! everything about the messages of the ranks that run here): their pipes, the
//! queues of its ways to other agents, and whose turn it is.
//!
//! ```text
//!   event loop ── Begin, Exited, Dropped ─►┌────────┐◄── Ranks, ToRank, Relayed ── link
//!        ◄─ Faulted, Settled ────────│ router │─── FromRank, Relay ─────────►
//!   programs ⇄ pipes ───────────────►└────────┘
//! ```
//!
//! A message takes no more wake-ups than it must: the router waits for the pipes
//! on the link's thread, which speaks with other agents, so that what comes
//! out of a pipe leaves the machine without waking anybody here. The router is
//! behind a lock, and whoever on that thread has something for it does all that
//! follows at once. Only the event loop leaves its commands and rings, because it must
//! not wait.

mod intake;
mod outgoing;
mod pipe_watch;
mod pipes;
mod rank_pipes;
mod shell;
mod slabs;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_agent_core::router::{self, PipeRead};
pub(crate) use gleaner_agent_core::router::{Peer, Wanted};
use gleaner_common::id::{Fence, JobId};
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use self::intake::Intake;
pub(crate) use self::outgoing::{Frames, PeerStream, Waiting};
use self::pipe_watch::PipeWatch;
pub(crate) use self::pipe_watch::register;
pub(crate) use self::pipes::{PipeEnds, pair};
pub(crate) use self::shell::RouterShell;
pub(crate) use self::slabs::Slabs;
use crate::link::{LinkEvent, ToEventLoop};
use crate::moving::KeptImage;

pub(crate) type RouterCommand = router::RouterCommand<RouterShell>;
pub(crate) type RouterEvent = router::RouterEvent<RouterShell>;
pub(crate) type IoRequest = router::IoRequest<KeptImage>;
pub(crate) type Begin = router::Begin<PipeEnds>;
pub(crate) type Arrive = router::Arrive<RouterShell>;
pub(crate) type Packed = router::Packed<KeptImage>;
type Router = router::Router<RouterShell>;

/// The way to the router, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct RouterHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    commands: Sender<RouterCommand>,
    bell: Notify,
    locked: Mutex<Locked>,
    waiting: Waiting,
}

/// What only one can be at at a time.
#[derive(Debug)]
struct Locked {
    router: Router,
    commands: Receiver<RouterCommand>,
    /// The watch sleeps until then if nothing comes.
    asleep_until: Option<Moment>,
}

impl RouterHandle {
    /// A router, and who reads the commands that are left for it: nothing is done
    /// about them unless that [runs](Watch::run). Pipes are heard in `runtime`.
    pub(crate) fn new(
        runtime: Handle,
        frames: Frames,
        requests: UnboundedSender<IoRequest>,
        event_loop: ToEventLoop,
    ) -> (Self, Watch) {
        let (commands, received) = channel();
        let waiting = Waiting::default();
        let shared = Arc::new_cyclic(|handle| {
            let watch = PipeWatch::new(runtime, handle.clone());
            let (event_loop, for_router) = (event_loop.clone(), waiting.clone());
            let shell = RouterShell { frames, requests, waiting: for_router, watch, event_loop };
            let router = Router::new(shell);
            let locked = Mutex::new(Locked { router, commands: received, asleep_until: None });
            Shared { commands, bell: Notify::new(), locked, waiting }
        });
        let watch = Watch { shared: Arc::clone(&shared), _end: TellsOfItsEnd(event_loop) };
        (Self(shared), watch)
    }

    /// Leaves a command: never waits.
    pub(crate) fn leave(&self, command: RouterCommand) {
        // The receiver is in the same place as the sender.
        let _ = self.0.commands.send(command);
        self.0.bell.notify_one();
    }

    /// Handles a command at once; may wait for a moment.
    pub(crate) fn deliver(&self, command: RouterCommand) {
        self.0.act(|router, now| router.take(now, command));
    }

    /// Where the messages of a program lie that has ranks here.
    pub(crate) fn slabs(&self, job: JobId) -> Option<Slabs> {
        self.0.locked().router.slabs(job).cloned()
    }

    /// What is on its way to the coordinator for other agents.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, and all that follows from it.
    fn act<T>(&self, act: impl FnOnce(&mut Router, Moment) -> T) -> T {
        let mut locked = self.locked();
        let now = Clock.now();
        // First: what a process says comes after what its agent was told of it.
        locked.take_commands(now);
        let done = act(&mut locked.router, now);
        locked.router.settle(now);
        let sooner = match (locked.router.deadline(), locked.asleep_until) {
            (Some(due), Some(until)) => due < until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(locked);
        if sooner {
            self.bell.notify_one();
        }
        done
    }

    /// A rank has written something. What is left of it afterwards?
    fn hear(&self, fence: Fence) -> PipeRead {
        self.act(|router, now| router.hear(now, fence))
    }

    /// A rank's pipe has place.
    fn write(&self, fence: Fence) {
        self.act(|router, _| router.write(fence));
    }

    /// Handles what was left and what is due: when is the next?
    fn turn(&self) -> Option<Moment> {
        let mut locked = self.locked();
        let now = Clock.now();
        locked.take_commands(now);
        locked.router.wake(now);
        locked.router.settle(now);
        locked.asleep_until = locked.router.deadline();
        locked.asleep_until
    }
}

impl Locked {
    fn take_commands(&mut self, now: Moment) {
        while let Ok(command) = self.commands.try_recv() {
            self.router.take(now, command);
        }
    }
}

/// Waits for commands, and for what is due.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    _end: TellsOfItsEnd,
}

impl Watch {
    /// Waits for ever, in the router's runtime.
    pub(crate) async fn run(self) {
        loop {
            let until = self.shared.turn();
            tokio::select! {
                () = self.shared.bell.notified() => {}
                () = Clock.sleep_until(until) => {}
            }
        }
    }
}

/// Tells the event loop when the watch ends, however it does.
#[derive(Debug)]
struct TellsOfItsEnd(ToEventLoop);

impl Drop for TellsOfItsEnd {
    fn drop(&mut self) {
        self.0.tell(LinkEvent::RouterDied);
    }
}

#[cfg(test)]
mod tests;
