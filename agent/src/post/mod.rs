//! The post: carries the messages of the ranks that run here.
//!
//! Each rank has an endpoint here (`gleaner-program-core`), which decides
//! everything about its messages; the post owns their pipes and their ways to
//! other agents. The promise: a program that breaks its pipes, floods or does
//! not read harms nobody but itself, and ranks go on talking whether or not
//! the coordinator can be reached, wherever there is another way.
//!
//! ```text
//!   desk ── Begin, Exited, Dropped ─►┌────────┐◄── Ranks, ToRank, Relayed ── link
//!        ◄─ Faulted, Settled ────────│ office │─── FromRank, Relay ─────────►
//!   programs ⇄ pipes ───────────────►└────────┘
//! ```
//!
//! A message takes no more wake-ups than it must: the office is behind a lock,
//! and whoever has something for it (the post's own thread, which waits for
//! the pipes, or the link's) does all that follows at once. Only the desk
//! leaves its letters and rings, because it must not wait. Without ranks the
//! thread sleeps.

mod imaging;
mod kept;
mod line;
mod moving;
mod office;
mod pace;
mod pipes;
mod program;
mod seat;
mod snapshot;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId, WorkstationId};
use gleaner_common::program::{Life, RankAt};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Rank, Snapshot};
use gleaner_program_core::endpoint::Config;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::Between;
use gleaner_shell::clock::Clock;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use self::line::{Errand, Frames, Road, Waiting, Wanted};
use self::office::Office;
pub(crate) use self::pipes::{Ends, pair};
use crate::link::ToDesk;
use crate::moving::KeptImage;

/// How many descriptors are looked at in one turn.
const EVENTS: usize = 32;

/// No attempt's number: the bell's.
const BELL: u64 = u64::MAX;

/// What the post is told.
#[derive(Debug)]
pub(crate) enum Letter {
    /// The coordinator has welcomed us on this connection.
    Up {
        session: u64,
        own: WorkstationId,
    },
    Down,
    /// A rank's process is being started.
    Begin(Box<Begin>),
    /// The process has ended, and all it has left running. Answered by
    /// [`Told::Settled`].
    Exited {
        fence: Fence,
        end: End,
        /// The rank stays, and goes elsewhere without it.
        stays: bool,
    },
    /// The attempt is not wanted any more.
    Dropped(Fence),
    /// The owner is back: the rank shall return its work. Answered by
    /// [`Told::Returned`] if it does.
    Retreat {
        fence: Fence,
        within: Duration,
    },
    /// Pack the rank's endpoint: its process stands still. Answered by
    /// [`Told::Packed`].
    Depart {
        fence: Fence,
        keep: Keep,
    },
    /// Its process stands still for an image. Answered by [`Told::Emptied`].
    Image(Fence),
    /// The image that was wanted, or why there is none. The process goes on
    /// after this; it stood so long.
    Imaged {
        fence: Fence,
        done: Result<KeptImage, NoImage>,
        stood: Duration,
    },
    /// It was packed, and stays; its process goes on after this.
    Stayed(Fence),
    /// It has gone there, for good.
    Left {
        fence: Fence,
        to: Fence,
        at: WorkstationId,
    },
    /// Take in an endpoint that was packed elsewhere. Answered by
    /// [`Told::Unpacked`]; it does nothing before [`Letter::SetGoing`].
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
    Relayed {
        bytes: Vec<u8>,
    },
    /// From another agent, directly.
    Parcels(Vec<Between>),
    /// There is a direct way to another agent.
    RoadOpened {
        at: WorkstationId,
        road: Road,
    },
    /// It is no more, or could not be opened.
    RoadLost(WorkstationId),
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
    /// Its part of the snapshot that the program goes back to.
    pub(crate) cut: Option<ContentHash>,
    pub(crate) ends: Ends,
}

/// A rank that comes from elsewhere.
#[derive(Debug)]
pub(crate) struct Arrive {
    pub(crate) fence: Fence,
    pub(crate) job: JobId,
    pub(crate) life: Life,
    pub(crate) rank: Rank,
    pub(crate) keep: Keep,
    /// As [`Told::Packed`] gave it.
    pub(crate) packed: Vec<u8>,
    /// What its process was made of, if it has gone back to an image.
    pub(crate) image: Option<KeptImage>,
    pub(crate) ends: Ends,
}

/// A rank that leaves.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Its endpoint, and what it has saved.
    pub(crate) bytes: Vec<u8>,
    /// What it goes back to, if that is an image.
    pub(crate) image: Option<KeptImage>,
}

/// Why there is no image.
#[derive(Debug)]
pub(crate) enum NoImage {
    /// Its owner is here, or it is about to leave.
    NotNow,
    /// Its job does not roll back.
    Useless,
    Cannot(String),
}

