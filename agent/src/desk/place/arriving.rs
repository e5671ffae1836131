//! A place and guests that come: what of that is done at the place itself. The
//! taking in is the link's (`crate::moving`).
//!
//! ```text
//! expect: a keeper ─► header: it begins ─► known: it lands ─► whole, and it stands ─► landed ─► go
//!   └──────────────┴─ not coming, called off, cannot land ─► as if it never came
//! ```

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Event};
use gleaner_common::id::Fence;
use gleaner_common::program::HandoverReply;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_move::{Header, Memory, Serving, Terms};
use gleaner_program_core::address::Rank;

use super::leaving::NOT_BEGUN;
use super::{Guest, GuestLimits, Place, Site, StartError, Told, mover_for, never_ran};
use crate::cgroup::{GroupLimits, PlaceGroup};
use crate::contain::{Landing, Order};
use crate::ground::WORK;
use crate::link::LinkOrder;
use crate::moving::{Expectation, Known};
use crate::post::{self, Arrive, Ends, Letter};

/// What is kept in memory of an image beside the guest's own memory: its
/// files, and what CRIU writes of them.
const BESIDE_BYTES_MAX: u64 = 256 << 20;

/// A guest on its way here.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what there is of it")]
pub(super) struct Inbound {
    start: Box<desk::Start>,
    /// What came but for its memory, until it has landed.
    known: Option<Box<Known>>,
    /// How much came, once all of it did.
    bytes: Option<u64>,
    /// Its keeper expects it.
    berthed: bool,
    inputs: Inputs,
    /// What is kept of it.
    keep: Keep,
    /// Ours of a rank's pipes, whose other ends its keeper has.
    ends: Option<Ends>,
    /// A rank's pipes, until they are its process's.
    theirs: Option<Ends>,
    /// Its process is here, or will be begun anew.
    stands: bool,
    /// The post has it: of a rank.
    unpacked: bool,
    /// It comes with a snapshot, and goes on when it is here: nobody else has a
    /// say in that.
    here: bool,
}

/// A job's input files, which do not come along.
#[derive(Debug)]
enum Inputs {
    Here,
    /// They are to be laid; what came, if it came before them.
    Awaited(Option<Box<Known>>),
}

impl Place {
    /// Makes room for a guest whose state is on its way.
    pub(crate) fn expect(&mut self, site: &Site, start: &desk::Start, told: &mut Told) {
        let fence = start.fence;
        match self.try_expect(site, start, told) {
            Ok(expectation) => told.orders.push(LinkOrder::Expect(Box::new(expectation))),
            Err(error) => {
                let (reason, hopeless) = (error.to_string(), false);
                self.guest = None;
                told.events.push(Event::StartFailed { fence, reason, hopeless });
            }
        }
    }

    /// The snapshot that a rank has begun with holds an image: that takes the
    /// place of its process.
    pub(crate) fn begin_with_image(
        &mut self,
        site: &Site,
        fence: Fence,
        (endpoint, image): (Vec<u8>, Vec<u8>),
        told: &mut Told,
    ) {
        let guest = self.guest.as_mut().filter(|guest| guest.fence == fence);
        let Some(start) = guest.and_then(|guest| guest.snapshot.take()) else { return };
        if self.standing.take().is_some() {
            self.cannot_leave(fence, NOT_BEGUN.to_owned(), told);
        }
        let frozen = self.frozen;
        self.keeper = None;
        self.clear_ground(fence, told);
        match self.try_expect(site, &start, told) {
            Ok(expectation) => {
                self.frozen = frozen;
                if let Some(inbound) = self.inbound(fence) {
                    (inbound.here, inbound.unpacked) = (true, false);
                }
                let expectation = Box::new(expectation);
                told.orders.push(LinkOrder::TakeIn { expectation, endpoint, image });
            }
            Err(error) => {
                let (reason, hopeless) = (error.to_string(), false);
                self.guest = None;
                told.events.push(Event::StartFailed { fence, reason, hopeless });
            }
        }
    }

