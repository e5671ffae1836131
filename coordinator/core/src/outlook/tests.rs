use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const NEED: Duration = Duration::from_secs(1_800);
/// A Monday, 00:00 UTC.
const MONDAY: i64 = 4 * 24 * HOUR;

impl Outlook {
    /// The chance that it stays idle from now on for as long as is needed.
    fn chance(&self, common: &Common, now: WallTime, need: Duration) -> f64 {
        (-f64::from(self.risk(common, now, need))).exp()
    }
}

fn at(s: i64) -> WallTime {
    WallTime(MONDAY + s * S)
}

/// Two owners side by side, one away for two hours on average, one for a
/// quarter of an hour; and a workstation that nobody has seen before.
fn calm_new_and_restless() -> (Common, [Outlook; 3], WallTime) {
    let mut common = Common::default();
    let (mut calm, mut restless, mut new) =
        (Outlook::default(), Outlook::default(), Outlook::default());
    let mut now = at(0);
    for day in 0..20 {
        let from = day * 86_400;
        live(&mut calm, &mut common, from, 1, day.unsigned_abs(), |_| 7_200.0);
        now = live(&mut restless, &mut common, from, 1, 99 + day.unsigned_abs(), |_| 900.0);
    }
    new.turned_idle(now);
    (common, [calm, new, restless], now)
}

/// An owner who leaves for `idle_s(hour of the day)` on average, exponentially
/// distributed, and stays for ten minutes.
fn live(
    outlook: &mut Outlook,
    common: &mut Common,
    from: i64,
    days: i64,
    seed: u64,
    idle_s: impl Fn(i64) -> f64,
) -> WallTime {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut now, end) = (from, from + days * 86_400);
    outlook.turned_idle(at(now));
    while now < end {
        // By the second, so that the hour's rate is the one in force.
        if rng.random_bool(1.0 / idle_s(now / 3_600 % 24)) {
            outlook.turned_busy(common, at(now));
            now += 600;
            outlook.turned_idle(at(now));
        }
        now += 1;
    }
    outlook.turned_idle(at(end));
    at(end)
}

#[test]
fn a_workstation_left_alone_for_long_has_the_better_chance() {
    let (common, [calm, _, restless], now) = calm_new_and_restless();
    let chances = [calm, restless].map(|outlook| outlook.chance(&common, now, NEED));
    assert!((chances[0] - (-0.25_f64).exp()).abs() < 0.1, "{chances:?}");
    assert!((chances[1] - (-2.0_f64).exp()).abs() < 0.1, "{chances:?}");
}

#[test]
fn a_new_workstation_is_like_its_lab_neither_trusted_nor_shunned() {
    let (common, outlooks, now) = calm_new_and_restless();
    let chances = outlooks.map(|outlook| outlook.chance(&common, now, NEED));
    assert!(chances[0] > chances[1] && chances[1] > chances[2], "{chances:?}");
}

#[test]
fn the_hours_at_which_an_owner_comes_are_learned() {
    let mut common = Common::default();
    let mut outlook = Outlook::default();
    let office = |hour: i64| if (9..17).contains(&hour) { 900.0 } else { 14_400.0 };
    let end = live(&mut outlook, &mut common, 0, 28, 3, office);
    let chance_at = |hour: i64| {
        let mut idle = outlook.clone();
        let then = WallTime(end.0 + hour * HOUR);
        idle.turned_idle(then);
        idle.chance(&common, then, NEED)
    };
    let chances = [10, 2, 20].map(chance_at);
    assert!(chances[0] < 0.4 && chances[1] > 0.7 && chances[2] > 0.7, "{chances:?}");
}

#[test]
fn what_has_long_been_idle_is_likely_to_stay_so_where_most_visits_are_soon_repeated() {
    let mut common = Common::default();
    let mut outlook = Outlook::default();
    let mut now = 0;
    for period in 0..2_000 {
        outlook.turned_idle(at(now));
        now += if period % 10 == 0 { 40_000 } else { 90 };
        outlook.turned_busy(&mut common, at(now));
        now += 300;
    }
    outlook.turned_idle(at(now));
    let young = outlook.chance(&common, at(now), NEED);
    let old = outlook.chance(&common, at(now + 7_200), NEED);
    assert!(young < 0.3 && old > 0.8, "{young} {old}");
}

/// The chances are those of the thing itself, where the model is right.
#[test]
fn of_those_given_a_chance_of_one_half_one_half_stays_idle() {
    let mut common = Common::default();
    let mut rng = SmallRng::seed_from_u64(9);
    let (mut told, mut stayed, mut cases) = (0.0, 0.0, 0.0);
    for owner in 0..20 {
        let mean_s = rng.random_range(600.0..7_200.0);
        let mut outlook = Outlook::default();
        let mut now = live(&mut outlook, &mut common, 0, 14, owner, |_| mean_s);
        for _ in 0..200 {
            outlook.turned_idle(now);
            let idle_s = -mean_s * rng.random_range(f64::MIN_POSITIVE..1.0_f64).ln();
            told += outlook.chance(&common, now, NEED);
            stayed += f64::from(u8::from(idle_s > NEED.as_secs_f64()));
            cases += 1.0;
            now = now_plus(now, idle_s);
            outlook.turned_busy(&mut common, now);
            now = now_plus(now, 600.0);
        }
    }
    let (told, stayed) = (told / cases, stayed / cases);
    assert!((told - stayed).abs() < 0.03, "told {told}, stayed {stayed}");
}

