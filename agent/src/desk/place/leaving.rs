//! A place and guests that leave it: what of that is done at the place itself.
//! The carrying is the link's (`crate::moving`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Departure, Event};
use gleaner_common::id::Fence;
use gleaner_common::program::RankAt;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

use super::{Beginning, Guest, Place, Site, StartError, Told};
use crate::cgroup::PlaceGroup;
use crate::contain::PIPES_FD;
use crate::ground::WORK;
use crate::link::{LinkOrder, files};
use crate::moving::{Cargo, Mover};
use crate::post::{self, Ends, Letter, Packed};

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

/// A rank whose endpoint was asked for, to be carried.
#[derive(Debug)]
pub(super) struct LeavingRank {
    to: RankAt,
    /// Until it is packed.
    departure: Option<Departure>,
    /// So many answers of the post's are to earlier questions.
    stale: u32,
}

impl Place {
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
            Some(group) if group.is_frozen() => Ok(!gleaner_move::awaits_exec(group.path())?),
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
    pub(super) fn start_seated(
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
    ) -> Result<(gleaner_move::GuestProcess, Arc<Mover>), String> {
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
        Ok((gleaner_move::GuestProcess { group, keeper, root, plugs, left_out }, mover))
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
    pub(super) fn cannot_leave(&mut self, fence: Fence, reason: String, told: &mut Told) {
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
}

/// The first process that a keeper has started and that lives.
fn first_child(keeper: i32) -> Option<i32> {
    let path = format!("/proc/{keeper}/task/{keeper}/children");
    std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}
