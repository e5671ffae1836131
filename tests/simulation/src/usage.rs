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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

use gleaner_agent_core::occupancy::Transition;
use gleaner_agent_core::spool::{Exchange, Note, Recorded, Spool};
use gleaner_collector_core::kept::{Arrived, KeptLog};
use gleaner_collector_core::log::{file_name, segments_of};
use gleaner_collector_core::name::WorkstationName;
use gleaner_collector_core::segment::{Entry, RecordView};
use gleaner_collector_core::stream::{Intake, UsageStream};
use gleaner_collector_core::summary::Segment;
use gleaner_common::disk::Disk as _;
use gleaner_common::disk::simulated::{DiskCopy, Draws, SimulatedDisk};
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::{UsageFrame, UsageReply};

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
    agent_disk: SimulatedDisk,
    collector_disk: SimulatedDisk,
    agent_copy: Option<(DiskCopy, BTreeSet<u64>)>,
    collector_copy: Option<DiskCopy>,
    spool: Option<Spool>,
    log: Option<KeptLog>,
    stream: Option<Stream>,
    name: WorkstationName,
    /// Every transition has a number of its own, in its reason.
    appended: u64,
    saved: BTreeSet<u64>,
    unsaved: BTreeSet<u64>,
    /// Destroyed with the only disk that had them.
    excused: BTreeSet<u64>,
    flips: usize,
    told: usize,
}

impl UsagePath {
    /// # Panics
    /// Never: its own name is one.
    pub fn new(seed: u64, faults: UsageFaults) -> Self {
        let mut draws = Draws::new(seed);
        let (agent_disk, collector_disk) =
            (SimulatedDisk::new(draws.any()), SimulatedDisk::new(draws.any()));
        let name = "ada".parse().unwrap_or_else(|_| unreachable!("it is a name"));
        Self {
            faults,
            draws,
            agent_disk,
            collector_disk,
            agent_copy: None,
            collector_copy: None,
            spool: None,
            log: None,
            stream: None,
            name,
            appended: 0,
            saved: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            excused: BTreeSet::new(),
            flips: 0,
            told: 0,
        }
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
        self.judge()
    }

    fn fail(&mut self) {
        let faults = self.faults;
        match self.draws.below(12) {
            0 if faults.cuts => self.stream = None,
            1 if faults.deaths => self.agent_dies(),
            2 if faults.deaths => self.collector_dies(),
            3 if faults.crashes => {
                self.agent_dies();
                self.agent_disk.crash();
            }
            4 if faults.crashes => {
                self.collector_dies();
                self.collector_disk.crash();
            }
            5 if faults.full => {
                let free = (!self.draws.one_in(2)).then(|| self.draws.below(500));
                self.agent_disk.set_free(free);
            }
            6 if faults.full => {
                let free = (!self.draws.one_in(2)).then(|| self.draws.below(500));
                self.collector_disk.set_free(free);
            }
            7 if faults.refusals => self.agent_disk.set_syncs_fail(self.draws.one_in(2)),
            8 if faults.refusals && self.log.is_some() => {
                self.collector_disk.set_syncs_fail(self.draws.one_in(2));
            }
            9 if faults.flips => {
                let of_agent = self.draws.one_in(2);
                let disk = if of_agent { &mut self.agent_disk } else { &mut self.collector_disk };
                self.flips += usize::from(disk.flip_a_bit());
            }
            10 if faults.agent_restored => self.agent_goes_back(),
            11 if faults.collector_restored => self.collector_goes_back(),
            _ => {}
        }
    }

    fn agent_dies(&mut self) {
        (self.spool, self.stream) = (None, None);
        self.unsaved.clear();
    }

    /// What a failed sync left can be read and is not on the disk: a process that dies
    /// in between would not know. That takes a disk that is broken, and then a crash.
    fn collector_dies(&mut self) {
        self.collector_disk.set_syncs_fail(false);
        if let Some(log) = &mut self.log {
            let _ = log.take_in(&mut self.collector_disk, []);
        }
        (self.log, self.stream) = (None, None);
    }

