//! Fair shares: whose turn it is at the next free place.
//!
//! Usage is counted in core-seconds, for as long as an attempt has its cores,
//! and halves with every half-life. Whoever has the lowest usage for their
//! share comes first; what runs now counts as if each place had been used for a
//! quantum longer, so that a burst of placements takes turns. A group is one to
//! the others, and shares among its members alike.
//!
//! The promise: nobody who waits is passed over for ever, because who is served
//! instead moves behind. Knows nothing of jobs and workstations, reads no clock,
//! and costs as much as there are users who wait.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_common::units;
use serde::{Deserialize, Serialize};

/// So often at most is a user's usage written down.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

/// What a site can choose about its shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShareConfig {
    /// After so long, usage counts half.
    #[serde(with = "units::duration")]
    pub half_life: Duration,
    /// A place that is taken now counts as if it had been used for so long.
    #[serde(with = "units::duration")]
    pub quantum: Duration,
    /// How many jobs of one user may be under way.
    pub jobs_max: u32,
    /// How many subprograms of one user may be queued.
    pub queued_max: u64,
    /// How many places of one core a user may have at a time; 0: as many as there
    /// are.
    pub running_max: u32,
    /// The weights of users; anybody else's is 1.
    pub users: BTreeMap<String, u32>,
    pub groups: BTreeMap<String, Group>,
}

/// Users that have one share together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub weight: u32,
    pub members: Vec<String>,
}

impl Default for ShareConfig {
    /// A day of half-life: yesterday's harvest counts half today. The limits
    /// keep one user's mistake small beside what all may have under way.
    fn default() -> Self {
        Self {
            half_life: Duration::from_secs(86_400),
            quantum: Duration::from_secs(60),
            jobs_max: 5_000,
            queued_max: 20_000_000,
            running_max: 0,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }
}

/// Why shares cannot be computed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareMistake {
    #[error("shares.half_life = {0:?} is too short: expected at least a second")]
    HalfLife(Duration),
    #[error("shares: the weight of `{0}` is 0: expected at least 1")]
    NoWeight(String),
    #[error("shares: `{0}` is in two groups: expected one at most")]
    TwoGroups(String),
}

impl ShareConfig {
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), ShareMistake> {
        if self.half_life < Duration::from_secs(1) {
            return Err(ShareMistake::HalfLife(self.half_life));
        }
        let groups = self.groups.iter().map(|(name, group)| (name, &group.weight));
        if let Some((name, _)) = self.users.iter().chain(groups).find(|(_, weight)| **weight == 0) {
            return Err(ShareMistake::NoWeight(name.clone()));
        }
        let mut members: Vec<&String> = self.groups.values().flat_map(|g| &g.members).collect();
        members.sort_unstable();
        match members.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ShareMistake::TwoGroups(pair[0].clone())),
            None => Ok(()),
        }
    }

    /// May one see what is the other's because of a group that they share?
    pub fn are_in_one_group(&self, one: &str, other: &str) -> bool {
        let has = |group: &Group, user| group.members.iter().any(|member| member == user);
        self.groups.values().any(|group| has(group, one) && has(group, other))
    }

    fn weight(&self, user: &str) -> f64 {
        self.users.get(user).copied().unwrap_or(1).into()
    }
}

/// How much one user has used, and uses.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Decayed place-seconds, as of a moment.
    used_s: f64,
    as_of: Moment,
    running: u32,
}

impl Account {
    /// While so many places are used, usage tends to what decays as fast as it
    /// grows; it halves its distance from there with every half-life.
    fn used(&self, now: Moment, half_life: Duration) -> f64 {
        let half_lives = now.since(self.as_of).as_secs_f64() / half_life.as_secs_f64();
        let kept = (-half_lives).exp2();
        let limit = f64::from(self.running) * half_life.as_secs_f64() / std::f64::consts::LN_2;
        self.used_s * kept + limit * (1.0 - kept)
    }

    fn settle(&mut self, now: Moment, half_life: Duration) {
        self.used_s = self.used(now, half_life);
        self.as_of = self.as_of.max(now);
    }

    fn factor(&self, now: Moment, config: &ShareConfig, weight: f64) -> f64 {
        let ahead = f64::from(self.running) * config.quantum.as_secs_f64();
        (self.used(now, config.half_life) + ahead) / weight
    }
}

/// Who comes first: the lower. Among the members of one group, or alone, the
/// second decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    pub group: f64,
    pub own: f64,
}

impl Claim {
    pub fn order(&self, other: &Self) -> Ordering {
        self.group.total_cmp(&other.group).then(self.own.total_cmp(&other.own))
    }
}

/// All users' usage, and their order.
#[derive(Debug, Default)]
pub struct Shares {
    config: ShareConfig,
    users: BTreeMap<String, Account>,
    groups: BTreeMap<String, Account>,
    group_of: BTreeMap<String, String>,
    /// Users whose usage is not written down as it is now, and when they are to
    /// be written.
    unwritten: BTreeSet<String>,
    write_at: Moment,
    /// Users whose claim has changed by more than time.
    changed: BTreeSet<String>,
}

impl Shares {
    pub fn new(now: Moment, config: ShareConfig) -> Self {
        let members = |(name, group): (&String, &Group)| {
            group.members.iter().map(|user| (user.clone(), name.clone())).collect::<Vec<_>>()
        };
        let group_of = config.groups.iter().flat_map(members).collect();
        Self { config, group_of, write_at: now + WRITTEN_EVERY, ..Self::default() }
    }

    pub fn config(&self) -> &ShareConfig {
        &self.config
    }

