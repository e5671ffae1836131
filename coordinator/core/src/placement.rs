//! Which of the free workstations is chosen.
//!
//! A policy turns what is known of a workstation into a cost, whenever
//! something of that changes; the free workstation with the lowest cost is the
//! first of an ordered index, [`Free`]. So choosing among ten thousand takes no
//! more than a look at the first, and a new policy is one more formula here.
//! The live coordinator and replay both place with this.

mod free;

use std::time::Duration;

use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

pub use self::free::{Free, Has};

/// A placement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The workstation that turned idle last (Phalen 1994, §6.4: "strictly in
    /// a LIFO manner").
    LastIdleFirst,
    /// The one that has been idle longest (Phalen 1994, §7.2.3).
    FirstIdleFirst,
    /// The best by load, idle time and speed, as Quahog did (Phalen 1994,
    /// §4.3.2).
    Ranked,
    /// The one that is likeliest to stay idle for as long as a guest needs,
    /// told from its own past ([`Outlook`](crate::outlook::Outlook)). Among
    /// equals the one that turned idle last. The default: on library computers
    /// in 2016 (`data/campaigns/library.toml`, 95 % by week) programs moved 0.29
    /// [0.24, 0.37] times as often as with the last idle first on 100 of them,
    /// 0.20 [0.16, 0.28] on 150, and took no longer.
    #[default]
    LikelyLongest,
}

impl Policy {
    pub const ALL: [Self; 4] =
        [Self::LastIdleFirst, Self::FirstIdleFirst, Self::Ranked, Self::LikelyLongest];

    /// What it costs to choose this workstation, compared with others.
    pub fn cost(self, candidate: &Candidate) -> Cost {
        match self {
            Self::LastIdleFirst => Cost::new(u64::MAX - candidate.idle_since.0),
            Self::FirstIdleFirst => Cost::new(candidate.idle_since.0),
            Self::Ranked => Cost::new(step_cost(candidate)),
            Self::LikelyLongest => Cost::new(risk_cost(candidate)),
        }
    }

    /// Does a cost change while nothing happens? Then it is as old as what it
    /// was made from: a caller that wants it exact computes all costs anew
    /// before choosing ([`Free::refresh`]). The live coordinator does not: it
    /// hears of each workstation again within a heartbeat.
    pub fn ages(self) -> bool {
        match self {
            Self::LastIdleFirst | Self::FirstIdleFirst => false,
            Self::Ranked | Self::LikelyLongest => true,
        }
    }

    /// Does the policy look at a candidate's risk, which takes an outlook to
    /// tell?
    pub fn asks_outlook(self) -> bool {
        self == Self::LikelyLongest
    }
}

/// What a policy looks at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub idle_since: Moment,
    /// How long the workstation had been idle when it was last heard from.
    pub idle_for: Duration,
    pub load_1m: f32,
    /// The workstation's speed; 0 if it was never measured.
    pub speed: f32,
    /// How many returns of its owner are to be expected while a guest is
    /// here ([`Outlook::risk`](crate::outlook::Outlook::risk)); anything
    /// where the policy does not ask.
    pub risk: f32,
}

/// After an hour, more idle time says nothing new. A guess: Phalen 1994
/// (Figures 5 to 50) has few idle periods that last an hour and end soon after.
const IDLE_COUNTS_MAX: Duration = Duration::from_secs(3_600);

/// How long a step of work takes there, in arbitrary units: the slower and
/// the more loaded the longer, and up to twice as long where the owner left
/// just now and may be back soon.
///
/// Quahog's own formula is not printed; Phalen 1994, §4.3.2 says that it ranks
/// by system parameters that tell the level of user activity. Load and idle
/// time are those; speed comes from what a job gains. All of it is taken when
/// the workstation was last heard from, so idle time is as old as a heartbeat.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the clamps keep it between 0 and 2^53, and the cast saturates"
)]
fn step_cost(candidate: &Candidate) -> u64 {
    let tame = |value: f32, least: f64, most: f64| {
        let value = f64::from(value);
        if value.is_finite() { value.clamp(least, most) } else { most }
    };
    let load = tame(candidate.load_1m, 0.0, 1e3);
    let speed = if candidate.speed > 0.0 { tame(candidate.speed, 1.0, 1e6) } else { 1.0 };
    let idle = candidate.idle_for.min(IDLE_COUNTS_MAX).as_secs_f64();
    let doubt = 2.0 - idle / IDLE_COUNTS_MAX.as_secs_f64();
    ((1.0 + load) * doubt / speed * 1e12) as u64
}

