//! The link: everything of an agent that may wait. The connection to the
//! coordinator, staging, the spool of usage records, the desktop's sessions.
//!
//! One thread with a small runtime of its own beside the event loop's, which never
//! waits. The two talk by queues. Decides nothing: what the coordinator says
//! goes to the event loop, what the event loop says goes to the coordinator.

pub(crate) mod files;
mod logind;
mod lookouts;
mod peer_streams;
pub(crate) mod peers;
mod renewal;
pub(crate) mod revoked;
mod session;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{self, Left};
use gleaner_agent_core::occupancy::Observation;
use gleaner_agent_core::spool::Recorded;
use gleaner_common::id::{Fence, JobId};
use gleaner_common::job::JobSpec;
use gleaner_common::program::HandoverReply;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, close};
use gleaner_move::{Header, Memory};
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{self, Credentials};
use gleaner_shell::identity::Identity;
use quinn::Connection;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore, watch};

use self::lookouts::room::{self, Watched};
use self::peers::{Arriving, Peers};
use self::revoked::Revoked;
use crate::config::AgentConfig;
use crate::machine;
use crate::messages::{IoRequest, RouterCommand, RouterEvent, RouterHandle, Watch};
use crate::moving::{
    self, Arrivals, Cargo, Departures, Expectation, KeptImage, KnownGuest, ToKeep,
};
use crate::owner::{self, Asked};
use crate::spool::Spool;

/// A restarted coordinator is found again at once, and one that stays away
/// costs little.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Who was refused tries again, but need not soon: another machine has its
/// identity, or it is not enrolled, and a person has to see to that.
const RETRY_REFUSED_MAX: Duration = Duration::from_secs(60);

/// How often one login may ask at the owner's socket at a time.
const ASKING_MAX: usize = 8;

/// What the event loop wants done.
#[derive(Debug)]
pub(crate) enum LinkOrder {
    /// For the connection of that number; dropped if it is gone.
    Frame {
        session: u64,
        frame: AgentFrame,
    },
    Record(Box<Recorded>),
    Stage {
        job: JobId,
        spec: Arc<JobSpec>,
    },
    /// No more of this job will come.
    Discard(JobId),
    Lay(Laying),
    Collect(Collection),
    /// Remove what a guest left.
    Clear(PathBuf),
    Abandon(Fence),
    Measure(Measuring),
    /// A guest's state is to come.
    Expect(Box<Expectation>),
    /// What became of it, for whoever sent it.
    Answer {
        fence: Fence,
        reply: HandoverReply,
    },
    /// Take in what has come with a snapshot.
    TakeIn {
        expectation: Box<Expectation>,
        endpoint: Vec<u8>,
        image: Vec<u8>,
    },
    /// Send a guest's state away.
    Carry(Box<Cargo>),
    CallBack(Fence),
    /// Write a guest down, to go back to.
    Keep(Box<ToKeep>),
    /// Something could not be written, or a guest has failed: is there room?
    LookAtRoom,
    ReadyToSleep,
    /// The machine has slept: the connection is not worth waiting for.
    Woke,
    /// Say goodbye and end.
    Stop,
}

/// Input files to lie in a guest's directory.
#[derive(Debug)]
pub(crate) struct Laying {
    pub(crate) fence: Fence,
    pub(crate) spec: Arc<JobSpec>,
    /// The files that a guest had where it comes from; else all.
    pub(crate) only: Option<BTreeSet<String>>,
    /// As it is now: what is here later is another guest's.
    pub(crate) into: OwnedFd,
    pub(crate) uid: Option<u32>,
}

/// A guest whose disk use is to be looked at.
#[derive(Debug)]
pub(crate) struct Measuring {
    pub(crate) fence: Fence,
    pub(crate) directory: PathBuf,
    /// Its control group, if it has one.
    pub(crate) group: Option<PathBuf>,
    pub(crate) bytes_max: u64,
}

/// What a guest left, to be staged.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) fence: Fence,
    pub(crate) directory: PathBuf,
    /// Bring back what is in its output directory.
    pub(crate) outputs: bool,
    /// What is known of what it printed.
    pub(crate) printed: Left,
    pub(crate) output_bytes_max: u64,
}

/// What the link has to tell the event loop.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Up {
        session: u64,
        /// Where other agents may reach this one.
        addresses: Vec<SocketAddr>,
    },
    Core(Event),
    /// The first of an image has come.
    Header {
        fence: Fence,
        header: Box<Header>,
        memory: Arc<Memory>,
    },
    /// All of a guest has come but its memory.
    Known {
        fence: Fence,
        known: Box<KnownGuest>,
    },
    /// A guest was written down, to go back to.
    Imaged {
        fence: Fence,
        done: Result<KeptImage, String>,
    },
    /// Something to be told to the owner and to the coordinator.
    Missing(String),
    /// Why there is no connection; none once there is one.
    Trouble(Option<String>),
    /// The owner asks.
    Asked(Asked),
    /// The router has something to tell.
    Router(RouterEvent),
    /// Nobody waits for the ranks any more.
    RouterDied,
}

