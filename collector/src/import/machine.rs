//! From the states of a machine, as others traced them, to transitions.
//!
//! Traces say that a machine is in use, free or off. In use is busy, with the
//! cause TTY: somebody logged on. Free is IDLE. Off is the time between FINISH
//! and START. Knows nothing of files.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};

use super::local::LocalMoment;
use super::{Numbering, Observation};
use crate::name::WorkstationName;
use crate::origin::Origin;

/// What a trace says a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineDoing {
    InUse,
    Free,
    /// The machine came up, and nobody uses it.
    Restarted,
    Off,
}

/// What a row shows: that it says nothing new, or that the state before it was
/// held too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowFinding {
    /// The row names the state that the machine was in already.
    pub(super) repeated: bool,
    /// How long the state before this row was held, if too long to be believed.
    pub(super) overlong: Option<Duration>,
}

/// Why a row cannot follow the rows before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderError {
    Earlier,
    TwoAtOnce,
}

/// One machine of a trace.
#[derive(Debug)]
pub(super) struct Machine {
    name: WorkstationName,
    numbering: Numbering,
    /// Since when the machine does what it does, and what that is.
    held: Option<(WallTime, MachineDoing)>,
    /// When the last row was, which may have repeated it.
    last: WallTime,
    /// The state began while the clock was put forward: the moment stands for an
    /// hour of rows.
    blurred: bool,
    /// Whether a run of records is open.
    up: bool,
}

impl Machine {
    pub(super) fn new(name: &WorkstationName) -> Self {
        let numbering = Numbering::new(Origin::Trace, name);
        let (held, last) = (None, WallTime(i64::MIN));
        Self { name: name.clone(), numbering, held, last, blurred: false, up: false }
    }

    pub(super) fn name(&self) -> &WorkstationName {
        &self.name
    }

    /// The machine began to do this; its records are added to `records`. A
    /// state that was held for longer than `hold_max`, however often it was
    /// repeated, is not believed: its run ends where the state began.
    ///
    /// Of an hour that came twice a row is taken for the first time, unless the
    /// row before it was later already.
    pub(super) fn enter(
        &mut self,
        local: impl Into<LocalMoment>,
        doing: MachineDoing,
        word: &str,
        hold_max: Duration,
        records: &mut Vec<UsageRecord>,
    ) -> Result<RowFinding, OrderError> {
        let local = local.into();
        let at = self.moment(local, doing);
        let is_blurred = matches!(local, LocalMoment::Never(_));
        let mut finding = RowFinding::default();
        if at < self.last {
            return Err(OrderError::Earlier);
        }
        self.last = at;
        if let Some((since, was)) = self.held {
            // Who restarts again was up in between.
            if was == doing && (doing != MachineDoing::Restarted || at == since) {
                return Ok(RowFinding { repeated: true, ..finding });
            }
            // Down and up again at once is possible, by another trace's clock.
            let is_possible = was == MachineDoing::Off || is_blurred || self.blurred;
            if at == since && !is_possible {
                return Err(OrderError::TwoAtOnce);
            }
            let held = at.since(since);
            if held > hold_max {
                finding.overlong = Some(held);
                self.finish(since, "held for too long to be believed", records);
            }
        }
        (self.held, self.blurred) = (Some((at, doing)), is_blurred);
        match doing {
            MachineDoing::Off => self.finish(at, word, records),
            MachineDoing::Restarted => {
                self.finish(at, "it came up again", records);
                self.say(at, Cause::Idle, word, records);
            }
            MachineDoing::Free => self.say(at, Cause::Idle, word, records),
            MachineDoing::InUse => self.say(at, Cause::Tty, word, records),
        }
        Ok(finding)
    }

    /// Which moment a local time was, after the rows so far.
    fn moment(&self, local: LocalMoment, doing: MachineDoing) -> WallTime {
        let says_more = self.held.is_none_or(|(_, held)| held != doing);
        if let LocalMoment::Twice { first, second } = local
            && first == self.last
            && says_more
        {
            return second;
        }
        local.from(self.last)
    }

    fn say(&mut self, at: WallTime, cause: Cause, word: &str, records: &mut Vec<UsageRecord>) {
        if !self.up {
            self.up = true;
            records.push(self.numbering.number(observation(at, Cause::Start, word)));
        }
        records.push(self.numbering.number(observation(at, cause, word)));
    }

    fn finish(&mut self, at: WallTime, word: &str, records: &mut Vec<UsageRecord>) {
        if std::mem::take(&mut self.up) {
            records.push(self.numbering.number(observation(at, Cause::Finish, word)));
        }
    }
}

