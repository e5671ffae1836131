//! What the guests' own logs say: which attempts of a subprogram ran when and where,
//! and what must never be among that.
//!
//! ```text
//! file of a log ─► Stream ─► Stretch: when this process, or this copy of it, ran here
//!                               ├─► doubled: two of one subprogram at one time
//!                               └─► late: beside an owner who had typed
//! ```
//!
//! A process that moves takes its log with it, so that a line can be in two files: it
//! counts for the one that had it first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

/// A subprogram by its job's number in the soak, which is not the coordinator's, and
/// its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Subprogram {
    pub job: u64,
    pub index: u32,
}

impl Subprogram {
    fn parse(text: &str) -> Option<Self> {
        let (job, index) = text.split_once('.')?;
        Some(Self { job: job.parse().ok()?, index: index.parse().ok()? })
    }
}

/// One file of a guest's log, as far as it was read. Times are nanoseconds of the
/// wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub host: usize,
    pub subprogram: Option<Subprogram>,
    /// When its process began, which names the attempt.
    pub began: u64,
    pub stamps: Vec<u64>,
    pub ended: bool,
    /// Lines that are none: a disk was full.
    pub torn: u32,
    rest: Vec<u8>,
}

impl Stream {
    pub fn new(host: usize) -> Self {
        Self { host, ..Self::default() }
    }

    /// Takes in what the file has more; the end of a line may come later.
    pub fn read(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if self.line(&String::from_utf8_lossy(&line)).is_none() {
                self.torn += 1;
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<_> = line.split_whitespace().collect();
        let stamp = words.last()?.parse().ok()?;
        match words[..] {
            ["start", name, _] => {
                self.subprogram = Some(Subprogram::parse(name)?);
                self.began = stamp;
            }
            ["tick", _] => {}
            ["end", _] => self.ended = true,
            _ => return None,
        }
        self.stamps.push(stamp);
        Some(())
    }
}

/// From the first to the last sign of life of one process at one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    pub host: usize,
    /// When its process began, here or elsewhere.
    pub began: u64,
    pub first: u64,
    pub last: u64,
    pub ended: bool,
}

/// Two attempts of one subprogram that ran at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doubled {
    pub subprogram: Subprogram,
    pub earlier: Stretch,
    pub later: Stretch,
    pub overlap_s: f64,
}

/// A guest that ran where its owner was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Late {
    pub subprogram: Subprogram,
    pub host: usize,
    pub typed: u64,
    /// After the key.
    pub ran_until_s: f64,
    /// Its agent's worker or supervisor stood still.
    pub hung: bool,
}

/// Keys of owners, and when an agent stood still, by host.
#[derive(Clone, Copy, Debug)]
pub struct Owners<'a> {
    pub keys: &'a [(usize, u64)],
    pub hung: &'a [(usize, Range<u64>)],
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct Account {
    stretches: BTreeMap<Subprogram, Vec<Stretch>>,
    /// Signs of life at each host, in order.
    alive: BTreeMap<usize, Vec<(u64, Subprogram)>>,
    pub torn: u32,
}

impl Account {
    /// Streams in the order in which their files were found.
    pub fn new(streams: &[Stream]) -> Self {
        let mut account = Self::default();
        let mut told: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for stream in streams {
            account.torn += stream.torn;
            let Some(subprogram) = stream.subprogram else { continue };
            let told = told.entry(stream.began).or_default();
            let own: Vec<u64> =
                stream.stamps.iter().copied().filter(|stamp| told.insert(*stamp)).collect();
            let (Some(first), Some(last)) = (own.iter().min(), own.iter().max()) else { continue };
            let (host, began, ended) = (stream.host, stream.began, stream.ended);
            let stretch = Stretch { host, began, first: *first, last: *last, ended };
            account.stretches.entry(subprogram).or_default().push(stretch);
            let signs = own.iter().map(|stamp| (*stamp, subprogram));
            account.alive.entry(host).or_default().extend(signs);
        }
        for stretches in account.stretches.values_mut() {
            stretches.sort_by_key(|stretch| stretch.first);
        }
        for signs in account.alive.values_mut() {
            signs.sort_unstable();
        }
        account
    }

    /// Attempts, or parts of them between two moves.
    pub fn stretches(&self) -> usize {
        self.stretches.values().map(Vec::len).sum()
    }

    /// Was this subprogram seen to come to its end?
    pub fn ended(&self, subprogram: Subprogram) -> bool {
        self.stretches.get(&subprogram).is_some_and(|all| all.iter().any(|it| it.ended))
    }

    /// One entry for each stretch that began before all earlier ones were over.
    pub fn doubled(&self) -> Vec<Doubled> {
        let mut found = vec![];
        for (subprogram, stretches) in &self.stretches {
            let mut longest: Option<Stretch> = None;
            for later in stretches {
                if let Some(earlier) = longest.filter(|earlier| later.first <= earlier.last) {
                    let overlap = earlier.last.min(later.last) - later.first;
                    let overlap_s = overlap as f64 / 1e9;
                    let (subprogram, later) = (*subprogram, *later);
                    found.push(Doubled { subprogram, earlier, later, overlap_s });
                }
                if longest.is_none_or(|longest| later.last > longest.last) {
                    longest = Some(*later);
                }
            }
        }
        found
    }

