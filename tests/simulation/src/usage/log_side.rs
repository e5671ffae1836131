//! A workstation's log on the collector's disk, which fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gleaner_collector_core::kept::{Arrived, KeptLog};
use gleaner_collector_core::log::{Appended, file_name, segments_of};
use gleaner_collector_core::name::WorkstationName;
use gleaner_collector_core::segment::{Entry, RecordView};
use gleaner_collector_core::stream::{Intake, UsageStream};
use gleaner_collector_core::summary::Segment;
use gleaner_common::disk::Disk as _;
use gleaner_common::disk::simulated::{DiskCopy, SimulatedDisk};
use gleaner_common::id::SpoolLife;
use gleaner_common::usage::LifeKept;
use gleaner_common::wire::{UsageFrame, UsageReply};

use super::UsageOutcome;
use super::agent_side::{AgentSide, token};
use crate::lab::invariant::holds;

/// The collector's end of the path.
#[derive(Debug)]
pub(crate) struct LogSide {
    pub(crate) disk: SimulatedDisk,
    log: Option<KeptLog>,
    name: WorkstationName,
    segment_bytes_max: u64,
    copy: Option<DiskCopy>,
    /// What was confirmed, and not destroyed since.
    confirmed: BTreeSet<u64>,
    flips: usize,
    told: usize,
}

impl LogSide {
    pub(crate) fn new(seed: u64, name: WorkstationName, segment_bytes_max: u64) -> Self {
        let (disk, log, copy) = (SimulatedDisk::new(seed), None, None);
        let confirmed = BTreeSet::new();
        Self { disk, log, name, segment_bytes_max, copy, confirmed, flips: 0, told: 0 }
    }

    /// Opens the log, unless it is open. A disk that refuses is asked again.
    pub(crate) fn start(&mut self) {
        if self.log.is_none() {
            let directory = Path::new(self.name.as_str());
            let opened = KeptLog::open(&mut self.disk, directory, &self.name);
            self.log = opened.ok().map(|log| log.with_segment_bytes_max(self.segment_bytes_max));
            self.looks_through();
        }
        self.told += self.log.as_mut().map_or(0, |log| log.take_damage().len());
    }

    /// As a collector does at its start, and once a day.
    fn looks_through(&mut self) {
        let Some(log) = &mut self.log else { return };
        while log.look(&mut self.disk).is_ok() && log.has_more_to_look_through() {}
    }

    /// What a failed sync left can be read and is not on the disk: a process that dies
    /// in between would not know. That takes a disk that is broken, and then a crash.
    pub(crate) fn dies(&mut self) {
        self.disk.set_syncs_fail(false);
        if let Some(log) = &mut self.log {
            let _ = log.take_in(&mut self.disk, []);
        }
        self.log = None;
    }

    /// What was confirmed outlasts it, whatever its agent still has.
    pub(crate) fn loses_power(&mut self) {
        self.dies();
        self.disk.crash();
        let kept = self.kept_tokens();
        let lost: Vec<_> = self.confirmed.difference(&kept).copied().collect();
        let (few, name) = (lost.len() <= self.flips, &self.name);
        holds!(UsageSequence, few, "{lost:?} of {name} were confirmed, and the power took them");
        self.confirmed = kept;
    }

    pub(crate) fn flip_a_bit(&mut self) {
        self.flips += usize::from(self.disk.flip_a_bit());
    }

    /// An older copy of the disk takes its place, or one is taken. What was confirmed
    /// since then comes again, as far as its agent has it. False if nothing went back.
    pub(crate) fn goes_back(&mut self, agent: &mut AgentSide) -> bool {
        let Some(copy) = self.copy.take() else {
            self.copy = Some(self.disk.copy());
            return false;
        };
        self.dies();
        let before = self.kept_tokens();
        self.disk.restore(&copy);
        let after = self.kept_tokens();
        self.confirmed.clone_from(&after);
        // The last that were confirmed stay with their agent, as the spool promises.
        let gone = before.iter().rev().skip(agent.bounds.confirmed_kept);
        let lost: Vec<u64> = gone.filter(|token| !after.contains(token)).copied().collect();
        agent.excused.extend(lost);
        true
    }