    fn agent_goes_back(&mut self) {
        if self.agent_copy.is_none() {
            self.agent_copy = Some((self.agent_disk.copy(), self.saved.clone()));
            return;
        }
        let Some((copy, had)) = self.agent_copy.take() else { return };
        self.agent_dies();
        self.agent_disk.restore(&copy);
        let kept = self.kept_tokens();
        self.excused.extend(self.saved.iter().filter(|t| !had.contains(t) && !kept.contains(t)));
    }

    fn collector_goes_back(&mut self) {
        let Some(copy) = self.collector_copy.take() else {
            self.collector_copy = Some(self.collector_disk.copy());
            return;
        };
        self.collector_dies();
        self.collector_disk.restore(&copy);
    }

    /// One thing happens that should.
    fn step(&mut self) {
        self.start_what_is_dead();
        match self.draws.below(8) {
            0 | 1 => self.append(),
            2 => self.save(),
            3 if self.stream.is_none() => self.stream = Some(Stream::default()),
            3 | 4 => self.agent_sends(),
            5 | 6 => self.collector_hears(),
            _ => self.agent_hears(),
        }
    }

    fn start_what_is_dead(&mut self) {
        if self.spool.is_none() {
            let life = self.drawn_life();
            let opened = Spool::open(&mut self.agent_disk, life, BootId([7; 16]));
            let (spool, notes) = opened.unwrap_or_else(|error| panic!("{error}"));
            self.spool = Some(spool);
            self.hear_notes(&notes);
        }
        if self.log.is_none() {
            let opened = KeptLog::open(&mut self.collector_disk, Path::new("ada"), &self.name);
            // A disk that refuses is asked again.
            self.log = opened.ok().map(|log| log.with_segment_bytes_max(SEGMENT_BYTES_MAX));
        }
        self.told += self.log.as_mut().map_or(0, |log| log.take_damage().len());
    }

    fn drawn_life(&mut self) -> SpoolLife {
        let (high, low) = (self.draws.any().to_le_bytes(), self.draws.any().to_le_bytes());
        let mut life = [0; 16];
        life[..8].copy_from_slice(&high);
        life[8..].copy_from_slice(&low);
        SpoolLife(life)
    }