/// The event loop's end.
#[derive(Debug)]
pub(crate) struct LinkHandle {
    orders: UnboundedSender<LinkOrder>,
    events: Receiver<LinkEvent>,
    /// Readable when there are events.
    pub(crate) bell: Arc<rustix::fd::OwnedFd>,
    pub(crate) router: RouterHandle,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The link's end: rings the event loop's bell.
#[derive(Clone, Debug)]
pub(crate) struct ToEventLoop {
    events: Sender<LinkEvent>,
    bell: Arc<rustix::fd::OwnedFd>,
}

impl ToEventLoop {
    /// With a test as the event loop.
    #[cfg(test)]
    pub(crate) fn to_test() -> (Self, Receiver<LinkEvent>) {
        let (events, told) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        (Self { events, bell }, told)
    }

    pub(crate) fn tell(&self, event: LinkEvent) {
        self.tell_all([event]);
    }

    pub(crate) fn core(&self, event: Event) {
        self.tell(LinkEvent::Core(event));
    }

    /// A fact about a guest.
    pub(crate) fn guest(&self, fence: Fence, event: guest::Event) {
        self.core(Event::Guest(fence, event));
    }

    /// Many at the price of one wake-up.
    pub(crate) fn tell_all(&self, events: impl IntoIterator<Item = LinkEvent>) {
        for event in events {
            // The event loop has gone: so will we.
            let _ = self.events.send(event);
        }
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// What the link thread needs.
#[derive(Debug)]
pub(crate) struct LinkSetup {
    pub(crate) config: AgentConfig,
    pub(crate) identity: Identity,
    pub(crate) spool: Spool,
}

impl LinkHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub(crate) fn start(setup: LinkSetup) -> std::io::Result<Self> {
        let (orders, received) = unbounded_channel();
        let (events, told) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let event_loop = ToEventLoop { events, bell: Arc::clone(&bell) };
        let (frames, outgoing) = unbounded_channel();
        let (request, requests) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("files")
            .thread_stack_size(256 << 10)
            .max_blocking_threads(4)
            .build()?;
        let (router, watch) = RouterHandle::new(
            runtime.handle().clone(),
            frames.downgrade(),
            request,
            event_loop.clone(),
        );
        let channels =
            MessageChannels { router: router.clone(), watch, frames, outgoing, requests };
        let thread = std::thread::Builder::new().name("link".into()).stack_size(512 << 10).spawn(
            move || {
                runtime.block_on(run(setup, received, event_loop, channels));
                runtime.shutdown_timeout(Duration::from_secs(1));
            },
        )?;
        Ok(Self { orders, events: told, bell, router, thread: Some(thread) })
    }

    pub(crate) fn order(&self, order: LinkOrder) {
        // The thread ends only by panicking, which `alive` shows.
        let _ = self.orders.send(order);
    }

    /// What has come since the last time.
    pub(crate) fn take(&self) -> Vec<LinkEvent> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        self.events.try_iter().collect()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Says goodbye to the coordinator and waits for the thread.
    pub(crate) fn stop(mut self) {
        self.order(LinkOrder::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connection of the moment, for whoever has something to stage.
pub(crate) type Current = watch::Receiver<Option<Connection>>;

/// The router, and what it and the event loop have for others.
struct MessageChannels {
    router: RouterHandle,
    watch: Watch,
    /// For the coordinator, each for the connection of that number.
    frames: UnboundedSender<(u64, AgentFrame)>,
    outgoing: UnboundedReceiver<(u64, AgentFrame)>,
    /// What the router wants done.
    requests: UnboundedReceiver<IoRequest>,
}

/// Load has turned the workstation busy: whose is it?
fn look_for_culprit(group: Option<PathBuf>, event_loop: ToEventLoop) {
    tokio::task::spawn_blocking(move || {
        if let Some(culprit) = machine::busiest(group.as_deref()) {
            event_loop.core(Event::Observed(Observation::Culprit(culprit)));
        }
        crate::memory_trim::trim();
    });
}

async fn run(
    setup: LinkSetup,
    mut orders: UnboundedReceiver<LinkOrder>,
    event_loop: ToEventLoop,
    MessageChannels { router, watch, frames, outgoing, mut requests }: MessageChannels,
) {
    let LinkSetup { config, identity, spool } = setup;
    tokio::spawn(watch.run());
    let (set_current, current) = watch::channel(None);
    let (stop, stopped) = watch::channel(false);
    let (peers, mut arriving, deaf) =
        Peers::start(&config.peers, Arc::new(identity), Revoked::new());
    if let Some(error) = deaf {
        event_loop.tell(LinkEvent::Missing(format!(
            "other agents reach this one only through the coordinator: {error}"
        )));
    }
    let recorder = usage::start(spool, current.clone(), event_loop.clone());
    let files = files::Files::new(&config, current.clone(), event_loop.clone());
    let wake = Arc::new(Notify::new());
    let link = tokio::spawn(keep_connected(Dialling {
        identity_dir: config.identity.clone(),
        peers: peers.clone(),
        event_loop: event_loop.clone(),
        router: router.clone(),
        outgoing,
        set_current,
        stopped,
        wake: Arc::clone(&wake),
    }));
    lookouts::start(&config, &event_loop);
    let look_at_room = Arc::new(Notify::new());
    let bytes_min = config.guests.disk_free_min;
    let watched = Watched { directory: config.data.clone(), bytes_min };
    tokio::spawn(room::watch(watched, Arc::clone(&look_at_room), event_loop.clone()));
    let sessions = logind::Sessions::start(config.sensors.sessions, event_loop.clone());
    let load_group = config.cgroup.load.clone();
    let owner = tokio::spawn(serve_owner(config, event_loop.clone()));
    let mut departures = Departures::new(peers.clone(), current, event_loop.clone());
    let mut arrivals = Arrivals::new(event_loop.clone());
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            Some(request) = requests.recv() => {
                match request {
                    IoRequest::PeerStream(wanted) => {
                        tokio::spawn(peer_streams::open(wanted, peers.clone(), router.clone()));
                    }
                    IoRequest::Stage { fence, snapshot, bytes, image } => {
                        files.stage_part(fence, snapshot, (bytes, image), router.clone());
                    }
                    IoRequest::Fetch { fence, hash } => files.fetch_part(fence, hash, router.clone()),
                }
                continue;
            }
            Some(arrived) = arriving.recv() => {
                match arrived {
                    Arriving::Packets { from, reader } => {
                        tokio::spawn(peer_streams::take(from, reader, router.clone()));
                    }
                    Arriving::Handover { what, sender, writer, reader, .. } => {
                        arrivals.arrived(*what, sender, (writer, reader));
                    }
                }
                continue;
            }
        };
        let Some(order) = order else { break };
        match order {
            LinkOrder::Frame { session, frame } => {
                let _ = frames.send((session, frame));
            }
            LinkOrder::Record(record) => {
                if record.transition.by_load {
                    look_for_culprit(load_group.clone(), event_loop.clone());
                }
                recorder.record(*record);
            }
            LinkOrder::Stage { job, spec } => files.stage(job, spec),
            LinkOrder::Discard(job) => files.discard(job),
            LinkOrder::Lay(laying) => files.lay(laying),
            LinkOrder::Collect(collection) => files.collect(collection),
            LinkOrder::Clear(path) => files.clear(path),
            LinkOrder::Abandon(fence) => files.abandon(fence),
            LinkOrder::Measure(measuring) => files.measure(measuring),
            LinkOrder::Expect(expectation) => arrivals.expect(*expectation),
            LinkOrder::Answer { fence, reply } => arrivals.answer(fence, reply),
            LinkOrder::TakeIn { expectation, endpoint, image } => {
                arrivals.take_here(*expectation, endpoint, image);
            }
            LinkOrder::Carry(cargo) => departures.send(*cargo),
            LinkOrder::CallBack(fence) => departures.call_back(fence),
            LinkOrder::Keep(what) => moving::keep(*what, event_loop.clone()),
            LinkOrder::LookAtRoom => look_at_room.notify_one(),
            LinkOrder::ReadyToSleep => sessions.ready_to_sleep(),
            LinkOrder::Woke => wake.notify_one(),
            LinkOrder::Stop => break,
        }
    }
    owner.abort();
    drop(frames);
    let _ = stop.send(true);
    recorder.stop().await;
    let _ = tokio::time::timeout(Duration::from_secs(2), link).await;
}

/// Answers at the owner's socket: to each login a few at a time, so that nobody who
/// connects and says nothing keeps another out.
async fn serve_owner(config: AgentConfig, event_loop: ToEventLoop) {
    let path = config.owner_socket();
    let listener = match owner::listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            let line = format!("owner's socket {}: {error}", path.display());
            return event_loop.tell(LinkEvent::Missing(line));
        }
    };
    let mut rooms: BTreeMap<u32, Arc<Semaphore>> = BTreeMap::new();
    let guests = config.guest_uids(config.places(u16::MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // No descriptors left: somebody must go first.
                tracing::warn!(%error, "cannot hear an owner");
                Clock.sleep(RETRY_MAX).await;
                continue;
            }
        };
        let Ok(login) = stream.peer_cred().map(|login| login.uid()) else { continue };
        rooms.retain(|_, room| room.available_permits() < ASKING_MAX);
        let room = rooms.entry(login).or_insert_with(|| Arc::new(Semaphore::new(ASKING_MAX)));
        let Ok(permit) = Arc::clone(room).try_acquire_owned() else { continue };
        let (event_loop, guests) = (event_loop.clone(), guests.clone());
        tokio::spawn(async move {
            let ask = |asked| event_loop.tell(LinkEvent::Asked(asked));
            owner::serve(stream, |uid| guests.contains(&uid), ask).await;
            drop(permit);
        });
    }
}

