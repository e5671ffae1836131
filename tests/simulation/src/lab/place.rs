//! A guest place as the kernel has it: a group with a freezer, a keeper, and
//! the guest's process.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_agent_core::guest::Start;
use gleaner_common::id::{Fence, SubprogramId};
use gleaner_common::job::Outcome;
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;

use super::rank::{Image, RankProcess};
use super::router::Packed;
use super::shell::Pipe;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeper {
    pub(crate) number: u64,
    pub(crate) staged: bool,
    /// It was killed or let go: it begins nothing more.
    pub(crate) dying: bool,
    /// Somebody has stopped it, for good, when the agent's clock read this.
    pub(crate) stopped: Option<Moment>,
}

/// What a keeper does in its own time, but not while it is frozen.
#[derive(Clone, Debug)]
pub(crate) enum KeeperWork {
    Begins,
    /// The guest's process has ended by itself.
    Ended {
        fence: Fence,
        outcome: Outcome,
    },
    Lands {
        fence: Fence,
    },
}

/// A guest's processes, as one.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) fence: Fence,
    pub(crate) subprogram: SubprogramId,
    pub(crate) life: Option<Life>,
    /// The keeper has started the process.
    pub(crate) begun: bool,
    /// The guest has arrived, and was not told to go on.
    pub(crate) stopped: bool,
    pub(crate) killed: bool,
    /// How much longer it runs, as of `since`.
    pub(crate) left: Duration,
    pub(crate) since: Moment,
    pub(crate) outcome: Outcome,
    /// Of a rank, which ends when its script does.
    pub(crate) rank: Option<RankProcess>,
}

impl Process {
    /// As it is written down.
    pub(crate) fn image(&self) -> Image {
        let program = self.rank.as_ref().map(|rank| (rank.program.clone(), rank.pace));
        Image { left: self.left, outcome: self.outcome.clone(), program }
    }

    /// Does it end by itself after what is left?
    fn ends(&self) -> bool {
        self.goes() && self.rank.as_ref().is_none_or(|rank| rank.program.is_over())
    }

    /// Does it run, if it is not frozen?
    fn goes(&self) -> bool {
        self.begun && !self.stopped && !self.killed
    }
}

/// What comes of a guest from elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) keep: Keep,
    pub(crate) image: Option<Image>,
    /// The rank's packed endpoint, if the guest is a rank.
    pub(crate) packed: Option<Packed>,
    /// How often the guest had been set going when it was packed.
    pub(crate) runs: u32,
    /// The attempts that it has been.
    pub(crate) before: BTreeSet<Fence>,
}

/// What the agent's container holds of the guest that is there.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct Guest {
    pub(crate) start: Box<Start>,
    /// The input files are laid out.
    pub(crate) laid: bool,
    /// How often it was set going: what is carried is of one time between.
    pub(crate) runs: u32,
    pub(crate) before: BTreeSet<Fence>,
    /// How its keeper says that it ended.
    pub(crate) ended: Option<Outcome>,
    pub(crate) header: bool,
    pub(crate) known: Option<Payload>,
    pub(crate) whole: bool,
    /// What its snapshot holds.
    pub(crate) snapshot: Option<Payload>,
    /// The rank's endpoint, packed to be carried.
    pub(crate) packed: Option<Packed>,
    /// The newest image of its process.
    pub(crate) image: Option<Image>,
    pub(crate) landed: bool,
    /// The pipes of its process: our ends until the router has them, and those of
    /// one that is still to begin.
    pub(crate) ours: Option<Pipe>,
    pub(crate) theirs: Option<Pipe>,
}

