//! The workstations during an execution, and who gets which: the
//! coordinator's own policies (`gleaner_coordinator_core::placement`), asked; and
//! who goes first is its too (`gleaner_coordinator_core::residence`).

use std::time::Duration;

use gleaner_common::time::{Moment, WallTime};
use gleaner_coordinator_core::outlook::{Common, Outlook};
use gleaner_coordinator_core::placement::{Candidate, Cost, Free};
use gleaner_coordinator_core::residence::Workstations;

use crate::lab::{Lab, Transition};
use crate::model::Placement;
use crate::program::NONE;

/// Where the lab's period begins on the core's clock, which knows no time
/// before its own beginning; 146 years are enough for any past.
const EPOCH: u64 = 1 << 62;

/// How a workstation is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chooser<'a> {
    placement: Placement,
    idle_needed: Duration,
    start: WallTime,
    /// What the lab had in common before the start, if anybody asks.
    common: Option<&'a Common>,
}

impl<'a> Chooser<'a> {
    pub(crate) fn new(placement: Placement, idle_needed: Duration, lab: &'a Lab) -> Self {
        let asked = lab.learned.as_ref().filter(|_| placement.asks_outlook());
        let common = asked.map(|learned| &learned.common);
        Self { placement, idle_needed, start: lab.start, common }
    }

    fn ages(&self) -> bool {
        match self.placement {
            Placement::Oracle => false,
            Placement::Core(policy) => policy.ages(),
        }
    }

    /// Where a free workstation stands.
    fn cost(&self, place: &Workstation, outlook: Option<&Outlook>, now: u64) -> Cost {
        let Placement::Core(policy) = self.placement else {
            return Cost::new(u64::MAX - place.until);
        };
        let (wall, since) = (self.wall(now), Moment(place.idle_since));
        let risk = self
            .common
            .zip(outlook)
            .map_or(0.0, |(common, outlook)| outlook.risk(common, wall, self.idle_needed));
        policy.cost(&Candidate {
            idle_since: since,
            idle_for: Moment(EPOCH + now).since(since),
            load_1m: place.load_1m,
            speed: place.speed,
            risk,
        })
    }

    fn wall(&self, now: u64) -> WallTime {
        WallTime(self.start.0.saturating_add_unsigned(now))
    }
}

/// The places at a moment, as guests see them that seek one. `here` says at which
/// one a guest is.
pub(crate) struct Sought<'a, 'b> {
    pub(crate) places: &'a mut Places,
    pub(crate) by: &'a Chooser<'b>,
    pub(crate) now: u64,
    pub(crate) here: &'a dyn Fn(u32) -> u32,
}

impl Workstations<u32> for Sought<'_, '_> {
    type Id = u32;

    fn owner_has_left(&self, guest: u32) -> bool {
        let here = (self.here)(guest);
        here != NONE && self.places.is_idle(here)
    }

    fn choose(&mut self, _: u32) -> Option<u32> {
        self.places.choose(self.by, self.now)
    }
}

#[derive(Clone, Copy, Debug)]
struct Workstation {
    /// When its owner comes or leaves next.
    until: u64,
    /// When its owner left, on the core's clock.
    idle_since: u64,
    /// The owner's load, as it was when the owner last came or left.
    load_1m: f32,
    /// How fast the workstation is; guests run on it as fast as on any (Phalen
    /// 1994, §1.2: all are alike).
    speed: f32,
    /// The guest that is there or on the way.
    guest: u32,
    idle: bool,
    used: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Places {
    workstations: Vec<Workstation>,
    free: Free<u32>,
    /// The outlook of each workstation, if the policy asks; with what the past taught up
    /// to the start of the period. What is learned since is its age.
    outlooks: Vec<Outlook>,
}

impl Places {
    /// Takes the lab as it is at its start: what is idle is free.
    pub(crate) fn open(&mut self, lab: &Lab, by: &Chooser<'_>) {
        self.workstations.clear();
        self.workstations.extend(lab.starts.iter().map(|start| Workstation {
            until: start.until,
            idle_since: EPOCH.saturating_sub(start.since),
            load_1m: start.load_1m,
            speed: start.speed,
            guest: NONE,
            idle: start.idle,
            used: false,
        }));
        match lab.learned.as_ref().filter(|_| by.common.is_some()) {
            Some(learned) => self.outlooks.clone_from(&learned.outlooks),
            None => self.outlooks.clear(),
        }
        let idle = (0..).zip(&self.workstations).filter(|(_, place)| place.idle);
        let outlooks = &self.outlooks;
        self.free.fill(idle.map(|(id, place)| (id, by.cost(place, outlooks.get(id as usize), 0))));
    }

