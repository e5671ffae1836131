//! A guest place as the kernel sees it: its directories, its group, its keeper, and
//! the descriptors of the guest that is there.
//!
//! The promise: freezing and killing touch nothing but a file that is open
//! already. Decides nothing: it has one function for each effect of the core,
//! and tells how that went.

mod arriving;
pub mod cgroup;
pub(crate) mod disk;
pub mod keeper;
mod leaving;
pub mod place_directories;
mod reaping;
mod surroundings;
pub(crate) mod tree;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{self, Exit, GuestAt, KeeperEvent, Start};
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::{JobSpec, Limits};
use gleaner_common::time::Moment;
use gleaner_move::{Header, Memory};
use gleaner_shell::clock::Clock;
use rustix::event::{PollFd, PollFlags};

use self::cgroup::{EMPTY_WITHIN, GroupLimits, PlaceGroup, Starvation, Tree};
use self::keeper::{Ended, GuestLimits, Keeper, KeeperError, Order, Report, Sandbox};
use self::place_directories::{DirectoriesError, PlaceDirectories};
pub(crate) use self::reaping::Reap;
use self::surroundings::{environment, with_index};
use crate::config::{AgentConfig, Network};
use crate::failure::one_line;
use crate::link::{Laying, LinkOrder, Measuring};
use crate::messages::{self, Begin, Packed, PipeEnds, RouterCommand};
use crate::moving::{KeptImage, KnownGuest, Mover};
use crate::supervisor::Beats;

/// How long a keeper may take to sandbox itself when it is tried out: a few
/// milliseconds, and seconds on a machine that is fully loaded.
const TRY_OUT: Duration = Duration::from_secs(20);

/// What all places share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: AgentConfig,
    pub(crate) program: keeper::Program,
    pub(crate) tree: Option<Tree>,
    /// What a guest may use that asks for nothing.
    pub(crate) limits: Limits,
    /// What moves guests, or why nothing can.
    pub(crate) mover: Result<Arc<Mover>, String>,
    /// Where keepers see how long the lease lasts; `None` without a supervisor.
    pub(crate) beats: Option<Arc<Beats>>,
}

