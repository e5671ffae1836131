//! Watching an execution: for charts, and for comparing simulators.

/// Sees everything that happens.
///
/// What happens to one rank comes in order of time. Ranks run ahead of each
/// other, so sort by time before drawing all of them.
pub trait Observer {
    fn observe(&mut self, observed: Observed);
}

/// Nobody watches.
impl Observer for () {
    #[inline(always)]
    fn observe(&mut self, _: Observed) {}
}

impl Observer for Vec<Observed> {
    fn observe(&mut self, observed: Observed) {
        self.push(observed);
    }
}

/// Something that happened to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Nanoseconds from the start of the lab's period.
    pub at: u64,
    pub rank: u32,
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The rank begins its first step, here.
    Began {
        workstation: u32,
    },
    /// The rank finds no idle workstation and begins to wait for one.
    Waits,
    /// The rank's workstation is busy: it just turned so, or was so on arrival.
    OwnerReturned {
        workstation: u32,
    },
    /// The rank is frozen where it is.
    Froze,
    /// The rank runs on where it is, demoted.
    WasDemoted,
    /// The owner left: the rank goes on where it is, at full speed.
    Resumed,
    /// The rank leaves for a workstation, where it can go on at `until`.
    Moves {
        to: u32,
        until: u64,
    },
    /// The rank goes on here.
    Arrived {
        workstation: u32,
    },
    /// The rank's subtask begins anew; so much work is lost.
    Lost {
        work: u64,
    },
    Sent {
        message: u32,
    },
    Received {
        message: u32,
    },
    /// The rank let another one begin.
    Spawned {
        rank: u32,
    },
    Finished,
}
