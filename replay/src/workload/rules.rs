//! What holds for all jobs of a run: what changes cost, when they can be made,
//! and when the scheduler is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_coordinator_core::scheduler::Request;

use super::generate::Draws;

/// What changes of sizes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCosts {
    /// `C_n`: of each negotiation; they are held one after another, and
    /// everything else waits (Ghafoor 2007, §3.3.4 and Figure 4.3, line 13).
    pub negotiation: Duration,
    /// `C`: for each processor more or less (3.16).
    pub adaptation: Duration,
}

/// What changes of sizes cost at most, and how often a job agrees at all, drawn
/// for each negotiation (Ghafoor 2007, §3.3.4 and Figure 4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    pub seed: u64,
    /// Costs are between those of [`Rules::costs`] and these; the larger, the
    /// less likely, along a straight line to nothing.
    pub most: ChangeCosts,
    /// How many of a hundred negotiations come to something.
    pub success: u32,
}

/// What holds for all jobs of a run.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub costs: ChangeCosts,
    /// Costs are drawn, instead of always the same.
    pub ramp: Option<Ramp>,
    /// Jobs of so many equal parts, on a steady site, change their size between
    /// two parts and nowhere else; all others at any time.
    pub parts: BTreeMap<JobId, u32>,
    /// Jobs of so many equal parts that have a processor each, on a steady
    /// site, and give processors as parts end: the coordinator's bags. They are
    /// as many times faster as they have processors.
    pub bags: BTreeMap<JobId, u32>,
    /// The scheduler is called this often and wherever a part ends, and not
    /// after answers: as ElastiSim does. Whenever anything has happened, if it
    /// is `None`.
    pub every: Option<Duration>,
}

/// Draws what a negotiation costs and whether it comes to something.
#[derive(Debug)]
pub(super) struct Negotiator {
    costs: ChangeCosts,
    ramp: Option<(Ramp, Draws)>,
}

impl Negotiator {
    pub(super) fn of(rules: &Rules) -> Self {
        let ramp = rules.ramp.map(|ramp| (ramp, Draws::seeded(ramp.seed)));
        Self { costs: rules.costs, ramp }
    }

    pub(super) fn costs(&mut self) -> ChangeCosts {
        let Some((ramp, draws)) = &mut self.ramp else { return self.costs };
        let mut between = |least: Duration, most: Duration| draws.ramp_span([least, most]);
        ChangeCosts {
            negotiation: between(self.costs.negotiation, ramp.most.negotiation),
            adaptation: between(self.costs.adaptation, ramp.most.adaptation),
        }
    }

    pub(super) fn agrees(&mut self) -> bool {
        self.ramp.as_mut().is_none_or(|(ramp, draws)| draws.percent(ramp.success))
    }
}

impl From<ChangeCosts> for Rules {
    fn from(costs: ChangeCosts) -> Self {
        Self { costs, ..Self::default() }
    }
}

/// What a job was told to do about its size.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Grow(u32),
    Shrink(u32),
    Nothing,
}

impl Order {
    pub(super) fn after(self, request: &Request, size: u32) -> u32 {
        match self {
            Self::Grow(by) => size + request.sizes.taken(size, by),
            Self::Shrink(by) => size - request.sizes.given(size, by),
            Self::Nothing => size,
        }
    }
}

/// The part that a job is in.
#[derive(Debug)]
pub(super) struct Part {
    /// How long one takes on the preferred number of processors.
    pub(super) takes: Duration,
    /// How many there are to come, with this one.
    pub(super) left: u32,
    /// What is to be done at its end.
    pub(super) order: Option<Order>,
}