/// The risk to a relative precision of 2^-11, then how long ago it turned
/// idle, in steps of a millisecond or so: risks that are as good as equal
/// leave the choice to chance otherwise.
///
/// Floats of one sign are ordered as their bits are. The lower 12 bits of the
/// risk make room for the time, whose 44 bits last for 557 years.
fn risk_cost(candidate: &Candidate) -> u64 {
    let risk = if candidate.risk >= 0.0 { candidate.risk } else { f32::INFINITY };
    let recency = (1 << 44) - 1 - ((candidate.idle_since.0 >> 20) & ((1 << 44) - 1));
    u64::from((risk + 0.0).to_bits() >> 12) << 44 | recency
}

/// What it costs to choose a workstation; the free one with the lowest cost
/// comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

impl Cost {
    /// The cost of nobody, above every other.
    const NONE: Self = Self(u64::MAX);

    /// The two highest numbers make the same cost.
    pub fn new(order: u64) -> Self {
        Self(order.min(u64::MAX - 1))
    }
}

/// How often costs were compared, for the test that choosing is no scan.
#[cfg(test)]
pub(crate) mod compared {
    use std::cell::Cell;

    thread_local! {
        pub(crate) static COUNT: Cell<u64> = const { Cell::new(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(idle_s: u64, load_1m: f32, speed: f32) -> Candidate {
        let idle_for = Duration::from_secs(idle_s);
        Candidate {
            idle_since: Moment(u64::MAX / 2) - idle_for,
            idle_for,
            load_1m,
            speed,
            risk: 0.0,
        }
    }

    #[track_caller]
    fn check_prefers(policy: Policy, better: &Candidate, worse: &Candidate) {
        assert!(policy.cost(better) < policy.cost(worse), "{policy:?}: {better:?}, {worse:?}");
    }

    #[test]
    fn each_policy_prefers_what_its_name_says() {
        let (long, short) = (candidate(900, 0.1, 100.0), candidate(60, 0.1, 100.0));
        check_prefers(Policy::LastIdleFirst, &short, &long);
        check_prefers(Policy::FirstIdleFirst, &long, &short);
        check_prefers(Policy::Ranked, &long, &short);
    }

    #[test]
    fn the_ranked_policy_prefers_fast_and_unloaded_workstations() {
        let plain = candidate(60, 0.2, 100.0);
        check_prefers(Policy::Ranked, &candidate(60, 0.0, 100.0), &plain);
        check_prefers(Policy::Ranked, &candidate(60, 0.2, 200.0), &plain);
        check_prefers(Policy::Ranked, &plain, &candidate(60, 0.2, 0.0));
    }

    #[test]
    fn the_likely_longest_is_the_least_at_risk_and_among_equals_the_last_idle() {
        let at_risk = |risk, idle_s| Candidate { risk, ..candidate(idle_s, 0.0, 1.0) };
        let risks = [0.0, 1e-6, 0.3, 0.301, 12.0, f32::INFINITY];
        for pair in risks.windows(2) {
            check_prefers(Policy::LikelyLongest, &at_risk(pair[0], 9), &at_risk(pair[1], 5));
        }
        check_prefers(Policy::LikelyLongest, &at_risk(0.3, 5), &at_risk(0.3, 9));
        check_prefers(Policy::LikelyLongest, &at_risk(9.0, 5), &at_risk(f32::NAN, 5));
        check_prefers(Policy::LikelyLongest, &at_risk(9.0, 5), &at_risk(-1.0, 5));
    }

    #[test]
    fn mad_figures_rank_last_and_do_no_harm() {
        let plain = candidate(60, 0.2, 100.0);
        for mad in [f32::NAN, f32::INFINITY] {
            check_prefers(Policy::Ranked, &plain, &candidate(60, mad, 100.0));
        }
        for speed in [f32::NAN, f32::NEG_INFINITY, -1.0, 0.0] {
            check_prefers(Policy::Ranked, &plain, &candidate(60, 0.2, speed));
        }
    }
}