    fn try_expect(
        &mut self,
        site: &Site,
        start: &desk::Start,
        told: &mut Told,
    ) -> Result<Expectation, StartError> {
        let spec = &start.spec;
        if let Some(path) = &spec.shared_directory
            && !site.config.allows_shared(Path::new(path))
        {
            return Err(StartError::NotShared(path.clone()));
        }
        // The guest before may have been frozen when it was killed.
        self.frozen = false;
        self.settle(site, mover_for(site, spec).as_deref(), told)?;
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
            emptied: false,
            came: true,
            snapshot: None,
            cpu_before: group.map_or(Duration::ZERO, PlaceGroup::cpu_time),
            oom_before: group.map_or(0, PlaceGroup::oom_kills),
            inbound: Some(Inbound {
                start: Box::new(start.clone()),
                known: None,
                bytes: None,
                berthed: false,
                inputs: Inputs::Here,
                keep: Keep::State,
                ends: None,
                theirs: None,
                stands: false,
                unpacked: start.rank.is_none(),
                here: false,
            }),
        });
        let user = uid.unwrap_or(0);
        Ok(Expectation {
            place: self.id,
            fence: start.fence,
            old: start.arrival.map_or(Fence(0), |arrival| arrival.old),
            bytes_max: limits.memory_bytes_max.saturating_add(BESIDE_BYTES_MAX),
            directory: site.config.data.clone(),
            terms: Terms { uid: user, gid: user, limits: terms_of(site.guest_limits(limits)) },
            mover: site.mover.as_ref().ok().cloned(),
        })
    }

    pub(crate) fn is_inbound(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence == fence && guest.inbound.is_some())
    }

    /// It is known what comes: its keeper makes itself ready for it meanwhile.
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
        self.hurry(true);
        let is_rank = self.inbound(fence).is_some_and(|inbound| !inbound.unpacked);
        let left_out = std::mem::take(&mut header.left_out);
        let berthed = site.mover.clone().and_then(|mover| {
            let wanted = if is_rank { 2 } else { 0 };
            if header.plugs.len() != wanted {
                return Err(format!("it has {} pipes: expected {wanted}", header.plugs.len()));
            }
            let pipes = is_rank.then(pipes).transpose()?;
            for plug in &mut header.plugs {
                plug.unread.clear();
            }
            let landing = Landing { engine: mover.engine.clone(), header: *header };
            let expect = Order::Expect(Box::new(landing));
            let mut along = vec![memory.as_fd()];
            if let Some((_, theirs)) = &pipes {
                along.extend([theirs.read.as_fd(), theirs.write.as_fd()]);
            }
            self.settle(site, Some(&mover), told).map_err(|error| error.to_string())?;
            let keeper = self.keeper.as_ref().ok_or("its keeper is gone")?;
            keeper.send_with(&expect, &along).map_err(|error| error.to_string())?;
            Ok(pipes.map(|(ours, _)| ours))
        });
        let laid = berthed.and_then(|ends| {
            self.lay_what_stayed(fence, &left_out, told)?;
            Ok(ends)
        });
        match laid {
            Ok(ends) => {
                if let Some(inbound) = self.inbound(fence) {
                    (inbound.berthed, inbound.ends) = (true, ends);
                }
            }
            Err(reason) => self.not_coming(now, fence, reason, told),
        }
    }

    /// Input files that lie there as they were staged are laid here from what
    /// is staged here.
    fn lay_what_stayed(
        &mut self,
        fence: Fence,
        left_out: &[String],
        told: &mut Told,
    ) -> Result<(), String> {
        let (Some(ground), Some(guest)) = (&self.ground, &self.guest) else { return Ok(()) };
        if left_out.is_empty() {
            return Ok(());
        }
        let below =
            |name: &String| Path::new(name).strip_prefix(WORK).ok()?.to_str().map(str::to_owned);
        let only = Some(left_out.iter().filter_map(below).collect());
        let laying = self.laying(ground, fence, &guest.spec, only);
        told.orders.push(LinkOrder::Lay(laying.map_err(|error| error.to_string())?));
        if let Some(inbound) = self.inbound(fence) {
            inbound.inputs = Inputs::Awaited(None);
        }
        Ok(())
    }

    /// What did not come along is here, or is not to be had.
    pub(super) fn laid_for_inbound(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<(), String>,
        told: &mut Told,
    ) {
        let Some(inbound) = self.inbound(fence) else { return };
        if let Err(reason) = done {
            return self.not_coming(now, fence, reason, told);
        }
        let awaited = std::mem::replace(&mut inbound.inputs, Inputs::Here);
        if let Inputs::Awaited(Some(known)) = awaited {
            self.known(now, fence, known, told);
        }
    }

    /// It is brought to life, while its memory comes.
    pub(crate) fn known(&mut self, now: Moment, fence: Fence, known: Box<Known>, told: &mut Told) {
        let Some(inbound) = self.inbound(fence) else { return };
        if let Inputs::Awaited(waiting) = &mut inbound.inputs {
            *waiting = Some(known);
            return;
        }
        match self.land(fence, known, told) {
            Ok(()) => self.landed(now, fence, told),
            Err(reason) => self.not_coming(now, fence, reason, told),
        }
    }

    /// All of it is here, and is what was sent.
    pub(crate) fn whole(&mut self, now: Moment, fence: Fence, bytes: u64, told: &mut Told) {
        if let Some(inbound) = self.inbound(fence) {
            inbound.bytes = Some(bytes);
            self.landed(now, fence, told);
        }
    }

    fn land(&mut self, fence: Fence, mut known: Box<Known>, told: &mut Told) -> Result<(), String> {
        let inbound = self.inbound(fence).ok_or("not expected")?;
        let (keep, is_rank) = (known.keep, inbound.start.rank.is_some());
        inbound.keep = keep;
        if is_rank {
            let ends = if let Some(ends) = inbound.ends.take() {
                ends
            } else {
                let (ends, theirs) = pipes()?;
                inbound.theirs = Some(theirs);
                ends
            };
            let arrive = arriving(&inbound.start, &mut known, ends)?;
            told.letters.push(Letter::Arrive(Box::new(arrive)));
        }
        let stopped = known.stopped.clone();
        inbound.known = Some(known);
        match (keep, inbound.berthed, is_rank) {
            (Keep::State, true, _) | (Keep::SubtaskStart, true, true) => {
                let order = Order::Land { fence, stopped };
                let keeper = self.keeper.as_ref().ok_or("its keeper is gone")?;
                keeper.send(&order).map_err(|error| error.to_string())?;
            }
            (Keep::SubtaskStart | Keep::Nothing, false, true) => inbound.stands = true,
            _ => return Err("it came without a process".to_owned()),
        }
        if let Some(guest) = self.guest.as_mut().filter(|_| is_rank) {
            guest.seated = true;
        }
        Ok(())
    }

    /// The post has a rank, or can do nothing with it.
    pub(crate) fn unpacked(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<(), String>,
        told: &mut Told,
    ) {
        let Some(inbound) = self.inbound(fence) else { return };
        inbound.unpacked = done.is_ok();
        match done {
            Ok(()) => self.landed(now, fence, told),
            Err(reason) => self.not_coming(now, fence, reason, told),
        }
    }

    /// Its process stands here.
    pub(super) fn stands(&mut self, now: Moment, fence: Fence, told: &mut Told) {
        if let Some(inbound) = self.inbound(fence) {
            inbound.stands = true;
            self.landed(now, fence, told);
        }
    }

    /// Tells when all of it is here.
    fn landed(&mut self, now: Moment, fence: Fence, told: &mut Told) {
        let Some(inbound) = self.inbound(fence) else { return };
        let Some(bytes) = inbound.bytes.filter(|_| inbound.stands && inbound.unpacked) else {
            return;
        };
        let Some(known) = inbound.known.take() else { return };
        let since = known.since;
        let failure = known.serving.as_ref().and_then(Serving::failure);
        if let Some(reason) = failure.map(str::to_owned) {
            return self.not_coming(now, fence, reason, told);
        }
        if inbound.here {
            // Its process came: there is none to begin.
            self.set_going(fence, told);
            return;
        }
        let frozen = now.since(since);
        told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::Taken });
        told.events.push(Event::Landed { fence, bytes, frozen });
    }

    /// Sets a process going that has come; else, what one is to be begun with.
    fn set_going(&mut self, fence: Fence, told: &mut Told) -> Option<(Box<desk::Start>, Ends)> {
        let guest = self.guest.as_mut().filter(|guest| guest.fence == fence)?;
        let Inbound { start, theirs, .. } = guest.inbound.take()?;
        self.hurry(false);
        if start.rank.is_some() {
            told.letters.push(Letter::SetGoing(fence));
        }
        // They went along with a process that came.
        if theirs.is_none() {
            let done = self.order(&Order::Go);
            self.complain("set going", done);
        }
        theirs.map(|theirs| (start, theirs))
    }

    /// Sets it going.
    pub(crate) fn go(&mut self, site: &Site, fence: Fence, told: &mut Told) {
        if let Some((start, theirs)) = self.set_going(fence, told) {
            self.start_seated(site, &start, Ok(theirs), told);
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
        told.events.push(Event::Exited { fence, exit: never_ran() });
        true
    }

    fn clear_inbound(&mut self, now: Moment, fence: Fence, reason: String, told: &mut Told) {
        told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::No { reason } });
        if self.guest.take().is_some_and(|guest| guest.seated) {
            self.unseat(fence, told);
        }
        self.idle_since = now;
        self.hurry(false);
        // It was for this one, and may know its image.
        self.keeper = None;
        self.clear_ground(fence, told);
    }

    fn inbound(&mut self, fence: Fence) -> Option<&mut Inbound> {
        self.guest.as_mut().filter(|guest| guest.fence == fence)?.inbound.as_mut()
    }
}

/// A rank's pipes: our ends, and its process's.
fn pipes() -> Result<(Ends, Ends), String> {
    post::pair().map_err(|error| format!("no pipes for it: {error}"))
}

/// A rank that has come, for the post.
fn arriving(start: &desk::Start, known: &mut Known, ends: Ends) -> Result<Arrive, String> {
    let offer = start.rank.as_ref().ok_or("it is no rank")?;
    Ok(Arrive {
        fence: start.fence,
        job: start.subprogram.job,
        life: offer.life,
        rank: Rank(start.subprogram.index),
        keep: known.keep,
        packed: std::mem::take(&mut known.endpoint),
        image: known.image.take(),
        ends,
    })
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
