//! Is the owner here?
//!
//! Turns what the sensors observe into one verdict, busy or idle, and into
//! the transitions of the usage log with their causes (Phalen 1994, §5,
//! Tables 4 and 5). The promise: busy is immediate, idle needs a quiet
//! period, and whoever cannot be heard does not vouch for idleness. Every
//! verdict has a reason that a person can read.
//!
//! Knows nothing of guests, of devices or of the wall clock.

mod closing;
mod connections;
mod observation;
mod reason;
mod screens;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::time::{Moment, Spoken};
use gleaner_common::units;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::Presence;
use serde::{Deserialize, Serialize};

use self::closing::Closing;
use self::connections::Connections;
pub use self::observation::{
    Allowance, Connection, Culprit, Health, Heat, Observation, Pause, PauseEnd, Power, Screen,
    Sensor, Word,
};
use self::reason::{Why, spoken_safely};
use self::screens::Screens;
pub use self::screens::WORD_LASTS;
use crate::load::{Load, LoadSample};

/// When a workstation counts as idle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criteria {
    /// How long nobody must have touched anything. Phalen 1994, Table 5: one
    /// minute.
    #[serde(with = "units::duration")]
    pub quiet: Duration,
    /// The highest one-minute load average of an idle workstation. Phalen
    /// 1994, §5: 0.25 filters out the system's own activity.
    pub load_idle_max: f64,
    /// How long the load must have been under the criterion before it counts
    /// as such, so that a load close to it does not make the verdict flap.
    /// 15 s: three samples, a guess, not yet measured.
    #[serde(with = "units::duration")]
    pub load_quiet: Duration,
    /// Cores in use by the owner that mean busy before the average shows it.
    /// Half a core: one task that runs without a pause is twice that.
    pub rise_cores: f64,
    /// The machine is too hot for guests above it. 90 °C: where many processors
    /// begin to slow down, a guess.
    pub celsius_max: f32,
    /// By what fraction the load must have changed to be worth a CHANGE
    /// record. Phalen 1994, §5: ten percent.
    pub change_fraction: f64,
    /// The least time between two CHANGE records. Phalen 1994, §5 looked
    /// every three minutes; we look every few seconds, and a single rise of
    /// the load would fill a page.
    #[serde(with = "units::duration")]
    pub change_gap_min: Duration,
    /// Without these nothing vouches for idleness.
    pub required: BTreeSet<Sensor>,
}

impl Default for Criteria {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(60),
            load_idle_max: 0.25,
            load_quiet: Duration::from_secs(15),
            rise_cores: 0.5,
            celsius_max: 90.0,
            change_fraction: 0.10,
            change_gap_min: Duration::from_secs(60),
            required: BTreeSet::from([Sensor::Terminals, Sensor::Load]),
        }
    }
}

/// One record of the usage log but for what the shell knows: boot, sequence
/// and the wall time.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    pub cause: Cause,
    pub load: LoadAverages,
    pub users: u32,
    /// The shortest time since anything was used; `None`: never seen in use.
    pub input_idle: Option<Duration>,
    pub slots: u16,
    pub reason: String,
    /// Load has turned the workstation busy: one look at whose process it is
    /// pays ([`Observation::Culprit`]).
    pub by_load: bool,
}

/// Terminals and devices are not listened to for so long after each event, so
/// that a flood of keystrokes costs nothing; the quiet period grows by it,
/// because a key pressed in that time goes unseen.
pub const INPUT_BLIND: Duration = Duration::from_millis(250);

/// A load sensor that has said nothing for so long does not vouch any more:
/// six of its idle periods.
pub const LOAD_SILENCE_MAX: Duration = Duration::from_secs(30);

/// Within this time, a second word of waking is of the same sleep.
const WOKEN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
struct Touch {
    source: String,
    at: Moment,
}

/// Everything known of the owner.
#[derive(Clone, Debug)]
pub struct Occupancy {
    criteria: Criteria,
    cores: u16,
    health: BTreeMap<Sensor, Health>,
    load: Load,
    /// The last sample that spoke for busy.
    loaded: Option<Moment>,
    /// Who loads it, while it is busy.
    culprit: Option<Culprit>,
    /// The last time, of those in `loaded`, that the owners' processes waited or
    /// worked too much, and how.
    pressed: Option<(Moment, String)>,
    /// What the owners' processes had used, and when.
    slice: Option<(Moment, Duration)>,
    touch: Option<Touch>,
    holds: BTreeMap<String, String>,
    screens: Screens,
    connections: Connections,
    closing: Closing,
    pause: Option<Pause>,
    asleep: bool,
    /// The load sensor has been found silent, and has said nothing since.
    silent: bool,
    users: BTreeMap<Sensor, BTreeSet<u32>>,
    /// Since when we have been watching without a break.
    watching: Moment,
    busy: bool,
    since: Moment,
    /// The last record said busy or idle; `None`: it was START or FINISH.
    said: Option<bool>,
    /// The load of the last record that said busy.
    recorded: (Moment, f64),
}

