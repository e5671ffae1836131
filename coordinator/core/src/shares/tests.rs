//! Shares on a small site: places that are taken in turn.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const START: Moment = Moment(1_000_000_000);

fn name(user: usize) -> String {
    format!("user{user}")
}

fn site(weights: &[u32]) -> ShareConfig {
    let users = weights.iter().enumerate().map(|(user, weight)| (name(user), *weight));
    ShareConfig { users: users.collect(), half_life: s(3_600), ..ShareConfig::default() }
}

/// So many places, and users who always want more.
struct Site {
    shares: Shares,
    now: Moment,
    rng: SmallRng,
    places: Vec<(Moment, String)>,
    /// Place-seconds by user.
    used: BTreeMap<String, f64>,
    order: Vec<String>,
}

impl Site {
    fn run(seed: u64, config: &ShareConfig, users: &[String], placements: usize) -> Self {
        let mut site = Self {
            shares: Shares::new(START, config.clone()),
            now: START,
            rng: SmallRng::seed_from_u64(seed),
            places: vec![],
            used: BTreeMap::new(),
            order: vec![],
        };
        while site.order.len() < placements {
            if site.places.len() < 5 {
                site.place(users);
            } else {
                site.end_first();
            }
        }
        site
    }

    fn place(&mut self, users: &[String]) {
        let claim = |user: &&String| self.shares.claim(self.now, user);
        let next = users.iter().min_by(|a, b| claim(a).order(&claim(b))).unwrap().clone();
        let span = s(self.rng.random_range(1..120));
        self.shares.placed(self.now, &next, 1);
        *self.used.entry(next.clone()).or_default() += span.as_secs_f64();
        self.places.push((self.now + span, next.clone()));
        self.order.push(next);
    }

    fn end_first(&mut self) {
        let first = (0..self.places.len()).min_by_key(|at| self.places[*at].0).unwrap();
        let (at, user) = self.places.swap_remove(first);
        self.now = at;
        self.shares.ended(at, &user, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shares_are_met_in_the_long_run(
        seed in any::<u64>(),
        weights in proptest::collection::vec(1u32..6, 2..6),
    ) {
        let users: Vec<String> = (0..weights.len()).map(name).collect();
        let site = Site::run(seed, &site(&weights), &users, 6_000);
        let total: f64 = site.used.values().sum();
        for user in &users {
            let part = site.used[user] / total;
            let share = site.shares.share(user, users.iter().map(String::as_str));
            prop_assert!((part - share).abs() < 0.03, "{user}: {part} of {share}");
        }
    }

    #[test]
    fn nobody_who_waits_starves(
        seed in any::<u64>(),
        weights in proptest::collection::vec(1u32..20, 2..6),
    ) {
        let users: Vec<String> = (0..weights.len()).map(name).collect();
        let site = Site::run(seed, &site(&weights), &users, 3_000);
        for user in &users {
            let turns: Vec<usize> =
                (0..site.order.len()).filter(|at| site.order[*at] == *user).collect();
            let longest = turns.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(usize::MAX);
            // The lowest share is a hundredth.
            prop_assert!(longest < 1_000, "{user} waited {longest} turns");
        }
    }

    #[test]
    fn equal_seeds_give_equal_orders(seed in any::<u64>(), weights in [1u32..6, 1..6, 1..6]) {
        let users: Vec<String> = (0..weights.len()).map(name).collect();
        let run = || Site::run(seed, &site(&weights), &users, 500).order;
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn usage_is_the_same_however_often_it_is_asked(cuts in proptest::collection::vec(1u64..900, 1..20)) {
        let mut shares = Shares::new(START, ShareConfig { half_life: s(600), ..ShareConfig::default() });
        let whole = Shares::new(START, shares.config().clone());
        shares.placed(START, "ada", 1);
        let mut now = START;
        for cut in cuts {
            now = now + s(cut);
            // A second place that is left at once settles the account.
            shares.placed(now, "ada", 1);
            shares.ended(now, "ada", 1);
        }
        let (asked, expected) = (shares.used_s(now, "ada"), whole.accrued(now.since(START), 1));
        prop_assert!((asked - expected).abs() < 1e-6 * expected.max(1.0), "{asked}, {expected}");
    }
}

#[test]
fn usage_halves_with_every_half_life() {
    let mut shares = Shares::new(START, site(&[]));
    shares.restore(START, "ada", 800.0);
    for (after, left) in [(0, 800.0), (1, 400.0), (2, 200.0), (3, 100.0)] {
        let used = shares.used_s(START + s(3_600) * after, "ada");
        assert!((used - left).abs() < 1e-6, "{used}");
    }
}

#[test]
fn a_second_at_a_place_is_a_place_second() {
    let mut shares = Shares::new(START, ShareConfig::default());
    shares.placed(START, "ada", 1);
    shares.placed(START, "ada", 1);
    shares.ended(START + s(10), "ada", 1);
    shares.ended(START + s(10), "ada", 1);
    let used = shares.used_s(START + s(10), "ada");
    assert!((used - 20.0).abs() < 0.01, "{used}");
}

#[test]
fn a_burst_takes_turns_by_what_runs_already() {
    let users = [name(0), name(1)];
    let mut shares = Shares::new(START, ShareConfig::default());
    for _ in 0..20 {
        let claim = |user: &&String| shares.claim(START, user);
        let next = users.iter().min_by(|a, b| claim(a).order(&claim(b))).unwrap();
        shares.placed(START, next, 1);
    }
    assert_eq!(users.each_ref().map(|user| shares.running(user)), [10, 10]);
}

#[test]
fn a_group_is_one_to_the_others_however_many_it_has() {
    let members = (0..3).map(name).collect();
    let groups = BTreeMap::from([("vision".to_owned(), Group { weight: 1, members })]);
    let config = ShareConfig { groups, half_life: s(3_600), ..ShareConfig::default() };
    let users: Vec<String> = (0..4).map(name).collect();
    let site = Site::run(7, &config, &users, 6_000);
    let total: f64 = site.used.values().sum();
    let alone = site.used[&name(3)] / total;
    assert!((alone - 0.5).abs() < 0.03, "{alone}");
    // Where only one of a group wants places, all of its share is theirs.
    let site = Site::run(7, &config, &users[2..], 6_000);
    let total: f64 = site.used.values().sum();
    let alone = site.used[&name(3)] / total;
    assert!((alone - 0.5).abs() < 0.03, "{alone}");
}

#[test]
fn usage_is_written_once_a_minute_at_most() {
    let mut shares = Shares::new(START, ShareConfig::default());
    shares.placed(START, "ada", 1);
    assert_eq!(shares.due(START + s(59)), []);
    assert_eq!(shares.due(START + s(60)).len(), 1);
    for second in 61..120 {
        shares.placed(START + s(second), "ada", 1);
        assert_eq!(shares.due(START + s(second)), []);
    }
    assert_eq!(shares.due(START + s(120)).len(), 1);
    assert_eq!(shares.due(START + s(600)), [], "nothing has changed");
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    let group = |members: &[&str]| Group {
        weight: 1,
        members: members.iter().map(|it| (*it).to_owned()).collect(),
    };
    let two = BTreeMap::from([("a".into(), group(&["ada"])), ("b".into(), group(&["ada"]))]);
    let refused = |config: ShareConfig| config.check().unwrap_err().to_string();
    let config = ShareConfig { groups: two, ..ShareConfig::default() };
    assert_eq!(refused(config), "shares: `ada` is in two groups: expected one at most");
    assert!(refused(site(&[0])).contains("expected at least 1"));
    assert_eq!(ShareConfig::default().check(), Ok(()));
}
