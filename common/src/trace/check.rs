//! Whether a trace can be replayed, and if not, on which line it goes wrong.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::flow::{self, Flow};
use super::{Lines, Op, Trace};

/// More than anybody reads.
const PROBLEMS_MAX: usize = 50;

/// An operation of a rank, and its line if it was read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub rank: u32,
    /// Counted from 0.
    pub operation: usize,
    pub line: Option<u32>,
}

/// Only where it is: the rank is said beside it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}"),
            None => write!(f, "operation {}", self.operation),
        }
    }
}

/// Why a trace cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the trace has no ranks")]
    NoRanks,
    #[error("rank {rank} of {ranks}: expected 0 to {}", ranks - 1)]
    BadRank { at: Place, rank: u32, ranks: u32 },
    #[error("rank {rank} is spawned a second time, after {first} of rank {}", first.rank)]
    SpawnedTwice { at: Place, rank: u32, first: Place },
    /// The first of a sender, receiver and tag.
    #[error(
        "rank {} receives message {} of tag {tag} from rank {from}, which sends it {}",
        at.rank, sent + 1, count(*sent)
    )]
    UnmatchedReceive { at: Place, from: u32, tag: u32, sent: usize },
    /// The first of a sender, receiver and tag.
    #[error(
        "rank {} sends message {} of tag {tag} to rank {to}, which receives {}",
        at.rank, received + 1, count(*received)
    )]
    UnmatchedSend { at: Place, to: u32, tag: u32, received: usize },
    #[error("the program has lasted for more than 584 years by then: expected less")]
    TooLong { at: Place },
    #[error("more than 2^64 bytes have been sent by then: expected fewer")]
    TooManyBytes { at: Place },
    /// Each waits for the next, and the last for the first.
    #[error("deadlock: {}{}", chain(cycle), and_more(*others))]
    Deadlock { cycle: Vec<Waiting>, others: usize },
}

/// A rank that waits for another for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its receive, or its first operation if it waits to be spawned.
    pub at: Place,
    pub for_rank: u32,
    /// Of the message; `None` if it waits to be spawned.
    pub tag: Option<u32>,
}

impl Problem {
    /// Where to look first.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::NoRanks => None,
            Self::BadRank { at, .. }
            | Self::SpawnedTwice { at, .. }
            | Self::UnmatchedReceive { at, .. }
            | Self::UnmatchedSend { at, .. }
            | Self::TooLong { at }
            | Self::TooManyBytes { at } => Some(*at),
            Self::Deadlock { cycle, .. } => cycle.first().map(|waiting| waiting.at),
        }
    }

    /// The whole sentence, with file and line: `fft.trace:12: ..`.
    pub fn in_file(&self, path: &std::path::Path, lines: &Lines) -> String {
        let Some(place) = self.place() else { return format!("{}: {self}", path.display()) };
        let inner = lines.files.get(place.rank as usize).filter(|file| !file.is_empty());
        let file = match inner {
            Some(inner) => format!("{}: {inner}", path.display()),
            None => path.display().to_string(),
        };
        match place.line {
            Some(line) => format!("{file}:{line}: {self}"),
            None => format!("{file}: rank {}, {place}: {self}", place.rank),
        }
    }
}

fn count(messages: usize) -> String {
    match messages {
        0 => "none".to_owned(),
        messages => format!("only {messages}"),
    }
}

fn chain(cycle: &[Waiting]) -> String {
    let link = |waiting: &Waiting| {
        let Waiting { at, for_rank, tag } = waiting;
        match tag {
            Some(tag) => {
                format!("rank {} waits for rank {for_rank} (tag {tag}, {at})", at.rank)
            }
            None => format!("rank {} waits to be spawned by rank {for_rank}", at.rank),
        }
    };
    cycle.iter().map(link).collect::<Vec<_>>().join(", ")
}

fn and_more(ranks: usize) -> String {
    if ranks == 0 { String::new() } else { format!("; {ranks} more ranks wait behind them") }
}

/// What is wrong with a trace, in order of place; nothing if it can be
/// replayed. Whether messages match is looked at once all ranks are good, and
/// whether it ends once they match: what follows from an earlier problem is
/// not reported with it.
pub fn check(trace: &Trace, lines: &Lines) -> Vec<Problem> {
    if trace.ranks.is_empty() {
        return vec![Problem::NoRanks];
    }
    let checker = Checker { trace, lines };
    let problems = checker.ranks();
    if !problems.is_empty() {
        return problems;
    }
    let problems = checker.messages();
    if !problems.is_empty() {
        return problems;
    }
    let flow = flow::run(trace);
    let too_long = flow.too_long.map(|(rank, operation)| checker.place(rank, operation));
    let too_long = too_long.map(|at| Problem::TooLong { at });
    too_long.or_else(|| checker.bytes()).or_else(|| checker.deadlock(&flow)).into_iter().collect()
}

struct Checker<'a> {
    trace: &'a Trace,
    lines: &'a Lines,
}