    /// The workstation's guest, if it has one; else it is no longer free.
    pub(crate) fn turned_busy(&mut self, transition: Transition) -> u32 {
        let place = &mut self.workstations[transition.workstation as usize];
        (place.idle, place.until) = (false, transition.until);
        place.load_1m = transition.load_1m;
        if place.guest == NONE {
            self.free.set(transition.workstation, None);
        }
        place.guest
    }

    /// The workstation's guest, if it has one; else it is to be given away or set
    /// free.
    pub(crate) fn turned_idle(&mut self, transition: Transition, by: &Chooser<'_>) -> u32 {
        let place = &mut self.workstations[transition.workstation as usize];
        (place.idle, place.until) = (true, transition.until);
        place.load_1m = transition.load_1m;
        place.idle_since = EPOCH + transition.at;
        if let Some(outlook) = self.outlooks.get_mut(transition.workstation as usize) {
            outlook.turned_idle(by.wall(transition.at));
        }
        place.guest
    }

    pub(crate) fn set_free(&mut self, id: u32, by: &Chooser<'_>, now: u64) {
        let outlook = self.outlooks.get(id as usize);
        let cost = by.cost(&self.workstations[id as usize], outlook, now);
        self.free.set(id, Some(cost));
    }

    /// The best of the free ones.
    pub(crate) fn choose(&mut self, by: &Chooser<'_>, now: u64) -> Option<u32> {
        if by.ages() && !self.free.is_empty() {
            let (places, outlooks) = (&self.workstations, &self.outlooks);
            self.free.refresh(|id| by.cost(&places[id as usize], outlooks.get(id as usize), now));
        }
        self.free.choose()
    }

    /// How likely an owner is to return in that time, by what the past has
    /// taught; 0, if nobody asks for that.
    pub(crate) fn chance_of_return(
        &self,
        id: u32,
        by: &Chooser<'_>,
        now: u64,
        need: Duration,
    ) -> f64 {
        let risk = by.common.zip(self.outlooks.get(id as usize));
        let risk = risk.map_or(0.0, |(common, it)| it.risk(common, by.wall(now), need));
        1.0 - f64::from(-risk).exp()
    }

    /// How many are idle and nobody's.
    pub(crate) fn free(&self) -> u32 {
        let free = self.workstations.iter().filter(|place| place.idle && place.guest == NONE);
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn none_is_free(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn take(&mut self, id: u32, guest: u32) {
        let place = &mut self.workstations[id as usize];
        (place.guest, place.used) = (guest, true);
        self.free.set(id, None);
    }

    /// A workstation's guest is gone; returns whether the workstation is idle.
    pub(crate) fn leave(&mut self, id: u32) -> bool {
        let place = &mut self.workstations[id as usize];
        place.guest = NONE;
        place.idle
    }

    pub(crate) fn is_idle(&self, id: u32) -> bool {
        self.workstations[id as usize].idle
    }

    /// When its owner comes or leaves next.
    pub(crate) fn until(&self, id: u32) -> u64 {
        self.workstations[id as usize].until
    }

    /// How many had a guest.
    pub(crate) fn used(&self) -> u32 {
        let used = self.workstations.iter().filter(|place| place.used).count();
        u32::try_from(used).unwrap_or(u32::MAX)
    }
}
