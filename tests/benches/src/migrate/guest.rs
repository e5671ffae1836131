//! The guest that is measured while it moves: it holds memory that does not
//! compress, looks at the wall clock all the time, and tells of every stretch
//! in which it did not and after which it was elsewhere.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use gleaner_common::time::WallTime;
use gleaner_shell::clock::Clock;
use rustix::fs::{AtFlags, StatxFlags};

/// A guest that looks again sooner was not away.
const GAP_MIN: Duration = Duration::from_millis(2);

/// What it prints first, when all is filled.
const LOOKS: &str = "looks";

/// How long it goes on after its last move.
const SEEN_FOR: Duration = Duration::from_secs(2);

/// Arguments of the hidden `glean-bench hold`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Args {
    /// How much it holds, in MiB.
    #[arg(long)]
    pub(crate) mib: usize,
    /// It ends after so many moves.
    #[arg(long)]
    pub(crate) gaps: u32,
}

/// A stretch in which the guest moved: its last look and its next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: WallTime,
    pub(super) to: WallTime,
}

impl Gap {
    /// Has the guest printed that it looks at the clock?
    pub(super) fn is_looked_for(text: &str) -> bool {
        text.starts_with(LOOKS)
    }

    fn line(self) -> String {
        format!("{} {}\n", self.from.0, self.to.0)
    }

    /// Of what a guest has printed.
    pub(super) fn read(text: &str) -> Vec<Self> {
        let pair = |line: &str| {
            let (from, to) = line.split_once(' ')?;
            Some(Self { from: WallTime(from.parse().ok()?), to: WallTime(to.parse().ok()?) })
        };
        text.lines().filter_map(pair).collect()
    }
}

/// # Errors
/// Nobody takes what it prints, or the memory was not kept.
pub(crate) fn hold(args: &Args) -> Result<()> {
    let held = random(args.mib << 17);
    let sum = checksum(&held);
    // It may be moved as soon as it says so.
    let (mut last, mut here) = (Clock.wall(), printed_to()?);
    std::io::stdout().write_all(format!("{LOOKS}\n").as_bytes())?;
    std::io::stdout().flush()?;
    let mut gaps = 0;
    while gaps < args.gaps {
        let now = Clock.wall();
        if now.since(last) >= GAP_MIN && printed_to()? != here {
            here = printed_to()?;
            gaps += 1;
            std::io::stdout().write_all(Gap { from: last, to: now }.line().as_bytes())?;
            std::io::stdout().flush()?;
            last = Clock.wall();
        } else {
            last = now;
        }
    }
    // So that it is seen at work where it came to.
    let came = Clock.wall();
    while Clock.wall().since(came) < SEEN_FOR {}
    if checksum(&held) != sum {
        bail!("what was held is not what it was");
    }
    Ok(())
}

/// What it prints goes into another file at each place; numbers are given out
/// again, so when it was made belongs to it.
fn printed_to() -> Result<(u64, i64, u32)> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let file = rustix::fs::statx(std::io::stdout(), c"", AtFlags::EMPTY_PATH, wanted)?;
    Ok((file.stx_ino, file.stx_btime.tv_sec, file.stx_btime.tv_nsec))
}

/// Eight bytes each.
fn random(count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| next()).collect()
}

fn checksum(held: &[u64]) -> u64 {
    held.iter().fold(0, |sum, part| sum.rotate_left(1) ^ part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reads_as_it_was_told_and_noise_is_passed_over() {
        let gap = Gap { from: WallTime(5), to: WallTime(70) };
        assert_eq!(Gap::read(&(gap.line() + "hello\n1 x\n")), [gap]);
    }

    #[test]
    fn what_is_held_does_not_repeat() {
        let held = random(1_000);
        let distinct: std::collections::BTreeSet<_> = held.iter().collect();
        assert_eq!(distinct.len(), held.len());
        assert_ne!(checksum(&held), checksum(&held[1..]));
    }
}