/// A trace tells neither load nor input.
fn observation(at: WallTime, cause: Cause, word: &str) -> Observation {
    Observation {
        at,
        cause,
        load: LoadAverages::default(),
        users: u32::from(cause == Cause::Tty),
        input_idle: None,
        // A trace tells no cores either: an idle machine counts as one.
        slots: u16::from(cause == Cause::Idle),
        reason: word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use Cause::{Finish, Idle, Start, Tty};
    use MachineDoing::{Free, InUse, Off, Restarted};

    use super::*;
    use crate::timeline::{Interpretation, PeriodState, interpret};
    use gleaner_collector_core::samples::name;

    const HOLD_MAX: Duration = Duration::from_secs(1_000);

    #[test]
    fn the_hours_of_clock_changes_keep_rows_in_order() {
        let at = WallTime::from_unix_s;
        let twice = |s| LocalMoment::Twice { first: at(s), second: at(s + 3_600) };
        let mut machine = Machine::new(&name("inc004"));
        let mut records = vec![];
        let mut enter = |local: LocalMoment, doing| {
            machine.enter(local, doing, "", Duration::MAX, &mut records).unwrap();
        };
        // The clock is put back at 3,600: half past comes twice.
        enter(twice(1_800), Free);
        enter(twice(600), InUse);
        enter(twice(1_800), Free);
        enter(at(7_200).into(), InUse);
        // At 9,000 it is put forward, over whatever these rows say.
        enter(LocalMoment::Never(at(9_000)), Free);
        enter(LocalMoment::Never(at(9_000)), InUse);
        enter(at(9_000).into(), Free);
        let got: Vec<_> = records.iter().map(|r| (r.at.unix_s(), r.cause)).collect();
        let expected = [
            (1_800.0, Start),
            (1_800.0, Idle),
            (4_200.0, Tty),
            (5_400.0, Idle),
            (7_200.0, Tty),
            (9_000.0, Idle),
            (9_000.0, Tty),
            (9_000.0, Idle),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn a_reboot_that_nobody_saw_going_down_ends_an_idle_period() {
        let rows = [(0, Free), (10, Restarted), (30, Restarted), (60, InUse), (70, Off)];
        let timeline = interpret(records(&rows), Interpretation::AsTaken);
        let periods: Vec<_> =
            timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect();
        let (idle, busy) = (PeriodState::Idle, PeriodState::Busy);
        assert_eq!(periods, [(idle, 10), (idle, 20), (idle, 30), (busy, 10)]);
        assert_eq!(timeline.notes, []);
    }

    fn records(rows: &[(i64, MachineDoing)]) -> Vec<UsageRecord> {
        let mut machine = Machine::new(&name("inc004"));
        let mut records = vec![];
        for (s, doing) in rows {
            let at = WallTime::from_unix_s(*s);
            machine.enter(at, *doing, "word", HOLD_MAX, &mut records).unwrap();
        }
        records
    }

    #[track_caller]
    fn check(rows: &[(i64, MachineDoing)], expected: &[(f64, Cause)]) {
        let got: Vec<_> = records(rows).iter().map(|r| (r.at.unix_s(), r.cause)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn in_use_is_tty_free_is_idle_and_off_lies_between_finish_and_start() {
        check(
            &[(0, Off), (10, Restarted), (20, InUse), (30, Free), (40, Off), (50, InUse)],
            &[
                (10.0, Start),
                (10.0, Idle),
                (20.0, Tty),
                (30.0, Idle),
                (40.0, Finish),
                (50.0, Start),
                (50.0, Tty),
            ],
        );
    }

    #[test]
    fn a_state_that_is_told_again_is_merged() {
        check(
            &[(0, Free), (10, Free), (20, Off), (30, Off)],
            &[(0.0, Start), (0.0, Idle), (20.0, Finish)],
        );
        let mut machine = Machine::new(&name("inc004"));
        let mut records = vec![];
        let mut enter =
            |s| machine.enter(WallTime::from_unix_s(s), Free, "", HOLD_MAX, &mut records);
        assert_eq!(enter(0).map(|finding| finding.repeated), Ok(false));
        assert_eq!(enter(9).map(|finding| finding.repeated), Ok(true));
    }

    #[test]
    fn a_restart_that_nobody_saw_going_down_is_another_boot() {
        let records = records(&[(0, InUse), (10, Restarted), (20, Off)]);
        let boots: std::collections::BTreeSet<_> = records.iter().map(|r| r.boot).collect();
        assert_eq!(boots.len(), 2);
        assert_eq!(records.len(), 6);
    }

    #[test]
    fn a_state_that_lasts_too_long_is_no_data() {
        let timeline = interpret(
            records(&[(0, Free), (100, InUse), (600, InUse), (1_101, Free), (1_200, Off)]),
            Interpretation::AsTaken,
        );
        let periods: Vec<_> =
            timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect();
        assert_eq!(
            periods,
            [(PeriodState::Idle, 100), (PeriodState::Unknown, 1_001), (PeriodState::Idle, 99)]
        );
    }

    #[test]
    fn rows_go_forward_and_say_one_thing_at_a_time() {
        let mut machine = Machine::new(&name("inc004"));
        let mut records = vec![];
        let mut enter = |s, doing| {
            machine.enter(WallTime::from_unix_s(s), doing, "", HOLD_MAX, &mut records).err()
        };
        assert_eq!(enter(5, Free), None);
        assert_eq!(enter(5, InUse), Some(OrderError::TwoAtOnce));
        assert_eq!(enter(4, InUse), Some(OrderError::Earlier));
        assert_eq!(enter(5, Free), None);
    }
}
