//! Usage records of a lab: from agents' spools, over streams that the coordinator
//! passes on, to the collector's logs. Each of them has a disk of its own.
//!
//! ```text
//! recorded ─► AgentSide ═ the agent's connection ═ relay ═ the collector's ═ LogSide
//! ```
//!
//! A stream lasts as long as both connections do, and has one frame on its way at a
//! time; frames of an older stream may come after those of its successor.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_agent_core::occupancy::Transition;
use gleaner_agent_core::spool::Exchange;
use gleaner_collector_core::stream::UsageStream;
use gleaner_common::disk::simulated::SimulatedDisk;
use gleaner_common::id::BootId;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::{UsageFrame, UsageReply};
use gleaner_coordinator_core::Link;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::bound::{IDLE_TIMEOUT, RECONNECTED};
use super::invariant::holds;
use super::network::{Way, Ways, delay};
use super::setting::Setting;
use super::{Happening, Lab, Local, index_of};
use crate::usage::{AgentSide, LogSide};

/// No collector, or one whose disk is full: as production has it.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A disk that was full is tried again, as production does it.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// Streams of one agent that may still have something under way.
const STREAMS_MAX: usize = 8;

/// At an agent.
#[derive(Debug)]
pub(crate) enum AtAgent {
    Records(Box<Transition>, WallTime),
    Saves,
    Opens,
    Hears(u64, UsageReply),
    /// The stream was given up at its other end.
    Loses(u64),
}

/// On the way between an agent and the collector, and at the collector.
#[derive(Debug)]
pub(crate) enum OnTheWay {
    /// At the coordinator, from an agent.
    Up {
        from: Link,
        stream: u64,
        frame: UsageFrame,
    },
    /// At the collector, over this connection of its.
    Arrives {
        over: u64,
        stream: u64,
        frame: UsageFrame,
    },
    /// At the coordinator, from the collector.
    Back {
        over: u64,
        stream: u64,
        reply: UsageReply,
    },
    CollectorDials,
    /// The coordinator notices that this connection is over.
    CollectorLost(u64),
    CollectorStarts,
    Heals(Which),
}

/// Whose disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Agent(usize),
    Collector,
}

/// What an agent has beside its spool.
#[derive(Debug)]
struct Sender {
    side: AgentSide,
    stream: Option<(u64, Exchange)>,
    /// On this stream both ends know what the other has.
    agreed: bool,
    retry: Duration,
    saves: bool,
    /// The disk takes one thing after the other.
    writes_until: Moment,
}

/// A stream, as the coordinator and the collector know it.
#[derive(Debug)]
struct Relayed {
    from: Link,
    over: u64,
    intake: UsageStream,
}

#[derive(Debug)]
pub(crate) struct Usage {
    rng: SmallRng,
    senders: Vec<Sender>,
    logs: Vec<LogSide>,
    relayed: BTreeMap<u64, Relayed>,
    numbers: u64,
    /// The collector's process lives.
    is_up: bool,
    /// Its connection, if it is whole, and the one that the coordinator believes in.
    link: Option<u64>,
    believed: Option<u64>,
    ways: Ways,
    /// Records that were found in its logs last.
    pub(super) kept: usize,
}

impl Usage {
    pub(super) fn new(seed: u64, setting: &Setting) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x05A6_E0DA_7A00);
        let bytes_max = if rng.random_bool(0.5) { 2_000 } else { 64_000 };
        let sender = |id: u32, rng: &mut SmallRng| Sender {
            side: AgentSide::new(rng.random(), BootId([u8::try_from(id).unwrap_or(0); 16])),
            stream: None,
            agreed: false,
            retry: RETRY_FIRST,
            saves: false,
            writes_until: Moment::ZERO,
        };
        let log = |id: u32, rng: &mut SmallRng| {
            let name = format!("host{id}").parse().expect("it is a name");
            LogSide::new(rng.random(), name, bytes_max)
        };
        Self {
            senders: (1..=setting.hosts).map(|id| sender(id, &mut rng)).collect(),
            logs: (1..=setting.hosts).map(|id| log(id, &mut rng)).collect(),
            rng,
            relayed: BTreeMap::new(),
            numbers: 0,
            is_up: false,
            link: None,
            believed: None,
            ways: Ways::default(),
            kept: 0,
        }
    }

    /// A copy of a machine records nothing here.
    pub(super) fn is_of(&self, index: usize) -> bool {
        index < self.senders.len()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random::<f64>())
    }

    /// An agent's process begins: its spool is opened before anything else. False if
    /// its machine died of that.
    pub(super) fn agent_starts(&mut self, index: usize) -> bool {
        if !self.is_of(index) {
            return true;
        }
        let side = &mut self.senders[index].side;
        side.start();
        !side.disk.has_lost_power()
    }

    pub(super) fn agent_dies(&mut self, index: usize) {
        let Some(sender) = self.senders.get_mut(index) else { return };
        sender.side.dies();
        (sender.stream, sender.retry, sender.saves) = (None, RETRY_FIRST, false);
        sender.agreed = false;
    }

    pub(super) fn agent_loses(&mut self, index: usize) {
        if let Some(sender) = self.senders.get_mut(index) {
            sender.stream = None;
        }
    }

    /// Nothing that was under way reaches the next life.
    pub(super) fn coordinator_dies(&mut self) {
        self.relayed.clear();
        self.believed = None;
    }

    /// Everything that was recorded is with the collector, as far as is known.
    fn is_done(&self) -> bool {
        self.senders.iter().all(|sender| {
            let over = sender.stream.as_ref().and_then(|(it, _)| self.relayed.get(it));
            let is_whole = over.is_some_and(|it| self.link == Some(it.over));
            is_whole && sender.agreed && sender.side.is_empty()
        })
    }
}

