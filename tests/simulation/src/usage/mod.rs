//! The path of usage records: a spool, a connection that breaks at any frame, and a
//! collector's log, the two of them on disks that fail.
//!
//! ```text
//! agent's disk ◄─ Spool ─ Exchange ═ frames ═ UsageStream ─ KeptLog ─► collector's disk
//! ```
//!
//! The promise it looks for: what the spool has saved is in the log, once, when all is
//! calm again, however often processes died and machines crashed, and whatever disk was
//! full or refused; what a flipped bit or an older copy took was told, and is all that
//! is missing; and two records are never known by the same life and number.

mod agent_side;
mod log_side;

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_agent_core::occupancy::Transition;
use gleaner_agent_core::spool::Exchange;
use gleaner_collector_core::stream::UsageStream;
use gleaner_common::disk::simulated::Draws;
use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::{UsageFrame, UsageReply};

pub(crate) use agent_side::AgentSide;
pub(crate) use log_side::LogSide;

/// So small that a test fills several segments.
const SEGMENT_BYTES_MAX: u64 = 2_000;

/// A fault comes once in so many steps.
const FAULT_EVERY: u64 = 12;

/// So many steps are enough for all that waits, once nothing fails.
const CALM_STEPS: u32 = 2_000;

/// Which faults there are: each seed draws its own.
#[expect(clippy::struct_excessive_bools, reason = "each kind of fault is there or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageFaults {
    pub cuts: bool,
    pub deaths: bool,
    pub crashes: bool,
    pub full: bool,
    pub refusals: bool,
    pub flips: bool,
    /// An older copy of the agent's disk takes its place.
    pub agent_restored: bool,
    /// An older copy of the collector's disk takes its place.
    pub collector_restored: bool,
}

impl UsageFaults {
    pub fn drawn(draws: &mut Draws) -> Self {
        let mut coin = || draws.one_in(2);
        let mut faults = Self {
            cuts: coin(),
            deaths: coin(),
            crashes: coin(),
            full: coin(),
            refusals: coin(),
            flips: coin(),
            agent_restored: coin(),
            collector_restored: coin(),
        };
        // Where both went back in time, nobody is left who could know.
        faults.collector_restored &= !faults.agent_restored;
        faults
    }
}

/// One stream, and what is on its way.
#[derive(Default)]
struct Stream {
    exchange: Exchange,
    intake: UsageStream,
    frames: VecDeque<UsageFrame>,
    replies: VecDeque<UsageReply>,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageOutcome {
    pub appended: usize,
    pub kept: usize,
    /// In memory only when its process died.
    pub never_saved: usize,
    /// On a disk that was damaged or went back in time.
    pub destroyed: usize,
    pub flips: usize,
    pub told: usize,
}

/// An agent's spool and its collector.
pub struct UsagePath {
    faults: UsageFaults,
    draws: Draws,
    agent: AgentSide,
    log: LogSide,
    stream: Option<Stream>,
}

impl UsagePath {
    /// # Panics
    /// Never: its own name is one.
    pub fn new(seed: u64, faults: UsageFaults) -> Self {
        let mut draws = Draws::new(seed);
        let name = "ada".parse().unwrap_or_else(|_| unreachable!("it is a name"));
        let agent = AgentSide::new(draws.any(), BootId([7; 16]));
        let log = LogSide::new(draws.any(), name, SEGMENT_BYTES_MAX);
        Self { faults, draws, agent, log, stream: None }
    }

    /// A storm of so many steps, and then a calm.
    ///
    /// # Panics
    /// A promise was broken.
    pub fn run(mut self, steps: u32) -> UsageOutcome {
        for _ in 0..steps {
            if self.draws.one_in(FAULT_EVERY) {
                self.fail();
            }
            self.step();
        }
        self.calm();
        self.log.judge(&self.agent)
    }

