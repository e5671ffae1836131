//! Records at the moments of their transitions, as our agents write them.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, UsageRecord};
use rand::Rng;
use rand::rngs::StdRng;

use super::life::Doing;
use super::record::Writer;
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
    mut writer: Writer,
    unannounced: f64,
    mut chance: StdRng,
) -> Vec<UsageRecord> {
    let mut hand = Hand::default();
    for (place, beat) in truth.iter().enumerate() {
        let is_up = beat.doing != Doing::Stopped;
        let was_up =
            place.checked_sub(1).is_some_and(|before| truth[before].doing != Doing::Stopped);
        if is_up && !was_up {
            writer.boot(Origin::Generated, beat.start);
            hand = Hand::default();
            hand.tell(&mut writer, beat, Cause::Start, "generated: it starts");
        }
        if is_up && (beat.is_first || !was_up) {
            hand.turn(&mut writer, beat);
        } else if is_up {
            hand.change(&mut writer, beat);
        } else if was_up && !chance.random_bool(unannounced) {
            hand.tell(&mut writer, beat, Cause::Finish, "generated: it stops");
        }
    }
    if let Some(last) = truth.last().filter(|last| last.doing != Doing::Stopped) {
        let end = Beat { start: last.end, ..*last };
        hand.tell(&mut writer, &end, Cause::Finish, "generated: nobody looks any longer");
    }
    writer.records
}

/// What an agent keeps in mind.
#[derive(Default)]
struct Hand {
    last_input: Option<WallTime>,
    /// The load of the last record that said busy.
    told: f64,
}

impl Hand {
    /// The record that begins a stretch.
    fn turn(&mut self, writer: &mut Writer, beat: &Beat) {
        let loaded = beat.load >= IDLE_LOAD;
        let (cause, reason) = match beat.doing {
            Doing::Visited if loaded => (Cause::Both, "generated: a visit, and load"),
            Doing::Visited => (Cause::Tty, "generated: a visit"),
            Doing::Loaded => (Cause::Load, "generated: load"),
            Doing::Away => (Cause::Idle, "generated: nobody is here"),
            Doing::Pausing => (Cause::Idle, "generated: the owner pauses"),
            Doing::Stopped => return,
        };
        if beat.doing == Doing::Visited {
            self.last_input = Some(beat.start);
        }
        self.told = beat.load;
        self.tell(writer, beat, cause, reason);
        if beat.doing == Doing::Visited {
            // The quiet minute at its end has no input.
            let visit = beat.stretch_end.since(beat.start);
            let input = visit.saturating_sub(QUIET);
            self.last_input = Some(super::life::later(beat.start, input.as_secs_f64()));
        }
    }

    fn change(&mut self, writer: &mut Writer, beat: &Beat) {
        let changed = (beat.load - self.told).abs() > CHANGE_PART * self.told;
        if beat.load > IDLE_LOAD && changed {
            self.told = beat.load;
            self.tell(writer, beat, Cause::Change, "generated: the load changed");
        }
    }

    fn tell(&mut self, writer: &mut Writer, beat: &Beat, cause: Cause, reason: &str) {
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
            users: u32::from(matches!(beat.doing, Doing::Visited | Doing::Pausing)),
            // Somebody who is there has just touched something.
            input_idle: self.last_input.map(|at| beat.start.since(at)),
            slots,
            reason: reason.to_owned(),
        });
    }
}
