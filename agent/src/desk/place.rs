//! The shell of one guest place: its ground, its group, its keeper, and the
//! guest that runs there.
//!
//! The promise: freezing and killing touch nothing but a file that is open
//! already. Decides nothing: the core says what to do, this does it and tells
//! how it went.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Event, Exit, Left};
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::{JobSpec, OnBusy, Outcome, Reaction};
use gleaner_common::program::{RANKS_MAX, RankOffer};
use gleaner_common::time::Moment;
use gleaner_common::units::spoken_size;
use gleaner_common::wire::{INLINE_OUTPUT_BYTES_MAX, Printed};

use gleaner_program_core::address::{Rank, Snapshot};
use gleaner_program_core::endpoint::Config;
use gleaner_program_core::facts::End;
use gleaner_shell::clock::Clock;

use self::arriving::Inbound;
use self::imaging::Imaging;
use self::leaving::{LeavingRank, NOT_BEGUN, Standing};
use self::surroundings::{environment, with_index};
use crate::cgroup::{GroupLimits, PlaceGroup, Tree};
use crate::config::{AgentConfig, Network};
use crate::contain::{
    Ended, GuestLimits, Keeper, KeeperError, Order, Program, Report, Sandbox, Start,
};
use crate::ground::{Ground, GroundError, open_strange};
use crate::link::{Collection, Laying, LinkOrder};
use crate::moving::Mover;
use crate::post::{self, Begin, Ends, Letter};

/// How long a keeper without a guest stays, so that an idle agent is small.
const KEEPER_STAYS: Duration = Duration::from_secs(60);

/// One that is kept ready ([`Place::restock`]) is made anew after so long: it sees
/// what was mounted when it was born.
const RENEWED_AFTER: Duration = Duration::from_secs(600);

/// How much is kept of what a rank receives, for it to go back.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// How long a keeper may take to sandbox itself when it is tried out: a few
/// milliseconds, and seconds on a machine that is fully loaded.
const TRY_OUT: Duration = Duration::from_secs(20);

mod arriving;
mod imaging;
mod leaving;
mod surroundings;

/// What all places share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: AgentConfig,
    pub(crate) program: Program,
    pub(crate) tree: Option<Tree>,
    /// The workstation's own limits of one guest.
    pub(crate) limits: Limits,
    /// What moves guests, or why nothing can.
    pub(crate) mover: Result<Arc<Mover>, String>,
}

/// What one guest may use.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "as the job's own limits are named")]
pub(crate) struct Limits {
    pub(crate) memory_bytes_max: u64,
    pub(crate) processes_max: u32,
    pub(crate) disk_bytes_max: u64,
}

/// What remains of a place that was killed.
#[derive(Debug, Default)]
struct Dying {
    /// The guest ended before its keeper did.
    ended: Option<Box<Ended>>,
}

impl Limits {
    /// The lower of the workstation's and the job's; 0 is the workstation's.
    fn with(self, job: gleaner_common::job::Limits) -> Self {
        let lower = |ours: u64, theirs: u64| if theirs == 0 { ours } else { ours.min(theirs) };
        Self {
            memory_bytes_max: lower(self.memory_bytes_max, job.memory_bytes_max),
            processes_max: u32::try_from(lower(
                self.processes_max.into(),
                job.processes_max.into(),
            ))
            .unwrap_or(self.processes_max),
            disk_bytes_max: lower(self.disk_bytes_max, job.disk_bytes_max),
        }
    }
}