// ── at an agent ────────────────────────────────────────────────────────────

impl Lab {
    /// A transition is to be kept: on the disk first, without anybody waiting.
    pub(super) fn recorded(&mut self, index: usize, transition: Transition) {
        if !self.usage.is_of(index) {
            return;
        }
        let after = self.usage.up_to(Duration::from_millis(20));
        let (at, wall) = (self.now + after, self.wall());
        let sender = &mut self.usage.senders[index];
        sender.writes_until = sender.writes_until.max(at);
        let (at, what) = (sender.writes_until, AtAgent::Records(Box::new(transition), wall));
        self.plan_here_at(index, at, Local::Usage(what));
    }

    pub(super) fn usage_at_agent(&mut self, index: usize, what: AtAgent) {
        let now = self.now;
        let sender = &mut self.usage.senders[index];
        match what {
            AtAgent::Records(transition, wall) => {
                sender.side.append(&transition, wall, now.since(Moment::ZERO));
            }
            AtAgent::Saves => {
                sender.saves = false;
                sender.side.save();
            }
            AtAgent::Opens => {
                if self.hosts[index].link.is_none() || sender.stream.is_some() {
                    return;
                }
                let number = self.usage.number();
                let sender = &mut self.usage.senders[index];
                (sender.stream, sender.agreed) = (Some((number, Exchange::default())), false);
            }
            AtAgent::Hears(number, reply) => {
                let known = sender.stream.as_mut().filter(|(known, _)| *known == number);
                let Some((_, exchange)) = known else { return };
                if matches!(reply, UsageReply::Confirmed { .. }) {
                    sender.retry = RETRY_FIRST;
                }
                sender.agreed |= matches!(reply, UsageReply::Kept(_));
                if sender.side.hear(exchange, reply).is_err() {
                    self.usage_opens_later(index);
                }
            }
            AtAgent::Loses(number) => {
                if sender.stream.as_ref().is_some_and(|(known, _)| *known == number) {
                    self.usage_opens_later(index);
                }
            }
        }
        if self.usage.senders[index].side.disk.has_lost_power() {
            return self.agent_loses_power(index);
        }
        self.usage_sends(index);
    }

    fn usage_opens_later(&mut self, index: usize) {
        let sender = &mut self.usage.senders[index];
        sender.stream = None;
        let after = sender.retry;
        sender.retry = (after * 2).min(RETRY_MAX);
        self.plan_here(index, after, Local::Usage(AtAgent::Opens));
    }

    fn usage_sends(&mut self, index: usize) {
        let sender = &mut self.usage.senders[index];
        if sender.side.has_unsaved() && !std::mem::replace(&mut sender.saves, true) {
            self.plan_here(index, SAVE_AGAIN, Local::Usage(AtAgent::Saves));
        }
        let sender = &mut self.usage.senders[index];
        let Some((stream, exchange)) = &mut sender.stream else { return };
        let Some(frame) = sender.side.next_frame(exchange) else { return };
        self.history.frame(&frame);
        let (Some(from), stream) = (self.hosts[index].link, *stream) else { return };
        if self.wires.get(&from).is_some_and(|wire| !wire.up_gone) {
            let at = self.usage_passes(self.hosts[index].ways, Way::Up);
            self.plan_at(at, Happening::Usage(OnTheWay::Up { from, stream, frame }));
        }
    }

    pub(super) fn agent_loses_power(&mut self, index: usize) {
        self.agent_crashes(index);
        self.boots_anew(index);
        self.usage.senders[index].side.loses_power();
    }

    // ── on the way ─────────────────────────────────────────────────────────