#[expect(clippy::cast_possible_truncation, reason = "small")]
fn now_plus(now: WallTime, span_s: f64) -> WallTime {
    WallTime(now.0 + (span_s * 1e9) as i64)
}

#[test]
fn a_period_whose_end_was_not_seen_counts_for_its_length_only() {
    let (mut common, mut watched) = (Common::default(), Outlook::default());
    watched.turned_idle(at(0));
    let before = watched.chance(&common, at(0), NEED);
    watched.lost_sight(&mut common, at(86_400));
    watched.turned_idle(at(86_400));
    assert!(watched.chance(&common, at(86_400), NEED) > before);
    assert!(watched.whole.seen < 1e-6 && (common.whole.returns - 1.0).abs() < 1e-9);
}

#[test]
fn what_is_learned_as_it_lasts_is_learned_once() {
    let (mut common, mut outlook) = (Common::default(), Outlook::default());
    outlook.turned_idle(at(0));
    for s in [10, 700, 700, 650, 4_000] {
        outlook.still_idle(&mut common, at(s));
    }
    // Told late: the return counts, though its moment was taken for idle.
    outlook.turned_busy(&mut common, at(3_990));
    assert!((common.whole.watched_s - FIRST_GUESS_S - 4_000.0).abs() < 1e-6);
    assert!((common.whole.returns - 2.0).abs() < 1e-9 && outlook.whole.seen > 0.99);
    outlook.turned_busy(&mut common, at(5_000));
    assert!((common.whole.returns - 2.0).abs() < 1e-9, "it was not idle");
}

#[test]
fn the_past_fades() {
    let (mut common, mut outlook) = (Common::default(), Outlook::default());
    live(&mut outlook, &mut common, 0, 30, 4, |_| 900.0);
    let expected_in = |weeks: i64| {
        let (mut common, mut later) = (common.clone(), outlook.clone());
        let then = WallTime(at(30 * 86_400).0 + weeks * WEEK);
        later.turned_idle(then);
        later.lost_sight(&mut common, WallTime(then.0 + 1));
        later.whole.expected
    };
    assert!((expected_in(4) / expected_in(0) - 0.5).abs() < 0.02);
}

#[test]
fn pieces_end_at_hours_and_ages_and_fill_the_time_between() {
    let since = MONDAY + 59 * 60 * S;
    let pieces: Vec<_> = Pieces::new(since, since, since + 1_000 * S).collect();
    let spans: Vec<_> = pieces.iter().map(|p| (p.hour, p.band, p.spent_s)).collect();
    assert_eq!(spans, [(96, 0, 60.0), (97, 1, 240.0), (97, 2, 600.0), (97, 3, 100.0)]);
}

#[derive(Clone, Debug)]
enum Told {
    Idle(i64),
    Busy(i64),
    Lost(i64),
    Still(i64),
}

fn told() -> impl Strategy<Value = Told> {
    // Clocks jump, both ways and far.
    let when = prop_oneof![0i64..10_000_000, Just(i64::MAX / S), Just(i64::MIN / S), Just(-1)];
    (0..4, when).prop_map(|(what, s)| match what {
        0 => Told::Idle(s),
        1 => Told::Busy(s),
        2 => Told::Lost(s),
        _ => Told::Still(s),
    })
}

proptest! {
    #[test]
    fn a_chance_is_one_whatever_was_told_and_falls_with_the_need(
        told in prop::collection::vec(told(), 0..60),
        now in 0i64..20_000_000,
        needs in (0u64..10_000_000, 0u64..10_000_000),
    ) {
        let (mut common, mut outlook) = (Common::default(), Outlook::default());
        for event in told {
            let wall = |s: i64| WallTime(s.saturating_mul(S));
            match event {
                Told::Idle(s) => outlook.turned_idle(wall(s)),
                Told::Busy(s) => outlook.turned_busy(&mut common, wall(s)),
                Told::Lost(s) => outlook.lost_sight(&mut common, wall(s)),
                Told::Still(s) => outlook.still_idle(&mut common, wall(s)),
            }
        }
        let (short, long) = (needs.0.min(needs.1), needs.0.max(needs.1));
        let [short, long] =
            [short, long].map(|s| outlook.chance(&common, at(now), Duration::from_secs(s)));
        prop_assert!((0.0..=1.0).contains(&short) && (0.0..=1.0).contains(&long));
        prop_assert!(long <= short, "{} > {}", long, short);
        prop_assert!(outlook.chance(&common, at(now), Duration::ZERO) > 1.0 - 1e-12);
    }
}
