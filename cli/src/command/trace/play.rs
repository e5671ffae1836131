//! `glean trace play`: a trace as a program, which computes, sends and
//! receives what the trace says; live, each rank where its agent has put it.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use gleaner_common::trace::{COLLECTIVE_TAGS, Op, Trace};
use gleaner_program::{Communicator, CpuClock, Failure, Outcome, Run, TAG_MAX, live};
use gleaner_shell::clock::Clock;
use serde::{Deserialize, Serialize};

use super::load_sound;
use crate::failure::Verdict;
use crate::output;

/// The longest message that is sent in one piece of memory.
const BYTES_MAX: u64 = 1 << 30;

/// A rank that loses as much at once was frozen or moved, unless the kernel
/// says that it waited for a core.
const STOOD_STILL_NANOS: u64 = 20_000_000;

/// How much of a core a rank got while it computed; told as a line of its
/// output when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) rank: u32,
    /// CPU time.
    pub(crate) computed_ns: u64,
    /// Time in which it could have computed and another had its core: another
    /// process, or another machine on the same host.
    pub(crate) waited_ns: u64,
}

impl Share {
    /// Of a core, at most 1.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn share(&self) -> f64 {
        let could = self.computed_ns + self.waited_ns;
        if could == 0 { 1.0 } else { self.computed_ns as f64 / could as f64 }
    }

    /// How long this much CPU time took.
    pub(crate) fn took(&self, nanos: u64) -> u64 {
        scaled(nanos, 1.0 / self.share())
    }
}

#[derive(Debug, clap::Args)]
pub struct PlayArgs {
    /// The trace.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Compute this part of what the trace says.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub pace: f64,
}

pub(super) fn play(args: &PlayArgs) -> Result<Verdict> {
    if !(args.pace > 0.0 && args.pace.is_finite()) {
        bail!("--pace {}: expected a factor above 0, such as 0.1", args.pace);
    }
    let trace = load_sound(&args.file)?;
    check(&trace).with_context(|| format!("{} cannot be played", args.file.display()))?;
    let ranks = u32::try_from(trace.ranks.len())?;
    let run = Run { ranks, record: None, ..Run::default() };
    let played: Outcome<()> = live::run(run, |comm| follow(comm, &trace, args.pace))?;
    drop(played);
    Ok(Verdict::Yes)
}

/// Spawned ranks would run under another number than the trace's, and what
/// collectives are made of needs tags that programs may use.
fn check(trace: &Trace) -> Result<()> {
    let tags = |op: &Op| match *op {
        Op::Send { tag, .. } | Op::Receive { tag, .. } => Some(tag),
        Op::Compute { .. } | Op::Spawn { .. } => None,
    };
    let ops = || trace.ranks.iter().flatten();
    if ops().any(|op| matches!(op, Op::Spawn { .. })) {
        bail!("it spawns ranks: expected a trace whose ranks all begin with it");
    }
    let lowest = ops().filter_map(tags).filter(|tag| *tag >= COLLECTIVE_TAGS).map(playable).min();
    let highest = ops().filter_map(tags).filter(|tag| *tag < COLLECTIVE_TAGS).max();
    if lowest.zip(highest).is_some_and(|(lowest, highest)| highest >= lowest) {
        bail!("tag {} is in use: expected none so high", highest.unwrap_or(0));
    }
    let longest = ops().map(|op| if let Op::Send { bytes, .. } = op { *bytes } else { 0 }).max();
    if longest.is_some_and(|bytes| bytes > BYTES_MAX) {
        bail!("a message of {} bytes: expected at most {BYTES_MAX}", longest.unwrap_or(0));
    }
    Ok(())
}

/// The tags of collectives, below the library's own.
fn playable(tag: u32) -> u32 {
    if tag < COLLECTIVE_TAGS { tag } else { TAG_MAX - (tag - COLLECTIVE_TAGS) }
}

fn follow(comm: &mut Communicator, trace: &Trace, pace: f64) -> Result<(), Failure> {
    let ranks = trace.ranks.len();
    if comm.size() as usize != ranks {
        return Err(format!("{} ranks: expected the trace's {ranks}", comm.size()).into());
    }
    let ops = &trace.ranks[comm.rank() as usize];
    let longest = ops.iter().map(|op| if let Op::Send { bytes, .. } = op { *bytes } else { 0 });
    let message = vec![0; usize::try_from(longest.max().unwrap_or(0))?];
    let clock = if live::is_live() { CpuClock::of_process() } else { CpuClock::Thread };
    // What one step computes too much the next computes less.
    let mut until = clock.nanos();
    let mut share = Share { rank: comm.rank(), ..Share::default() };
    for op in ops {
        match *op {
            Op::Compute { nanos } => {
                until += scaled(nanos, pace);
                compute(clock, until, &mut share);
            }
            Op::Send { to, bytes, tag } => {
                let bytes = message.get(..usize::try_from(bytes)?).unwrap_or(&message);
                comm.send(to, playable(tag), bytes)?;
                until = until.max(clock.nanos());
            }
            Op::Receive { from, tag } => {
                comm.recv(Some(from), Some(playable(tag)))?;
                until = until.max(clock.nanos());
            }
            Op::Spawn { .. } => {}
        }
    }
    Ok(output::record(&share)?)
}

