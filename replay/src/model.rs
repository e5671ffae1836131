//! How the program's ranks share the lab with the owners.
//!
//! The eight execution models of Phalen 1994, Table 1, in terms of what is
//! here. Models 1 to 4 are programs that adapt themselves: a [`crate::bag`];
//! models 5 to 8 are programs of ranks that are scheduled: [`Model`].
//!
//! | model | program | owner returns | a workstation turns idle | program spawns or ends a part |
//! |---|---|---|---|---|
//! | 1 | bag | the subtask is abandoned and done again | only who has no place takes it | nothing changes |
//! | 2 | bag | as 1 | a new worker begins there | nothing changes |
//! | 3 | bag | as 1 | as 1 | workers begin for what is spawned, and end when nothing is left for them |
//! | 4 | bag | as 1 | as 2 | as 3 |
//! | 5 | ranks | `on_busy` | a frozen rank goes on there, and who has no place takes it | every rank holds a place from the start |
//! | 6 | ranks | `on_busy` | as 5, and else the rank that has been frozen or demoted longest moves there (`grows`) | as 5 |
//! | 7 | ranks | `on_busy` | as 5 | a rank takes a place when it is spawned (`spawns`) |
//! | 8 | ranks | `on_busy` | as 6 | as 7 |

use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::reaction::{Keep, Step};
use gleaner_coordinator_core::residence::Rules;
use gleaner_coordinator_core::{Config, Policy};
use serde::{Deserialize, Serialize};

/// Who gets which workstation, and what happens when its owner returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub placement: Placement,
    pub on_busy: OnBusy,
    pub costs: Costs,
    /// The share of the processor that a demoted guest gets beside its owner,
    /// above 0 and at most 1; taken to a millionth.
    pub renice_share: f64,
    /// A workstation that turns idle takes the rank that has been frozen or
    /// demoted longest elsewhere (Phalen 1994, §2.1.2; models 6 and 8).
    pub grows: bool,
    /// A spawned rank takes its place when it is spawned, not from the start
    /// (models 7 and 8).
    pub spawns: bool,
    /// Where ranks wait, when those under owners go elsewhere, and whether a
    /// program begins as soon as one of its ranks can (her simulations) or when all
    /// can (the live coordinator's scheduler).
    pub rules: Rules,
    /// How long a rank is likely to need a workstation, for the policies that
    /// ask: the program's own length is a good answer.
    pub idle_needed: Duration,
    /// When the program begins, after the start of the lab's period.
    pub begins: Duration,
}

impl Model {
    /// Phalen 1994, §6.4: last idle first, migration at every busy transition
    /// at one cost, hidden behind blocking.
    ///
    /// "The last workstation that was added to the idle pool" is the one whose
    /// owner left last, as the coordinator's policy has it; also where a rank
    /// that finished gave it back.
    pub fn phalen1994(cost: Duration) -> Self {
        Self {
            placement: Placement::Core(Policy::LastIdleFirst),
            on_busy: OnBusy::at_once(Reaction::Migrate),
            costs: Costs { migrate: cost, rollback: cost, retreat: cost },
            renice_share: RENICE_SHARE,
            grows: false,
            spawns: false,
            rules: Rules::PHALEN_1994,
            idle_needed: Config::default().idle_needed,
            begins: Duration::ZERO,
        }
    }
}

/// What a guest of the lowest priority gets beside an owner who computes. A
/// guess: `SCHED_IDLE` gets a hundredth of one core, but owners are seldom
/// busy on all of them.
pub(crate) const RENICE_SHARE: f64 = 0.1;

gleaner_common::named! {
    /// Whose [`Rules`] a program's ranks keep.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum RulesOf {
        /// Each rank begins as soon as it can; one that has to leave has left, wherever
        /// it goes next (Phalen 1994, §6.4).
        #[default]
        Phalen1994 = "phalen1994",
        /// All ranks begin together; one that has to leave stays until there is
        /// somewhere to go, and goes on if its owner leaves first.
        Live = "live",
    }
}

impl RulesOf {
    pub fn rules(self) -> Rules {
        match self {
            Self::Phalen1994 => Rules::PHALEN_1994,
            Self::Live => Rules::LIVE,
        }
    }
}

/// How a free workstation is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The coordinator's own policy chooses.
    Core(Policy),
    /// The one that stays idle longest from now. Knows the future, so it
    /// exists in replay only: what no policy can beat by much.
    Oracle,
}

impl Placement {
    /// Does it look at what the past has taught of each workstation?
    pub(crate) fn asks_outlook(self) -> bool {
        matches!(self, Self::Core(policy) if policy.asks_outlook())
    }
}

/// How long a rank is away when it moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// When it moves with its whole state.
    pub migrate: Duration,
    /// When it moves with the state it had at the start of its subtask.
    pub rollback: Duration,
    /// When it moves with nothing: it begins its subtask from what others kept.
    pub retreat: Duration,
}

impl Costs {
    /// The cost of a move that keeps this.
    pub fn of(&self, keep: Keep) -> Duration {
        match keep {
            Keep::State => self.migrate,
            Keep::SubtaskStart => self.rollback,
            Keep::Nothing => self.retreat,
        }
    }

    /// How long a frozen guest waits, and then moves how; `None` for ever.
    pub(crate) fn patience(&self, on_busy: OnBusy) -> Option<(Duration, Keep)> {
        let Step::Move(keep) = on_busy.then.step() else { return None };
        let (patience, step) = on_busy.patience(self.of(keep))?;
        if let Step::Move(keep) = step { Some((patience, keep)) } else { None }
    }
}
