//! A place and guests that come and go: what of a move is done at the place
//! itself. The carrying is the link's (`crate::moving`).
//!
//! ```text
//! expect ─► header: a keeper is made ready ─► whole: it lands ─► landed ─► go
//!   └──────────────┴─ not coming, called off, cannot land ─► as if it never came
//! ```

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Departure, Event, Exit, Left};
use gleaner_common::id::Fence;
use gleaner_common::job::{JobSpec, Outcome, Reaction};
use gleaner_common::program::HandoverReply;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_move::{Header, Memory, Terms};

use super::{Guest, GuestLimits, Place, Site, StartError, Told};
use crate::cgroup::{GroupLimits, PlaceGroup};
use crate::contain::{Landing, Order, Staging};
use crate::ground::Ground;
use crate::link::LinkOrder;
use crate::moving::{Cargo, Expectation, Mover, Whole, on_stage};
use crate::post::Letter;

/// What is kept in memory of an image beside the guest's own memory: its
/// files, and what CRIU writes of them.
const BESIDE_BYTES_MAX: u64 = 256 << 20;

/// A guest on its way here.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// All that came, until it has landed.
    whole: Option<Box<Whole>>,
    /// Its keeper expects it.
    berthed: bool,
}

/// A place's directories, as its guest sees them.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) work: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) output: PathBuf,
}

impl Place {
    pub(super) fn as_seen(&self, ground: &Ground) -> Seen {
        let seen = |path: PathBuf| {
            if self.staged { on_stage(ground.directory(), &path) } else { path }
        };
        Seen { work: seen(ground.work()), tmp: seen(ground.tmp()), output: seen(ground.output()) }
    }

    // ── away ───────────────────────────────────────────────────────────────

    /// Has its state carried away.
    pub(crate) fn depart(&mut self, site: &Site, departure: Departure, told: &mut Told) {
        let fence = departure.fence;
        if self.has_not_begun(fence) {
            return self.give_back(fence, told);
        }
        match self.cargo(site, departure) {
            Ok(cargo) => {
                self.carried = Some(fence);
                told.orders.push(LinkOrder::Carry(Box::new(cargo)));
            }
            Err(reason) => {
                tracing::info!(%fence, %reason, "a guest cannot be moved");
                told.events.push(Event::CannotLeave { fence, reason });
            }
        }
    }

    /// Was it frozen before its keeper could start it?
    fn has_not_begun(&self, fence: Fence) -> bool {
        let here = self.guest.as_ref().is_some_and(|guest| guest.fence == fence);
        let keeper = self.keeper.as_ref().filter(|_| here && self.staged && self.dying.is_none());
        keeper.is_some_and(|keeper| first_child(keeper.pid().as_raw_nonzero().get()).is_none())
    }

    /// There is nothing to carry: its work is placed elsewhere at once.
    fn give_back(&mut self, fence: Fence, told: &mut Told) {
        let reason = "its owner came before it began".to_owned();
        self.keeper = None;
        if self.guest.take().is_some_and(|guest| guest.seated) {
            told.letters.push(Letter::Dropped(fence));
        }
        self.clear_ground(fence, told);
        told.events.push(Event::StartFailed { fence, reason, hopeless: false });
    }

    fn cargo(&self, site: &Site, departure: Departure) -> Result<Cargo, String> {
        let guest = self.guest.as_ref().filter(|guest| guest.fence == departure.fence);
        guest.ok_or("it has no process here")?;
        if departure.keep != Keep::State {
            return Err(format!("{:?} is not kept here", departure.keep));
        }
        let mover = site.mover.clone().map_err(|why| format!("nothing moves from here: {why}"))?;
        let (Some(group), Some(keeper), true) = (&self.group, &self.keeper, self.staged) else {
            return Err("it was not started to be moved".into());
        };
        let keeper = keeper.pid().as_raw_nonzero().get();
        let root = first_child(keeper).ok_or("its first process is gone")?;
        let group = group.path().to_path_buf();
        let process = gleaner_move::Guest { group, keeper, root, plugs: vec![] };
        Ok(Cargo { departure, process: Some((process, mover)), endpoint: vec![] })
    }

