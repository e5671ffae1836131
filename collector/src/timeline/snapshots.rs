//! When the transitions between three-minute snapshots most likely happened.
//!
//! Source: Phalen 1994, §5.1, Table 6. Knows nothing of boots and files.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::Cause;

use super::{Fact, PeriodState, state_of};

/// Moves the facts of snapshots to when they most likely happened, each with
/// its margin.
///
/// Source: Phalen 1994, §5.1, Table 6, with prev and curr the times of the
/// previous and the current record and idle the time since the last input:
///
/// | row | records | transition | estimate | margin |
/// |---|---|---|---|---|
/// | 1 | IDLE, IDLE, idle < curr - prev | to busy | prev + (curr - idle - prev)/2 | at most 1 min |
/// |   |                                | to idle | curr - idle | none |
/// | 2 | BUSY, IDLE, idle > curr - prev | to idle | curr | 3 min |
/// | 3 | BUSY, IDLE, idle < curr - prev | to idle | curr - idle | none |
/// | 4 | IDLE, BUSY                     | to busy | (curr - prev)/2 | 1 1/2 min |
///
/// Where the text and the table disagree with each other or with themselves:
///
/// - The text has "four possible combinations" and "five transition
///   sequences". The table has four rows; the first makes two transitions,
///   so five are estimated. BUSY, BUSY is none: CHANGE records repeat it.
/// - The fourth row prints (curr - prev)/2, which is a length. Like the
///   first row, we add the previous time.
/// - The table's prev is by its footnote the time of the previous *record*,
///   and records are written at changes only, so hours may lie between two; but
///   its margins and reasons ("sometime in 3 minute span") hold only if prev is
///   the previous *snapshot*. So prev is here the later of the previous record
///   and `every` before the current one. Where records are three minutes
///   apart the two are the same, and so are the table's numbers. With an
///   `every` without end, prev is the previous record, as the footnote says:
///   half of an idle period that ended by load then counts as busy.
/// - The second and third row leave out idle = curr - prev. The last input
///   was then at the previous snapshot, which is all that made it busy: we
///   take it for the second row, whose later end leans to busy.
/// - "No margin" (rows 1 and 3) rests on idle times that rwho rounds to whole
///   minutes, so they are good to a minute.
/// - The text fears that busy periods between two snapshots "would not be
///   detected". The first row detects those with input; those of load alone
///   are what goes undetected.
pub(super) fn estimate(facts: &[Fact], every: Duration) -> Vec<Fact> {
    let mut estimated: Vec<Fact> = vec![];
    let mut before: Option<&Fact> = None;
    for fact in facts {
        let prev = before.map_or(fact.at, |before| before.at.max(back(fact.at, every)));
        let gap = fact.at.since(prev);
        let idle = fact.input_idle.unwrap_or(Duration::MAX);
        let moved = |at: WallTime, margin| Fact { at, margin, ..*fact };
        match (before.map(|before| state_of(before.cause)), state_of(fact.cause)) {
            // Row 1: busy and idle again since the previous snapshot.
            (Some(PeriodState::Idle), PeriodState::Idle) if idle < gap => {
                let idle_at = back(fact.at, idle);
                let margin = idle_at.since(prev) / 2;
                let busy =
                    Fact { cause: Cause::Tty, slots: 0, ..moved(back(idle_at, margin), margin) };
                estimated.push(busy);
                estimated.push(moved(idle_at, Duration::ZERO));
            }
            // Row 3: the last input ended it.
            (Some(PeriodState::Busy), PeriodState::Idle) if idle < gap => {
                estimated.push(moved(back(fact.at, idle), Duration::ZERO));
            }
            // Row 2: whoever kept it busy has left since, or the load fell.
            (Some(PeriodState::Busy), PeriodState::Idle) => estimated.push(moved(fact.at, gap)),
            // Row 4.
            (Some(PeriodState::Idle), PeriodState::Busy) => {
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