impl Occupancy {
    /// Starts busy: without evidence, the owner is here. The transition is
    /// the START record.
    pub fn new(now: Moment, cores: u16, criteria: Criteria) -> (Self, Transition) {
        let cores = cores.max(1);
        let started = Self {
            criteria,
            cores,
            health: BTreeMap::new(),
            load: Load::new(cores),
            loaded: None,
            culprit: None,
            pressed: None,
            slice: None,
            touch: None,
            holds: BTreeMap::new(),
            screens: Screens::default(),
            connections: Connections::default(),
            closing: Closing::default(),
            pause: None,
            asleep: false,
            silent: false,
            users: BTreeMap::new(),
            watching: now,
            busy: true,
            since: now,
            said: None,
            recorded: (now, 0.0),
        };
        let transition = started.record(now, Cause::Start, "the agent started".into());
        (started, transition)
    }

    pub fn is_busy(&self) -> bool {
        self.busy
    }

    pub fn pause(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    /// Is no guest to be here at all, not even a demoted one?
    pub fn is_claimed(&self) -> bool {
        self.asleep || self.pause.is_some() || self.closing.first().is_some()
    }

    /// What others are told of at once when it changes: busy or idle, the cores
    /// free of the owner, whether it is known who loads them, and how many
    /// people are logged in.
    pub fn told(&self, now: Moment) -> (bool, u16, bool, u32) {
        (self.busy, self.slots(now), self.culprit.is_some(), self.users())
    }

    /// How many people are logged in; one may be seen by more than one sensor.
    fn users(&self) -> u32 {
        let all: BTreeSet<&u32> = self.users.values().flatten().collect();
        u32::try_from(all.len()).unwrap_or(u32::MAX)
    }

    pub fn load(&self) -> LoadAverages {
        self.load.averages()
    }

    /// Every sensor with its health; one that has never reported is absent.
    pub fn sensors(&self) -> Vec<(Sensor, Health)> {
        let never = || Health::Absent("has not reported".into());
        Sensor::ALL
            .into_iter()
            .map(|sensor| (sensor, self.health.get(&sensor).cloned().unwrap_or_else(never)))
            .collect()
    }

    /// Takes an observation in; the transition is for the usage log.
    pub fn observe(&mut self, now: Moment, observation: Observation) -> Option<Transition> {
        match observation {
            Observation::Input { source, ago } => self.touched(source, now - ago),
            Observation::Load(sample) => self.sampled(now, &sample),
            Observation::Culprit(culprit) => self.culprit = self.busy.then_some(culprit),
            Observation::Users { by, uids } => {
                self.users.insert(by, uids);
            }
            Observation::Screen { id, screen } => {
                if let Some(what) = self.screens.changed(id, screen) {
                    self.touched(format!("{what} is idle no more"), now);
                }
            }
            Observation::Word(word) => {
                self.touched(word.display.clone(), now - word.idle);
                self.screens.said(now, word);
            }
            Observation::WordsEnd { helper } => self.screens.left(helper),
            Observation::Connections(present) => {
                for (what, ago) in self.connections.looked(now, present) {
                    self.touched(what, now - ago);
                }
            }
            Observation::Slice { used } => self.used(now, used),
            Observation::Pressed { what } => self.pressed(now, what),
            Observation::Power(power) => self.closing.powered(power),
            Observation::Metered { by } => self.closing.metered(by.as_deref()),
            Observation::Heat(heat) => self.closing.heated(&heat, self.criteria.celsius_max),
            Observation::Held { id, what } => {
                self.holds.insert(id, what);
            }
            Observation::Released { id } => {
                if let Some(what) = self.holds.remove(&id) {
                    // Whoever ended the film may be sitting there.
                    self.touched(format!("end of {what}"), now);
                }
            }
            Observation::Locked { session, locked: false } => {
                self.touched(format!("{session} unlocked"), now);
            }
            Observation::Locked { locked: true, .. } => {}
            Observation::Health { sensor, health } => {
                if matches!(health, Health::Sick(_) | Health::Absent(_)) {
                    self.closing.forget(sensor);
                }
                self.health.insert(sensor, health);
            }
            Observation::Paused(pause) => self.pause = Some(pause),
            Observation::Unpaused => self.pause = None,
            Observation::AboutToSleep if self.asleep => {}
            Observation::AboutToSleep => {
                self.asleep = true;
                return Some(self.finish(now, "the machine is about to sleep".into()));
            }
            // Said twice, by whoever announced the sleep and by the clocks.
            Observation::Woke if !self.asleep && now.since(self.watching) < WOKEN => {}
            Observation::Woke => return Some(self.woke(now)),
        }
        self.judge(now)
    }

    /// The FINISH record, when the agent stops or the machine goes to sleep.
    pub fn finish(&mut self, now: Moment, reason: String) -> Transition {
        self.asleep = true;
        self.turn(now, true);
        self.said = None;
        self.record(now, Cause::Finish, reason)
    }

    /// When `wake` is due. Ask again after every `observe` and `wake`.
    pub fn deadline(&self) -> Option<Moment> {
        // A word that is forgotten may leave a session that nothing hears.
        if self.busy {
            return self.idle_at();
        }
        self.silent_at().into_iter().chain(self.screens.deadline()).min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    pub fn wake(&mut self, now: Moment) -> Option<Transition> {
        self.judge(now)
    }

    pub fn presence(&self, now: Moment) -> Presence {
        Presence {
            busy: self.busy,
            reason: self.reason(now),
            lasted: now.since(self.since),
            slots: self.slots(now),
            load: self.load.averages(),
            users: self.users(),
        }
    }

    /// "busy: pts/3, 2.0 s ago" or "idle for 12 min".
    pub fn verdict(&self, now: Moment) -> String {
        if self.busy {
            format!("busy: {}", self.reason(now))
        } else {
            format!("idle for {}", Spoken(now.since(self.since)))
        }
    }

    /// Cores free of the owner: the analogue view. Load up to the criterion
    /// takes none, and whoever touches the machine has one at the least.
    pub fn slots(&self, now: Moment) -> u16 {
        let at_hand = match self.why(now) {
            Some(
                Why::Asleep | Why::Paused(_) | Why::Closed(_) | Why::Unheard(..) | Why::Silent(_),
            ) => return 0,
            Some(Why::Held(_) | Why::Deaf(_) | Why::Touched(_) | Why::Unknown) => 1,
            Some(Why::Loaded) | None => 0,
        };
        let used = self.load.one().max(self.load.use_cores().unwrap_or(0.0));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "floats saturate, and a machine has fewer cores than that"
        )]
        let loaded = (used - self.criteria.load_idle_max).ceil() as u16;
        self.cores.saturating_sub(loaded.max(at_hand))
    }

