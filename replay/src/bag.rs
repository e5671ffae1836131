//! Programs that are a bag of subtasks, and the workers that take them.
//!
//! Source: Phalen 1994, §2.1 to §2.3 and Table 1, models 1 to 4, after Piranha
//! (§4.1.1): subtasks are bound to no process; at a busy transition a worker
//! abandons its subtask, which goes back into the bag and is done again by
//! whoever takes it next.
//!
//! | model | [`BagModel::grows`] | [`BagModel::spawns`] |
//! |---|---|---|
//! | 1 | no | no |
//! | 2 | yes | no |
//! | 3 | no | yes |
//! | 4 | yes | yes |
//!
//! Workers take the subtask that was returned last, else the oldest. One that
//! loses its workstation takes another that is idle, or waits for one.

mod run;

use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_coordinator_core::{Config, Policy};

use crate::execution::Execution;
use crate::lab::nanos;
use crate::model::{Costs, Placement, RENICE_SHARE};

pub(crate) use run::BagScratch;
pub use run::run_bag;

/// A unit of work that can be abandoned and done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subtask {
    pub work: Duration,
    /// The subtask that spawns it, an earlier one: it comes into the bag when
    /// that one is done. Without one it is there from the start.
    pub parent: Option<u32>,
}

/// Some 200 MB while a bag is made, and half of that then.
const SUBTASKS_MAX: u32 = 4_000_000;

/// 100 years.
const WORK_NANOS_MAX: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// Why subtasks are no bag. They are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BagError {
    #[error("the bag is empty")]
    Empty,
    #[error("the bag has too many subtasks: expected at most {SUBTASKS_MAX}")]
    TooLarge,
    #[error("subtask {subtask} is spawned by subtask {parent}: expected an earlier one")]
    BadParent { subtask: u32, parent: u32 },
    #[error("the work of all subtasks takes more than 100 years")]
    TooLong,
}

/// A program of subtasks, in flat arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bag {
    name: String,
    works: Vec<u64>,
    /// Which are there from the start, in order.
    roots: Vec<u32>,
    /// Where the children of each begin in `children`; one more than subtasks.
    first_child: Vec<u32>,
    children: Vec<u32>,
}

impl Bag {
    /// # Errors
    /// If there are no subtasks, too many or too long ones, or one is spawned
    /// by one that does not come before it.
    pub fn new(name: impl Into<String>, subtasks: &[Subtask]) -> Result<Self, BagError> {
        let count = u32::try_from(subtasks.len()).ok().filter(|count| *count <= SUBTASKS_MAX);
        let count = count.ok_or(BagError::TooLarge)?;
        if count == 0 {
            return Err(BagError::Empty);
        }
        let mut first_child = vec![0; subtasks.len() + 1];
        let (mut roots, mut total) = (vec![], 0_u64);
        for (subtask, one) in (0..count).zip(subtasks) {
            total = total.saturating_add(nanos(one.work));
            match one.parent {
                None => roots.push(subtask),
                Some(parent) if parent < subtask => first_child[parent as usize + 1] += 1,
                Some(parent) => return Err(BagError::BadParent { subtask, parent }),
            }
        }
        if total > WORK_NANOS_MAX {
            return Err(BagError::TooLong);
        }
        for parent in 0..subtasks.len() {
            first_child[parent + 1] += first_child[parent];
        }
        let mut next = first_child.clone();
        let mut children = vec![0; subtasks.len() - roots.len()];
        for (subtask, one) in (0..count).zip(subtasks) {
            if let Some(parent) = one.parent {
                children[next[parent as usize] as usize] = subtask;
                next[parent as usize] += 1;
            }
        }
        let works = subtasks.iter().map(|one| nanos(one.work)).collect();
        Ok(Self { name: name.into(), works, roots, first_child, children })
    }