/// Why a guest cannot be started at a place.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{}", one_line(.0))]
    Directories(#[from] DirectoriesError),
    #[error("{}", one_line(.0))]
    Keeper(#[from] KeeperError),
    #[error("{}", one_line(.0))]
    Group(#[from] cgroup::CgroupError),
    #[error("cannot make a rank's pipes: {0}")]
    Pipes(io::Error),
    #[error("shared directory {0} is not offered here: guests.shared_directories has it not")]
    NotShared(String),
    #[error("its keeper is gone")]
    NoKeeper,
    #[error("{0}")]
    Immobile(String),
}

/// The handles of the guest that is here.
#[derive(Debug)]
struct Guest {
    start: Box<Start>,
    /// What its group had used before it.
    cpu_before: Duration,
    starved_before: Starvation,
    /// A rank's pipes, as long as they are here: our ends, and its process's.
    ours: Option<PipeEnds>,
    theirs: Option<PipeEnds>,
    /// What has come of a guest from elsewhere.
    header: Option<(Box<Header>, Arc<Memory>)>,
    known: Option<Box<KnownGuest>>,
    /// A rank's endpoint and the image that its snapshot holds, and the pipes of the
    /// process that goes with it.
    snapshot: Option<(Vec<u8>, Vec<u8>, PipeEnds)>,
    /// A rank's endpoint, to be carried.
    packed: Option<Packed>,
    /// The newest image of the guest.
    image: Option<KeptImage>,
    /// Its process was there, says the keeper of one that can move.
    began: bool,
    /// How the keeper says that the guest ended.
    ended: Option<Box<Ended>>,
}

#[derive(Debug)]
pub(crate) struct Container {
    id: PlaceId,
    directories: Option<PlaceDirectories>,
    group: Option<PlaceGroup>,
    keeper: Option<Keeper>,
    /// Is the keeper for a guest that can move?
    staged: bool,
    /// The keeper's last order is to start this guest, which brought no pipes.
    told: Option<Fence>,
    /// The keeper is gone, and something of its group is not: until then it is
    /// waited for.
    empties: Option<Moment>,
    /// Since when the keeper was seen to be stopped, if it still is.
    stopped: Option<Moment>,
    /// The directories were made anew: the keeper must look at it again.
    fresh: bool,
    guest: Option<Guest>,
}

/// What a container has to tell.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) events: Vec<Event>,
    pub(crate) orders: Vec<LinkOrder>,
    pub(crate) commands: Vec<RouterCommand>,
    /// How ranks ended, to be told when the router has answered.
    pub(crate) settling: Vec<(Fence, Exit)>,
    pub(crate) missing: Vec<String>,
}

impl Answers {
    fn guest(&mut self, fence: Fence, event: guest::Event) {
        self.events.push(Event::Guest(fence, event));
    }

    fn failed(&mut self, fence: Fence, error: &StartError) {
        self.guest(fence, guest::Event::Failed { reason: error.to_string(), hopeless: false });
    }
}

impl Container {
    pub(crate) fn new(id: PlaceId) -> Self {
        let (directories, group, keeper, guest) = (None, None, None, None);
        let (staged, told, empties, stopped, fresh) = (false, None, None, None, true);
        Self { id, directories, group, keeper, staged, told, empties, stopped, fresh, guest }
    }

    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    pub(crate) fn holds(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.start.at.fence == fence)
    }

    fn guest(&mut self, fence: Fence) -> Option<&mut Guest> {
        self.guest.as_mut().filter(|guest| guest.start.at.fence == fence)
    }

    // ── its group ──────────────────────────────────────────────────────────

    pub(crate) fn freeze(&mut self) {
        let done = match &self.group {
            Some(group) => group.freeze().map_err(|error| error.to_string()),
            None => self.order(&Order::Freeze),
        };
        self.complain("freeze", done);
    }

    pub(crate) fn thaw(&mut self) {
        let done = match &self.group {
            Some(group) => group.thaw().map_err(|error| error.to_string()),
            None => self.order(&Order::Thaw),
        };
        self.complain("thaw", done);
    }

    pub(crate) fn hurry(&self, hurries: bool) {
        if let Some(group) = &self.group {
            group.hurry(hurries);
        }
    }

    /// Everything at this place dies, the keeper included: also what is
    /// frozen, and also a keeper that a guest has overwhelmed. Nobody waits for it:
    /// [`Self::hear`] tells.
    pub(crate) fn kill(&self) {
        if let Some(group) = &self.group {
            let done = group.kill().map_err(|error| error.to_string());
            self.complain("kill", done);
        }
        if let Some(keeper) = &self.keeper {
            keeper.kill();
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), String> {
        self.told = None;
        match &self.keeper {
            Some(keeper) => keeper.send(order).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn complain(&self, what: &str, done: Result<(), String>) {
        if let Err(error) = done {
            tracing::error!(place = %self.id, %error, "cannot {what} a guest");
        }
    }

    // ── its keeper ─────────────────────────────────────────────────────────

    pub(crate) fn spawn_keeper(&mut self, site: &Site, staged: bool, answers: &mut Answers) {
        if let Err(error) = self.try_spawn_keeper(site, staged, answers) {
            let failed = KeeperEvent::Failed { reason: error.to_string() };
            answers.events.push(Event::Keeper(self.id, failed));
        }
    }

    fn try_spawn_keeper(
        &mut self,
        site: &Site,
        staged: bool,
        answers: &mut Answers,
    ) -> Result<(), StartError> {
        assert!(self.keeper.is_none() && self.empties.is_none(), "two keepers at one place");
        (self.staged, self.told, self.stopped) = (staged, None, None);
        let uid = self.settle_directories(site)?;
        let Some(directories) = &self.directories else { unreachable!("made above") };
        let mover = site.mover.clone().map_err(StartError::Immobile);
        let mover = staged.then_some(mover).transpose()?;
        let sandbox = Sandbox {
            directory: directories.root().to_path_buf(),
            uid,
            keeper_uid: site.config.guests.uid_base,
            readable: site.config.guests.readable.clone(),
            writable: site.config.guests.shared_directories.clone(),
            limits: site.guest_limits(site.limits),
            filter: site.config.guests.filter,
            knowledge: mover.map(|mover| mover.found.knowledge.clone()),
            ..Sandbox::default()
        };
        let own_network = site.config.guests.network == Network::None;
        let group = self.group.as_ref();
        let (keeper, lacking) = Keeper::spawn(&site.program, group, own_network, sandbox)?;
        answers.missing.extend(lacking);
        let keeper = self.keeper.insert(keeper);
        if let Some(beats) = &site.beats {
            match keeper.send_with(&Order::Heed, &[beats.file()]) {
                // Its end is heard.
                Ok(()) | Err(KeeperError::Gone) => {}
                // It has no guest without that.
                Err(_) => keeper.kill(),
            }
        }
        Ok(())
    }

    /// What is to be watched for [`Self::hear`].
    pub(crate) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        let keeper = self.keeper.iter().flat_map(Keeper::watched);
        let keeper = keeper.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let group = self.group.as_ref().filter(|_| self.empties.is_some());
        keeper.chain(group.map(|it| PollFd::from_borrowed_fd(it.events(), PollFlags::PRI)))
    }

    /// When [`Self::hear`] is to be called, whatever is heard.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.empties
    }

    /// Makes sure there are directories and a group; who guests run as.
    fn settle_directories(&mut self, site: &Site) -> Result<Option<u32>, StartError> {
        let root = rustix::process::geteuid().is_root();
        let uid = root.then(|| site.config.guests.uid(self.id));
        if self.directories.is_none() {
            self.directories = Some(PlaceDirectories::prepare(&site.config.data, self.id, uid)?);
        }
        if self.group.is_none()
            && let Some(tree) = &site.tree
        {
            self.group = Some(tree.place(self.id)?);
        }
        Ok(uid)
    }

    /// Reads what the keeper has to say, and sees whether it is gone.
    pub(crate) fn hear(&mut self, answers: &mut Answers) {
        if let Some(keeper) = &mut self.keeper {
            let has_ended = keeper.has_ended();
            self.read_reports(answers);
            if has_ended {
                self.keeper = None;
                self.empties = Some(Clock.now() + EMPTY_WITHIN);
            }
        }
        if let Some(until) = self.empties
            && self.is_empty(until)
        {
            self.empties = None;
            answers.events.push(Event::Keeper(self.id, KeeperEvent::Gone));
        }
    }

    /// Is nothing of the place alive, now that its keeper is gone?
    fn is_empty(&self, until: Moment) -> bool {
        let Some(group) = &self.group else { return true };
        let is_over = Clock.now() >= until;
        if !group.is_empty() && !is_over {
            // What no namespace has held.
            let _ = group.kill();
        }
        if is_over {
            tracing::error!(place = %self.id, "something survives being killed");
        }
        is_over || group.is_empty()
    }

    fn read_reports(&mut self, answers: &mut Answers) {
        while let Some(keeper) = &mut self.keeper {
            let event = match keeper.receive() {
                Ok(None) | Err(KeeperError::Gone) => return,
                Ok(Some(Report::Ready { missing })) => {
                    answers.missing.extend(missing);
                    continue;
                }
                Ok(Some(Report::Began { fence })) => {
                    self.told = None;
                    if let Some(guest) = self.guest(fence) {
                        guest.began = true;
                    }
                    continue;
                }
                Ok(Some(Report::Ended(ended))) => {
                    let last = ended.last;
                    if let Some(guest) = self.guest(ended.fence) {
                        guest.ended = Some(ended);
                    }
                    KeeperEvent::Ended { last }
                }
                Ok(Some(Report::Landed { fence })) => KeeperEvent::ProcessStands { fence },
                Ok(Some(Report::CannotStart { fence, why, here_only })) => {
                    tracing::info!(%fence, "a guest cannot begin here: {why}");
                    KeeperEvent::CannotStart { fence, why, hopeless: !here_only }
                }
                Err(KeeperError::Unheard) => match self.told.take() {
                    Some(fence) => KeeperEvent::NotBegun { fence },
                    None => continue,
                },
                // Nothing that it says can be relied on.
                Err(_) => return keeper.kill(),
            };
            answers.events.push(Event::Keeper(self.id, event));
        }
    }

    // ── a guest that begins ────────────────────────────────────────────────

    /// Makes the place ready for a guest: one that begins anew has its pipes.
    pub(crate) fn prepare(&mut self, site: &Site, start: &Start, answers: &mut Answers) {
        let fence = start.at.fence;
        if let Err(error) = self.try_prepare(site, start) {
            answers.failed(fence, &error);
        }
    }

    fn try_prepare(&mut self, site: &Site, start: &Start) -> Result<Option<u32>, StartError> {
        if let Some(path) = &start.spec.shared_directory
            && !site.config.allows_shared(Path::new(path))
        {
            return Err(StartError::NotShared(path.clone()));
        }
        let uid = self.settle_directories(site)?;
        if let Some(group) = &mut self.group {
            group.set_limits(GroupLimits {
                memory_bytes_max: start.limits.memory_bytes_max,
                processes_max: start.limits.processes_max,
            });
        }
        let group = self.group.as_ref();
        let before = self.guest.take().filter(|guest| guest.start.at == start.at);
        let (ours, theirs) = before.map_or((None, None), |guest| (guest.ours, guest.theirs));
        self.guest = Some(Guest {
            start: Box::new(start.clone()),
            cpu_before: group.map_or(Duration::ZERO, PlaceGroup::cpu_time),
            starved_before: group.map(PlaceGroup::starvation).unwrap_or_default(),
            ours,
            theirs,
            header: None,
            known: None,
            snapshot: None,
            packed: None,
            image: None,
            began: false,
            ended: None,
        });
        Ok(uid)
    }

    pub(crate) fn lay_inputs(&mut self, fence: Fence, answers: &mut Answers) {
        self.lay(fence, None, answers);
    }

    /// Input files for a guest: all of its job's, or only those.
    fn lay(&mut self, fence: Fence, only: Option<BTreeSet<String>>, answers: &mut Answers) {
        let (Some(directories), Some(guest)) = (&self.directories, &self.guest) else { return };
        let spec = Arc::clone(&guest.start.spec);
        match directories.open_work() {
            Ok(into) => {
                let uid = directories.uid();
                answers.orders.push(LinkOrder::Lay(Laying { fence, spec, only, into, uid }));
            }
            Err(error) => answers.guest(fence, guest::Event::Laid(Err(error.to_string()))),
        }
    }

    /// Orders the start, and has the router begin a rank that is new.
    pub(crate) fn launch(&mut self, site: &Site, at: GuestAt, begins: bool, answers: &mut Answers) {
        let fence = at.fence;
        match self.try_launch(site, fence, begins, answers) {
            Ok(true) => answers.events.push(Event::Started(fence)),
            // The guest could not be made ready, as was told.
            Ok(false) => {}
            Err(StartError::Keeper(KeeperError::Gone)) => {
                answers.events.push(Event::Keeper(self.id, KeeperEvent::NotBegun { fence }));
            }
            Err(error) => answers.failed(fence, &error),
        }
    }

    fn try_launch(
        &mut self,
        site: &Site,
        fence: Fence,
        begins: bool,
        answers: &mut Answers,
    ) -> Result<bool, StartError> {
        let Some(guest) = self.guest(fence) else { return Ok(false) };
        guest.began = false;
        let start = guest.start.clone();
        if begins {
            let (ours, theirs) = messages::pair().map_err(StartError::Pipes)?;
            guest.theirs = Some(theirs);
            let begin = start.rank.as_ref().map(|rank| Begin::new(&start, rank, ours));
            answers.commands.extend(begin.map(|begin| RouterCommand::Begin(Box::new(begin))));
        }
        let theirs = guest.theirs.take();
        let Some(directories) = &self.directories else { return Ok(false) };
        let seen = self.as_seen(directories);
        let shared = start.spec.shared_directory.as_ref().map(PathBuf::from);
        let order = Order::Start(Box::new(keeper::StartGuest {
            fence,
            command: with_index(&start.spec.command, start.subprogram.index),
            environment: environment(&seen, &start),
            directory: shared.unwrap_or(seen.work),
            fresh: std::mem::take(&mut self.fresh),
            limits: site.guest_limits(start.limits),
            pipes: theirs.is_some(),
        }));
        let keeper = self.keeper.as_ref().ok_or(StartError::NoKeeper)?;
        let Some(ends) = theirs else {
            keeper.send(&order)?;
            self.told = Some(fence);
            return Ok(true);
        };
        let sent = keeper.send_with(&order, &[ends.read.as_fd(), ends.write.as_fd()]);
        if let (Err(_), Some(guest)) = (&sent, self.guest(fence)) {
            guest.theirs = Some(ends);
        }
        self.told = None;
        Ok(sent.map(|()| true)?)
    }

    // ── what it uses ───────────────────────────────────────────────────────

    /// Has a guest's disk use looked at, and tells its memory, and if its keeper can tell
    /// nothing.
    pub(crate) fn measure(&mut self, fence: Fence, answers: &mut Answers) {
        if self.keeper.as_ref().is_some_and(Keeper::is_stopped) {
            let since = *self.stopped.get_or_insert_with(|| Clock.now());
            tracing::warn!(place = %self.id, "somebody has stopped the keeper of a guest");
            answers.events.push(Event::Keeper(self.id, KeeperEvent::Stopped { since }));
        } else {
            self.stopped = None;
        }
        if let (Some(directories), Some(guest)) = (&self.directories, &self.guest) {
            answers.orders.push(LinkOrder::Measure(Measuring {
                fence,
                directory: directories.root().to_path_buf(),
                group: self.group.as_ref().map(|group| group.path().to_path_buf()),
                bytes_max: guest.start.limits.disk_bytes_max,
            }));
        }
        if let Some(group) = &self.group {
            answers.events.push(Event::Weighed { fence, bytes: group.memory_bytes() });
        }
    }
}

impl Site {
    /// What guests lack here, one line each: starts a keeper and lets it go again.
    pub(crate) fn try_out(&self) -> Vec<String> {
        let mut container = Container::new(PlaceId(0));
        let mut answers = Answers::default();
        if let Err(error) = container.try_spawn_keeper(self, false, &mut answers) {
            answers.missing.push(format!("guests cannot start: {error}"));
        } else if let Some(keeper) = &mut container.keeper {
            match keeper.receive_within(TRY_OUT) {
                Ok(Some(Report::Ready { missing })) => answers.missing.extend(missing),
                Ok(_) => answers.missing.push("a keeper is slow to answer".into()),
                Err(error) => answers.missing.push(format!("guests cannot start: {error}")),
            }
        }
        answers.missing
    }

    /// What must be enforced process by process, for want of a group.
    fn guest_limits(&self, limits: Limits) -> GuestLimits {
        let tree = self.tree.as_ref();
        let unless = |grouped: bool, value: u64| if grouped { 0 } else { value };
        // A user's processes are counted together: only a place that has a
        // user of its own can be limited by that.
        let counted =
            tree.is_some_and(Tree::limits_processes) || !rustix::process::geteuid().is_root();
        GuestLimits {
            data_bytes_max: unless(tree.is_some_and(Tree::limits_memory), limits.memory_bytes_max),
            processes_max: unless(counted, limits.processes_max.into()),
            file_bytes_max: limits.disk_bytes_max,
            descriptors_max: self.config.guests.descriptors_max.into(),
        }
    }
}

fn records(spec: &JobSpec) -> bool {
    spec.program.is_some_and(|program| program.record)
}
