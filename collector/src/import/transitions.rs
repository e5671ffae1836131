//! From snapshots of a workstation to transitions.
//!
//! Source: Phalen 1994, §5, Table 5. Knows nothing of files and of how a
//! snapshot was taken.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages};

use super::Observation;

/// Phalen 1994, §5: idle when the one-minute load is less than this.
const IDLE_LOAD: f32 = 0.25;

/// Table 5: `TTY` is activity "within one minute prior to" the snapshot.
const QUIET: Duration = Duration::from_secs(60);

/// Table 5: `CHANGE` is "more than ten percent".
const CHANGE_PART: f32 = 0.1;

/// What one snapshot says of one workstation that is up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) load: LoadAverages,
    pub(crate) users: u32,
    pub(crate) input_idle: Option<Duration>,
}

/// Watches one workstation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watcher {
    /// The last snapshot that had it up.
    seen: Option<LastSnapshot>,
}

#[derive(Clone, Copy, Debug)]
struct LastSnapshot {
    at: WallTime,
    snapshot: Snapshot,
    busy: bool,
    /// The load that stands in the last record.
    reported_load: f32,
}

impl Watcher {
    /// The workstation is up and looks like this.
    pub(crate) fn up(&mut self, at: WallTime, snapshot: Snapshot) -> Vec<Observation> {
        let loaded = snapshot.load.one >= IDLE_LOAD;
        let typed = snapshot.input_idle.is_some_and(|idle| idle < QUIET);
        let busy_cause = match (loaded, typed) {
            (true, true) => Some(Cause::Both),
            (true, false) => Some(Cause::Load),
            (false, true) => Some(Cause::Tty),
            (false, false) => None,
        };
        let causes = match (self.seen, busy_cause) {
            // Table 5 has no category for what a workstation is when it begins: the
            // record after START says it, at the same moment.
            (None, cause) => vec![Cause::Start, cause.unwrap_or(Cause::Idle)],
            (Some(seen), Some(cause)) if !seen.busy => vec![cause],
            (Some(seen), Some(_)) if loaded && changed(seen.reported_load, snapshot.load.one) => {
                vec![Cause::Change]
            }
            (Some(_), Some(_)) => vec![],
            (Some(seen), None) if seen.busy => vec![Cause::Idle],
            // Input since the last snapshot: the owner was there in between (Table 6,
            // first row, has IDLE after IDLE).
            (Some(seen), None) => {
                let visited = snapshot.input_idle.is_some_and(|idle| idle < at.since(seen.at));
                if visited { vec![Cause::Idle] } else { vec![] }
            }
        };
        let reported =
            if causes.is_empty() { self.seen.map(|seen| seen.reported_load) } else { None };
        self.seen = Some(LastSnapshot {
            at,
            snapshot,
            busy: busy_cause.is_some(),
            reported_load: reported.unwrap_or(snapshot.load.one),
        });
        causes.into_iter().map(|cause| observation(at, cause, &snapshot)).collect()
    }

    /// The workstation is down or gone, as of `at`.
    pub(crate) fn gone(&mut self, at: WallTime) -> Option<Observation> {
        let seen = self.seen.take()?;
        Some(observation(at, Cause::Finish, &seen.snapshot))
    }

    /// Nobody looked for a long time: the workstation is finished as of when it
    /// was last seen.
    pub(crate) fn lost_sight(&mut self) -> Option<Observation> {
        let seen = self.seen?;
        self.gone(seen.at)
    }
}

fn changed(from: f32, to: f32) -> bool {
    (to - from).abs() > CHANGE_PART * from.abs()
}

fn observation(at: WallTime, cause: Cause, snapshot: &Snapshot) -> Observation {
    let Snapshot { load, users, input_idle } = *snapshot;
    let input = input_idle.map_or("none".into(), |idle| format!("{} min ago", idle.as_secs() / 60));
    Observation {
        at,
        cause,
        load,
        users,
        input_idle,
        // The snapshot does not tell the cores: an idle machine counts as one.
        slots: u16::from(cause == Cause::Idle),
        reason: format!("snapshot: load {:.2}, input {input}", load.one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots every three minutes, as load and minutes since input.
    #[track_caller]
    fn check(snapshots: &[(f32, Option<u64>)], expected: &[(u64, Cause)]) {
        let mut watcher = Watcher::default();
        let mut got = vec![];
        for (number, (one, idle)) in (0..).zip(snapshots) {
            let at = WallTime::from_unix_s(number * 180);
            let snapshot = Snapshot {
                load: LoadAverages { one: *one, five: 0.0, fifteen: 0.0 },
                users: u32::from(idle.is_some()),
                input_idle: idle.map(|minutes| Duration::from_secs(60 * minutes)),
            };
            got.extend(watcher.up(at, snapshot).iter().map(|o| (number.unsigned_abs(), o.cause)));
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn each_category_of_table_5_is_written_once() {
        check(
            &[
                (0.0, None),
                (0.0, Some(0)),
                (0.0, Some(3)),
                (0.30, Some(6)),
                (0.32, Some(9)),
                (0.40, Some(12)),
                (0.10, Some(15)),
                (0.60, Some(0)),
            ],
            &[
                (0, Cause::Start),
                (0, Cause::Idle),
                (1, Cause::Tty),
                (2, Cause::Idle),
                (3, Cause::Load),
                (5, Cause::Change),
                (6, Cause::Idle),
                (7, Cause::Both),
            ],
        );
    }

    #[test]
    fn a_visit_between_two_snapshots_leaves_a_second_idle() {
        check(
            &[(0.0, Some(30)), (0.0, Some(33)), (0.0, Some(2)), (0.0, Some(5))],
            &[(0, Cause::Start), (0, Cause::Idle), (2, Cause::Idle)],
        );
    }

    #[test]
    fn a_load_of_exactly_a_quarter_is_busy() {
        check(&[(0.25, None)], &[(0, Cause::Start), (0, Cause::Load)]);
    }
}