    fn fail(&mut self) {
        let faults = self.faults;
        match self.draws.below(12) {
            0 if faults.cuts => self.stream = None,
            1 if faults.deaths => {
                self.stream = None;
                self.agent.dies();
            }
            2 if faults.deaths => {
                self.stream = None;
                self.log.dies();
            }
            3 if faults.crashes => {
                let operations = self.draws.below(4);
                self.agent.disk.lose_power_after(u32::try_from(operations).unwrap_or(0));
            }
            4 if faults.crashes => {
                let operations = self.draws.below(4);
                self.log.disk.lose_power_after(u32::try_from(operations).unwrap_or(0));
            }
            5 if faults.full => {
                let free = (!self.draws.one_in(2)).then(|| self.draws.below(500));
                self.agent.disk.set_free(free);
            }
            6 if faults.full => {
                let free = (!self.draws.one_in(2)).then(|| self.draws.below(500));
                self.log.disk.set_free(free);
            }
            7 if faults.refusals => self.agent.disk.set_syncs_fail(self.draws.one_in(2)),
            8 if faults.refusals => self.log.disk.set_syncs_fail(self.draws.one_in(2)),
            9 if faults.flips && self.draws.one_in(2) => self.agent.flip_a_bit(),
            9 if faults.flips => self.log.flip_a_bit(),
            10 if faults.agent_restored => {
                let went = self.agent.goes_back(|| self.log.kept_tokens());
                self.stream.take_if(|_| went);
            }
            11 if faults.collector_restored => {
                let went = self.log.goes_back(&mut self.agent);
                self.stream.take_if(|_| went);
            }
            _ => {}
        }
    }

    /// One thing happens that should.
    fn step(&mut self) {
        self.start_what_is_dead();
        match self.draws.below(8) {
            0 | 1 => self.append(),
            2 => self.agent.save(),
            3 if self.stream.is_none() => self.stream = Some(Stream::default()),
            3 | 4 => self.agent_sends(),
            5 | 6 => self.collector_hears(),
            _ => self.agent_hears(),
        }
    }

    fn start_what_is_dead(&mut self) {
        let (of_agent, of_log) = (self.agent.disk.has_lost_power(), self.log.disk.has_lost_power());
        if of_agent {
            self.agent.loses_power();
        }
        if of_log {
            self.log.loses_power();
        }
        self.stream.take_if(|_| of_agent || of_log);
        self.agent.start();
        self.log.start();
    }

    fn append(&mut self) {
        let transition = Transition {
            cause: Cause::Tty,
            load: LoadAverages::default(),
            users: 0,
            input_idle: None,
            slots: 0,
            reason: String::new(),
            by_load: false,
        };
        self.agent.append(&transition, WallTime(0), Duration::ZERO);
    }

    fn agent_sends(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        stream.frames.extend(self.agent.next_frame(&mut stream.exchange));
    }

    fn collector_hears(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let Some(frame) = stream.frames.pop_front() else { return };
        stream.replies.push_back(self.log.take_in(&mut stream.intake, frame));
    }

    fn agent_hears(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let Some(reply) = stream.replies.pop_front() else { return };
        if self.agent.hear(&mut stream.exchange, reply).is_err() {
            self.stream = None;
        }
    }

    /// Nothing fails any more; everybody starts once more, so that what a bit or an
    /// older copy took is looked for.
    fn calm(&mut self) {
        for disk in [&mut self.agent.disk, &mut self.log.disk] {
            disk.set_free(None);
            disk.set_syncs_fail(false);
            disk.keep_power();
        }
        self.agent.save();
        self.agent.dies();
        self.log.dies();
        self.stream = None;
        let mut steps = 0;
        let mut idle = 0;
        // Idle with a stream that has nothing on its way, for long enough to be asked.
        while idle < 50 {
            self.start_what_is_dead();
            if self.stream.is_none() {
                self.stream = Some(Stream::default());
            }
            self.agent_sends();
            self.collector_hears();
            self.agent_hears();
            idle = if self.agent.is_empty() { idle + 1 } else { 0 };
            steps += 1;
            assert!(steps < CALM_STEPS, "records wait for ever");
        }
    }
}