/// Why a guest cannot be started at a place.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}: {source}", source = source_of(.0))]
    Ground(#[from] GroundError),
    #[error("{0}: {source}", source = source_of(.0))]
    Keeper(#[from] KeeperError),
    #[error("{0}: {source}", source = source_of(.0))]
    Group(#[from] crate::cgroup::CgroupError),
    #[error("cannot make a rank's pipes: {0}")]
    Pipes(io::Error),
    #[error("shared directory {0} is not offered here: guests.shared_directories has it not")]
    NotShared(String),
}

fn source_of(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(String::new, ToString::to_string)
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what was done to it")]
struct Guest {
    fence: Fence,
    spec: Arc<JobSpec>,
    limits: Limits,
    start: Option<Start>,
    /// A rank's, until it starts.
    begin: Option<Beginning>,
    /// Has the post a seat for it?
    seated: bool,
    /// Killed before it could start.
    unwanted: bool,
    /// Its process ends, and its rank goes elsewhere without it.
    emptied: bool,
    /// A rank that came from elsewhere: it has more than its beginning.
    came: bool,
    /// What it begins with is being looked at: it may be an image.
    snapshot: Option<Box<desk::Start>>,
    cpu_before: Duration,
    oom_before: u64,
    /// Comes from elsewhere, until it is set going.
    inbound: Option<Inbound>,
}

/// A rank that is about to begin: for the post unless it has its seat, and the
/// pipe ends that are its program's.
#[derive(Debug)]
struct Beginning {
    begin: Option<Box<Begin>>,
    theirs: Ends,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what was done to it")]
pub(crate) struct Place {
    id: PlaceId,
    ground: Option<Ground>,
    group: Option<PlaceGroup>,
    keeper: Option<Keeper>,
    guest: Option<Guest>,
    /// The ground was laid anew: the keeper must look at it again.
    fresh: bool,
    /// Everything here was killed: how the guest ended counts only once the
    /// keeper has gone too, for it cannot take another.
    dying: Option<Dying>,
    /// Is the keeper, or was the last one, for a guest that can move?
    staged: bool,
    /// Are guests welcome at this workstation?
    open: bool,
    /// Somebody has a hand in the guest, which is being carried away; is it to
    /// be thawed afterwards?
    carried: Option<Fence>,
    thaw_later: bool,
    /// What the core wants, whatever keeper is here.
    frozen: bool,
    /// It stands still, and is on its way from here or to here.
    hurries: bool,
    /// The guest that is to leave when it stands still.
    standing: Option<Standing>,
    /// The rank that is about to leave.
    leaving: Option<LeavingRank>,
    /// The image that is wanted of its rank.
    imaging: Option<Imaging>,
    /// A rank that has lost its process, and has its seat still.
    bare: Option<Fence>,
    idle_since: Moment,
    /// When its keeper was made.
    born: Moment,
}

/// What a place has to tell.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) events: Vec<Event>,
    pub(crate) orders: Vec<LinkOrder>,
    pub(crate) letters: Vec<Letter>,
    /// How ranks ended, to be told when the post has answered.
    pub(crate) settling: Vec<(Fence, PlaceId, Exit)>,
    pub(crate) missing: Vec<String>,
}

impl Place {
    pub(crate) fn new(id: PlaceId) -> Self {
        Self {
            id,
            ground: None,
            group: None,
            keeper: None,
            guest: None,
            fresh: true,
            dying: None,
            staged: false,
            open: false,
            carried: None,
            thaw_later: false,
            frozen: false,
            hurries: false,
            standing: None,
            leaving: None,
            imaging: None,
            bare: None,
            idle_since: Moment::ZERO,
            born: Moment::ZERO,
        }
    }

    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    pub(crate) fn freeze(&mut self) {
        self.thaw_later = false;
        self.frozen = true;
        let done = match &self.group {
            Some(group) => group.freeze().map_err(|error| error.to_string()),
            None => self.order(&Order::Freeze),
        };
        self.complain("freeze", done);
    }

    pub(crate) fn thaw(&mut self) {
        if self.carried.is_some() {
            // Who writes it down leaves it frozen, and is not done yet.
            self.thaw_later = true;
            return;
        }
        self.frozen = false;
        if self.image_comes_first() {
            return;
        }
        self.hurry(false);
        let done = match &self.group {
            Some(group) => group.thaw().map_err(|error| error.to_string()),
            None => self.order(&Order::Thaw),
        };
        self.complain("thaw", done);
    }

    /// Everything at this place dies, the keeper included: also what is
    /// frozen, and also a keeper that a guest has overwhelmed.
    pub(crate) fn kill(&mut self, fence: Fence, told: &mut Told) {
        match &self.guest {
            Some(guest) if guest.fence == fence => {}
            _ => return,
        }
        if self.call_off(fence, told) {
            return;
        }
        if let Some(guest) = self.guest.as_mut().filter(|guest| guest.start.is_some()) {
            // It has not started, but its files are on their way here.
            guest.unwanted = true;
            return;
        }
        if let Some(group) = &self.group {
            let done = group.kill().map_err(|error| error.to_string());
            self.complain("kill", done);
        }
        if let Some(keeper) = &self.keeper {
            keeper.kill();
            self.dying.get_or_insert_default();
        }
    }

    fn order(&self, order: &Order) -> Result<(), String> {
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

    pub(crate) fn start(&mut self, site: &Site, start: &desk::Start, told: &mut Told) {
        self.frozen = false;
        self.hurry(false);
        let begin = start.rank.as_ref().map(|rank| beginning(start, rank)).transpose();
        let done = begin.and_then(|begin| self.try_start(site, start, begin, told));
        if let Err(error) = done {
            self.guest = None;
            let (reason, hopeless) = (error.to_string(), false);
            told.events.push(Event::StartFailed { fence: start.fence, reason, hopeless });
        }
    }

    fn try_start(
        &mut self,
        site: &Site,
        start: &desk::Start,
        begin: Option<Beginning>,
        told: &mut Told,
    ) -> Result<(), StartError> {
        let spec = &start.spec;
        let shared = match &spec.shared_directory {
            Some(path) if site.config.allows_shared(Path::new(path)) => Some(PathBuf::from(path)),
            Some(path) => return Err(StartError::NotShared(path.clone())),
            None => None,
        };
        self.settle(site, mover_for(site, spec).as_deref(), told)?;
        let limits = site.limits.with(spec.limits);
        if let Some(group) = &mut self.group {
            group.set_limits(GroupLimits {
                memory_bytes_max: limits.memory_bytes_max,
                processes_max: limits.processes_max,
            });
        }
        let Some(ground) = &self.ground else { unreachable!("a settled place has ground") };
        let order = Start {
            fence: start.fence,
            command: with_index(&spec.command, start.subprogram.index),
            environment: environment(&self.as_seen(ground), start),
            directory: shared.unwrap_or_else(|| self.as_seen(ground).work),
            fresh: std::mem::take(&mut self.fresh),
            limits: site.guest_limits(limits),
            pipes: begin.is_some(),
        };
        let group = self.group.as_ref();
        let came = begin.as_ref().is_some_and(|it| it.begin.is_none());
        let guest = Guest {
            fence: start.fence,
            spec: Arc::clone(spec),
            limits,
            start: None,
            seated: came,
            came,
            snapshot: start.rank.as_ref().and_then(|it| it.cut).map(|_| Box::new(start.clone())),
            begin,
            unwanted: false,
            emptied: false,
            cpu_before: group.map_or(Duration::ZERO, PlaceGroup::cpu_time),
            oom_before: group.map_or(0, PlaceGroup::oom_kills),
            inbound: None,
        };
        if spec.inputs.is_empty() {
            let mut guest = guest;
            self.send_start(order, &mut guest, told)?;
            self.guest = Some(guest);
            told.events.push(Event::Started(start.fence));
        } else {
            let laying = self.laying(ground, start.fence, spec, None)?;
            told.orders.push(LinkOrder::Lay(laying));
            self.guest = Some(Guest { start: Some(order), ..guest });
        }
        Ok(())
    }

    /// Input files for a guest: all of its job's, or only those.
    fn laying(
        &self,
        ground: &Ground,
        fence: Fence,
        spec: &Arc<JobSpec>,
        only: Option<BTreeSet<String>>,
    ) -> Result<Laying, GroundError> {
        let (into, uid) = (ground.open_work()?, ground.uid());
        Ok(Laying { place: self.id, fence, spec: Arc::clone(spec), only, into, uid })
    }

    /// Orders the start, and has the post expect a rank.
    fn send_start(
        &self,
        order: Start,
        guest: &mut Guest,
        told: &mut Told,
    ) -> Result<(), KeeperError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let order = Order::Start(Box::new(order));
        let Some(Beginning { begin, theirs }) = guest.begin.take() else {
            return keeper.send(&order);
        };
        keeper.send_with(&order, &[theirs.read.as_fd(), theirs.write.as_fd()])?;
        guest.seated = true;
        told.letters.extend(begin.map(Letter::Begin));
        Ok(())
    }

    /// Nobody wants the guest here any more: nobody needs to hear of its rank.
    pub(crate) fn abandon(&mut self, fence: Fence, told: &mut Told) {
        if self.guest.as_ref().is_some_and(|guest| guest.fence == fence && guest.seated) {
            self.unseat(fence, told);
        }
    }

    /// Tells that a guest has ended. The post first reads what a rank wrote.
    fn tell_exit(&mut self, guest: &Guest, status: ExitStatus, exit: Exit, told: &mut Told) {
        let fence = guest.fence;
        (self.standing, self.imaging) = (None, None);
        self.hurry(false);
        if !guest.emptied {
            self.leaving = None;
        }
        if guest.seated {
            let end = match (status.code(), status.signal()) {
                (Some(code), _) => End::ExitCode(code),
                (None, signal) => End::Signal(signal.unwrap_or(0)),
            };
            told.letters.push(Letter::Exited { fence, end, stays: guest.emptied });
            told.settling.push((fence, self.id, exit));
        } else {
            told.events.push(Event::Exited { fence, exit });
        }
    }

    /// The input files lie where the guest will find them, or do not.
    pub(crate) fn laid(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<(), String>,
        told: &mut Told,
    ) {
        if self.is_inbound(fence) {
            return self.laid_for_inbound(now, fence, done, told);
        }
        let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) else { return };
        let Some(order) = guest.start.take() else { return };
        if guest.unwanted {
            let (emptied, seated) = (guest.emptied, guest.seated);
            self.guest = None;
            self.clear_ground(fence, told);
            if emptied && seated {
                // It was to be begun anew: what its rank is stays.
                let end = End::Signal(libc::SIGKILL);
                told.letters.push(Letter::Exited { fence, end, stays: true });
                return told.settling.push((fence, self.id, never_ran()));
            }
            if seated {
                self.unseat(fence, told);
            }
            if emptied {
                let (reason, hopeless) = (NOT_BEGUN.to_owned(), false);
                return told.events.push(Event::StartFailed { fence, reason, hopeless });
            }
            told.events.push(Event::Exited { fence, exit: never_ran() });
            return;
        }
        let Some(mut guest) = self.guest.take() else { unreachable!("it was there just now") };
        let started = done.and_then(|()| {
            self.send_start(order, &mut guest, told).map_err(|error| error.to_string())
        });
        let seated = guest.seated;
        self.guest = Some(guest);
        match started {
            Ok(()) => told.events.push(Event::Started(fence)),
            Err(reason) => {
                self.guest = None;
                if seated {
                    self.unseat(fence, told);
                }
                self.clear_ground(fence, told);
                told.events.push(Event::StartFailed { fence, reason, hopeless: false });
            }
        }
    }

    /// Clears away what was laid for a guest that did not start.
    fn clear_ground(&mut self, fence: Fence, told: &mut Told) {
        let Some(ground) = &self.ground else { return };
        self.fresh = true;
        match ground.take_away(fence) {
            Ok(directory) => told.orders.push(LinkOrder::Clear(directory)),
            Err(error) => self.abandon_ground(&error),
        }
    }

    /// A place that cannot be cleared is made anew, its keeper included.
    fn abandon_ground(&mut self, error: &GroundError) {
        tracing::error!(place = %self.id, %error, "cannot clear a place: it is made anew");
        self.ground = None;
        self.keeper = None;
        self.fresh = true;
    }

    /// Makes sure there are ground, group and keeper. With a mover the keeper is
    /// for a guest that can move, and for that one only.
    fn settle(
        &mut self,
        site: &Site,
        mover: Option<&Mover>,
        told: &mut Told,
    ) -> Result<(), StartError> {
        if self.keeper.is_none() || self.staged != mover.is_some() {
            self.bear(site, mover, told)?;
        } else if let Some(group) = &self.group {
            // Its last guest may have been frozen, and gone, before it began.
            let done = group.thaw().map_err(|error| error.to_string());
            self.complain("thaw", done);
        }
        if self.frozen
            && let Some(group) = &self.group
        {
            // The owner came before what is to begin here.
            let done = group.freeze().map_err(|error| error.to_string());
            self.complain("freeze", done);
        }
        Ok(())
    }

    /// A new keeper.
    fn bear(
        &mut self,
        site: &Site,
        mover: Option<&Mover>,
        told: &mut Told,
    ) -> Result<(), StartError> {
        self.keeper = None;
        self.staged = mover.is_some();
        let uid = self.settle_ground(site)?;
        let Some(ground) = &self.ground else { unreachable!("made above") };
        let sandbox = Sandbox {
            directory: ground.directory().to_path_buf(),
            uid,
            readable: site.config.guests.readable.clone(),
            writable: site.config.guests.shared_directories.clone(),
            limits: site.guest_limits(site.limits),
            knowledge: mover.map(|mover| mover.knowledge.clone()),
            ..Sandbox::default()
        };
        if let Some(group) = &self.group {
            // A place that was killed frozen would hold its next keeper.
            let _ = group.thaw();
        }
        let own_network = site.config.guests.network == Network::None;
        let group = self.group.as_ref();
        let (keeper, lacking) = Keeper::spawn(&site.program, group, own_network, sandbox)?;
        told.missing.extend(lacking);
        self.keeper = Some(keeper);
        self.born = Clock.now();
        Ok(())
    }

    /// Are guests welcome at this workstation?
    pub(crate) fn set_open(&mut self, now: Moment, open: bool) {
        if std::mem::replace(&mut self.open, open) && !open {
            self.idle_since = self.idle_since.max(now);
        }
    }

    /// Where the last guest could move, the next one may come from elsewhere,
    /// and somebody waits for it: a keeper is kept ready while guests are
    /// welcome here. Is one wanted?
    pub(crate) fn wants_keeper(&self) -> bool {
        self.open && self.staged && self.keeper.is_none() && self.guest.is_none()
    }

    pub(crate) fn restock(&mut self, site: &Site, told: &mut Told) {
        let mover = site.mover.as_deref().map_err(Clone::clone);
        let born = mover.and_then(|mover| {
            self.bear(site, Some(mover), told).map_err(|error| error.to_string())
        });
        if let Err(error) = born {
            // The next guest tries again, and tells.
            self.staged = false;
            tracing::info!(place = %self.id, %error, "no keeper is kept ready");
        }
    }

    /// Makes sure there are ground and group; who guests run as.
    fn settle_ground(&mut self, site: &Site) -> Result<Option<u32>, StartError> {
        let root = rustix::process::geteuid().is_root();
        let uid = root.then(|| site.config.guests.uid_base + u32::from(self.id.0));
        if self.ground.is_none() {
            self.ground = Some(Ground::prepare(&site.config.data, self.id, uid)?);
        }
        if self.group.is_none()
            && let Some(tree) = &site.tree
        {
            self.group = Some(tree.place(self.id)?);
        }
        Ok(uid)
    }

    /// Starts a keeper and lets it go again: what does it lack here?
    pub(crate) fn try_out(site: &Site) -> Vec<String> {
        let mut place = Self::new(PlaceId(0));
        let mut told = Told::default();
        if let Err(error) = place.settle(site, None, &mut told) {
            told.missing.push(format!("guests cannot start: {error}"));
        } else if let Some(keeper) = &mut place.keeper {
            match keeper.receive_within(TRY_OUT) {
                Ok(Some(Report::Ready { missing })) => told.missing.extend(missing),
                Ok(_) => told.missing.push("a keeper is slow to answer".into()),
                Err(error) => told.missing.push(format!("guests cannot start: {error}")),
            }
        }
        told.missing
    }

    /// Reads what the keeper has to say.
    pub(crate) fn hear(&mut self, now: Moment, site: &Site, told: &mut Told) {
        loop {
            let Some(keeper) = &mut self.keeper else { return };
            match keeper.receive() {
                Ok(None) => return,
                Ok(Some(Report::Ready { missing })) => told.missing.extend(missing),
                Ok(Some(Report::Ended(ended))) => match &mut self.dying {
                    Some(dying) => dying.ended = Some(ended),
                    None => self.ended(now, site, *ended, told),
                },
                Ok(Some(Report::CannotStart { .. } | Report::Landed { .. }))
                    if self.dying.is_some() => {}
                Ok(Some(Report::Landed { fence })) => self.stands(now, fence, told),
                Ok(Some(Report::CannotStart { fence, why, .. })) if self.is_inbound(fence) => {
                    return self.not_coming(now, fence, why, told);
                }
                Ok(Some(Report::CannotStart { fence, why, here_only })) => {
                    let guest = self.guest.take();
                    self.idle_since = now;
                    if self.staged {
                        // It was for this one.
                        self.keeper = None;
                    }
                    if let Some(guest) = guest {
                        if guest.seated {
                            self.unseat(fence, told);
                        }
                        if !guest.spec.inputs.is_empty() {
                            self.clear_ground(fence, told);
                        }
                    }
                    told.events.push(Event::StartFailed {
                        fence,
                        reason: why,
                        hopeless: !here_only,
                    });
                }
                Err(_) => return self.keeper_gone(now, site, told),
            }
        }
    }

    fn ended(&mut self, now: Moment, site: &Site, ended: Ended, told: &mut Told) {
        let Some(guest) = self.guest.take() else { return };
        self.idle_since = now;
        let status = ExitStatus::from_raw(ended.status);
        let outcome = self.outcome(&guest, status);
        let inline = |bytes: &Vec<u8>, size| bytes.len() as u64 == size;
        let all_inline =
            inline(&ended.stdout, ended.stdout_bytes) && inline(&ended.stderr, ended.stderr_bytes);
        let printed = Left {
            stdout: Printed::Inline(ended.stdout),
            stderr: Printed::Inline(ended.stderr),
            outputs: vec![],
        };
        let left = if guest.emptied {
            self.clear_ground(guest.fence, told);
            Some(Left::default())
        } else if ended.clean && all_inline {
            Some(printed)
        } else {
            self.take_away(site, &guest, printed, all_inline, told)
        };
        if ended.last {
            self.keeper = None;
        }
        let exit = Exit { outcome, cpu: ended.cpu, left };
        self.tell_exit(&guest, status, exit, told);
    }

    /// The keeper is dead, and with it everything at this place.
    fn keeper_gone(&mut self, now: Moment, site: &Site, told: &mut Told) {
        // Dropping it waits until the kernel has cleared its namespace.
        self.keeper = None;
        if let Some(group) = &mut self.group
            && !group.wait_empty(Duration::from_secs(5))
        {
            tracing::error!(place = %self.id, "something survives being killed");
        }
        if self.dying.is_none()
            && let Some(fence) = self.guest.as_ref().map(|guest| guest.fence)
            && self.is_inbound(fence)
        {
            return self.not_coming(now, fence, "its keeper is gone".to_owned(), told);
        }
        let last = self.dying.take().and_then(|dying| dying.ended);
        let Some(guest) = self.guest.take() else {
            // Whatever it died of, the next one would.
            self.staged = false;
            return;
        };
        self.idle_since = now;
        let cpu = self.group.as_ref().map_or(Duration::ZERO, PlaceGroup::cpu_time);
        let status = last.as_ref().map_or(libc::SIGKILL, |ended| ended.status);
        let status = ExitStatus::from_raw(status);
        let outcome = self.outcome(&guest, status);
        let (mut printed, all_inline) = match &self.ground {
            Some(ground) => read_printed(ground.directory()),
            None => (Left::default(), true),
        };
        // What the keeper had taken out of the files already.
        if let Some(Ended { stdout, stderr, .. }) = last.map(|ended| *ended) {
            if !stdout.is_empty() {
                printed.stdout = Printed::Inline(stdout);
            }
            if !stderr.is_empty() {
                printed.stderr = Printed::Inline(stderr);
            }
        }
        let left = if guest.emptied {
            self.clear_ground(guest.fence, told);
            Some(Left::default())
        } else {
            self.take_away(site, &guest, printed, all_inline, told)
        };
        let cpu = cpu.saturating_sub(guest.cpu_before);
        let exit = Exit { outcome, cpu, left };
        self.tell_exit(&guest, status, exit, told);
    }

    /// Clears the ground. `None` if what was on it must be staged first.
    fn take_away(
        &mut self,
        site: &Site,
        guest: &Guest,
        printed: Left,
        all_inline: bool,
        told: &mut Told,
    ) -> Option<Left> {
        let ground = self.ground.as_ref()?;
        self.fresh = true;
        let directory = match ground.take_away(guest.fence) {
            Ok(directory) => directory,
            Err(error) => {
                self.abandon_ground(&error);
                return Some(printed);
            }
        };
        let outputs = (guest.spec.collect_output || records(&guest.spec))
            && fs::read_dir(directory.join("guest/output"))
                .is_ok_and(|mut entries| entries.next().is_some());
        if all_inline && !outputs {
            told.orders.push(LinkOrder::Clear(directory));
            return Some(printed);
        }
        told.orders.push(LinkOrder::Collect(Collection {
            fence: guest.fence,
            directory,
            outputs,
            printed,
            output_bytes_max: site.config.guests.output_bytes_max,
        }));
        None
    }

    /// How it ended, a limit that the kernel enforced included.
    fn outcome(&self, guest: &Guest, status: ExitStatus) -> Outcome {
        let starved = self.group.as_ref().is_some_and(|group| group.oom_kills() > guest.oom_before);
        match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Succeeded,
            (None, Some(libc::SIGXFSZ)) => Outcome::OverLimit(disk_limit(guest.limits)),
            // Also if a child of it was killed and it went on to say so.
            _ if starved => {
                let most = spoken_size(guest.limits.memory_bytes_max);
                Outcome::OverLimit(format!("memory: at most {most}"))
            }
            (Some(code), _) => Outcome::ExitCode(code),
            (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
        }
    }

    /// The guest whose disk use is to be looked at, and where.
    pub(crate) fn to_measure(&self) -> Option<LinkOrder> {
        let guest = self.guest.as_ref().filter(|guest| guest.start.is_none())?;
        let directory = self.ground.as_ref()?.directory().to_path_buf();
        Some(LinkOrder::Measure { place: self.id, fence: guest.fence, directory })
    }

    /// Is this too much?
    pub(crate) fn measured(&self, fence: Fence, bytes: u64) -> Option<Event> {
        let guest = self.guest.as_ref().filter(|guest| guest.fence == fence)?;
        (bytes > guest.limits.disk_bytes_max)
            .then(|| Event::OverLimit { fence, what: disk_limit(guest.limits) })
    }

    /// When a keeper without work goes, or a guest is looked at again.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let due = self.wants_keeper().then_some(self.idle_since);
        let others = [self.keeper_goes(), self.look_at(), self.look_for_image_at()];
        others.into_iter().chain([due]).flatten().min()
    }

    fn keeper_goes(&self) -> Option<Moment> {
        let idle = self.keeper.is_some() && self.guest.is_none();
        let kept_ready = self.staged && self.open;
        let goes =
            if kept_ready { self.born + RENEWED_AFTER } else { self.idle_since + KEEPER_STAYS };
        idle.then_some(goes)
    }

    /// Lets a keeper go that has had no guest for a while. Did it?
    pub(crate) fn wake(&mut self, now: Moment) -> bool {
        let due = self.keeper_goes().is_some_and(|at| at <= now);
        if due {
            self.keeper = None;
        }
        due
    }

    /// A guest's memory in use, for whoever thinks of moving it.
    pub(crate) fn weighed(&self) -> Option<Event> {
        let guest = self.guest.as_ref().filter(|guest| guest.inbound.is_none())?;
        let bytes = self.group.as_ref()?.memory_bytes();
        Some(Event::Weighed { fence: guest.fence, bytes })
    }

    pub(crate) fn has_guest(&self) -> bool {
        self.guest.is_some()
    }

    pub(crate) fn runs(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence == fence)
    }
}

