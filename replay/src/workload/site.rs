//! Where jobs run: a steady cluster, several of them, or workstations with
//! owners.
//!
//! The promise: a processor is nobody's, one job's or its owner's, and its
//! owner comes first. Knows nothing of sizes and of time that jobs need.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Request, Scheduler};
use gleaner_coordinator_core::{Config, Policy};

use crate::lab::Transition;
use crate::places::{Chooser, Places};
use crate::program::NONE;
use crate::{Lab, Placement};

/// Where jobs run.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Processors; those of one group are scheduled together, and a job stays
    /// in its group.
    pub groups: Vec<u32>,
    /// How fast a processor is, in the unit of [`Request::speed`].
    pub speed: f64,
    /// Things are done in whole units of this time only (Bagga 2014, §3.6).
    pub barrier: Option<Duration>,
    /// Whose workstations the processors of the only group are.
    pub owners: Option<Lab>,
    /// Which of them is taken first.
    pub placement: Placement,
    /// A job that has lost its workstations goes on where it was, instead of
    /// from the beginning.
    pub keeps_work: bool,
}

impl Site {
    /// So many processors that are always there.
    pub fn steady(processors: u32) -> Self {
        Self::grouped(vec![processors])
    }

    pub fn grouped(groups: Vec<u32>) -> Self {
        Self {
            groups,
            speed: 1.0,
            barrier: None,
            owners: None,
            // As Phalen 1994, §6.4, does.
            placement: Placement::Core(Policy::LastIdleFirst),
            keeps_work: true,
        }
    }

    pub fn with_owners(lab: Lab) -> Self {
        let workstations = u32::try_from(lab.workstations()).unwrap_or(u32::MAX);
        Self { owners: Some(lab), ..Self::steady(workstations) }
    }

    /// When something that happens is heard of.
    pub(super) fn heard_at(&self, at: Moment) -> Moment {
        let Some(unit) = self.barrier else { return at };
        let unit = u64::try_from(unit.as_nanos()).unwrap_or(u64::MAX).max(1);
        Moment(at.0.div_ceil(unit).saturating_mul(unit))
    }

    /// Nothing is known of owners after that.
    pub(super) fn until(&self) -> Moment {
        self.owners.as_ref().map_or(Moment::MAX, |lab| Moment::ZERO + lab.span())
    }
}

/// Worst fit: the group with most idle processors (Buisson et al. 2007,
/// §IV.A). Where none has room, the one where most can be had; a job waits
/// there, where theirs waits in a queue for all groups.
pub(super) fn group_for(request: &Request, schedulers: &[Scheduler]) -> usize {
    let needs = request.sizes.min();
    let room = |group: usize| {
        let state = schedulers[group].state();
        let (free, all) = (state.free(), state.resources().all);
        let fits = free >= needs;
        let can_be_had = if fits { free } else { free.saturating_add(state.spare()) };
        (all >= needs, fits, can_be_had, Reverse(state.waiting_count()))
    };
    let groups = (0..schedulers.len()).rev();
    groups.max_by_key(|group| room(*group)).unwrap_or(0)
}

/// An owner has come or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turned {
    pub(super) at: Moment,
    /// Whose processor it was.
    pub(super) lost: Option<JobId>,
}

/// Workstations with owners, and who holds which.
#[derive(Debug)]
pub(super) struct Workstations<'a> {
    places: Places,
    by: Chooser<'a>,
    held: BTreeMap<JobId, Vec<u32>>,
    coming: &'a [Transition],
    idle: u32,
    free: usize,
}

impl<'a> Workstations<'a> {
    /// `None` where there are no owners.
    pub(super) fn of(site: &'a Site) -> Option<Self> {
        let lab = site.owners.as_ref()?;
        let by = Chooser::new(site.placement, Config::default().idle_needed, lab);
        let mut places = Places::default();
        places.open(lab, &by);
        let idle = places.free();
        let (held, coming) = (BTreeMap::new(), &lab.transitions[..]);
        Some(Self { places, by, held, coming, idle, free: idle as usize })
    }

    /// Those whose owners are away.
    pub(super) fn idle(&self) -> u32 {
        self.idle
    }

    pub(super) fn free(&self) -> usize {
        self.free
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.coming.first().map(|one| Moment(one.at))
    }

    /// The next owner who has come or gone by then.
    pub(super) fn turn(&mut self, now: Moment) -> Option<Turned> {
        let (one, rest) = self.coming.split_first()?;
        let (at, id) = (Moment(one.at), one.workstation);
        if at > now {
            return None;
        }
        self.coming = rest;
        let was_idle = self.places.is_idle(id);
        if !one.busy {
            self.places.turned_idle(*one, &self.by);
            if !was_idle {
                self.idle += 1;
                self.set_free(at, id);
            }
            return Some(Turned { at, lost: None });
        }
        let holder = self.places.turned_busy(*one);
        let lost = (holder != NONE).then_some(JobId(holder));
        self.idle -= u32::from(was_idle);
        match lost.and_then(|job| self.held.get_mut(&job)) {
            Some(held) => held.retain(|other| *other != id),
            None => self.free -= usize::from(was_idle),
        }
        self.places.leave(id);
        Some(Turned { at, lost })
    }

    fn set_free(&mut self, now: Moment, id: u32) {
        self.places.set_free(id, &self.by, now.0);
        self.free += 1;
    }

    pub(super) fn take(&mut self, now: Moment, job: JobId, many: u32) {
        for _ in 0..many {
            let Some(id) = self.places.choose(&self.by, now.0) else { return };
            self.free -= 1;
            self.places.take(id, job.0);
            self.held.entry(job).or_default().push(id);
        }
    }

    /// The job gives up so many, the last it took first.
    pub(super) fn give(&mut self, now: Moment, job: JobId, many: u32) {
        for _ in 0..many {
            let Some(id) = self.held.get_mut(&job).and_then(Vec::pop) else { return };
            self.places.leave(id);
            self.set_free(now, id);
        }
    }

    pub(super) fn give_all(&mut self, now: Moment, job: JobId) {
        self.give(now, job, u32::MAX);
        self.held.remove(&job);
    }
}
