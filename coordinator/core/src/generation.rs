//! Generations of the coordinator's store, which stand above fences.
//!
//! The promise: a store that went back in time (a backup that was restored, a
//! file that was copied, a machine that was reverted) never gives out a fence
//! that its later self has given out. Every start begins a generation; and an
//! agent that has seen a fence which this store never gave out begins one too.
//!
//! ```text
//! start ──────────────► one later, or the seconds since 2024: whatever is more
//! hello(seen), unknown ► later than what was seen
//! ```

use gleaner_common::id::{Fence, Generation};
use gleaner_common::time::WallTime;

/// 2024-01-01 in Unix time: before any store of ours.
const ORIGIN_S: u64 = 1_704_067_200;

/// How far beyond the present an agent may have seen generations: 34 years, for
/// clocks that were wrong. Of the 136 years that there are, one agent that lies
/// can then not use up the rest.
const AHEAD_S: u32 = 1 << 30;

/// The generation that follows. It is later than that of any copy of the store
/// that was started before, as long as the clock is right; where it is not,
/// agents say what they have seen.
pub(crate) fn next(previous: Generation, wall: WallTime) -> Generation {
    Generation(previous.0.saturating_add(1).max(seconds(wall)))
}

/// May a store have come so far by itself?
pub(crate) fn is_credible(seen: Fence, wall: WallTime) -> bool {
    seen.generation.0 < seconds(wall).saturating_add(AHEAD_S)
}

fn seconds(wall: WallTime) -> u32 {
    let unix_s = wall.since(WallTime(0)).as_secs();
    u32::try_from(unix_s.saturating_sub(ORIGIN_S)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_later_than_the_last_and_than_all_before_the_present() {
        let wall = WallTime::from_unix_s(i64::try_from(ORIGIN_S).unwrap() + 50);
        assert_eq!(next(Generation(7), wall), Generation(50));
        assert_eq!(next(Generation(50), wall), Generation(51));
        assert_eq!(next(Generation(7), WallTime(0)), Generation(8));
    }

    #[test]
    fn no_agent_can_use_up_what_generations_are_left() {
        let wall = WallTime::from_unix_s(1_800_000_000);
        let seen = |generation| Fence { generation: Generation(generation), number: 9 };
        assert!(is_credible(seen(seconds(wall) + 1_000_000), wall));
        assert!(!is_credible(seen(u32::MAX), wall));
        assert!(!is_credible(seen(1 << 31), wall));
    }
}