    fn hear_notes<'a>(&mut self, notes: impl IntoIterator<Item = &'a Note>) {
        for note in notes {
            assert!(!matches!(note, Note::Nonsense { .. }), "{note}");
            self.told += usize::from(note.is_trouble());
        }
    }

    fn append(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        self.appended += 1;
        let transition = Transition {
            cause: Cause::Tty,
            load: LoadAverages::default(),
            users: 0,
            input_idle: None,
            slots: 0,
            reason: self.appended.to_string(),
            by_load: false,
        };
        let since_boot = Duration::from_secs(self.appended);
        let note = spool
            .append(&mut self.agent_disk, &Recorded { transition, wall: WallTime(0), since_boot });
        self.unsaved.insert(self.appended);
        self.see_what_is_saved(note.as_ref());
    }

    fn save(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        let note = spool.save(&mut self.agent_disk);
        self.see_what_is_saved(note.as_ref());
    }

    fn see_what_is_saved(&mut self, note: Option<&Note>) {
        self.hear_notes(note);
        if self.spool.as_ref().is_some_and(|spool| !spool.has_unsaved()) {
            self.saved.append(&mut self.unsaved);
        }
    }

    fn agent_sends(&mut self) {
        let (Some(stream), Some(spool)) = (&mut self.stream, &mut self.spool) else { return };
        let Some(frame) = stream.exchange.next_frame(spool) else { return };
        if let UsageFrame::Records(records) = &frame {
            for record in records {
                let token = token(&record.reason);
                assert!(!self.unsaved.contains(&token), "{token} was sent and not saved");
            }
        }
        stream.frames.push_back(frame);
    }

    fn collector_hears(&mut self) {
        let (Some(stream), Some(log)) = (&mut self.stream, &mut self.log) else { return };
        let Some(frame) = stream.frames.pop_front() else { return };
        let disk = &mut self.collector_disk;
        let heard = stream.intake.hear(frame).unwrap_or_else(|error| panic!("{error}"));
        let reply = match heard {
            Intake::Answer(reply) => reply,
            Intake::Lives(lives) => {
                match log.take_in(disk, [Arrived { lives: &lives, records: &[] }]) {
                    Ok(mut appended) => {
                        self.told += usize::from(appended[0].gone > 0);
                        stream.intake.looked_up(appended.remove(0))
                    }
                    Err(error) => UsageReply::Deferred { reason: error.to_string() },
                }
            }
            Intake::Records(range, records) => {
                match log.take_in(disk, [Arrived { lives: &[], records: &records }]) {
                    Ok(_) => stream.intake.kept(range).0,
                    Err(error) => {
                        let failed = stream.intake.failed(range, error.to_string());
                        failed.unwrap_or_else(|error| panic!("{error}")).0
                    }
                }
            }
        };
        stream.replies.push_back(reply);
    }

    fn agent_hears(&mut self) {
        let fresh = self.drawn_life();
        let (Some(stream), Some(spool)) = (&mut self.stream, &mut self.spool) else { return };
        let Some(reply) = stream.replies.pop_front() else { return };
        match stream.exchange.hear(&mut self.agent_disk, spool, reply, fresh) {
            Ok(notes) => {
                self.hear_notes(&notes);
                self.see_what_is_saved(None);
            }
            Err(_) => self.stream = None,
        }
    }

    /// Nothing fails any more; everybody starts once more, so that what a bit or an
    /// older copy took is looked for.
    fn calm(&mut self) {
        self.agent_disk.set_free(None);
        self.collector_disk.set_free(None);
        self.agent_disk.set_syncs_fail(false);
        self.save();
        self.agent_dies();
        self.collector_dies();
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
            let is_empty = self.spool.as_ref().is_some_and(Spool::is_empty);
            idle = if is_empty { idle + 1 } else { 0 };
            steps += 1;
            assert!(steps < CALM_STEPS, "records wait for ever");
        }
    }

    fn judge(mut self) -> UsageOutcome {
        let mut times: BTreeMap<u64, u32> = BTreeMap::new();
        let mut identities = BTreeMap::new();
        let damaged = self.read_log(|record| {
            let token = token(record.numbered.reason);
            *times.entry(token).or_default() += 1;
            let identity = (record.life, record.numbered.sequence);
            let before = identities.insert(identity, token);
            assert_eq!(before.unwrap_or(token), token, "{identity:?} is of two records");
        });
        self.told += damaged;
        for (token, times) in &times {
            assert_eq!(*times, 1, "{token} is in the log so often");
        }
        let lacks = |token: &&u64| !times.contains_key(*token) && !self.excused.contains(*token);
        let missing: Vec<_> = self.saved.iter().filter(lacks).collect();
        let (flips, told) = (self.flips, self.told);
        assert!(missing.len() <= flips, "{flips} flipped bits took {missing:?}");
        assert!(missing.is_empty() || told > 0, "{missing:?} are missing, and nobody was told");
        UsageOutcome {
            appended: usize::try_from(self.appended).unwrap_or(usize::MAX),
            kept: times.len(),
            never_saved: usize::try_from(self.appended).unwrap_or(0) - self.saved.len(),
            destroyed: missing.len() + self.excused.len(),
            flips,
            told,
        }
    }

    fn kept_tokens(&mut self) -> BTreeSet<u64> {
        let mut tokens = BTreeSet::new();
        self.read_log(|record| {
            tokens.insert(token(record.numbered.reason));
        });
        tokens
    }

    /// Gives each record of the log; returns how many stretches are damaged.
    fn read_log(&mut self, mut each: impl FnMut(&RecordView<'_>)) -> usize {
        let disk = &mut self.collector_disk;
        let mut damaged = 0;
        let names = disk.list().unwrap_or_default();
        for number in segments_of(names.iter().map(String::as_str)) {
            let name = file_name(number);
            let Ok(Some(bytes)) = disk.read(&name) else { continue };
            let segment = Segment::of(Path::new(&name), bytes, &self.name)
                .unwrap_or_else(|error| panic!("{error}"));
            for entry in segment.entries() {
                match entry {
                    Ok(Entry::Record(record)) => each(&record),
                    Ok(Entry::Given(_)) => {}
                    Err(_) => damaged += 1,
                }
            }
        }
        damaged
    }
}

fn token(reason: &str) -> u64 {
    reason.parse().unwrap_or_else(|_| panic!("`{reason}` is no number"))
}
