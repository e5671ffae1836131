//! Where jobs run: a steady cluster, several of them, or workstations with
//! owners.
//!
//! The promise: a processor is nobody's, one job's or its owner's, and its
//! owner comes first. Knows nothing of sizes and of time that jobs need.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Request, Scheduler};

use crate::Lab;
use crate::lab::Transition;

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
        Self { groups, speed: 1.0, barrier: None, owners: None, keeps_work: true }
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

#[derive(Clone, Copy, Debug, Default)]
struct Workstation {
    is_idle: bool,
    holder: Option<JobId>,
}

/// Workstations with owners, and who holds which.
#[derive(Debug)]
pub(super) struct Workstations<'a> {
    each: Vec<Workstation>,
    /// Idle, and nobody's, by when that began: the last is taken first, as
    /// Phalen 1994, §6.4, does.
    free: BTreeSet<(Moment, u32)>,
    held: BTreeMap<JobId, Vec<u32>>,
    coming: &'a [Transition],
    idle: u32,
}

impl<'a> Workstations<'a> {
    /// `None` where there are no owners.
    pub(super) fn of(site: &'a Site) -> Option<Self> {
        let lab = site.owners.as_ref()?;
        let each = lab.starts.iter();
        let each: Vec<Workstation> =
            each.map(|start| Workstation { is_idle: start.idle, holder: None }).collect();
        let idle = (0..).zip(&each).filter(|(_, it)| it.is_idle);
        let free: BTreeSet<(Moment, u32)> = idle.map(|(id, _)| (Moment::ZERO, id)).collect();
        let idle = u32::try_from(free.len()).unwrap_or(u32::MAX);
        Some(Self { each, free, held: BTreeMap::new(), coming: &lab.transitions, idle })
    }

    /// Those whose owners are away.
    pub(super) fn idle(&self) -> u32 {
        self.idle
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.coming.first().map(|one| Moment(one.at))
    }

    /// The next owner who has come or gone by then.
    pub(super) fn turn(&mut self, now: Moment) -> Option<Turned> {
        let (one, rest) = self.coming.split_first()?;
        let at = Moment(one.at);
        if at > now {
            return None;
        }
        self.coming = rest;
        let it = &mut self.each[one.workstation as usize];
        let was_idle = std::mem::replace(&mut it.is_idle, !one.busy);
        let lost = it.holder.take();
        if was_idle && one.busy {
            self.idle -= 1;
            self.free.retain(|(_, id)| *id != one.workstation);
        } else if !was_idle && !one.busy {
            self.idle += 1;
            self.free.insert((at, one.workstation));
        }
        if let Some(held) = lost.and_then(|job| self.held.get_mut(&job)) {
            held.retain(|id| *id != one.workstation);
        }
        Some(Turned { at, lost })
    }

    pub(super) fn take(&mut self, job: JobId, many: u32) {
        for _ in 0..many {
            let Some((_, id)) = self.free.pop_last() else { return };
            self.each[id as usize].holder = Some(job);
            self.held.entry(job).or_default().push(id);
        }
    }

    /// The job gives up so many, the last it took first.
    pub(super) fn give(&mut self, now: Moment, job: JobId, many: u32) {
        for _ in 0..many {
            let Some(id) = self.held.get_mut(&job).and_then(Vec::pop) else { return };
            self.each[id as usize].holder = None;
            self.free.insert((now, id));
        }
    }

    pub(super) fn give_all(&mut self, now: Moment, job: JobId) {
        self.give(now, job, u32::MAX);
        self.held.remove(&job);
    }
}
