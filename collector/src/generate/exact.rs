//! Records at the moments of their transitions, as our agents write them.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, UsageRecord};
use rand::Rng;
use rand::rngs::StdRng;

use super::life::OwnerDoing;
use super::record::RecordWriter;
use super::truth::{Beat, IDLE_LOAD};
use crate::import::Observation;
use crate::origin::Origin;

/// Phalen 1994, Table 5: no activity "in the last minute" is idle.
const QUIET: Duration = Duration::from_secs(60);

/// Phalen 1994, §5: CHANGE tells of "load changes of greater than ten percent".
const CHANGE_PART: f64 = 0.1;

/// Unlike an agent, which needs a quiet minute to see it, START is followed by
/// the state at the same moment: the minute would be unknown time.
pub(super) fn write(
    truth: &[Beat],
    mut writer: RecordWriter,
    unannounced: f64,
    mut chance: StdRng,
) -> Vec<UsageRecord> {
    let mut memory = AgentMemory::default();
    for (place, beat) in truth.iter().enumerate() {
        let is_up = beat.doing != OwnerDoing::Stopped;
        let was_up =
            place.checked_sub(1).is_some_and(|before| truth[before].doing != OwnerDoing::Stopped);
        if is_up && !was_up {
            writer.boot(Origin::Generated, beat.start);
            memory = AgentMemory::default();
            memory.report(&mut writer, beat, Cause::Start, "generated: it starts");
        }
        if is_up && (beat.is_first || !was_up) {
            memory.turn(&mut writer, beat);
        } else if is_up {
            memory.change(&mut writer, beat);
        } else if was_up && !chance.random_bool(unannounced) {
            memory.report(&mut writer, beat, Cause::Finish, "generated: it stops");
        }
    }
    if let Some(last) = truth.last().filter(|last| last.doing != OwnerDoing::Stopped) {
        let end = Beat { start: last.end, ..*last };
        memory.report(&mut writer, &end, Cause::Finish, "generated: nobody looks any longer");
    }
    writer.records
}

/// What an agent remembers of its earlier records.
#[derive(Default)]
struct AgentMemory {
    last_input: Option<WallTime>,
    /// The load of the last record that said busy.
    reported: f64,
}

impl AgentMemory {
    /// The record that begins a stretch.
    fn turn(&mut self, writer: &mut RecordWriter, beat: &Beat) {
        let loaded = beat.load >= IDLE_LOAD;
        let (cause, reason) = match beat.doing {
            OwnerDoing::Visited if loaded => (Cause::Both, "generated: a visit, and load"),
            OwnerDoing::Visited => (Cause::Tty, "generated: a visit"),
            OwnerDoing::Loaded => (Cause::Load, "generated: load"),
            OwnerDoing::Away => (Cause::Idle, "generated: nobody is here"),
            OwnerDoing::Pausing => (Cause::Idle, "generated: the owner pauses"),
            OwnerDoing::Stopped => return,
        };
        if beat.doing == OwnerDoing::Visited {
            self.last_input = Some(beat.start);
        }
        self.reported = beat.load;
        self.report(writer, beat, cause, reason);
        if beat.doing == OwnerDoing::Visited {
            // The quiet minute at its end has no input.
            let visit = beat.stretch_end.since(beat.start);
            let input = visit.saturating_sub(QUIET);
            self.last_input = Some(super::life::later(beat.start, input.as_secs_f64()));
        }
    }

    fn change(&mut self, writer: &mut RecordWriter, beat: &Beat) {
        let changed = (beat.load - self.reported).abs() > CHANGE_PART * self.reported;
        if beat.load > IDLE_LOAD && changed {
            self.reported = beat.load;
            self.report(writer, beat, Cause::Change, "generated: the load changed");
        }
    }

    fn report(&mut self, writer: &mut RecordWriter, beat: &Beat, cause: Cause, reason: &str) {
        let load = writer.averages(beat.start, beat.load);
        let slots = if matches!(cause, Cause::Start | Cause::Finish) {
            0
        } else {
            writer.slots(beat.doing, beat.load)
        };
        writer.write(Observation {
            at: beat.start,
            cause,
            load,
            users: u32::from(matches!(beat.doing, OwnerDoing::Visited | OwnerDoing::Pausing)),
            // An owner who is there has just touched something.
            input_idle: self.last_input.map(|at| beat.start.since(at)),
            slots,
            reason: reason.to_owned(),
        });
    }
}