/// Computes until the clock says `until`. What is counted is the thread's own
/// time, which is exact; that of a process comes in ticks.
fn compute(clock: CpuClock, until: u64, share: &mut Share) {
    let (mut used, mut at) = (CpuClock::Thread.nanos(), Clock.now());
    // Waited since the kernel was asked last.
    let (mut queued, mut since) = (queued_nanos(), 0);
    while clock.nanos() < until {
        std::hint::black_box(burn());
        let (now, later) = (CpuClock::Thread.nanos(), Clock.now());
        let passed = u64::try_from(later.since(at).as_nanos()).unwrap_or(u64::MAX);
        let (computed, lost) = match now.checked_sub(used) {
            Some(computed) => (computed, passed.saturating_sub(computed)),
            // After a move the thread is a new one, which counts from nothing.
            None => (now, 0),
        };
        let waited = if lost < STOOD_STILL_NANOS {
            since += lost;
            lost
        } else {
            let before = std::mem::replace(&mut queued, queued_nanos());
            let known = std::mem::take(&mut since);
            queued.saturating_sub(before).saturating_sub(known).min(lost)
        };
        share.computed_ns += computed;
        share.waited_ns += waited;
        (used, at) = (now, later);
    }
}

/// How long this thread has waited in the kernel's run queue; from nothing
/// again where it was restored, and 0 where the kernel does not count.
fn queued_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive span, to a nanosecond in some weeks"
)]
fn scaled(nanos: u64, pace: f64) -> u64 {
    (nanos as f64 * pace) as u64
}

/// Some microseconds.
fn burn() -> u64 {
    (0..4_000_u64).fold(1, |sum, number| sum.wrapping_mul(6_364_136_223_846_793_005) ^ number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_played_trace_computes_as_long_as_it_says() {
        let compute = Op::Compute { nanos: 40_000_000 };
        let there = vec![compute, Op::Send { to: 1, bytes: 5, tag: COLLECTIVE_TAGS }, compute];
        let trace = Trace {
            name: "two".into(),
            ranks: vec![there, vec![Op::Receive { from: 0, tag: COLLECTIVE_TAGS }, compute]],
        };
        check(&trace).unwrap();
        let run = Run { ranks: 2, record: Some("two".into()), ..Run::default() };
        let played = live::run(run, |comm| follow(comm, &trace, 0.5)).unwrap().trace.unwrap();
        for (rank, expected) in [(0, 40_000_000), (1, 20_000_000)] {
            let computed = played.computed(rank);
            assert!((expected..expected * 2).contains(&computed), "{rank}: {computed} ns");
        }
        assert_eq!(played.messages(), (1, 5));
    }

    /// On as many cores as there are, and twice as many threads that compute:
    /// each gets half of one, wherever the kernel puts them.
    #[test]
    fn a_share_of_a_core_is_what_others_left() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let began = Clock.now();
        let threads: Vec<_> = (0..2 * cores)
            .map(|_| {
                std::thread::spawn(|| {
                    let (clock, mut share) = (CpuClock::Thread, Share::default());
                    compute(clock, clock.nanos() + 300_000_000, &mut share);
                    share
                })
            })
            .collect();
        let shares: Vec<Share> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        let passed = u64::try_from(Clock.now().since(began).as_nanos()).unwrap();
        assert!(shares.iter().any(|share| share.share() < 0.7), "{shares:?}");
        for share in shares {
            // The clocks of CPU time and of the wall run by different counters.
            let all = share.computed_ns + share.waited_ns;
            assert!(all <= passed + passed / 50, "{share:?} in {passed} ns");
        }
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        let spawns =
            Trace { name: String::new(), ranks: vec![vec![Op::Spawn { rank: 1 }], vec![]] };
        assert!(check(&spawns).unwrap_err().to_string().contains("spawns ranks"));
        let high = vec![
            Op::Send { to: 0, bytes: 1, tag: TAG_MAX },
            Op::Receive { from: 0, tag: COLLECTIVE_TAGS },
        ];
        let high = Trace { name: String::new(), ranks: vec![high] };
        assert!(check(&high).unwrap_err().to_string().contains("is in use"));
    }
}