    /// Nobody has a hand in the guest any more.
    pub(crate) fn carrying_ended(&mut self, fence: Fence) {
        if self.carried.take_if(|carried| *carried == fence).is_some()
            && std::mem::take(&mut self.thaw_later)
        {
            self.thaw();
        }
    }

    // ── here ───────────────────────────────────────────────────────────────

    /// Makes room for a guest whose state is on its way.
    pub(crate) fn expect(&mut self, site: &Site, start: &desk::Start, told: &mut Told) {
        let fence = start.fence;
        match self.try_expect(site, start) {
            Ok(expectation) => told.orders.push(LinkOrder::Expect(Box::new(expectation))),
            Err(error) => {
                let (reason, hopeless) = (error.to_string(), false);
                self.guest = None;
                told.events.push(Event::StartFailed { fence, reason, hopeless });
            }
        }
    }

    fn try_expect(&mut self, site: &Site, start: &desk::Start) -> Result<Expectation, StartError> {
        let spec = &start.spec;
        if let Some(path) = &spec.shared_directory
            && !site.config.allows_shared(Path::new(path))
        {
            return Err(StartError::NotShared(path.clone()));
        }
        // One of its own is made when it is known what comes.
        self.keeper = None;
        let uid = self.settle_ground(site)?;
        let limits = site.limits.with(spec.limits);
        if let Some(group) = &mut self.group {
            group.set_limits(GroupLimits {
                memory_bytes_max: limits.memory_bytes_max,
                processes_max: limits.processes_max,
            });
        }
        let group = self.group.as_ref();
        self.guest = Some(Guest {
            fence: start.fence,
            spec: Arc::clone(spec),
            limits,
            start: None,
            begin: None,
            seated: false,
            unwanted: false,
            cpu_before: group.map_or(Duration::ZERO, PlaceGroup::cpu_time),
            oom_before: group.map_or(0, PlaceGroup::oom_kills),
            inbound: Some(Inbound::default()),
        });
        let user = uid.unwrap_or(0);
        Ok(Expectation {
            place: self.id,
            fence: start.fence,
            old: start.arrival.map_or(Fence(0), |arrival| arrival.old),
            bytes_max: limits.memory_bytes_max.saturating_add(BESIDE_BYTES_MAX),
            terms: Terms { uid: user, gid: user, limits: terms_of(site.guest_limits(limits)) },
            mover: site.mover.as_ref().ok().cloned(),
        })
    }