    /// So much work in subtasks of one size (the last may be smaller): for
    /// Phalen 1994, §8, subtask size against the length of idle periods.
    ///
    /// # Errors
    /// As [`Bag::new`]; a size of zero makes no subtask.
    pub fn divided(
        name: impl Into<String>,
        total: Duration,
        size: Duration,
    ) -> Result<Self, BagError> {
        let (total, size) = (nanos(total), nanos(size));
        let count = if size == 0 { 0 } else { total.div_ceil(size) };
        // Before any is made.
        if total > WORK_NANOS_MAX {
            return Err(BagError::TooLong);
        }
        if count > u64::from(SUBTASKS_MAX) {
            return Err(BagError::TooLarge);
        }
        let works = (0..count).map(|nth| size.min(total - nth * size));
        let subtask = |work| Subtask { work: Duration::from_nanos(work), parent: None };
        Self::new(name, &works.map(subtask).collect::<Vec<_>>())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn subtasks(&self) -> usize {
        self.works.len()
    }

    pub fn work(&self) -> Duration {
        Duration::from_nanos(self.works.iter().sum())
    }

    fn children_of(&self, subtask: u32) -> &[u32] {
        let subtask = subtask as usize;
        let range = self.first_child[subtask] as usize..self.first_child[subtask + 1] as usize;
        &self.children[range]
    }
}

/// How many workers a bag begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    Number(u32),
    /// One for each workstation that is idle when the bag begins; where none
    /// is, one that waits.
    All,
}

impl Workers {
    /// How many work at once where so many workstations are always idle.
    pub(crate) fn among(self, workstations: u32) -> u32 {
        if let Self::Number(many) = self { many.min(workstations) } else { workstations }
    }
}

impl From<u32> for Workers {
    fn from(many: u32) -> Self {
        Self::Number(many)
    }
}

/// How workers share the lab with the owners.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each can be had without the others")]
pub struct BagModel {
    pub placement: Placement,
    /// A retreat returns the subtask to the bag; a rollback takes the subtask
    /// along and begins it anew; a migration takes along what was done of it.
    pub on_busy: OnBusy,
    /// What it costs a worker to move.
    pub costs: Costs,
    /// What it costs to begin a worker where none was, not at the program's
    /// own begin.
    pub start: Duration,
    pub renice_share: f64,
    pub workers: Workers,
    /// A workstation that turns idle gets a new worker if there is work in
    /// the bag (models 2 and 4).
    pub grows: bool,
    /// When subtasks are spawned, new workers begin for them on what is idle;
    /// and a worker that finds the bag empty ends (models 3 and 4).
    pub spawns: bool,
    /// How long a worker is likely to need a workstation, for the policies
    /// that ask.
    pub idle_needed: Duration,
    /// When the program begins, after the start of the lab's period.
    pub begins: Duration,
    /// A worker that finds the bag empty begins a second copy of a subtask that
    /// another one is at; the first that is done counts.
    pub copies: bool,
    /// Between two subtasks a worker leaves for a workstation whose owner is
    /// less likely to return, if that pays; only where the policy asks for
    /// what the past has taught.
    pub leaves_early: bool,
}

impl BagModel {
    /// A model of Phalen 1994, Table 1, by its number: 1 to 4.
    pub fn of_table1(model: u8, workers: impl Into<Workers>, cost: Duration) -> Option<Self> {
        (1..=4).contains(&model).then_some(Self {
            placement: Placement::Core(Policy::LastIdleFirst),
            on_busy: OnBusy::at_once(Reaction::Retreat),
            costs: Costs { migrate: cost, rollback: cost, retreat: cost },
            start: cost,
            renice_share: RENICE_SHARE,
            workers: workers.into(),
            grows: model.is_multiple_of(2),
            spawns: model >= 3,
            idle_needed: Config::default().idle_needed,
            begins: Duration::ZERO,
            copies: false,
            leaves_early: false,
        })
    }
}

/// What one execution of a bag came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BagExecution {
    /// What is asked of ranks too, of workers here. A bag has no critical
    /// path, because nobody waits for anybody: the breakdowns are zero.
    pub shared: Execution,
    /// Subtasks that were done.
    pub done: u32,
    /// How often a subtask was returned to the bag.
    pub abandoned: u32,
    /// How many workers began, and how many there were at most.
    pub workers: u32,
    pub workers_most: u32,
    /// How many second copies began.
    pub copies: u32,
    /// How often a worker left before the owner came.
    pub left_early: u32,
}

#[cfg(test)]
mod tests;