/// How many messages of a sender, receiver and tag are sent and received.
#[derive(Clone, Copy, Default)]
struct Tally {
    sent: usize,
    received: usize,
}

impl Checker<'_> {
    fn place(&self, rank: u32, operation: usize) -> Place {
        Place { rank, operation, line: self.lines.of(rank, operation) }
    }

    fn operations(&self) -> impl Iterator<Item = (u32, usize, Op)> {
        let ranks = (0_u32..).zip(&self.trace.ranks);
        ranks.flat_map(|(rank, ops)| {
            ops.iter().enumerate().map(move |(operation, op)| (rank, operation, *op))
        })
    }

    fn ranks(&self) -> Vec<Problem> {
        let ranks = u32::try_from(self.trace.ranks.len()).unwrap_or(u32::MAX);
        let mut spawned = BTreeMap::new();
        let problem = |(by, operation, op)| {
            let (Op::Send { to: rank, .. } | Op::Receive { from: rank, .. } | Op::Spawn { rank }) =
                op
            else {
                return None;
            };
            let at = self.place(by, operation);
            if rank >= ranks {
                return Some(Problem::BadRank { at, rank, ranks });
            }
            let Op::Spawn { .. } = op else { return None };
            let first = *spawned.entry(rank).or_insert(at);
            (first != at).then_some(Problem::SpawnedTwice { at, rank, first })
        };
        self.operations().filter_map(problem).take(PROBLEMS_MAX).collect()
    }

    fn messages(&self) -> Vec<Problem> {
        let mut tallies: HashMap<(u32, u32, u32), Tally> = HashMap::new();
        for (rank, _, op) in self.operations() {
            match op {
                Op::Send { to, tag, .. } => tallies.entry((rank, to, tag)).or_default().sent += 1,
                Op::Receive { from, tag } => {
                    tallies.entry((from, rank, tag)).or_default().received += 1;
                }
                Op::Compute { .. } | Op::Spawn { .. } => {}
            }
        }
        if tallies.values().all(|tally| tally.sent == tally.received) {
            return vec![];
        }
        self.unmatched(&tallies)
    }

    /// Goes through the operations once more, for the first that has no
    /// counterpart in each channel.
    fn unmatched(&self, tallies: &HashMap<(u32, u32, u32), Tally>) -> Vec<Problem> {
        let mut passed: HashMap<(u32, u32, u32), Tally> = HashMap::new();
        let problem = |(rank, operation, op)| {
            let at = self.place(rank, operation);
            match op {
                Op::Send { to, tag, .. } => {
                    let received = tallies.get(&(rank, to, tag))?.received;
                    let passed = passed.entry((rank, to, tag)).or_default();
                    passed.sent += 1;
                    (passed.sent == received + 1).then_some(Problem::UnmatchedSend {
                        at,
                        to,
                        tag,
                        received,
                    })
                }
                Op::Receive { from, tag } => {
                    let sent = tallies.get(&(from, rank, tag))?.sent;
                    let passed = passed.entry((from, rank, tag)).or_default();
                    passed.received += 1;
                    (passed.received == sent + 1).then_some(Problem::UnmatchedReceive {
                        at,
                        from,
                        tag,
                        sent,
                    })
                }
                Op::Compute { .. } | Op::Spawn { .. } => None,
            }
        };
        self.operations().filter_map(problem).take(PROBLEMS_MAX).collect()
    }

    /// All messages together are counted in 64 bits.
    fn bytes(&self) -> Option<Problem> {
        let mut sum = 0_u64;
        self.operations().find_map(|(rank, operation, op)| {
            let Op::Send { bytes, .. } = op else { return None };
            match sum.checked_add(bytes) {
                Some(more) => {
                    sum = more;
                    None
                }
                None => Some(Problem::TooManyBytes { at: self.place(rank, operation) }),
            }
        })
    }

    /// As all messages match, whoever is stuck waits for somebody stuck.
    fn deadlock(&self, flow: &Flow) -> Option<Problem> {
        let waiting: BTreeMap<u32, Waiting> =
            flow.stuck.iter().map(|stuck| (stuck.rank, self.waiting(*stuck))).collect();
        let mut at = *waiting.first_key_value()?.0;
        let mut passed = vec![];
        while !passed.contains(&at) {
            passed.push(at);
            at = waiting.get(&at)?.for_rank;
        }
        let first = passed.iter().position(|rank| *rank == at)?;
        let mut cycle: Vec<Waiting> =
            passed[first..].iter().filter_map(|rank| waiting.get(rank)).copied().collect();
        let lowest = (0..cycle.len()).min_by_key(|place| cycle[*place].at.rank)?;
        cycle.rotate_left(lowest);
        let others = waiting.len() - cycle.len();
        Some(Problem::Deadlock { cycle, others })
    }

    fn waiting(&self, stuck: flow::Stuck) -> Waiting {
        let rank = stuck.rank;
        let Some(operation) = stuck.operation else {
            let spawner =
                self.operations().find(|(_, _, op)| *op == Op::Spawn { rank }).map(|(by, _, _)| by);
            let for_rank = spawner.unwrap_or(rank);
            return Waiting { at: self.place(rank, 0), for_rank, tag: None };
        };
        let at = self.place(rank, operation);
        match self.trace.ranks[rank as usize][operation] {
            Op::Receive { from, tag } => Waiting { at, for_rank: from, tag: Some(tag) },
            Op::Compute { .. } | Op::Send { .. } | Op::Spawn { .. } => {
                unreachable!("only a receive waits")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::text;

    #[track_caller]
    fn check(ranks: &[&str], expected: &[&str]) {
        let mut text = format!("gleaner-trace 1\nprogram small\nranks {}\n", ranks.len());
        for (rank, ops) in ranks.iter().enumerate() {
            let ops = ops.split("; ").filter(|op| !op.is_empty()).collect::<Vec<_>>();
            text = format!("{text}rank {rank}\n{}\n", ops.join("\n"));
        }
        let lined = text::read(text.as_bytes()).unwrap();
        let said: Vec<String> = lined
            .check()
            .iter()
            .map(|problem| problem.in_file(Path::new("t"), &lined.lines))
            .collect();
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn a_trace_whose_messages_match_is_good() {
        check(&["send 1 8 0; receive 1 0", "send 0 8 0; receive 0 0"], &[]);
        check(&["compute 1"], &[]);
        check(&["send 0 1 5; receive 0 5"], &[]);
        check(&["spawn 1; receive 1 0", "send 0 1 0"], &[]);
    }

    #[test]
    fn what_cannot_be_counted_is_named_and_not_capped() {
        // 15,000,000,000 s thrice was told as 18,446,744,073.710 s.
        let long = "compute 15000000000; compute 3000000000; compute 15000000000";
        let too_long = "the program has lasted for more than 584 years by then: expected less";
        check(&[long], &[&format!("t:7: {too_long}")]);
        check(
            &["compute 10000000000; send 1 0 0", "receive 0 0; compute 10000000000"],
            &[&format!("t:9: {too_long}")],
        );
        check(&["compute 18446744073.709551615"], &[]);
        check(
            &["send 0 18446744073709551615 0; receive 0 0; send 0 1 0; receive 0 0"],
            &["t:7: more than 2^64 bytes have been sent by then: expected fewer"],
        );
    }

    #[test]
    fn messages_of_different_tags_may_overtake_each_other() {
        check(&["send 1 1 5; send 1 1 6", "receive 0 6; receive 0 5"], &[]);
    }

    #[test]
    fn an_unmatched_receive_is_named() {
        check(
            &["send 1 8 0", "receive 0 0; receive 0 0; receive 0 0; receive 0 9"],
            &[
                "t:8: rank 1 receives message 2 of tag 0 from rank 0, which sends it only 1",
                "t:10: rank 1 receives message 1 of tag 9 from rank 0, which sends it none",
            ],
        );
    }

    #[test]
    fn an_unmatched_send_is_named() {
        check(
            &["send 1 8 0; compute 1; send 1 8 0", "receive 0 0"],
            &["t:7: rank 0 sends message 2 of tag 0 to rank 1, which receives only 1"],
        );
    }

    #[test]
    fn a_bad_rank_is_named_before_all_else() {
        check(
            &["send 2 8 0", "receive 7 0; spawn 3"],
            &[
                "t:5: rank 2 of 2: expected 0 to 1",
                "t:7: rank 7 of 2: expected 0 to 1",
                "t:8: rank 3 of 2: expected 0 to 1",
            ],
        );
    }

    #[test]
    fn a_deadlock_is_named_with_what_each_waits_for() {
        check(
            &[
                "receive 2 0",
                "receive 2 3; send 2 1 4",
                "receive 1 4; send 1 1 3; send 0 1 0",
                "compute 5",
            ],
            &["t:7: deadlock: rank 1 waits for rank 2 (tag 3, line 7), \
               rank 2 waits for rank 1 (tag 4, line 10); 1 more ranks wait behind them"],
        );
        check(
            &["receive 0 1; send 0 0 1"],
            &["t:5: deadlock: rank 0 waits for rank 0 (tag 1, line 5)"],
        );
    }

    #[test]
    fn a_rank_that_waits_for_whom_it_spawns_is_a_deadlock() {
        check(
            &["receive 1 0; spawn 1", "send 0 1 0"],
            &["t:5: deadlock: rank 0 waits for rank 1 (tag 0, line 5), \
               rank 1 waits to be spawned by rank 0"],
        );
        check(&["compute 1", "spawn 1"], &["t:7: deadlock: rank 1 waits to be spawned by rank 1"]);
        check(
            &["spawn 1; spawn 1", ""],
            &["t:6: rank 1 is spawned a second time, after line 5 of rank 0"],
        );
    }
}
