//! What a look every three minutes shows, written down by the rules of
//! Phalen's collection.
//!
//! Source: Phalen 1994, §5, Tables 4 and 5; the same watcher that turns
//! imported rwho snapshots into records.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{LoadAverages, UsageRecord};
use rand::Rng;
use rand::rngs::StdRng;

use super::GeneratorPlan;
use super::life::{OwnerDoing, later};
use super::record::RecordWriter;
use super::truth::{Beat, IDLE_LOAD};
use crate::import::Observation;
use crate::import::transitions::{Snapshot, Watcher};
use crate::origin::Origin;

const EVERY_S: f64 = 180.0;

/// The chance that an owner who leaves logs out at once: a guess, not measured.
/// Whoever does not leaves an idle time behind, which Table 6 makes use of.
const LOGS_OUT: f64 = 0.5;

/// A visit's last input is a quiet minute before its end, as with agents.
const QUIET_S: f64 = 60.0;

pub(super) fn write(
    truth: &[Beat],
    writer: RecordWriter,
    plan: &GeneratorPlan,
    chance: StdRng,
) -> Vec<UsageRecord> {
    let mut look =
        Look { writer, chance, watcher: Watcher::default(), watched: false, login: None };
    let (mut at, mut place) = (plan.from, 0);
    while at < plan.to {
        while truth.get(place).is_some_and(|beat| beat.end <= at) {
            look.pass(&truth[place], truth.get(place + 1));
            place += 1;
        }
        let Some(beat) = truth.get(place) else { break };
        look.at(at, beat, place.checked_sub(1).map(|before| &truth[before]));
        at = later(at, EVERY_S);
    }
    // When the collection ends, nothing more is known.
    let ended = look.watcher.gone(plan.to);
    look.tell(ended);
    look.writer.records
}

struct Look {
    writer: RecordWriter,
    chance: StdRng,
    watcher: Watcher,
    /// A boot has begun.
    watched: bool,
    /// Somebody is logged in, and last touched something then.
    login: Option<WallTime>,
}

impl Look {
    /// A beat is over.
    fn pass(&mut self, beat: &Beat, next: Option<&Beat>) {
        let left = next.is_some_and(|next| next.doing == OwnerDoing::Away);
        match beat.doing {
            OwnerDoing::Visited if left && self.chance.random_bool(LOGS_OUT) => self.login = None,
            OwnerDoing::Visited => self.login = Some(later(beat.end, -QUIET_S).max(beat.start)),
            OwnerDoing::Stopped => self.login = None,
            OwnerDoing::Away | OwnerDoing::Pausing | OwnerDoing::Loaded => {}
        }
    }

    fn at(&mut self, at: WallTime, beat: &Beat, before: Option<&Beat>) {
        if beat.doing == OwnerDoing::Stopped {
            let gone = self.watcher.gone(at);
            self.tell(gone);
            self.watched = false;
            return;
        }
        if !self.watched {
            self.writer.boot(Origin::Rwho, at);
            self.watched = true;
        }
        let snapshot = self.snapshot(at, beat, before);
        let seen = self.watcher.up(at, snapshot);
        self.tell(seen);
    }

    fn snapshot(&mut self, at: WallTime, beat: &Beat, before: Option<&Beat>) -> Snapshot {
        if beat.doing == OwnerDoing::Visited {
            // Typing stops a quiet minute before the end.
            let typed = later(beat.stretch_end, -QUIET_S).min(at).max(beat.start);
            self.login = Some(typed);
        }
        let one = one_minute(at, beat, before);
        let LoadAverages { five, fifteen, .. } = self.writer.averages(at, one);
        #[expect(clippy::cast_possible_truncation, reason = "records hold loads as f32")]
        let one = ((one * 100.0).round() / 100.0) as f32;
        // rwho tells whole minutes.
        let minutes = |since: WallTime| Duration::from_secs(at.since(since).as_secs() / 60 * 60);
        Snapshot {
            load: LoadAverages { one, five, fifteen },
            users: u32::from(self.login.is_some()),
            input_idle: self.login.map(minutes),
        }
    }

    fn tell(&mut self, observed: impl IntoIterator<Item = Observation>) {
        observed.into_iter().for_each(|observation| self.writer.write(observation));
    }
}

/// After load, the average falls from the criterion, under which it just was.
fn one_minute(at: WallTime, beat: &Beat, before: Option<&Beat>) -> f64 {
    let is_idle = matches!(beat.doing, OwnerDoing::Away | OwnerDoing::Pausing);
    let was_loaded = before.is_some_and(|before| before.load >= IDLE_LOAD);
    if is_idle && was_loaded {
        let fallen = (-at.since(beat.start).as_secs_f64() / 60.0).exp();
        return beat.load + (IDLE_LOAD - 0.01 - beat.load) * fallen;
    }
    beat.load
}
