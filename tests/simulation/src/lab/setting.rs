//! What a lab is like: how large, for how long, and what goes wrong in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_coordinator_core::Config;

use super::troubles::Trouble;

/// How often each trouble comes, on average; never, if it is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles(BTreeMap<Trouble, Duration>);

impl Troubles {
    #[must_use]
    pub fn with(mut self, trouble: Trouble, every: Duration) -> Self {
        self.0.insert(trouble, every);
        self
    }

    #[must_use]
    pub fn without(mut self, trouble: Trouble) -> Self {
        self.0.remove(&trouble);
        self
    }

    pub fn every(&self, trouble: Trouble) -> Option<Duration> {
        self.0.get(&trouble).copied()
    }

    pub fn kinds(&self) -> impl Iterator<Item = Trouble> + '_ {
        self.0.keys().copied()
    }
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub hosts: u32,
    /// So many are submitted in each storm, and between two storms.
    pub jobs: u32,
    pub quiet_jobs: u32,
    /// A lab's life: a storm, then a calm in which all work must finish, and
    /// then a quiet time until the next storm; so often.
    pub rounds: u32,
    pub storm: Duration,
    /// How long a calm may take; `None`: as long as [`super::bound`] says.
    pub calm: Option<Duration>,
    pub quiet: Duration,
    /// The longest a guest runs, of jobs submitted in storms and between them.
    pub work_max: Duration,
    pub quiet_work_max: Duration,
    /// How many subprograms a job has at most.
    pub subprograms_max: u32,
    pub config: Config,
    pub troubles: Troubles,
    pub quiet_troubles: Troubles,
    /// How often a frame is on its way for up to fifteen seconds.
    pub late_frames: f64,
    /// How often a frame comes twice.
    pub repeats: f64,
    /// How many of the jobs are programs of ranks.
    pub programs: f64,
    /// And how many of those may be given more places, or fewer.
    pub increases: f64,
    /// How many of all jobs move when an owner comes, beside those that do anyway.
    pub moves: f64,
    /// How often a guest cannot be carried, or is not taken in.
    pub obstacles: f64,
    /// How often a guest fails by itself.
    pub failures: f64,
    /// The longest that the coordinator is away.
    pub away: Duration,
    /// How long nobody must have touched anything, and the longest that an
    /// owner stays.
    pub owner_quiet: Duration,
    pub owner_stays: Duration,
    /// The longest that a machine sleeps.
    pub sleeps: Duration,
    /// How much faster or slower clocks go, at most, in millionths.
    pub drift_ppm: i64,
    /// The first job kills every agent that starts one of it.
    pub killer: bool,
    /// How many of the jobs that are no programs are replicated, on how many
    /// workstations at most, and how many hosts lie about what came of it.
    pub replicated: f64,
    pub replicas_max: u8,
    pub liars: u32,
    /// The first job is one user's, of so many subprograms; each of the others is
    /// another's, of a single one.
    pub crowd: Option<u32>,
    /// On so many hosts, every guest fails at once, and the agents do not know why.
    pub black_holes: u32,
    /// How many of the jobs ask for two cores or for memory.
    pub large: f64,
    /// How many machines there are that only enrol, have their keys replaced and go.
    pub newcomers: u32,
    /// How many users submit.
    pub users: u32,
    /// Where a disk's older copy comes back, it is the collector's; and otherwise an
    /// agent's. Where both went back, nobody is left who could know.
    pub collector_goes_back: bool,
    /// How often nobody sees to the clock where an older copy of the store comes back
    /// that nobody marked.
    pub clocks_behind: f64,
    /// Faults that are left out, by their numbers.
    pub without: BTreeSet<u64>,
    /// After how many steps everything is looked at, and not only what a step
    /// touched.
    pub check_all_every: u64,
    /// Prints everything that happens.
    pub trace: bool,
}

impl Default for Setting {
    /// A lab of some size where nothing goes wrong.
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            hosts: 12,
            jobs: 10,
            quiet_jobs: 0,
            rounds: 1,
            storm: s(120),
            calm: None,
            quiet: Duration::ZERO,
            work_max: s(20),
            quiet_work_max: s(20),
            subprograms_max: 150,
            config: Config::default(),
            troubles: Troubles::default(),
            quiet_troubles: Troubles::default(),
            late_frames: 0.0,
            repeats: 0.01,
            programs: 0.0,
            increases: 0.3,
            moves: 0.0,
            obstacles: 0.0,
            failures: 0.0,
            away: s(15),
            owner_quiet: s(2),
            owner_stays: s(30),
            sleeps: s(30),
            drift_ppm: 0,
            killer: false,
            replicated: 0.0,
            replicas_max: 3,
            liars: 0,
            crowd: None,
            black_holes: 0,
            large: 0.0,
            newcomers: 0,
            users: 1,
            collector_goes_back: false,
            clocks_behind: 0.0,
            without: BTreeSet::new(),
            check_all_every: 4_096,
            trace: false,
        }
    }
}
