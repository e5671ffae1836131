//! A place and guests that come and go: what of a move is done at the place
//! itself. The carrying is the link's (`crate::moving`).
//!
//! ```text
//! expect: a keeper ─► header: it begins ─► known: it lands ─► whole, and it stands ─► landed ─► go
//!   └──────────────┴─ not coming, called off, cannot land ─► as if it never came
//! ```

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Departure, Event};
use gleaner_common::id::Fence;
use gleaner_common::job::{JobSpec, Reaction};
use gleaner_common::program::{HandoverReply, RankAt};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_move::{Header, Memory, Serving, Terms};
use gleaner_program_core::address::Rank;
use gleaner_shell::clock::Clock;

use super::{Beginning, Guest, GuestLimits, Place, Site, StartError, Told, may_go_back, never_ran};
use crate::cgroup::{GroupLimits, PlaceGroup};
use crate::contain::{Landing, Order, PIPES_FD};
use crate::ground::{Ground, WORK};
use crate::link::{LinkOrder, files};
use crate::moving::{Cargo, Expectation, Known, Mover, on_stage};
use crate::post::{self, Arrive, Ends, Letter, Packed};

/// What is kept in memory of an image beside the guest's own memory: its
/// files, and what CRIU writes of them.
const BESIDE_BYTES_MAX: u64 = 256 << 20;

/// Why a guest that is to leave is placed elsewhere as it was.
pub(super) const NOT_BEGUN: &str = "its owner came before it began";

/// How long a guest may take to stand: it does so when it gets a core, and comes
/// after everybody else who wants one.
pub(super) const STANDS_WITHIN: Duration = Duration::from_secs(10);

/// How soon it is looked at again.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(2);

/// How long it runs on, at first and at most, while one of its processes is
/// becoming another program: twice as long each time, as it may get no core.
const RUNS_ON: Duration = Duration::from_millis(2);
const RUNS_ON_MAX: Duration = Duration::from_millis(100);

/// A guest that is to leave, and does not stand still yet.
#[derive(Debug)]
pub(super) struct Standing {
    departure: Departure,
    until: Moment,
    look: Moment,
    /// Until then it runs on.
    thawed: bool,
    /// For how long the next time.
    runs_on: Duration,
}

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