impl Site {
    /// What guests lack here, one line each.
    pub(crate) fn try_out(&self) -> Vec<String> {
        Place::try_out(self)
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
            processes_max: unless(counted, u64::from(limits.processes_max) + 1),
            file_bytes_max: limits.disk_bytes_max,
        }
    }
}

fn disk_limit(limits: Limits) -> String {
    format!("disk: at most {}", spoken_size(limits.disk_bytes_max))
}

/// What a guest that was killed had printed, if it rides inline.
fn read_printed(directory: &Path) -> (Left, bool) {
    let read = |name: &str| {
        let mut file = open_strange(&directory.join(name)).ok()?;
        let size = file.metadata().ok()?.len();
        let mut bytes = vec![];
        if size <= INLINE_OUTPUT_BYTES_MAX as u64 {
            file.read_to_end(&mut bytes).ok()?;
        }
        Some((bytes, size))
    };
    let (stdout, out) = read("stdout").unwrap_or_default();
    let (stderr, err) = read("stderr").unwrap_or_default();
    let inline = stdout.len() as u64 == out && stderr.len() as u64 == err;
    let left =
        Left { stdout: Printed::Inline(stdout), stderr: Printed::Inline(stderr), outputs: vec![] };
    (left, inline)
}

/// The end of what was killed before it ran.
fn never_ran() -> Exit {
    Exit {
        outcome: Outcome::Signal(libc::SIGKILL),
        cpu: Duration::ZERO,
        left: Some(Left::default()),
    }
}