    fn touched(&mut self, source: String, at: Moment) {
        if self.touch.as_ref().is_none_or(|touch| touch.at <= at) {
            self.touch = Some(Touch { source, at });
        }
    }

    fn sampled(&mut self, now: Moment, sample: &LoadSample) {
        self.health.entry(Sensor::Load).or_insert(Health::Well);
        self.load.sample(now, sample);
        self.silent = false;
        if self.is_loaded() {
            self.loaded = Some(now);
        } else if !self.is_recently_loaded(now) {
            self.culprit = None;
        }
    }

    /// The owners' processes have used so much in all.
    fn used(&mut self, now: Moment, used: Duration) {
        let Some((at, before)) = self.slice.replace((now, used)) else { return };
        let span = now.since(at).as_secs_f64();
        let cores = used.saturating_sub(before).as_secs_f64() / span;
        if span >= 0.5 && cores > self.criteria.rise_cores {
            self.pressed(now, format!("people's processes use {cores:.1} cores"));
        }
    }

    fn pressed(&mut self, now: Moment, what: String) {
        self.loaded = Some(now);
        self.pressed = Some((now, what));
    }

    /// Does the input sensor hear the keyboards and pointers of this machine?
    fn hears_seats(&self) -> bool {
        matches!(self.health.get(&Sensor::Input), Some(Health::Well | Health::Degraded(_)))
    }

    fn woke(&mut self, now: Moment) -> Transition {
        self.asleep = false;
        self.watching = now;
        self.turn(now, true);
        self.said = None;
        self.record(now, Cause::Start, "the machine woke".into())
    }

    /// Is the load above the criterion, or on its way there?
    fn is_loaded(&self) -> bool {
        self.load.one() > self.criteria.load_idle_max || self.is_rising()
    }

    fn is_rising(&self) -> bool {
        self.load.use_cores().is_some_and(|used| used > self.criteria.rise_cores)
    }

    fn quiet(&self) -> Duration {
        self.criteria.quiet + INPUT_BLIND
    }

    /// The first sensor that does not vouch though it should.
    fn unheard(&self) -> Option<(Sensor, Option<&Health>)> {
        let is_sick = |(_, health): &(&Sensor, &Health)| matches!(health, Health::Sick(_));
        let sick = self.health.iter().find(is_sick).map(|(sensor, health)| (*sensor, Some(health)));
        let absent = self.criteria.required.iter().find_map(|sensor| {
            let health = self.health.get(sensor);
            matches!(health, None | Some(Health::Absent(_))).then_some((*sensor, health))
        });
        sick.into_iter().chain(absent).min_by_key(|(sensor, _)| *sensor)
    }

