//! The chance that a workstation stays idle, told from the past.
//!
//! The return of an owner is taken for the event of a Poisson process whose
//! rate (the hazard) is constant over short pieces of time, each of one hour
//! of the week and one band of the idle period's age. The rate of a piece is a
//! product: the lab's usual rate at that hour and age, times how much more
//! often than usual this very owner returns: on the whole, at that part of the
//! week, at that age. The chance to stay idle from `now` for `need` is
//! `exp(-risk)`, where the risk is the sum of rate times time over the pieces
//! between.
//!
//! Each factor is an occurrence/exposure rate: returns seen, divided by the
//! time that was watched, or by the returns that one had to expect in it. That
//! is the maximum-likelihood estimate of a piecewise constant hazard, right
//! also for idle periods whose end was not seen (D. Clayton and M. Hills,
//! "Statistical Models in Epidemiology", 1993, ch. 4 to 6 and, for expected
//! numbers, 15). With a gamma prior of mean 1 its posterior mean is
//! `(seen + k) / (expected + k)`: a new workstation is like its lab, neither
//! trusted nor shunned, and a quiet one earns its place. The factors are
//! nested: each explains what those before it leave, so that no two of them
//! explain the same; one pass and a fixed amount of memory are enough.
//!
//! Measured on 247 library computers, two years of their owners' logins, all
//! but the first 200 days foretold: of those given a chance of 0.4 to 0.5 to stay idle for
//! two hours 45 % did, of those given 0.8 to 0.9 84 %; the Brier score is a
//! third below that of the lab's mean. The one chosen of all that were free on
//! a working day stayed for two hours 9 times in 10, against 4 for the last idle
//! and 6 for any. The longest idle did so as often: there, the age of a period
//! says nearly all, and some computers stand unused for days.
//!
//! The live coordinator keeps what was learned in its store (`record`): a
//! restart forgets at most what was learned since it was last written, and
//! nothing is learned twice.
//!
//! No peeking: only what [`Outlook`] was told counts, and it is told of the
//! past. Hours are those of UTC. Since there is one rate for each hour of the
//! week, a lab's time zone only shifts the table; when its clocks change, the
//! table is an hour off until the past fades.

mod record;

use std::time::Duration;

use gleaner_common::time::WallTime;

pub(crate) use self::record::Memory;
pub use self::record::{COMMON_BYTES, Forgotten, LearnedRecord, OUTLOOK_BYTES, ReadLearnedError};

const S: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * S;
const WEEK: i64 = 168 * HOUR;
const HOURS: usize = 168;

/// A week of one workstation is told apart in parts of three hours: it sees a
/// few returns a day, and an own rate for every hour would say more of chance
/// than of its owner.
const PARTS: usize = HOURS / 3;

/// Where the bands of age end, but for the last one, which never does. Finer
/// where most idle periods end (Phalen 1994, Figures 5 to 10: within minutes);
/// and some workstations stand idle for days.
const BANDS: usize = 12;
const BAND_ENDS: [i64; BANDS - 1] = [
    HOUR / 60,
    HOUR / 12,
    HOUR / 4,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    24 * HOUR,
    48 * HOUR,
    96 * HOUR,
];

/// How many returns the prior weighs as much as. 2 says that workstations of
/// one lab differ from their mean by 70 %. Of 1, 2, 5 and 10 the larger two
/// foretell worse (see above), the smaller two alike.
const PRIOR: f64 = 2.0;

/// Before anything is known of a lab: a return each half hour, with the
/// weight of one. A guess; a few hours of any lab overrule it.
const FIRST_GUESS_S: f64 = 1_800.0;

/// How much of the past is left after a week: half after four. Owners change
/// with the term, and the clocks with the season. Of half-lives of 1, 2, 4, 8
/// and 23 weeks this one foretells best (see above).
const FADE: f64 = 0.84;

/// A longer need is taken for this one, and of a longer idle period only the
/// end is learned: no clock can make it a long sum.
const SPAN_MAX: i64 = 2 * WEEK;

/// How many returns were seen, and how many were to be expected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ratio {
    seen: f32,
    expected: f32,
}

impl Ratio {
    /// How many times more than expected were seen, when the factor `allowed`
    /// is accounted for already.
    fn beyond(self, allowed: f64) -> f64 {
        (f64::from(self.seen) + PRIOR) / (f64::from(self.expected) * allowed + PRIOR)
    }