    pub(super) fn is_inbound(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence == fence && guest.inbound.is_some())
    }

    /// It is known what comes: a keeper makes itself ready meanwhile.
    pub(crate) fn header(
        &mut self,
        now: Moment,
        site: &Site,
        fence: Fence,
        (mut header, memory): (Box<Header>, &Memory),
        told: &mut Told,
    ) {
        if !self.is_inbound(fence) {
            return;
        }
        let berthed = site.mover.clone().and_then(|mover| {
            if !header.plugs.is_empty() {
                return Err("it has pipes, and is no rank".to_owned());
            }
            for plug in &mut header.plugs {
                plug.unread.clear();
            }
            let landing = Landing { engine: mover.engine.clone(), header: *header };
            let staging = Staging { knowledge: mover.knowledge.clone(), landing: Some(landing) };
            self.settle(site, Some(staging), &[memory.as_fd()], told)
                .map_err(|error| error.to_string())
        });
        match berthed {
            Ok(()) => {
                if let Some(inbound) = self.inbound(fence) {
                    inbound.berthed = true;
                }
            }
            Err(reason) => self.not_coming(now, fence, reason, told),
        }
    }

    /// All of it is here: it is brought to life.
    pub(crate) fn whole(&mut self, now: Moment, fence: Fence, whole: Box<Whole>, told: &mut Told) {
        let Some(inbound) = self.inbound(fence) else { return };
        let berthed = inbound.berthed;
        let stopped = whole.stopped.clone();
        inbound.whole = Some(whole);
        let ordered = if berthed {
            self.order(&Order::Land { fence, stopped })
        } else {
            Err("it came without a process".to_owned())
        };
        if let Err(reason) = ordered {
            self.not_coming(now, fence, reason, told);
        }
    }

    /// It stands here.
    pub(super) fn landed(&mut self, now: Moment, fence: Fence, told: &mut Told) {
        let Some(inbound) = self.inbound(fence) else { return };
        let Some(whole) = inbound.whole.take() else { return };
        let (bytes, frozen) = (whole.bytes, now.since(whole.since));
        told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::Taken });
        told.events.push(Event::Landed { fence, bytes, frozen });
    }

    /// Sets it going.
    pub(crate) fn go(&mut self, fence: Fence) {
        if let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) {
            guest.inbound = None;
            let done = self.order(&Order::Go);
            self.complain("set going", done);
        }
    }

    /// It will not come, or cannot be brought to life: the place is as before.
    pub(crate) fn not_coming(
        &mut self,
        now: Moment,
        fence: Fence,
        reason: String,
        told: &mut Told,
    ) {
        if !self.is_inbound(fence) {
            return;
        }
        self.clear_inbound(now, fence, reason.clone(), told);
        told.events.push(Event::StartFailed { fence, reason, hopeless: false });
    }

    /// It is not wanted any more. Was it on its way here, with no process yet?
    pub(super) fn call_off(&mut self, fence: Fence, told: &mut Told) -> bool {
        let Some(inbound) = self.inbound(fence) else { return false };
        if inbound.berthed {
            let reason = "not wanted any more".to_owned();
            told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::No { reason } });
            // Its keeper is killed like any, and tells of it.
            return false;
        }
        let since = self.idle_since;
        self.clear_inbound(since, fence, "not wanted any more".into(), told);
        let exit = Exit {
            outcome: Outcome::Signal(libc::SIGKILL),
            cpu: Duration::ZERO,
            left: Some(Left::default()),
        };
        told.events.push(Event::Exited { fence, exit });
        true
    }

    fn clear_inbound(&mut self, now: Moment, fence: Fence, reason: String, told: &mut Told) {
        told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::No { reason } });
        self.guest = None;
        self.idle_since = now;
        // It was for this one, and knows its image.
        self.keeper = None;
        self.clear_ground(fence, told);
    }

    fn inbound(&mut self, fence: Fence) -> Option<&mut Inbound> {
        self.guest.as_mut().filter(|guest| guest.fence == fence)?.inbound.as_mut()
    }

    /// A guest's memory in use, for whoever thinks of moving it.
    pub(crate) fn weighed(&self) -> Option<Event> {
        let guest = self.guest.as_ref().filter(|guest| guest.inbound.is_none())?;
        let bytes = self.group.as_ref()?.memory_bytes();
        Some(Event::Weighed { fence: guest.fence, bytes })
    }
}

/// What will move this job's guests, if anything may have to. Where nothing
/// can, they run all the same, and return their work.
pub(super) fn mover_for(site: &Site, spec: &JobSpec) -> Option<Arc<Mover>> {
    let moves = spec.on_busy.means(Reaction::Migrate) && site.tree.is_some();
    site.mover.as_ref().ok().filter(|_| moves).cloned()
}

/// In the kernel's order, what no process of it may raise: as a keeper has it
/// that starts a guest.
fn terms_of(limits: GuestLimits) -> Vec<u64> {
    const FSIZE: usize = 1;
    const DATA: usize = 2;
    const CORE: usize = 4;
    const NPROC: usize = 6;
    let mut all = Terms::own_limits();
    let mut lower = |at: usize, value: u64| {
        if let Some(limit) = all.get_mut(at).filter(|_| value > 0) {
            *limit = (*limit).min(value);
        }
    };
    lower(FSIZE, limits.file_bytes_max);
    lower(DATA, limits.data_bytes_max);
    lower(NPROC, limits.processes_max);
    if let Some(core) = all.get_mut(CORE) {
        *core = 0;
    }
    all
}

/// The first process that a keeper has started and that lives.
fn first_child(keeper: i32) -> Option<i32> {
    let path = format!("/proc/{keeper}/task/{keeper}/children");
    std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}