    /// What was known of a user before this life of the coordinator.
    pub fn restore(&mut self, now: Moment, user: &str, used_s: f64) {
        let used_s = if used_s.is_finite() { used_s.max(0.0) } else { 0.0 };
        self.change(now, user, |account| account.used_s += used_s);
    }

    /// How much is left of usage after a while.
    pub fn decayed(&self, used_s: f64, after: Duration) -> f64 {
        used_s * (-after.as_secs_f64() / self.config.half_life.as_secs_f64()).exp2()
    }

    /// What so many cores come to, used for so long until now.
    pub fn accrued(&self, span: Duration, cores: u32) -> f64 {
        let used_now = Account { running: cores, ..Account::default() };
        used_now.used(Moment::ZERO + span, self.config.half_life)
    }

    /// One of the user's attempts has so many cores from now on.
    pub fn placed(&mut self, now: Moment, user: &str, cores: u32) {
        self.change(now, user, |account| account.running += cores);
    }

    /// One of them has left its place.
    pub fn ended(&mut self, now: Moment, user: &str, cores: u32) {
        self.change(now, user, |account| account.running = account.running.saturating_sub(cores));
    }

    fn change(&mut self, now: Moment, user: &str, change: impl Fn(&mut Account)) {
        if !self.users.contains_key(user) {
            self.users.insert(user.to_owned(), Account::default());
        }
        let group = self.group_of.get(user);
        if let Some(group) = group.filter(|group| !self.groups.contains_key(*group)) {
            self.groups.insert(group.clone(), Account::default());
        }
        let group = group.and_then(|group| self.groups.get_mut(group));
        for account in self.users.get_mut(user).into_iter().chain(group) {
            account.settle(now, self.config.half_life);
            change(account);
        }
        if !self.unwritten.contains(user) {
            self.unwritten.insert(user.to_owned());
        }
        self.touch(user);
    }

    /// The user's claim is to be told.
    pub(crate) fn touch(&mut self, user: &str) {
        if !self.changed.contains(user) {
            self.changed.insert(user.to_owned());
        }
    }

    /// Users whose claim has changed since this was asked last, but for what
    /// time does. What one member of a group uses is the others' claim as well.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        let changed = std::mem::take(&mut self.changed);
        let groups: BTreeSet<&String> =
            changed.iter().filter_map(|user| self.group_of.get(user)).collect();
        let groups = groups.into_iter().filter_map(|group| self.config.groups.get(group));
        let members: Vec<String> = groups.flat_map(|group| group.members.clone()).collect();
        changed.into_iter().chain(members).collect()
    }

    /// The user's claim to the next free place: the lowest comes first.
    pub fn claim(&self, now: Moment, user: &str) -> Claim {
        let account = self.users.get(user).copied().unwrap_or_default();
        let own = account.factor(now, &self.config, self.config.weight(user));
        let group = self.group_of.get(user).map_or(own, |group| {
            let account = self.groups.get(group).copied().unwrap_or_default();
            account.factor(now, &self.config, self.group_weight(group))
        });
        Claim { group, own }
    }

    fn group_weight(&self, group: &str) -> f64 {
        self.config.groups.get(group).map_or(1, |group| group.weight).into()
    }

    pub fn used_s(&self, now: Moment, user: &str) -> f64 {
        self.users.get(user).map_or(0.0, |account| account.used(now, self.config.half_life))
    }

    pub fn running(&self, user: &str) -> u32 {
        self.users.get(user).map_or(0, |account| account.running)
    }

    /// May the user have one more place now?
    pub fn may_run(&self, user: &str) -> bool {
        self.config.running_max == 0 || self.running(user) < self.config.running_max
    }

    /// How many places more the user may have now.
    pub(crate) fn places_left(&self, user: &str) -> u32 {
        match self.config.running_max {
            0 => u32::MAX,
            most => most.saturating_sub(self.running(user)),
        }
    }

    pub fn group(&self, user: &str) -> Option<&str> {
        self.group_of.get(user).map(String::as_str)
    }

    /// Everybody who is known by name or has used something.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        let named = self.config.users.keys().chain(self.group_of.keys());
        self.users.keys().chain(named).map(String::as_str)
    }

    /// The user's part of the whole, if all of `among` want all they can get.
    pub fn share<'a>(&self, user: &str, among: impl Iterator<Item = &'a str>) -> f64 {
        let mut tops: BTreeMap<(bool, &str), f64> = BTreeMap::new();
        let mut inside = 0.0;
        let ours = self.group(user);
        for other in among {
            match self.group(other) {
                Some(group) => drop(tops.insert((true, group), self.group_weight(group))),
                None => drop(tops.insert((false, other), self.config.weight(other))),
            }
            if ours.is_some() && self.group(other) == ours {
                inside += self.config.weight(other);
            }
        }
        let total: f64 = tops.values().sum();
        let part = match ours {
            Some(group) if inside > 0.0 => {
                self.group_weight(group) * self.config.weight(user) / inside
            }
            Some(_) | None => self.config.weight(user),
        };
        if total > 0.0 { part / total } else { 1.0 }
    }

    /// What is to be written down, if that is due.
    pub fn due(&mut self, now: Moment) -> Vec<(String, f64)> {
        if now < self.write_at { vec![] } else { self.all_unwritten(now) }
    }

    /// What is to be written down, due or not.
    pub fn all_unwritten(&mut self, now: Moment) -> Vec<(String, f64)> {
        self.write_at = now + WRITTEN_EVERY;
        let users = std::mem::take(&mut self.unwritten).into_iter();
        users.map(|user| (user.clone(), self.used_s(now, &user))).collect()
    }
}

#[cfg(test)]
mod tests;