    #[expect(clippy::cast_possible_truncation, reason = "statistics; both are small")]
    fn learn(&mut self, seen: f64, expected: f64) {
        self.seen += seen as f32;
        self.expected += expected as f32;
    }

    #[expect(clippy::cast_possible_truncation, reason = "a factor below 1")]
    fn fade(&mut self, left: f64) {
        self.seen *= left as f32;
        self.expected *= left as f32;
    }
}

/// Returns and the time in which they were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    returns: f64,
    watched_s: f64,
}

impl Rate {
    /// The rate per second. While little was seen, the expected rate counts for
    /// as much as the prior's returns.
    fn value(self, expected: f64) -> f64 {
        expected * (self.returns + PRIOR) / (self.watched_s * expected + PRIOR)
    }

    fn learn(&mut self, returns: f64, watched_s: f64) {
        self.returns += returns;
        self.watched_s += watched_s;
    }

    fn fade(&mut self, left: f64) {
        self.returns *= left;
        self.watched_s *= left;
    }
}

/// A piece of time with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    hour: usize,
    band: usize,
    spent_s: f64,
}

/// The pieces between two moments of an idle period.
struct Pieces {
    since: i64,
    at: i64,
    to: i64,
    hour: usize,
    hour_ends: i64,
    band: usize,
}

impl Pieces {
    #[expect(clippy::cast_possible_truncation, reason = "a remainder below 168")]
    fn new(since: i64, from: i64, to: i64) -> Self {
        let hours = from.div_euclid(HOUR);
        Self {
            since,
            at: from,
            to,
            hour: hours.rem_euclid(WEEK / HOUR).cast_unsigned() as usize,
            hour_ends: (hours + 1).saturating_mul(HOUR),
            band: BAND_ENDS.partition_point(|end| *end <= from.saturating_sub(since)),
        }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.to {
            return None;
        }
        let band_ends =
            BAND_ENDS.get(self.band).map_or(i64::MAX, |e| self.since.saturating_add(*e));
        let end = self.to.min(self.hour_ends).min(band_ends);
        let (hour, band) = (self.hour, self.band);
        let spent_s = (end - self.at) as f64 / S as f64;
        if end == self.hour_ends {
            self.hour = (self.hour + 1) % HOURS;
            self.hour_ends = self.hour_ends.saturating_add(HOUR);
        }
        if end == band_ends && self.band < BAND_ENDS.len() {
            self.band += 1;
        }
        self.at = end;
        Some(Piece { hour, band, spent_s })
    }
}

/// How much of the past is left, for something learned at `at`; `None` if all
/// of it is.
fn left_of_past(week: &mut i64, at: i64) -> Option<f64> {
    let now = at.div_euclid(WEEK);
    let passed = now.saturating_sub(*week).clamp(0, 1_000);
    *week = now.max(*week);
    (passed > 0).then(|| FADE.powi(i32::try_from(passed).unwrap_or(0)))
}

/// What the workstations of a lab have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    whole: Rate,
    hours: [Rate; HOURS],
    bands: [Rate; BANDS],
    /// The rates by hour and band: at night a young period is likelier to last
    /// than at noon.
    pieces: Vec<[Rate; BANDS]>,
    week: i64,
    /// Until when anything was learned.
    learned: i64,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            whole: Rate { returns: 1.0, watched_s: FIRST_GUESS_S },
            hours: [Rate::default(); HOURS],
            bands: [Rate::default(); BANDS],
            pieces: vec![[Rate::default(); BANDS]; HOURS],
            week: i64::MIN,
            learned: i64::MIN,
        }
    }
}

impl Common {
    /// The usual rate. Little is seen of most pieces, so each is expected to
    /// be like its hour, times how its age compares with the mean.
    fn usual(&self, hour: usize, band: usize) -> f64 {
        let mean = self.whole.returns / self.whole.watched_s;
        let expected = self.hours[hour].value(mean) * self.bands[band].value(mean) / mean;
        self.pieces[hour][band].value(expected)
    }

    fn learn(&mut self, piece: Piece, returns: f64) {
        self.whole.learn(returns, piece.spent_s);
        self.hours[piece.hour].learn(returns, piece.spent_s);
        self.bands[piece.band].learn(returns, piece.spent_s);
        self.pieces[piece.hour][piece.band].learn(returns, piece.spent_s);
    }