impl Guest {
    pub(crate) fn new(start: &Start) -> Self {
        Self {
            start: Box::new(start.clone()),
            laid: false,
            runs: 0,
            before: BTreeSet::new(),
            ended: None,
            header: false,
            known: None,
            whole: false,
            snapshot: None,
            packed: None,
            image: None,
            landed: false,
            ours: None,
            theirs: None,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.start.at.fence
    }
}

/// What was ordered of a guest, and forbids others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ordered {
    /// The router packs or has packed the rank's endpoint.
    pub(crate) packed: bool,
    /// An image of it is wanted.
    pub(crate) imaging: bool,
    /// The process that is emptied and written down.
    pub(crate) written: Option<u64>,
    /// The process was thawed for a moment, to be looked into.
    pub(crate) runs_on: bool,
    /// Until when the rank may return its work.
    pub(crate) returns: Option<Moment>,
}

#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The freezer was told to stop the group: all of it stands from then on.
    pub(crate) frozen: Option<Moment>,
    /// Its supervisor has stopped the group, whatever the agent wants.
    held: Option<Moment>,
    pub(crate) hurries: bool,
    pub(crate) keeper: Option<Keeper>,
    /// What the keeper would have done, had it not been frozen.
    pub(crate) waits: Vec<KeeperWork>,
    pub(crate) guest: Option<Guest>,
    pub(crate) process: Option<Process>,
    pub(crate) ordered: Ordered,
}

impl Place {
    pub(crate) fn stands(&self, now: Moment) -> bool {
        self.stands_from().is_some_and(|at| at <= now)
    }

    fn stands_from(&self) -> Option<Moment> {
        self.frozen.into_iter().chain(self.held).min()
    }

    /// The supervisor stops the group.
    pub(crate) fn hold(&mut self, now: Moment) {
        self.held.get_or_insert(now);
    }

    /// The supervisor lets go of the group; what its keeper can do now.
    pub(crate) fn let_go(&mut self, now: Moment) -> Vec<KeeperWork> {
        self.account(now);
        if self.held.take().is_some() {
            // All of it stands already, also if the freezer was told only now.
            self.frozen = self.frozen.map(|at| at.min(now));
        }
        if self.frozen.is_some() { vec![] } else { std::mem::take(&mut self.waits) }
    }

    /// A process that runs at this moment.
    pub(crate) fn running(&self, now: Moment) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.goes() && !self.stands(now))
    }

    /// A process that nobody has told to stand.
    pub(crate) fn let_run(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.goes() && self.stands_from().is_none())
    }

    /// One that stands there whole, to be written down.
    pub(crate) fn standing(&self, now: Moment) -> Option<&Process> {
        let stands = self.stands(now);
        self.process.as_ref().filter(|process| process.begun && !process.killed && stands)
    }

    pub(crate) fn holds(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence() == fence)
    }

    /// When its process ends by itself.
    pub(crate) fn next_exit(&self) -> Option<Moment> {
        let process = self.process.as_ref().filter(|process| process.ends())?;
        let at = process.since + process.left;
        (!self.stands(at)).then_some(at)
    }

    /// What it has run since it was last looked at is behind it.
    pub(crate) fn account(&mut self, now: Moment) {
        let until = self.stands_from().map_or(now, |at| at.min(now));
        if let Some(process) = &mut self.process {
            if process.goes() {
                process.left = process.left.saturating_sub(until.since(process.since));
            }
            process.since = now;
        }
    }

    pub(crate) fn freeze(&mut self, now: Moment, stands_after: Duration) {
        assert_eq!(self.frozen, None, "frozen twice: {self:?}");
        self.frozen = Some(now + stands_after);
        self.ordered.runs_on = false;
    }

    /// Gives what the keeper can do now.
    pub(crate) fn thaw(&mut self, now: Moment) -> Vec<KeeperWork> {
        assert!(self.frozen.is_some(), "thawed twice: {self:?}");
        self.account(now);
        self.frozen = None;
        if self.process.is_some()
            && let Some(guest) = &mut self.guest
        {
            guest.runs += 1;
        }
        std::mem::take(&mut self.waits)
    }

    /// The keeper is dead, or was let go, and all that it had started with it.
    pub(crate) fn clear(&mut self) {
        (self.keeper, self.process) = (None, None);
        self.waits.clear();
    }
}