/// What the post tells the desk.
#[derive(Debug)]
pub(crate) enum Told {
    /// The rank's program did what it must not: its process must end.
    Faulted { fence: Fence, what: String },
    /// Of a process that had ended all is known now, and whether its rank is
    /// here to go elsewhere without it.
    Settled { fence: Fence, fault: Option<String>, stays: bool },
    /// The rank has returned its work; its process is about to end.
    Returned(Fence),
    /// The rank, or why it cannot leave like this.
    Packed { fence: Fence, packed: Result<Packed, String> },
    /// An image of the rank's process is wanted. Answered by
    /// [`Letter::Imaged`].
    WantsImage(Fence),
    /// Its pipes are empty, or cannot be.
    Emptied { fence: Fence, done: Result<(), String> },
    /// The snapshot that a rank begins with has an image of its process: it is
    /// to begin from that, as if it had arrived with it. The process that has
    /// begun ends with these pipes.
    HasImage { fence: Fence, bytes: Vec<u8>, image: Vec<u8>, ends: Ends },
    /// What came with a rank is here and in its pipes, or is of no use: why.
    Unpacked { fence: Fence, done: Result<(), String> },
    /// The post's thread has ended.
    Died,
}

/// The way to the post, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Post(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    letters: Sender<Letter>,
    bell: Arc<OwnedFd>,
    counter: Mutex<Counter>,
    waiting: Waiting,
}

/// What only one can be at at a time.
#[derive(Debug)]
struct Counter {
    office: Office,
    letters: Receiver<Letter>,
    /// The post's thread sleeps until then if nothing comes.
    asleep_until: Option<Moment>,
}

impl Post {
    /// Starts the post's thread.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub(crate) fn start(
        frames: Frames,
        errands: UnboundedSender<Errand>,
        desk: ToDesk,
    ) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let own_watch = rustix::io::fcntl_dupfd_cloexec(&watch, 0)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let rung = Arc::clone(&bell);
        epoll::add(&watch, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (letters, received) = channel();
        let waiting = Waiting::default();
        let line = line::Line::new(frames, errands, waiting.clone());
        let office = Office::new(line, watch, desk.clone());
        let counter = Mutex::new(Counter { office, letters: received, asleep_until: None });
        let shared = Arc::new(Shared { letters, bell, counter, waiting });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("post".into()).stack_size(512 << 10).spawn(move || {
            let _says = SaysGoodbye(desk);
            // Open as long as the thread: it must hear the last ring, too.
            let _rung = rung;
            let mut events = Vec::with_capacity(EVENTS);
            let mut timeout = None;
            while let Some(()) = wait(&own_watch, &mut events, timeout) {
                let Some(shared) = weak.upgrade() else { return };
                timeout = shared.turn(&events);
            }
        })?;
        Ok(Self(shared))
    }

    /// Leaves a letter: never waits.
    pub(crate) fn leave(&self, letter: Letter) {
        // The receiver is in the same place as the sender.
        let _ = self.0.letters.send(letter);
        self.0.ring();
    }

    /// Handles a letter at once; may wait for a moment.
    pub(crate) fn deliver(&self, letter: Letter) {
        let mut counter = self.0.counter();
        let now = Clock.now();
        counter.take_letters(now);
        counter.office.take(now, letter);
        counter.office.settle(now);
        let due = counter.office.deadline();
        let sooner = match (due, counter.asleep_until) {
            (Some(due), Some(until)) => due < until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(counter);
        if sooner {
            self.0.ring();
        }
    }

    /// What is on its way to the coordinator for other agents.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread finds nobody and ends; its watch outlives us.
        self.ring();
    }
}

impl Shared {
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn counter(&self) -> MutexGuard<'_, Counter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the post's thread: how long to sleep after it.
    fn turn(&self, events: &[epoll::Event]) -> Option<Moment> {
        let mut counter = self.counter();
        let now = Clock.now();
        // First: what a process says comes after what its agent was told of it.
        counter.take_letters(now);
        for event in events {
            let (token, flags) = (event.data, event.flags);
            if token.u64() == BELL {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.bell, &mut count);
                continue;
            }
            let readable = flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP);
            let writable = flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR);
            counter.office.ready(now, seat::seat_of(token), readable, writable);
        }
        // Again: what was left since then has rung a bell that is silent now.
        counter.take_letters(now);
        counter.office.wake(now);
        counter.office.settle(now);
        counter.asleep_until = counter.office.deadline();
        counter.asleep_until
    }
}

impl Counter {
    fn take_letters(&mut self, now: Moment) {
        while let Ok(letter) = self.letters.try_recv() {
            self.office.take(now, letter);
        }
    }
}

/// Waits for descriptors or the deadline. `None`: it cannot wait any more.
fn wait(watch: &OwnedFd, events: &mut Vec<epoll::Event>, until: Option<Moment>) -> Option<()> {
    let timeout = Clock.left(until).map(|left| {
        // Rounded up: on return it has passed.
        let ms = left.as_nanos().div_ceil(1_000_000);
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        Timespec { tv_sec: ms / 1_000, tv_nsec: (ms % 1_000) * 1_000_000 }
    });
    events.clear();
    match epoll::wait(watch, spare_capacity(events), timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Some(()),
        Err(error) => {
            tracing::error!(%error, "the post cannot wait for its ranks");
            None
        }
    }
}

/// Tells the desk when the thread ends, however it does.
struct SaysGoodbye(ToDesk);

impl Drop for SaysGoodbye {
    fn drop(&mut self) {
        self.0.tell(crate::link::LinkEvent::Post(Told::Died));
    }
}

#[cfg(test)]
mod tests;