    fn fade(&mut self, at: i64) {
        let Some(left) = left_of_past(&mut self.week, at) else { return };
        self.whole.fade(left);
        // The first guess never fades.
        self.whole.learn(1.0 - left, FIRST_GUESS_S * (1.0 - left));
        let rates = self.hours.iter_mut().chain(&mut self.bands);
        rates.chain(self.pieces.as_flattened_mut()).for_each(|rate| rate.fade(left));
    }
}

/// What is known of one workstation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    idle_since: Option<i64>,
    /// Until when the workstation's past was learned: nothing counts twice.
    learned: i64,
    week: i64,
    whole: Ratio,
    parts: [Ratio; PARTS],
    bands: [Ratio; BANDS],
}

impl Default for Outlook {
    fn default() -> Self {
        Self {
            idle_since: None,
            learned: i64::MIN,
            week: i64::MIN,
            whole: Ratio::default(),
            parts: [Ratio::default(); PARTS],
            bands: [Ratio::default(); BANDS],
        }
    }
}

impl Outlook {
    /// An idle period began; or goes on, if it was out of sight. What was
    /// learned of it is not learned again.
    pub fn turned_idle(&mut self, since: WallTime) {
        self.idle_since = Some(since.0);
        // A clock that was days ahead would have it never learn again.
        if self.learned > since.0.saturating_add(SPAN_MAX) {
            self.learned = since.0;
        }
    }

    /// The owner returned.
    pub fn turned_busy(&mut self, common: &mut Common, at: WallTime) {
        self.learn_until(common, at.0, true);
        self.idle_since = None;
    }

    /// The workstation can be watched no longer, and was idle until then.
    pub(crate) fn lost_sight(&mut self, common: &mut Common, at: WallTime) {
        self.learn_until(common, at.0, false);
        self.idle_since = None;
    }

    /// The workstation is idle still. This need not be told, but a period that
    /// lasts is learned as it lasts.
    pub fn still_idle(&mut self, common: &mut Common, at: WallTime) {
        self.learn_until(common, at.0, false);
    }

    /// Until when its past was learned.
    pub(crate) fn learned(&self) -> i64 {
        self.learned
    }

    /// How many returns of the owner are to be expected in that time.
    #[expect(clippy::cast_possible_truncation, reason = "a rank needs no more")]
    pub fn risk(&self, common: &Common, now: WallTime, need: Duration) -> f32 {
        let need = i64::try_from(need.as_nanos()).unwrap_or(i64::MAX).min(SPAN_MAX);
        let since = self.idle_since.map_or(now.0, |since| since.min(now.0));
        let whole = self.whole.beyond(1.0);
        let pieces = Pieces::new(since, now.0, now.0.saturating_add(need));
        let risk = pieces.map(|Piece { hour, band, spent_s }| {
            let own = self.parts[hour / 3].beyond(whole) * self.bands[band].beyond(whole);
            common.usual(hour, band) * own * spent_s
        });
        (whole * risk.sum::<f64>()) as f32
    }

    fn learn_until(&mut self, common: &mut Common, at: i64, returned: bool) {
        let Some(since) = self.idle_since else { return };
        let from = since.max(self.learned).max(at.saturating_sub(SPAN_MAX));
        self.learned = at.max(self.learned);
        common.learned = at.max(common.learned);
        common.fade(at);
        self.fade(at);
        for piece in Pieces::new(since, from, at) {
            self.learn(common, piece, 0.0);
        }
        if returned {
            // The return ended the piece before, should a new one begin here.
            let last = Pieces::new(since, at.saturating_sub(1).max(since), i64::MAX).next();
            if let Some(piece) = last {
                self.learn(common, Piece { spent_s: 0.0, ..piece }, 1.0);
            }
        }
    }

    /// Each factor is measured against the ones that it goes beyond.
    fn learn(&mut self, common: &mut Common, piece: Piece, returns: f64) {
        let Piece { hour, band, spent_s } = piece;
        let expected = common.usual(hour, band) * spent_s;
        let part = self.parts[hour / 3].beyond(self.whole.beyond(1.0));
        common.learn(piece, returns);
        self.whole.learn(returns, expected);
        self.parts[hour / 3].learn(returns, expected);
        self.bands[band].learn(returns, expected * part);
    }

    fn fade(&mut self, at: i64) {
        let Some(left) = left_of_past(&mut self.week, at) else { return };
        self.whole.fade(left);
        self.parts.iter_mut().for_each(|ratio| ratio.fade(left));
        self.bands.iter_mut().for_each(|ratio| ratio.fade(left));
    }
}

#[cfg(test)]
mod tests;
