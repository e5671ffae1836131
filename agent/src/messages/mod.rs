//! The router: carries the messages of the ranks that run here.
//!
//! Each rank has an endpoint here (`gleaner-program-core`), which decides
//! everything about its messages; the router owns their pipes and their ways to
//! other agents. The promise: a program that breaks its pipes, floods or does
//! not read harms nobody but itself, and ranks go on talking whether or not
//! the coordinator can be reached, wherever there is another way.
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

mod imaging;
mod intake;
mod local_rank;
mod moving;
mod outgoing;
mod pace;
mod pipe_watch;
mod pipes;
mod program;
mod router;
mod saved_states;
mod slabs;
mod snapshot;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gleaner_agent_core::guest::NoImage;
use gleaner_common::id::{ContentHash, Fence, JobId, WorkstationId};
use gleaner_common::program::{Life, RankAt};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Rank, Snapshot};
use gleaner_program_core::endpoint::Config;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::Between;
use gleaner_shell::clock::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use self::intake::Intake;
use self::local_rank::PipeRead;
pub(crate) use self::outgoing::{Frames, IoRequest, PeerStream, Waiting, Wanted};
use self::pipe_watch::PipeWatch;
pub(crate) use self::pipe_watch::register;
pub(crate) use self::pipes::{PipeEnds, pair};
use self::router::Router;
pub(crate) use self::slabs::Slabs;
use crate::link::ToEventLoop;
use crate::moving::KeptImage;

/// Which agent has said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The one with this name in its certificate.
    Direct(Arc<str>),
    /// The one at this workstation, as the coordinator says.
    Relayed(WorkstationId),
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct(name) => f.write_str(name),
            Self::Relayed(at) => at.fmt(f),
        }
    }
}

/// What the router is told.
#[derive(Debug)]
pub(crate) enum RouterCommand {
    /// The coordinator has welcomed us on this connection.
    Up {
        session: u64,
        own: WorkstationId,
    },
    Down,
    /// A rank's process is being started.
    Begin(Box<Begin>),
    /// The process has ended, and all it has left running. Answered by
    /// [`RouterEvent::Settled`].
    Exited {
        fence: Fence,
        end: End,
        /// The rank stays, and goes elsewhere without it.
        stays: bool,
    },
    /// The attempt is not wanted any more.
    Dropped(Fence),
    /// The owner is back: the rank shall return its work. Answered by
    /// [`RouterEvent::Returned`] if it does.
    Retreat {
        fence: Fence,
        within: Duration,
    },
    /// Pack the rank's endpoint: its process stands still. Answered by
    /// [`RouterEvent::Packed`].
    Depart {
        fence: Fence,
        keep: Keep,
    },
    /// A rank that has lost its process gets another, which is given nothing.
    Again {
        fence: Fence,
        ends: PipeEnds,
    },
    /// The rank's process stands still for an image. Answered by [`RouterEvent::Emptied`].
    Image(Fence),
    /// The image that was wanted, or why there is none. The process goes on
    /// after this; it stood so long.
    Imaged {
        fence: Fence,
        done: Result<KeptImage, NoImage>,
        stood: Duration,
    },
    /// The rank was packed, and stays; its process goes on after this.
    Stayed(Fence),
    /// The rank has gone there, for good.
    Left {
        fence: Fence,
        to: Fence,
        at: WorkstationId,
    },
    /// Take in an endpoint that was packed elsewhere. Answered by
    /// [`RouterEvent::Unpacked`]; it does nothing before [`RouterCommand::SetGoing`].
    Arrive(Box<Arrive>),
    /// The process that was taken in goes on; or a new one, with what is kept of
    /// it, is being started.
    SetGoing(Fence),
    Ranks {
        job: JobId,
        life: Life,
        at: Vec<RankAt>,
    },
    ToRank {
        fence: Fence,
        life: Life,
        bytes: Vec<u8>,
    },
    /// From another agent, passed on by the coordinator, which knows it.
    Relayed {
        from: WorkstationId,
        bytes: Vec<u8>,
    },
    /// From another agent, directly.
    Packets {
        from: Peer,
        frames: Vec<Between>,
    },
    /// There is a direct way to another agent.
    PeerStreamOpened {
        at: WorkstationId,
        stream: PeerStream,
    },
    /// The direct way is no more, or could not be opened.
    PeerStreamLost(WorkstationId),
    /// The rank's part of a snapshot is at the coordinator, or why not.
    Staged {
        fence: Fence,
        snapshot: Snapshot,
        part: Result<(ContentHash, u64), String>,
    },
    /// The part of a snapshot with which a rank begins.
    Fetched {
        fence: Fence,
        part: Result<Vec<u8>, String>,
    },
    /// The job is over.
    Forget(JobId),
}

/// A rank that begins here.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) fence: Fence,
    pub(crate) job: JobId,
    pub(crate) life: Life,
    pub(crate) config: Config,
    /// The rank's part of the snapshot that the program goes back to.
    pub(crate) cut: Option<ContentHash>,
    pub(crate) ends: PipeEnds,
}

/// A rank that comes from elsewhere.
#[derive(Debug)]
pub(crate) struct Arrive {
    pub(crate) fence: Fence,
    pub(crate) job: JobId,
    pub(crate) life: Life,
    pub(crate) rank: Rank,
    pub(crate) keep: Keep,
    /// As [`RouterEvent::Packed`] gave it.
    pub(crate) packed: Vec<u8>,
    /// What its process was made of, if it has gone back to an image.
    pub(crate) image: Option<KeptImage>,
    pub(crate) ends: PipeEnds,
}

/// A rank that leaves.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// The rank's endpoint, and what it has saved.
    pub(crate) bytes: Vec<u8>,
    /// What it goes back to, if that is an image.
    pub(crate) image: Option<KeptImage>,
}

/// What the router tells the event loop.
#[derive(Debug)]
pub(crate) enum RouterEvent {
    /// The rank's program did what it must not: its process must end.
    Faulted { fence: Fence, what: String },
    /// All is known now of a process that had ended, and whether its rank is
    /// here to go elsewhere without it.
    Settled { fence: Fence, fault: Option<String>, stays: bool },
    /// The rank has returned its work; its process is about to end.
    Returned(Fence),
    /// The rank, or why it cannot leave like this.
    Packed { fence: Fence, packed: Result<Packed, String> },
    /// An image of the rank's process is wanted. Answered by
    /// [`RouterCommand::Imaged`].
    WantsImage(Fence),
    /// The rank's pipes are empty, or cannot be.
    Emptied { fence: Fence, done: Result<(), String> },
    /// The snapshot that a rank begins with has an image of its process: it is
    /// to begin from that, as if it had arrived with it. The process that has
    /// begun ends with these pipes.
    HasImage { fence: Fence, bytes: Vec<u8>, image: Vec<u8>, ends: PipeEnds },
    /// What came with a rank is here and in its pipes, or is of no use: why.
    Unpacked { fence: Fence, done: Result<(), String> },
    /// Nobody waits for the ranks any more.
    Died,
}

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
        let outgoing = outgoing::Outgoing::new(frames, requests, waiting.clone());
        let shared = Arc::new_cyclic(|handle| {
            let router =
                Router::new(outgoing, PipeWatch::new(runtime, handle.clone()), event_loop.clone());
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
        self.0.locked().router.programs.get(&job).map(|program| program.slabs.clone())
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
        self.0.tell(crate::link::LinkEvent::Router(RouterEvent::Died));
    }
}

#[cfg(test)]
mod tests;
