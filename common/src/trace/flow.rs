//! A trace run as dataflow, on as many machines as it has ranks and with
//! messages that take no time: when each rank ends, and who waits for whom if
//! they never do.
//!
//! Every rank goes on until it receives what has not been sent. The order in
//! which ranks go on cannot change the result: a send never blocks, and the
//! messages of a sender and tag are received in the order they were sent.

use std::collections::{HashMap, VecDeque};

use super::{Op, Trace};

/// What a run came to. All times in nanoseconds from the program's start.
pub(super) struct Flow {
    /// When each rank ended; only of those not in `stuck`.
    pub(super) ends: Vec<u64>,
    /// For each rank, the receives that waited (and, as operation `None`, its
    /// beginning if it was spawned), in order.
    pub(super) waits: Vec<Vec<Wait>>,
    /// Ranks that never end.
    pub(super) stuck: Vec<Stuck>,
    /// The computation after which it has lasted for longer than can be counted;
    /// nothing here is true of such a trace.
    pub(super) too_long: Option<(u32, usize)>,
}

/// A rank's time was set by another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) operation: Option<usize>,
    pub(super) for_rank: u32,
    pub(super) for_operation: usize,
}

/// Where a rank stays for ever: at a receive, or before its first operation
/// (`operation` is `None`) because nobody spawns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) rank: u32,
    pub(super) operation: Option<usize>,
}

#[derive(Clone, Copy)]
struct Sent {
    at: u64,
    by: u32,
    operation: usize,
}

#[derive(Clone, Copy, Default)]
struct Runner {
    at: u64,
    next: usize,
    begun: bool,
}

/// The messages of one sender, receiver and tag that are under way, or who
/// waits for the next.
#[derive(Default)]
struct Channel {
    under_way: VecDeque<Sent>,
    waited_for: bool,
}

struct Run<'a> {
    trace: &'a Trace,
    runners: Vec<Runner>,
    channels: HashMap<(u32, u32, u32), Channel>,
    ready: Vec<u32>,
    waits: Vec<Vec<Wait>>,
    too_long: Option<(u32, usize)>,
}

/// Runs a trace whose ranks are all good (`check` looks at that first).
pub(super) fn run(trace: &Trace) -> Flow {
    let mut run = Run {
        trace,
        runners: vec![Runner { begun: true, ..Runner::default() }; trace.ranks.len()],
        channels: HashMap::new(),
        ready: vec![],
        waits: vec![vec![]; trace.ranks.len()],
        too_long: None,
    };
    for op in trace.ranks.iter().flatten() {
        if let Op::Spawn { rank } = op {
            run.runners[*rank as usize].begun = false;
        }
    }
    let begun = (0_u32..).zip(&run.runners).filter(|(_, runner)| runner.begun);
    run.ready = begun.map(|(rank, _)| rank).collect();
    while let Some(rank) = run.ready.pop() {
        run.go_on(rank);
    }
    run.into_flow()
}

impl Run<'_> {
    /// Until the rank ends or has to wait.
    fn go_on(&mut self, rank: u32) {
        let ops = &self.trace.ranks[rank as usize];
        let mut runner = self.runners[rank as usize];
        while let Some(op) = ops.get(runner.next) {
            match *op {
                Op::Compute { nanos } => match runner.at.checked_add(nanos) {
                    Some(at) => runner.at = at,
                    None => _ = self.too_long.get_or_insert((rank, runner.next)),
                },
                Op::Send { to, tag, .. } => {
                    let sent = Sent { at: runner.at, by: rank, operation: runner.next };
                    let channel = self.channels.entry((rank, to, tag)).or_default();
                    channel.under_way.push_back(sent);
                    if std::mem::take(&mut channel.waited_for) {
                        self.ready.push(to);
                    }
                }
                Op::Receive { from, tag } => {
                    let channel = self.channels.entry((from, rank, tag)).or_default();
                    let Some(sent) = channel.under_way.pop_front() else {
                        channel.waited_for = true;
                        break;
                    };
                    let here = Some(runner.next);
                    self.follow(rank, &mut runner, here, sent);
                }
                Op::Spawn { rank: other } => {
                    let sent = Sent { at: runner.at, by: rank, operation: runner.next };
                    let mut spawned = self.runners[other as usize];
                    // The second of two spawns says nothing; `check` refuses it.
                    if !spawned.begun && other != rank {
                        spawned.begun = true;
                        self.follow(other, &mut spawned, None, sent);
                        self.runners[other as usize] = spawned;
                        self.ready.push(other);
                    }
                }
            }
            runner.next += 1;
        }
        self.runners[rank as usize] = runner;
    }

    /// A rank goes on with what another did, not before it.
    fn follow(&mut self, rank: u32, runner: &mut Runner, operation: Option<usize>, sent: Sent) {
        if sent.at > runner.at || operation.is_none() {
            runner.at = sent.at;
            let wait = Wait { operation, for_rank: sent.by, for_operation: sent.operation };
            self.waits[rank as usize].push(wait);
        }
    }

    fn into_flow(self) -> Flow {
        let of = |(rank, runner): (u32, &Runner)| {
            let ended = runner.begun && runner.next == self.trace.ranks[rank as usize].len();
            let operation = runner.begun.then_some(runner.next);
            (!ended).then_some(Stuck { rank, operation })
        };
        let stuck = (0_u32..).zip(&self.runners).filter_map(of).collect();
        let ends = self.runners.iter().map(|runner| runner.at).collect();
        Flow { ends, waits: self.waits, stuck, too_long: self.too_long }
    }
}

impl Flow {
    /// When the last rank ends, and which that is (the first of equals).
    pub(super) fn last(&self) -> Option<(u32, u64)> {
        let ends = (0_u32..).zip(self.ends.iter().copied());
        ends.max_by_key(|&(rank, end)| (end, std::cmp::Reverse(rank)))
    }

    /// The critical path, from its end back to the program's start: stretches
    /// of one rank's operations each.
    pub(super) fn critical_path(&self, trace: &Trace) -> Vec<(u32, std::ops::Range<usize>)> {
        let Some((mut rank, _)) = self.last() else { return vec![] };
        let mut until = trace.ranks[rank as usize].len();
        let mut path = vec![];
        loop {
            let before = |wait: &&Wait| wait.operation.is_none_or(|operation| operation < until);
            match self.waits[rank as usize].iter().rev().find(before) {
                None => {
                    path.push((rank, 0..until));
                    return path;
                }
                Some(wait) => {
                    path.push((rank, wait.operation.map_or(0, |operation| operation + 1)..until));
                    (rank, until) = (wait.for_rank, wait.for_operation);
                }
            }
        }
    }
}