/// A rank whose endpoint was asked for, to be carried.
#[derive(Debug)]
pub(super) struct LeavingRank {
    to: RankAt,
    /// Until it is packed.
    departure: Option<Departure>,
    /// So many answers of the post's are to earlier questions.
    stale: u32,
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
        if self.is_inbound(fence) {
            return self.cannot_leave(fence, NOT_BEGUN.to_owned(), told);
        }
        if self.has_not_begun(fence) {
            if self.guest.as_ref().is_some_and(|guest| !guest.came) {
                return self.give_back(fence, told);
            }
            return self.cannot_leave(fence, NOT_BEGUN.to_owned(), told);
        }
        self.hurry(true);
        let now = Clock.now();
        let until = now + STANDS_WITHIN;
        let standing = Standing { departure, until, look: now, thawed: false, runs_on: RUNS_ON };
        self.depart_from(now, site, standing, told);
    }

    /// Is this rank asked for, to be carried?
    pub(crate) fn packs(&self, fence: Fence) -> bool {
        self.leaving.is_some() && (self.bare == Some(fence) || self.seated(fence).is_some())
    }

    /// The post has packed what is to be carried of a rank.
    pub(crate) fn packed(
        &mut self,
        site: &Site,
        fence: Fence,
        packed: Result<Packed, String>,
        told: &mut Told,
    ) {
        let Some(leaving) = &mut self.leaving else { return };
        if let Some(fewer) = leaving.stale.checked_sub(1) {
            leaving.stale = fewer;
            return;
        }
        let Some(departure) = leaving.departure.take_if(|it| it.fence == fence) else { return };
        match packed {
            Ok(packed) => self.carry(site, departure, packed, told),
            Err(reason) => self.cannot_leave(fence, reason, told),
        }
    }

    fn carry(&mut self, site: &Site, departure: Departure, packed: Packed, told: &mut Told) {
        let fence = departure.fence;
        match self.cargo(site, departure, packed) {
            Ok(cargo) => {
                self.carried = Some(fence);
                told.orders.push(LinkOrder::Carry(Box::new(cargo)));
            }
            Err(reason) => self.cannot_leave(fence, reason, told),
        }
    }

    /// It is not awaited there any more.
    pub(crate) fn call_back(&mut self, fence: Fence, told: &mut Told) {
        told.orders.push(LinkOrder::CallBack(fence));
        if self.carried.is_none() {
            self.hurry(false);
        }
        let stale = self.stay(fence, told);
        if stale > 0
            && let Some(leaving) = &mut self.leaving
        {
            leaving.stale = stale;
        }
    }

    /// A rank that was about to leave goes on here: says so to the post before
    /// its process runs or it is packed again. How many answers of the post's
    /// are on their way?
    pub(crate) fn stay(&mut self, fence: Fence, told: &mut Told) -> u32 {
        if self.standing.take_if(|it| it.departure.fence == fence).is_some_and(|it| it.thawed)
            && self.frozen
        {
            self.freeze();
        }
        let seated = self.bare == Some(fence) || self.seated(fence).is_some();
        let Some(leaving) = self.leaving.take_if(|_| seated) else { return 0 };
        told.letters.push(Letter::Stayed(fence));
        let stale = leaving.stale + u32::from(leaving.departure.is_some());
        if stale > 0 {
            self.leaving = Some(LeavingRank { departure: None, stale, ..leaving });
        }
        stale
    }

    /// Before the guest runs again.
    pub(crate) fn before_thaw(&mut self, told: &mut Told) {
        if let Some(fence) = self.guest.as_ref().map(|guest| guest.fence) {
            self.stay(fence, told);
        }
    }

    fn seated(&self, fence: Fence) -> Option<&Guest> {
        self.guest.as_ref().filter(|guest| guest.fence == fence && guest.seated)
    }

    /// Looks again at a guest that is to leave and did not stand still.
    pub(crate) fn look(&mut self, now: Moment, site: &Site, told: &mut Told) {
        self.look_for_image(now, told);
        let Some(standing) = self.standing.take_if(|standing| standing.look <= now) else { return };
        if standing.thawed {
            self.freeze();
        }
        self.depart_from(now, site, standing, told);
    }

    pub(crate) fn look_at(&self) -> Option<Moment> {
        self.standing.as_ref().map(|standing| standing.look)
    }

    /// When everything stands, and can be looked into, it is carried. What a
    /// process says after its rank was packed would be lost.
    fn depart_from(&mut self, now: Moment, site: &Site, standing: Standing, told: &mut Told) {
        let Standing { departure, until, runs_on, .. } = standing;
        let fence = departure.fence;
        if self.image_before_leaving(now, told) {
            let (until, look) = (now + STANDS_WITHIN, now + LOOK_AFTER);
            self.standing = Some(Standing { departure, until, look, thawed: false, runs_on });
            return;
        }
        match self.is_steady(fence) {
            Ok(true) => self.depart_now(site, departure, told),
            Ok(false) if now >= until => {
                self.cannot_leave(fence, "it does not come to a stand".to_owned(), told);
            }
            Ok(false) => {
                let thawed = self.is_between();
                let (mut look, mut longer) = (now + LOOK_AFTER, runs_on);
                if thawed && let Some(group) = &self.group {
                    let done = group.thaw().map_err(|error| error.to_string());
                    self.complain("thaw", done);
                    (look, longer) = (now + runs_on, (runs_on * 2).min(RUNS_ON_MAX));
                }
                self.standing = Some(Standing { departure, until, look, thawed, runs_on: longer });
            }
            Err(error) => self.cannot_leave(fence, format!("cannot look at it: {error}"), told),
        }
    }

    /// Does it stand still, and can it be looked into?
    pub(super) fn is_steady(&self, fence: Fence) -> io::Result<bool> {
        let runs = self.guest.as_ref().is_some_and(|guest| guest.fence == fence);
        match self.group.as_ref().filter(|_| runs) {
            Some(group) if group.is_frozen() => Ok(!gleaner_move::awaits_newborn(group.path())?),
            Some(_) => Ok(false),
            None => Ok(true),
        }
    }

    /// It stands, and must run on for a moment before it can be looked into.
    pub(super) fn is_between(&self) -> bool {
        self.group.as_ref().is_some_and(PlaceGroup::is_frozen)
    }

    fn depart_now(&mut self, site: &Site, departure: Departure, told: &mut Told) {
        let fence = departure.fence;
        if self.bare != Some(fence) && self.seated(fence).is_none() {
            let nothing = Packed { bytes: vec![], image: None };
            return self.carry(site, departure, nothing, told);
        }
        let stale = self.stay(fence, told);
        told.letters.push(Letter::Depart { fence, keep: departure.keep });
        let to = departure.to.clone();
        self.leaving = Some(LeavingRank { to, departure: Some(departure), stale });
    }

    /// Ends the process of a rank that leaves without it.
    pub(crate) fn empty(&mut self, fence: Fence, told: &mut Told) {
        if let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) {
            guest.emptied = true;
        }
        self.kill(fence, told);
    }

    /// Its process is gone, and the post has kept its rank.
    pub(crate) fn is_bare(&mut self, fence: Fence) {
        self.bare = Some(fence);
    }

    /// Begins a rank anew that has lost its process, and was not taken elsewhere.
    pub(crate) fn again(&mut self, site: &Site, start: &desk::Start, told: &mut Told) {
        let fence = start.fence;
        self.stay(fence, told);
        self.bare = None;
        self.frozen = false;
        self.hurry(false);
        let pipes = post::pair().map_err(StartError::Pipes);
        let theirs = pipes.map(|(ends, theirs)| {
            told.letters.push(Letter::Again { fence, ends });
            theirs
        });
        self.start_seated(site, start, theirs, told);
    }

    /// Starts a process for a rank that has its seat already, with these pipes.
    fn start_seated(
        &mut self,
        site: &Site,
        start: &desk::Start,
        theirs: Result<Ends, StartError>,
        told: &mut Told,
    ) {
        let begin = theirs.map(|theirs| Beginning { begin: None, theirs });
        let started = begin.and_then(|begin| self.try_start(site, start, Some(begin), told));
        if let Err(error) = started {
            let fence = start.fence;
            self.guest = None;
            self.unseat(fence, told);
            let (reason, hopeless) = (error.to_string(), false);
            told.events.push(Event::StartFailed { fence, reason, hopeless });
        }
    }

    /// Lets go of a rank without a process that is not wanted here any more.
    pub(crate) fn drop_bare(&mut self, wanted: impl Fn(Fence) -> bool, told: &mut Told) {
        if let Some(fence) = self.bare.take_if(|fence| !wanted(*fence)) {
            self.unseat(fence, told);
        }
    }

    /// The post need not keep the rank: it has left, or is not wanted.
    pub(super) fn unseat(&mut self, fence: Fence, told: &mut Told) {
        told.letters.push(match self.leaving.take() {
            Some(LeavingRank { to, departure: None, .. }) => {
                Letter::Left { fence, to: to.fence, at: to.workstation }
            }
            Some(_) | None => Letter::Dropped(fence),
        });
    }

    /// Was it frozen before its keeper could start it?
    fn has_not_begun(&self, fence: Fence) -> bool {
        let here = self.guest.as_ref().is_some_and(|guest| guest.fence == fence);
        let keeper = self.keeper.as_ref().filter(|_| here && self.staged && self.dying.is_none());
        keeper.is_some_and(|keeper| first_child(keeper.pid().as_raw_nonzero().get()).is_none())
    }

    /// There is nothing to carry: its work is placed elsewhere at once.
    fn give_back(&mut self, fence: Fence, told: &mut Told) {
        let reason = NOT_BEGUN.to_owned();
        self.keeper = None;
        if self.guest.take().is_some_and(|guest| guest.seated) {
            self.unseat(fence, told);
        }
        self.clear_ground(fence, told);
        told.events.push(Event::StartFailed { fence, reason, hopeless: false });
    }

    fn cargo(&self, site: &Site, departure: Departure, packed: Packed) -> Result<Cargo, String> {
        let goes_along = departure.keep == Keep::State;
        let process = goes_along.then(|| self.process(site, departure.fence)).transpose()?;
        let Packed { bytes, image } = packed;
        Ok(Cargo { departure, process, image, endpoint: bytes.into() })
    }

    /// The guest's process, and what writes it down.
    pub(super) fn process(
        &self,
        site: &Site,
        fence: Fence,
    ) -> Result<(gleaner_move::Guest, Arc<Mover>), String> {
        let guest = self.guest.as_ref().filter(|guest| guest.fence == fence);
        let guest = guest.ok_or("it has no process here")?;
        let mover = site.mover.clone().map_err(|why| format!("nothing moves from here: {why}"))?;
        let (Some(group), Some(keeper), true) = (&self.group, &self.keeper, self.staged) else {
            return Err("it was not started to be moved".into());
        };
        let keeper = keeper.pid().as_raw_nonzero().get();
        let root = first_child(keeper).ok_or("its first process is gone")?;
        let group = group.path().to_path_buf();
        let plugs = if guest.seated { vec![PIPES_FD, PIPES_FD + 1] } else { vec![] };
        let left_out = self.ground.as_ref().map_or_else(Vec::new, |ground| {
            let laid = files::as_laid(&site.config.data, &guest.spec.inputs, &ground.work());
            laid.iter().map(|name| format!("{WORK}/{name}")).collect()
        });
        Ok((gleaner_move::Guest { group, keeper, root, plugs, left_out }, mover))
    }

    /// Nobody has a hand in the guest any more.
    pub(crate) fn carrying_ended(&mut self, fence: Fence) {
        if self.carried.take_if(|carried| *carried == fence).is_none() {
            return;
        }
        self.hurry(false);
        if std::mem::take(&mut self.thaw_later) {
            self.thaw();
        }
    }

    /// There is no hurry any more: it stays.
    fn cannot_leave(&mut self, fence: Fence, reason: String, told: &mut Told) {
        tracing::info!(%fence, %reason, "a guest cannot be moved");
        self.hurry(false);
        told.events.push(Event::CannotLeave { fence, reason });
    }

    /// Has what is done to a guest that stands still done soon.
    pub(super) fn hurry(&mut self, hurries: bool) {
        if std::mem::replace(&mut self.hurries, hurries) != hurries
            && let Some(group) = &self.group
        {
            group.hurry(hurries);
        }
    }

    // ── here ───────────────────────────────────────────────────────────────

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
            return self.set_going(fence, told);
        }
        let frozen = now.since(since);
        told.orders.push(LinkOrder::Answer { fence, reply: HandoverReply::Taken });
        told.events.push(Event::Landed { fence, bytes, frozen });
    }

    /// Sets a process going that has come with its rank.
    fn set_going(&mut self, fence: Fence, told: &mut Told) {
        if let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) {
            guest.inbound = None;
            self.hurry(false);
            told.letters.push(Letter::SetGoing(fence));
            let done = self.order(&Order::Go);
            self.complain("set going", done);
        }
    }

    /// Sets it going.
    pub(crate) fn go(&mut self, site: &Site, fence: Fence, told: &mut Told) {
        let guest = self.guest.as_mut().filter(|guest| guest.fence == fence);
        let Some(inbound) = guest.and_then(|guest| guest.inbound.take()) else { return };
        self.hurry(false);
        if inbound.start.rank.is_some() {
            told.letters.push(Letter::SetGoing(fence));
        }
        // They went along with a process that came.
        let Some(theirs) = inbound.theirs else {
            let done = self.order(&Order::Go);
            return self.complain("set going", done);
        };
        self.start_seated(site, &inbound.start, Ok(theirs), told);
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

/// What will move this job's guests, if anything may have to. Where nothing
/// can, they run all the same, and return their work.
pub(super) fn mover_for(site: &Site, spec: &JobSpec) -> Option<Arc<Mover>> {
    // A rank that goes back may go back to an image.
    let moves = spec.on_busy.means(Reaction::Migrate) || may_go_back(spec);
    let moves = moves && site.tree.is_some();
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
