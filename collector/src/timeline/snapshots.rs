//! When the transitions between three-minute snapshots most likely happened.
//!
//! Source: Phalen 1994, §5.1, Table 6. Knows nothing of boots and files.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::Cause;

use super::{Fact, State, state_of};

/// Moves the facts of snapshots to when they most likely happened, each with
/// its margin.
///
/// Source: Phalen 1994, §5.1, Table 6. Its "prev time" is that of the previous
/// record; but its margins of three minutes, and its reasons, hold only if
/// that is the previous *snapshot*, and records are written at changes only.
/// So prev is here the later of the previous record and `every` before the
/// current one. Its fourth row prints (curr - prev)/2, which is a length; like
/// the first row, we add the previous time.
pub(super) fn estimate(facts: &[Fact], every: Duration) -> Vec<Fact> {
    let mut estimated: Vec<Fact> = vec![];
    let mut before: Option<&Fact> = None;
    for fact in facts {
        let prev = before.map_or(fact.at, |before| before.at.max(back(fact.at, every)));
        let gap = fact.at.since(prev);
        let idle = fact.input_idle.unwrap_or(Duration::MAX);
        let moved = |at: WallTime, margin| Fact { at, margin, ..*fact };
        match (before.map(|before| state_of(before.cause)), state_of(fact.cause)) {
            // First row: busy and idle again since the previous snapshot.
            (Some(State::Idle), State::Idle) if idle < gap => {
                let idle_at = back(fact.at, idle);
                let margin = idle_at.since(prev) / 2;
                let busy =
                    Fact { cause: Cause::Tty, slots: 0, ..moved(back(idle_at, margin), margin) };
                estimated.push(busy);
                estimated.push(moved(idle_at, Duration::ZERO));
            }
            // Third row: the last input ended it.
            (Some(State::Busy), State::Idle) if idle < gap => {
                estimated.push(moved(back(fact.at, idle), Duration::ZERO));
            }
            // Second row: whoever kept it busy has left since, or the load fell.
            (Some(State::Busy), State::Idle) => estimated.push(moved(fact.at, gap)),
            // Fourth row.
            (Some(State::Idle), State::Busy) => {
                estimated.push(moved(back(fact.at, gap / 2), gap / 2));
            }
            // CHANGE, START and FINISH, and what follows START, are taken as they are.
            _ => estimated.push(*fact),
        }
        before = Some(fact);
    }
    for place in 1..estimated.len() {
        estimated[place - 1].lasted = estimated[place].at.since(estimated[place - 1].at);
    }
    estimated
}

fn back(at: WallTime, by: Duration) -> WallTime {
    WallTime(at.0.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
}