    /// Signs of life between `bound_ns` and `quiet_ns` after a key at that host: the last
    /// for each key and subprogram.
    pub fn late(&self, owners: Owners<'_>, bound_ns: u64, quiet_ns: u64) -> Vec<Late> {
        let mut found = vec![];
        for (host, typed) in owners.keys {
            let after = *typed..typed + quiet_ns;
            let hung = owners
                .hung
                .iter()
                .any(|(at, span)| at == host && span.start < after.end && after.start < span.end);
            let Some(signs) = self.alive.get(host) else { continue };
            let from = signs.partition_point(|(stamp, _)| *stamp <= typed + bound_ns);
            let to = signs.partition_point(|(stamp, _)| *stamp < typed + quiet_ns);
            let last: BTreeMap<_, _> = signs[from..to.max(from)]
                .iter()
                .map(|(stamp, subprogram)| (*subprogram, *stamp))
                .collect();
            for (subprogram, stamp) in last {
                let ran_until_s = (stamp - typed) as f64 / 1e9;
                found.push(Late { subprogram, host: *host, typed: *typed, ran_until_s, hung });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Subprogram = Subprogram { job: 12, index: 3 };

    fn stream(host: usize, text: &str) -> Stream {
        let mut stream = Stream::new(host);
        stream.read(text.as_bytes());
        stream
    }

    #[test]
    fn one_attempt_after_the_other_is_no_copy() {
        let streams =
            [stream(0, "start 12.3 100\ntick 120\n"), stream(1, "start 12.3 121\nend 200\n")];
        let account = Account::new(&streams);
        assert_eq!(account.doubled(), []);
        assert!(account.ended(JOB));
        assert_eq!(account.stretches(), 2);
    }

    #[test]
    fn two_attempts_at_one_time_are_seen() {
        let streams = [
            stream(0, "start 12.3 100\ntick 120\ntick 300\n"),
            stream(1, "start 12.3 200\ntick 220\nend 240\n"),
        ];
        let doubled = Account::new(&streams).doubled();
        assert_eq!(doubled.len(), 1);
        assert_eq!((doubled[0].subprogram, doubled[0].earlier.host), (JOB, 0));
        assert!((doubled[0].overlap_s - 40e-9).abs() < 1e-12);
    }

    #[test]
    fn an_attempt_that_wakes_after_two_others_is_seen() {
        let streams = [
            stream(0, "start 12.3 100\ntick 900\n"),
            stream(1, "start 12.3 200\ntick 220\n"),
            stream(2, "start 12.3 300\ntick 320\n"),
        ];
        assert_eq!(Account::new(&streams).doubled().len(), 2);
    }

    #[test]
    fn other_subprograms_may_run_at_the_same_time() {
        let streams = [stream(0, "start 12.3 100\ntick 300\n"), stream(1, "start 12.4 200\n")];
        assert_eq!(Account::new(&streams).doubled(), []);
    }

    #[test]
    fn a_move_is_one_attempt_and_its_source_must_not_go_on() {
        let source = "start 12.3 100\ntick 120\ntick 140\n";
        let moved = stream(1, &format!("{source}tick 300\nend 320\n"));
        let account = Account::new(&[stream(0, source), moved.clone()]);
        assert_eq!(account.doubled(), []);
        assert_eq!(account.stretches(), 2);
        let thawed = stream(0, &format!("{source}tick 310\n"));
        assert_eq!(Account::new(&[thawed, moved]).doubled().len(), 1);
    }

    #[test]
    fn a_process_that_goes_back_to_its_image_is_no_copy() {
        let image = "start 12.3 100\ntick 120\n";
        let first = stream(0, &format!("{image}tick 140\ntick 160\n"));
        let again = stream(1, &format!("{image}tick 300\n"));
        assert_eq!(Account::new(&[first, again]).doubled(), []);
    }

    #[test]
    fn a_guest_beside_its_owner_is_seen_and_one_that_stands_still_is_not() {
        let second = 1_000_000_000;
        let log = |stamps: &[u64]| {
            let mut stream = stream(0, "start 12.3 1\n");
            for stamp in stamps {
                stream.read(format!("tick {stamp}\n").as_bytes());
            }
            stream
        };
        let (keys, hung) =
            ([(0, 10 * second)], [(0, 12 * second..13 * second), (1, 0..99 * second)]);
        let owners = Owners { keys: &keys, hung: &hung };
        let late = |stamps: &[u64]| Account::new(&[log(stamps)]).late(owners, second / 4, second);
        let in_time = 10 * second + second / 5;
        assert_eq!(late(&[9 * second, in_time, 11 * second]), []);
        let found = late(&[9 * second, in_time, 10 * second + second / 2]);
        assert_eq!(found.len(), 1);
        assert!((found[0].ran_until_s - 0.5).abs() < 1e-9);
        assert!(!found[0].hung);
    }

    #[test]
    fn lines_come_in_pieces_and_torn_ones_are_counted() {
        let mut stream = Stream::new(0);
        for piece in ["sta", "rt 12.3 10", "0\ntick 1", "20\nti\n", "end 140\n"] {
            stream.read(piece.as_bytes());
        }
        assert_eq!(stream.stamps, [100, 120, 140]);
        assert_eq!((stream.torn, stream.ended), (1, true));
    }
}