    fn usage_passes(&mut self, ways: Ways, way: Way) -> Moment {
        let late = (!self.calm).then_some(self.setting.late_frames);
        let takes = delay(&mut self.usage.rng, late);
        ways.passes(self.now, takes, way, &mut self.usage.rng)
    }

    pub(super) fn usage_on_the_way(&mut self, what: OnTheWay) {
        match what {
            OnTheWay::Up { from, stream, frame } => self.usage_relays(from, stream, frame),
            OnTheWay::Arrives { over, stream, frame } => self.usage_arrives(over, stream, frame),
            OnTheWay::Back { over, stream, reply } => {
                let usage = &self.usage;
                let known = usage.relayed.get(&stream).filter(|it| it.over == over);
                let Some(from) = known.map(|it| it.from) else { return };
                self.usage_answers(from, AtAgent::Hears(stream, reply));
            }
            OnTheWay::CollectorDials => self.collector_dials(),
            OnTheWay::CollectorLost(over) => self.collector_lost(over),
            OnTheWay::CollectorStarts => self.collector_starts(),
            OnTheWay::Heals(which) => self.disk_heals(which),
        }
    }

    /// The coordinator passes it on, or says that there is no collector.
    fn usage_relays(&mut self, from: Link, stream: u64, frame: UsageFrame) {
        if !self.wires.contains_key(&from) {
            return;
        }
        let usage = &mut self.usage;
        if let Some(over) = usage.believed
            && !usage.relayed.contains_key(&stream)
        {
            let relayed = Relayed { from, over, intake: UsageStream::default() };
            usage.relayed.insert(stream, relayed);
            let of_agent = usage.relayed.iter().filter(|(_, it)| it.from == from);
            let oldest = of_agent.clone().next().map(|(stream, _)| *stream);
            if of_agent.count() > STREAMS_MAX {
                usage.relayed.remove(&oldest.expect("there are several"));
            }
        }
        match usage.relayed.get(&stream).map(|it| it.over) {
            Some(over) if usage.believed == Some(over) => {
                let at = self.usage_passes(self.usage.ways, Way::Down);
                self.plan_at(at, Happening::Usage(OnTheWay::Arrives { over, stream, frame }));
            }
            _ => self.usage_answers(from, AtAgent::Loses(stream)),
        }
    }

    fn usage_answers(&mut self, to: Link, what: AtAgent) {
        let index = index_of(to);
        let is_whole = self.wires.get(&to).is_some_and(|wire| !wire.down_gone);
        if is_whole && self.hosts[index].link == Some(to) {
            let at = self.usage_passes(self.hosts[index].ways, Way::Down);
            self.plan_here_at(index, at, Local::Usage(what));
        }
    }

    // ── at the collector ───────────────────────────────────────────────────

    fn usage_arrives(&mut self, over: u64, stream: u64, frame: UsageFrame) {
        let usage = &mut self.usage;
        if usage.link != Some(over) {
            return;
        }
        let Some(relayed) = usage.relayed.get_mut(&stream) else { return };
        let log = &mut usage.logs[relayed.from.workstation.0 as usize - 1];
        let reply = log.take_in(&mut relayed.intake, frame);
        if log.disk.has_lost_power() {
            return self.collector_dies(true);
        }
        self.history.frame(&reply);
        let at = self.usage_passes(self.usage.ways, Way::Up);
        self.plan_at(at, Happening::Usage(OnTheWay::Back { over, stream, reply }));
    }

    pub(super) fn collector_starts(&mut self) {
        if !std::mem::replace(&mut self.usage.is_up, true) {
            self.usage.logs.iter_mut().for_each(LogSide::start);
            if self.usage.logs.iter().any(|log| log.disk.has_lost_power()) {
                return self.collector_dies(true);
            }
            self.collector_dials();
        }
    }

    /// Its process dies, or its machine.
    pub(super) fn collector_dies(&mut self, power: bool) {
        self.usage.is_up = false;
        for log in &mut self.usage.logs {
            if power {
                log.loses_power();
            } else {
                log.dies();
            }
        }
        self.collector_is_cut();
        let after = self.usage.up_to(self.setting.away);
        self.plan(after, Happening::Usage(OnTheWay::CollectorStarts));
    }

    fn collector_dials(&mut self) {
        if !self.usage.is_up || self.usage.link.is_some() {
            return;
        }
        if self.core.is_none() || self.usage.ways.is_silent(self.now) {
            let after = self.usage.up_to(Duration::from_secs(2));
            return self.plan(after, Happening::Usage(OnTheWay::CollectorDials));
        }
        let over = self.usage.number();
        if let Some(older) = self.usage.believed {
            self.collector_lost(older);
        }
        (self.usage.link, self.usage.believed) = (Some(over), Some(over));
    }

