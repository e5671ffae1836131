//! What a guest does about its owner: the one decision that the agent takes
//! on a workstation and replay takes in a simulated one.
//!
//! Pure and without state: a job's choice ([`OnBusy`]) and what the owner
//! leaves ([`Owner`]) give the next [`Step`]. Knows nothing of how a step is
//! carried out, or of where a guest that moves finds its next workstation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::{OnBusy, Patience, Reaction};
use crate::units;

/// What the owner leaves to guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Everything.
    Away,
    /// What the owner's own work does not use, to demoted guests.
    Here,
    /// Nothing: the owner has paused gleaner.
    Claims,
}

/// What a guest does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The guest runs on as ever, or again.
    Stay,
    /// The guest runs on, below everything of the owner's.
    Demote,
    /// The guest is frozen where it is.
    Freeze,
    /// The guest leaves.
    Move(Keep),
}

/// What a guest that leaves takes along (Phalen 1994, §2.1.1). The less it
/// keeps the cheaper the move, and the more is done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// The whole state of its process: it migrates.
    State,
    /// The state at the start of its subtask: it rolls back and migrates.
    SubtaskStart,
    /// Nothing: it is abandoned, its work returned.
    Nothing,
}

impl Reaction {
    /// What it means at a busy transition.
    pub const fn step(self) -> Step {
        match self {
            Self::Renice => Step::Demote,
            Self::Suspend => Step::Freeze,
            Self::Migrate => Step::Move(Keep::State),
            Self::Rollback => Step::Move(Keep::SubtaskStart),
            Self::Retreat => Step::Move(Keep::Nothing),
        }
    }

    /// Does it leave the workstation?
    pub const fn moves(self) -> bool {
        matches!(self.step(), Step::Move(_))
    }
}

impl OnBusy {
    /// At a busy transition.
    pub const fn when_busy(self) -> Step {
        self.reaction.step()
    }

    /// Whenever the owner comes, leaves, or claims the machine. What stayed
    /// runs on when the owner is gone; nothing runs against a claim.
    pub const fn when(self, owner: Owner) -> Step {
        match (owner, self.when_busy()) {
            (Owner::Away, _) => Step::Stay,
            (Owner::Claims, Step::Demote) => Step::Freeze,
            (Owner::Here | Owner::Claims, step) => step,
        }
    }

    /// How long a frozen guest waits for its owner to leave, and its step if
    /// the owner stays that long; `None` waits for ever.
    ///
    /// A job that never meant to be frozen has named no patience. One that is
    /// (demoted, and then the owner claims the machine) has the default's.
    /// `cost` is what the move would take.
    pub fn patience(self, cost: Duration) -> Option<(Duration, Step)> {
        let means = if self.reaction == Reaction::Suspend { self } else { Self::default() };
        let span = match means.patience {
            Patience::Forever => return None,
            Patience::For(span) => span,
            Patience::ByCost => cost,
        };
        Some((span, means.then.step()))
    }
}

/// A text that is no reaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a reaction: expected renice, suspend, migrate, rollback, retreat, or such as \
     `suspend 10min then migrate`, `suspend then migrate` (as long as the move costs), \
     `suspend forever`"
)]
pub struct ParseOnBusyError(pub String);

impl FromStr for OnBusy {
    type Err = ParseOnBusyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseOnBusyError(text.to_owned());
        let moving = |name: &str| name.parse().ok().filter(|then: &Reaction| then.moves());
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["suspend"] => Ok(Self::default()),
            ["suspend", "forever"] => Ok(Self::suspend(None, Reaction::Retreat)),
            ["suspend", "then", then] => moving(then).map(Self::suspend_by_cost).ok_or_else(wrong),
            ["suspend", span, "then", then] => {
                let span = units::parse_duration(span).map_err(|_| wrong())?;
                let then = moving(then).ok_or_else(wrong)?;
                Ok(Self::suspend(Some(span), then))
            }
            [name] => name.parse().map(Self::at_once).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

/// As it is parsed.
impl fmt::Display for OnBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let then = self.then.name();
        match (self.reaction, self.patience) {
            (Reaction::Suspend, Patience::Forever) => f.write_str("suspend forever"),
            (Reaction::Suspend, Patience::ByCost) => write!(f, "suspend then {then}"),
            (Reaction::Suspend, Patience::For(span)) => {
                write!(f, "suspend {} then {then}", units::written_duration(span))
            }
            (other, _) => f.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_as_ever_while_the_owner_is_here_nor_at_all_against_a_claim() {
        for on_busy in Reaction::ALL.map(OnBusy::at_once) {
            assert_eq!(on_busy.when(Owner::Away), Step::Stay);
            assert_ne!(on_busy.when(Owner::Here), Step::Stay);
            assert!(!matches!(on_busy.when(Owner::Claims), Step::Stay | Step::Demote));
        }
    }

    #[test]
    fn each_reaction_keeps_what_its_name_says() {
        assert_eq!(Reaction::Migrate.step(), Step::Move(Keep::State));
        assert_eq!(Reaction::Rollback.step(), Step::Move(Keep::SubtaskStart));
        assert_eq!(Reaction::Retreat.step(), Step::Move(Keep::Nothing));
        assert!(!Reaction::Renice.moves() && !Reaction::Suspend.moves());
    }

    #[test]
    fn patience_ends_in_what_the_job_chose_and_never_without_one() {
        let ten = Duration::from_secs(10);
        let migrates = OnBusy::suspend(Some(ten), Reaction::Migrate);
        assert_eq!(migrates.patience(Duration::ZERO), Some((ten, Step::Move(Keep::State))));
        assert_eq!(OnBusy::suspend(None, Reaction::Retreat).patience(Duration::ZERO), None);
        let default = Some((Duration::from_secs(600), Step::Move(Keep::Nothing)));
        assert_eq!(OnBusy::default().patience(Duration::ZERO), default);
        assert_eq!(OnBusy::at_once(Reaction::Renice).patience(Duration::ZERO), default);
        let by_cost = OnBusy::suspend_by_cost(Reaction::Migrate);
        assert_eq!(by_cost.patience(ten), Some((ten, Step::Move(Keep::State))));
    }

    #[test]
    fn a_reaction_reads_as_it_is_written() {
        for text in [
            "renice",
            "migrate",
            "rollback",
            "retreat",
            "suspend forever",
            "suspend then migrate",
            "suspend 10m then retreat",
            "suspend 90s then rollback",
        ] {
            let on_busy: OnBusy = text.parse().unwrap();
            assert_eq!(on_busy.to_string(), text);
            assert_eq!(on_busy.to_string().parse(), Ok(on_busy));
        }
        assert_eq!("suspend".parse(), Ok(OnBusy::default()));
    }

    #[test]
    fn what_is_no_reaction_is_refused_with_what_was_expected() {
        for text in ["", "stay", "suspend 10", "suspend 10min", "suspend then renice", "migrate 1s"]
        {
            let error = text.parse::<OnBusy>().unwrap_err().to_string();
            assert!(error.contains("expected renice, suspend"), "{error}");
        }
    }
}