    /// What a stream brings is kept or not, and answered.
    pub(crate) fn take_in(&mut self, stream: &mut UsageStream, frame: UsageFrame) -> UsageReply {
        self.start();
        let heard = stream.hear(frame).unwrap_or_else(|error| panic!("{error}"));
        match heard {
            Intake::Answer(reply) => reply,
            Intake::Lives(lives) => match self.keep(Arrived { lives: &lives, records: &[] }) {
                Ok(appended) => {
                    self.told += usize::from(appended.gone > 0);
                    self.has(&appended.kept);
                    stream.looked_up(appended)
                }
                Err(reason) => UsageReply::Deferred { reason },
            },
            Intake::Records(range, records) => {
                match self.keep(Arrived { lives: &[], records: &records }) {
                    Ok(_) => {
                        self.confirmed.extend(records.iter().map(|record| token(&record.reason)));
                        stream.kept(range).0
                    }
                    Err(reason) => {
                        let failed = stream.failed(range, reason);
                        failed.unwrap_or_else(|error| panic!("{error}")).0
                    }
                }
            }
        }
    }

    fn keep(&mut self, arrived: Arrived<'_>) -> Result<Appended, String> {
        let log = self.log.as_mut().ok_or_else(|| "the log cannot be opened".to_owned())?;
        let kept = log.take_in(&mut self.disk, [arrived]).map_err(|error| error.to_string())?;
        Ok(kept.into_iter().next().unwrap_or_default())
    }

    /// What an agent hears is kept it forgets: each number is on the disk.
    fn has(&mut self, kept: &[LifeKept]) {
        let mut there = BTreeSet::new();
        self.read(|record| {
            there.insert((record.life, record.numbered.sequence));
        });
        let numbers = |it: &LifeKept| {
            let (life, ranges) = (it.life, it.ranges.clone());
            ranges.into_iter().flat_map(move |(first, last)| (first..=last).map(move |n| (life, n)))
        };
        let absent: Vec<_> =
            kept.iter().flat_map(numbers).filter(|it| !there.contains(it)).collect();
        let (few, name) = (absent.len() <= self.flips, &self.name);
        holds!(UsageSequence, few, "{absent:?} of {name} count as kept, and are not in the log");
    }

    pub(crate) fn kept_tokens(&mut self) -> BTreeSet<u64> {
        let mut tokens = BTreeSet::new();
        self.read(|record| {
            tokens.insert(token(record.numbered.reason));
        });
        tokens
    }

    /// Is all there that its agent has saved, once, and does every gap have its reason?
    pub(crate) fn judge(&mut self, agent: &AgentSide) -> UsageOutcome {
        let mut places = BTreeMap::new();
        let mut lives: BTreeMap<SpoolLife, BTreeMap<u64, u64>> = BTreeMap::new();
        self.read(|record| {
            let (token, life) = (token(record.numbered.reason), record.life);
            let number = record.numbered.sequence;
            let twice = places.insert(token, (life, number));
            let is_once = twice.is_none();
            holds!(UsageSequence, is_once, "{token} is {number} of {life} and {twice:?}");
            let before = lives.entry(life).or_default().insert(number, token);
            holds!(UsageSequence, before.is_none(), "{number} of {life} is of two records");
        });
        let (flips, told) = (self.flips + agent.flips, self.told + agent.told);
        let kept: BTreeSet<u64> = places.into_keys().collect();
        let absent: Vec<_> = agent.saved.difference(&kept).copied().collect();
        let missing: Vec<_> = absent.iter().filter(|it| !agent.excused.contains(it)).collect();
        let (few, is_told) = (missing.len() <= flips, missing.is_empty() || told > 0);
        let name = &self.name;
        holds!(UsageSequence, few, "{flips} flipped bits took {missing:?} of {name}");
        holds!(UsageSequence, is_told, "{missing:?} of {name} are missing, and nobody was told");
        let appended = usize::try_from(agent.appended).unwrap_or(usize::MAX);
        let never_saved = appended - agent.saved.len();
        let gaps: u64 = lives.values().map(gaps).sum();
        let lost = (never_saved + absent.len()) as u64;
        holds!(UsageSequence, gaps <= lost, "{gaps} numbers of {name} are missing, {lost} records");
        UsageOutcome {
            appended,
            kept: kept.len(),
            never_saved,
            destroyed: absent.len(),
            flips,
            told,
        }
    }

    /// Gives each record of the log.
    fn read(&mut self, mut each: impl FnMut(&RecordView<'_>)) {
        let names = self.disk.list().unwrap_or_default();
        for number in segments_of(names.iter().map(String::as_str)) {
            let name = file_name(number);
            let Ok(Some(bytes)) = self.disk.read(&name) else { continue };
            let segment = Segment::of(Path::new(&name), bytes, &self.name)
                .unwrap_or_else(|error| panic!("{error}"));
            for entry in segment.entries() {
                if let Ok(Entry::Record(record)) = entry {
                    each(&record);
                }
            }
        }
    }
}

/// So many numbers below a life's last are not there.
fn gaps(numbers: &BTreeMap<u64, u64>) -> u64 {
    numbers.last_key_value().map_or(0, |(last, _)| last - numbers.len() as u64)
}