    /// When the load sensor was last heard; it has time from when we began to
    /// watch, too.
    fn load_heard(&self) -> Moment {
        self.load.sampled().map_or(self.watching, |at| at.max(self.watching))
    }

    /// When the load sensor will have been silent for too long.
    fn silent_at(&self) -> Option<Moment> {
        let absent = matches!(self.health.get(&Sensor::Load), None | Some(Health::Absent(_)));
        if absent && !self.criteria.required.contains(&Sensor::Load) {
            return None;
        }
        Some(self.load_heard() + LOAD_SILENCE_MAX)
    }

    /// When the workstation will be idle if nothing more happens; `None` if
    /// something has to happen first.
    fn idle_at(&self) -> Option<Moment> {
        let stopped = self.asleep || self.silent || self.unheard().is_some();
        let held = !self.holds.is_empty() || self.closing.first().is_some();
        let deaf = self.screens.unheard(self.hears_seats()).is_some();
        if stopped || held || deaf || self.is_loaded() {
            return None;
        }
        let pause = match &self.pause {
            None => Moment::ZERO,
            Some(pause) => pause.until.as_ref()?.at,
        };
        let touch = self.touch.as_ref().map_or(Moment::ZERO, |touch| touch.at + self.quiet());
        let loaded = self.loaded.map_or(Moment::ZERO, |at| at + self.criteria.load_quiet);
        Some(pause.max(touch).max(loaded).max(self.watching + self.quiet()))
    }

    fn recent_touch(&self, now: Moment) -> Option<&Touch> {
        self.touch.as_ref().filter(|touch| now < touch.at + self.quiet())
    }

    fn is_recently_loaded(&self, now: Moment) -> bool {
        self.is_loaded() || self.loaded.is_some_and(|at| now < at + self.criteria.load_quiet)
    }

    fn judge(&mut self, now: Moment) -> Option<Transition> {
        if self.asleep {
            // FINISH was the last word; the next one is START.
            return None;
        }
        self.screens.forget(now);
        self.silent |= self.silent_at().is_some_and(|at| now >= at);
        let Some(why) = self.why(now) else {
            if !self.busy {
                return None;
            }
            self.turn(now, false);
            self.said = Some(false);
            let reason = self.reason(now);
            return Some(self.record(now, Cause::Idle, reason));
        };
        let evident =
            !matches!(why, Why::Unknown | Why::Unheard(_, None | Some(Health::Absent(_))));
        let cause = self.busy_cause(now, &why);
        if !self.busy || self.said != Some(true) && evident {
            self.turn(now, true);
            return Some(self.say_busy(now, cause));
        }
        self.load_changed(now).then(|| self.say_busy(now, Cause::Change))
    }

    /// Phalen 1994, Table 5. Her three busy causes must do for ours as well:
    /// whatever the owner or the desktop does counts as terminal activity.
    fn busy_cause(&self, now: Moment, why: &Why<'_>) -> Cause {
        let pressed = self.pressed.as_ref().is_some_and(|(at, _)| Some(*at) == self.loaded);
        let load = self.is_loaded()
            || pressed && self.is_recently_loaded(now)
            || matches!(why, Why::Silent(_) | Why::Unheard(Sensor::Load, _));
        let touched = self.recent_touch(now).is_some() || !self.holds.is_empty();
        match (touched, load) {
            (true, true) => Cause::Both,
            (false, true) => Cause::Load,
            (_, false) => Cause::Tty,
        }
    }

    /// Phalen 1994, Table 5, CHANGE: the load changed by more than a tenth
    /// and exceeds the criterion.
    fn load_changed(&self, now: Moment) -> bool {
        let (at, before) = self.recorded;
        let one = self.load.one();
        self.said == Some(true)
            && one > self.criteria.load_idle_max
            && (one - before).abs() > self.criteria.change_fraction * before
            && now.since(at) >= self.criteria.change_gap_min
    }

    fn say_busy(&mut self, now: Moment, cause: Cause) -> Transition {
        self.said = Some(true);
        self.recorded = (now, self.load.one());
        let reason = self.reason(now);
        let by_load = cause == Cause::Load && self.is_loaded();
        Transition { by_load, ..self.record(now, cause, reason) }
    }

    fn turn(&mut self, now: Moment, busy: bool) {
        if self.busy != busy {
            (self.busy, self.since, self.culprit) = (busy, now, None);
        }
    }

    fn record(&self, now: Moment, cause: Cause, reason: String) -> Transition {
        Transition {
            cause,
            load: self.load.averages(),
            users: self.users(),
            input_idle: self.touch.as_ref().map(|touch| now.since(touch.at)),
            slots: self.slots(now),
            reason: spoken_safely(reason),
            by_load: false,
        }
    }
}

#[cfg(test)]
mod tests;