    /// Its connection breaks, and each end finds out in its own time.
    pub(super) fn collector_is_cut(&mut self) {
        let Some(over) = self.usage.link.take() else { return };
        let dials = self.usage.up_to(Duration::from_secs(15));
        self.plan(dials, Happening::Usage(OnTheWay::CollectorDials));
        let noticed = self.usage.up_to(Duration::from_secs(20));
        self.plan(noticed, Happening::Usage(OnTheWay::CollectorLost(over)));
    }

    /// Nothing comes through these ways for so long.
    pub(super) fn collector_falls_silent(&mut self, ways: &[Way], long: Duration) {
        self.usage.ways.silent(ways, self.now + long);
        if long >= IDLE_TIMEOUT {
            self.collector_is_cut();
        }
    }

    pub(super) fn collector_loses_frames(&mut self, long: Duration, loss: f64) {
        self.usage.ways.lossy(self.now + long, loss);
    }

    /// Its streams are given up.
    fn collector_lost(&mut self, over: u64) {
        self.usage.believed.take_if(|believed| *believed == over);
        let all = &mut self.usage.relayed;
        let lost: Vec<_> = all.extract_if(.., |_, relayed| relayed.over == over).collect();
        for (stream, relayed) in lost {
            self.usage_answers(relayed.from, AtAgent::Loses(stream));
        }
    }

    // ── disks ──────────────────────────────────────────────────────────────

    fn disks(&mut self, which: Which, act: impl Fn(&mut SimulatedDisk)) {
        match which {
            Which::Agent(index) => act(&mut self.usage.senders[index].side.disk),
            Which::Collector => self.usage.logs.iter_mut().for_each(|log| act(&mut log.disk)),
        }
    }

    pub(super) fn disk_is_full(&mut self, which: Which, free: u64, long: Duration) {
        self.disks(which, |disk| disk.set_free(Some(free)));
        self.plan(long, Happening::Usage(OnTheWay::Heals(which)));
    }

    pub(super) fn disk_refuses(&mut self, which: Which, long: Duration) {
        self.disks(which, |disk| disk.set_syncs_fail(true));
        self.plan(long, Happening::Usage(OnTheWay::Heals(which)));
    }

    fn disk_heals(&mut self, which: Which) {
        self.disks(which, |disk| {
            disk.set_free(None);
            disk.set_syncs_fail(false);
        });
    }

    /// One bit of what one workstation has, or the collector has of it.
    pub(super) fn a_bit_flips(&mut self, index: usize, of_collector: bool) {
        if of_collector {
            self.usage.logs[index].flip_a_bit();
        } else {
            self.usage.senders[index].side.flip_a_bit();
        }
    }

    /// The power goes: in the middle of one of the next operations of the disk, or
    /// at once.
    pub(super) fn power_goes(&mut self, which: Which, operations: u32) {
        if operations > 0 {
            return self.disks(which, |disk| disk.lose_power_after(operations));
        }
        match which {
            Which::Agent(index) => self.agent_loses_power(index),
            Which::Collector => self.collector_dies(true),
        }
    }

    /// An older copy of a disk takes its place, or one is taken.
    pub(super) fn a_disk_goes_back(&mut self, index: usize) {
        let Usage { senders, logs, .. } = &mut self.usage;
        if !self.setting.collector_goes_back {
            let log = &mut logs[index];
            if senders[index].side.goes_back(|| log.kept_tokens()) {
                self.agent_crashes(index);
            }
            return;
        }
        let mut went = false;
        for (sender, log) in senders.iter_mut().zip(logs) {
            went |= log.goes_back(&mut sender.side);
        }
        if went {
            self.collector_dies(false);
        }
    }

    // ── the calm ───────────────────────────────────────────────────────────

    pub(super) fn usage_becomes_calm(&mut self) {
        self.usage.ways.heal(self.now);
        for which in (0..self.usage.senders.len()).map(Which::Agent).chain([Which::Collector]) {
            self.disk_heals(which);
            self.disks(which, SimulatedDisk::keep_power);
        }
        self.plan(Duration::ZERO, Happening::Usage(OnTheWay::CollectorStarts));
    }

    /// The collector starts once more, so that what a bit took is looked for; then all
    /// that was recorded comes.
    pub(super) fn usage_comes(&mut self) {
        self.collector_dies(false);
        let bound = RECONNECTED + RETRY_MAX + self.setting.away + self.let_in_within();
        self.run_until(self.now + bound, |lab| lab.is_done() && lab.usage.is_done());
        let left: Vec<_> = self.usage.senders.iter().map(|it| &it.side).collect();
        holds!(UsageSequence, self.usage.is_done(), "records wait for ever: {left:?}");
        let both = self.usage.logs.iter_mut().zip(&self.usage.senders);
        self.usage.kept = both.map(|(log, sender)| log.judge(&sender.side).kept).sum();
    }
}