fn records(spec: &JobSpec) -> bool {
    spec.program.is_some_and(|program| program.record)
}

/// Makes the pipes of a rank, and says what the post has to know of it.
fn beginning(start: &desk::Start, offer: &RankOffer) -> Result<Beginning, StartError> {
    let (ours, theirs) = post::pair().map_err(StartError::Pipes)?;
    let program = start.spec.program.unwrap_or_default();
    let begin = Begin {
        fence: start.fence,
        job: start.subprogram.job,
        life: offer.life,
        config: Config {
            rank: Rank(start.subprogram.index),
            ranks: offer.ranks,
            first: Rank(offer.first),
            members: offer.members,
            parent: offer.parent.map(Rank),
            ranks_max: program.ranks_max.max(offer.ranks).clamp(1, RANKS_MAX),
            log_bytes_max: if may_go_back(&start.spec) { LOG_BYTES_MAX } else { 0 },
            snapshot: Snapshot(offer.snapshot),
            floor: offer.floor,
        },
        cut: offer.cut,
        ends: ours,
    };
    Ok(Beginning { begin: Some(Box::new(begin)), theirs })
}

/// What will move this job's guests, if anything may have to. Where nothing
/// can, they run all the same, and return their work.
fn mover_for(site: &Site, spec: &JobSpec) -> Option<Arc<Mover>> {
    // A rank that goes back may go back to an image.
    let moves = spec.on_busy.means(Reaction::Migrate) || may_go_back(spec);
    let moves = moves && site.tree.is_some();
    site.mover.as_ref().ok().filter(|_| moves).cloned()
}

/// Is anything kept to go back with?
fn may_go_back(spec: &JobSpec) -> bool {
    let OnBusy { reaction, then, .. } = spec.on_busy;
    [reaction, then].contains(&Reaction::Rollback)
        || spec.program.is_some_and(|program| program.checkpoint_every.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_limit_holds() {
        let ours = Limits { memory_bytes_max: 100, processes_max: 10, disk_bytes_max: 1_000 };
        let job = gleaner_common::job::Limits {
            memory_bytes_max: 0,
            processes_max: 5,
            disk_bytes_max: 9_000,
        };
        let both = ours.with(job);
        assert_eq!(both.memory_bytes_max, 100);
        assert_eq!(both.processes_max, 5);
        assert_eq!(both.disk_bytes_max, 1_000);
    }
}