struct Dialling {
    identity_dir: PathBuf,
    peers: Peers,
    event_loop: ToEventLoop,
    router: RouterHandle,
    outgoing: UnboundedReceiver<(u64, AgentFrame)>,
    set_current: watch::Sender<Option<Connection>>,
    stopped: watch::Receiver<bool>,
    /// The machine woke up: an old connection is not worth waiting for.
    wake: Arc<Notify>,
}

/// Dials for ever, and serves each connection until it ends.
async fn keep_connected(mut of: Dialling) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut refused = Backoff::new(RETRY_FIRST, RETRY_REFUSED_MAX);
    let mut said = String::new();
    let mut session = 0;
    loop {
        let identity = of.peers.identity();
        let (address, credentials) = (&identity.coordinator, Credentials::Identity(&identity));
        let dialled = tokio::select! {
            dialled = endpoint::connect(address, credentials, None) => dialled,
            _ = of.stopped.changed() => return,
        };
        let mut is_refused = false;
        let why = match dialled {
            Err(error) => error.to_string(),
            Ok(link) => {
                session += 1;
                let connected_at = Clock.now();
                of.event_loop.tell(LinkEvent::Trouble(None));
                let _ = of.set_current.send(Some(link.connection.clone()));
                of.peers.take_from_coordinator(link.connection.clone());
                let ours = peers::own_address(link.connection.remote_address());
                let addresses = of.peers.addresses(ours);
                let hearers = session::Hearers {
                    event_loop: &of.event_loop,
                    router: &of.router,
                    revoked: of.peers.revoked(),
                };
                let renewing = renewal::keep_renewed(
                    link.connection.clone(),
                    of.peers.clone(),
                    &of.identity_dir,
                );
                let serving = session::serve(
                    &link.connection,
                    session::Greeting { session, addresses },
                    hearers,
                    &mut of.outgoing,
                    &mut of.stopped,
                    &of.wake,
                );
                let ended = tokio::select! {
                    ended = serving => ended,
                    () = forever(renewing) => unreachable!("it is awaited for ever"),
                };
                let _ = of.set_current.send(None);
                of.router.deliver(RouterCommand::Down);
                of.event_loop.core(Event::LinkDown);
                if matches!(ended, session::SessionEnd::Stopped) {
                    link.close().await;
                    return;
                }
                link.connection.close(close::DONE.into(), b"");
                is_refused = ended.is_refusal();
                if Clock.now().since(connected_at) > RETRY_MAX {
                    backoff.reset();
                    said.clear();
                }
                match ended {
                    session::SessionEnd::Stopped => return,
                    session::SessionEnd::Welcomed(why) => {
                        backoff.reset();
                        refused.reset();
                        said.clear();
                        why
                    }
                    session::SessionEnd::Unknown(why) => {
                        is_refused &= !renewal::went_back(&of.peers, &of.identity_dir);
                        why
                    }
                    session::SessionEnd::Refused(why) | session::SessionEnd::Lost(why) => why,
                }
            }
        };
        // The same trouble is told once.
        if why != said {
            tracing::warn!("{why}; trying again");
            said.clone_from(&why);
        }
        of.event_loop.tell(LinkEvent::Trouble(Some(why)));
        let pause = if is_refused { refused.next() } else { backoff.next() };
        let pause = pause.unwrap_or(RETRY_MAX);
        tokio::select! {
            () = Clock.sleep(pause) => {}
            () = of.wake.notified() => backoff.reset(),
            _ = of.stopped.changed() => return,
        }
    }
}

/// Beside something that ends.
async fn forever(work: impl Future<Output = ()>) {
    work.await;
    std::future::pending::<()>().await;
}

/// Nobody leaves half of a change behind a lock: who died with it does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A moment on the boot clock is a time since boot.
pub(crate) fn since_boot(now: Moment) -> Duration {
    now.since(Moment::ZERO)
}
