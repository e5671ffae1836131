//! All workstations, and the ordered indexes that make placing no scan.
//!
//! The promise: the indexes always agree with the workstations, because the
//! only way to change one is [`Pool::update`]. A guest is placed only where all
//! that it asks for is free. Knows nothing of jobs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::WorkstationId;
use gleaner_common::time::{Moment, WallTime};

use crate::core::Config;
use crate::job::Avoided;
use crate::needs::Needs;
use crate::outlook::{Common, LearnedRecord, Memory, Outlook};
use crate::placement::{Cost, Free, Has};
use crate::workstation::{Standing, Workstation};

/// How much work the core keeps at an agent beyond its free places, so that a
/// place never waits for the network: several round trips, commit included.
/// A guess, not yet measured.
pub(crate) const AHEAD: Duration = Duration::from_millis(50);

/// How often what was learned of owners is written down: a coordinator that dies
/// forgets so much of many weeks. A guess, not yet measured.
const LEARNED_EVERY: Duration = Duration::from_secs(3_600);

/// Of so many workstations at once: a round of ten thousand is no commit that
/// anybody waits for.
const LEARNED_AT_ONCE: usize = 64;

/// The keys of a workstation in the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexKeys {
    standing: Standing,
    /// Its cost among the free ones, and what is free of it.
    cost: Option<(Cost, Amounts)>,
    /// Its wait among the full ones that something can be sent ahead to.
    wait: Option<Duration>,
    due: Option<Moment>,
    /// How many more cores guests may have.
    room: u32,
    /// How many they would if no owner ever came; `None` if it has never said.
    places: Option<u32>,
}

impl Has for Amounts {
    fn or_more(self, other: Self) -> Self {
        Self::or_more(self, other)
    }
}

#[derive(Debug)]
struct PoolEntry {
    workstation: Workstation,
    keys: IndexKeys,
    /// What its past tells, once the policy asks for it.
    outlook: Option<Box<Outlook>>,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Three kilobytes, which whoever holds a core need not carry on the stack.
    past: Box<OwnersPast>,
    entries: BTreeMap<WorkstationId, PoolEntry>,
    by_name: BTreeMap<String, WorkstationId>,
    free: Free<WorkstationId, Amounts>,
    ahead: BTreeSet<(Duration, WorkstationId)>,
    due: BTreeSet<(Moment, WorkstationId)>,
    tally: [u32; Standing::COUNT],
    room: u32,
    places: u32,
    /// How many have never said what they have.
    unheard: u32,
    /// One that is hidden from everybody until so much of it is free.
    kept: Option<(WorkstationId, Amounts)>,
    /// Grows whenever somebody becomes free, or better or worse than before.
    version: u64,
}

impl Pool {
    /// A workstation enrolled, perhaps again and under another name.
    pub(crate) fn enrol(&mut self, id: WorkstationId, name: String) {
        if let Some(entry) = self.entries.get_mut(&id) {
            if self.by_name.get(&entry.workstation.name) == Some(&id) {
                self.by_name.remove(&entry.workstation.name);
            }
            entry.workstation.name.clone_from(&name);
        } else {
            let keys = IndexKeys {
                standing: Standing::Away,
                cost: None,
                wait: None,
                due: None,
                room: 0,
                places: None,
            };
            self.unheard += 1;
            self.tally[Standing::Away as usize] += 1;
            let workstation = Workstation::new(name.clone());
            self.entries.insert(id, PoolEntry { workstation, keys, outlook: None });
        }
        self.by_name.insert(name, id);
    }

    /// What an earlier life of the coordinator has learned of owners that are
    /// still known.
    pub(crate) fn remember(&mut self, memory: Memory) {
        self.past.common = memory.common;
        for (id, outlook) in memory.outlooks {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.outlook = Some(Box::new(outlook));
            }
        }
    }

    /// What was learned of a workstation's owner is not needed any more.
    pub(crate) fn forget(&mut self, id: WorkstationId) {
        self.past.unwritten.remove(&id);
        self.past.round.remove(&id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.outlook = None;
        }
    }

    /// What was learned and is to be written down now, a few workstations at a
    /// time; at the end of a round what they have in common.
    pub(crate) fn learned_due(&mut self, now: Moment) -> Vec<LearnedRecord> {
        if self.past.round.is_empty() {
            let due = *self.past.due.get_or_insert(now + LEARNED_EVERY);
            if now < due || self.past.unwritten.is_empty() {
                return vec![];
            }
            self.past.due = Some(now + LEARNED_EVERY);
            self.past.round = std::mem::take(&mut self.past.unwritten);
        }
        let those: Vec<WorkstationId> =
            self.past.round.iter().copied().take(LEARNED_AT_ONCE).collect();
        self.past.round.retain(|id| !those.contains(id));
        self.learned_of(&those, self.past.round.is_empty())
    }

    /// All that is not written down yet, for a coordinator that stops.
    pub(crate) fn learned_unwritten(&mut self) -> Vec<LearnedRecord> {
        let mut those = std::mem::take(&mut self.past.unwritten);
        those.append(&mut self.past.round);
        let those: Vec<WorkstationId> = those.into_iter().collect();
        if those.is_empty() { vec![] } else { self.learned_of(&those, true) }
    }

    fn learned_of(&self, those: &[WorkstationId], and_common: bool) -> Vec<LearnedRecord> {
        let outlook = |id: &WorkstationId| self.entries.get(id)?.outlook.as_ref();
        let mut rows: Vec<LearnedRecord> = those
            .iter()
            .filter_map(|id| {
                Some(LearnedRecord { workstation: Some(*id), bytes: outlook(id)?.to_bytes() })
            })
            .collect();
        if and_common {
            let bytes = self.past.common.to_bytes();
            rows.push(LearnedRecord { workstation: None, bytes });
        }
        rows
    }

    /// Says what the wall clock shows at a moment: owners have their hours.
    pub(crate) fn set_time(&mut self, now: Moment, wall: WallTime) {
        self.past.time = (now, wall);
    }

    pub(crate) fn get(&self, id: WorkstationId) -> Option<&Workstation> {
        self.entries.get(&id).map(|entry| &entry.workstation)
    }

    /// A workstation's standing when it last changed.
    pub(crate) fn standing(&self, id: WorkstationId) -> Option<Standing> {
        self.entries.get(&id).map(|entry| entry.keys.standing)
    }

    /// Is it idle, and may guests be placed there?
    pub(crate) fn is_open(&self, id: WorkstationId) -> bool {
        self.standing(id).is_some_and(is_open)
    }

    /// A name that is free again.
    pub(crate) fn free_name(&mut self, id: WorkstationId) {
        self.by_name.retain(|_, named| *named != id);
    }

    pub(crate) fn named(&self, name: &str) -> Option<WorkstationId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = WorkstationId> + '_ {
        self.entries.keys().copied()
    }

    /// Changes a workstation and brings the indexes up to date.
    pub(crate) fn update<R>(
        &mut self,
        now: Moment,
        config: &Config,
        id: WorkstationId,
        change: impl FnOnce(&mut Workstation) -> R,
    ) -> Option<R> {
        let PoolEntry { workstation, keys, outlook } = self.entries.get_mut(&id)?;
        let idle_before = workstation.idle_since();
        let result = change(workstation);
        let standing = workstation.standing(now);
        let is_kept = self.kept.is_some_and(|(at, asked)| {
            at == id && is_open(standing) && !workstation.has_free(asked)
        });
        self.kept.take_if(|(at, _)| *at == id && !is_kept);
        let mut risk = 0.0;
        if config.policy.asks_outlook() {
            let outlook = outlook.get_or_insert_default();
            let learned = outlook.learned();
            self.past.learn(outlook, idle_before, workstation);
            if outlook.learned() != learned {
                self.past.unwritten.insert(id);
            }
            if standing == Standing::Free {
                let wall = self.past.wall(now);
                risk = outlook.risk(&self.past.common, wall, config.idle_needed);
            }
        }
        let idle_after = workstation.idle_since();
        let after = IndexKeys {
            standing,
            cost: (standing == Standing::Free && !is_kept)
                .then(|| (config.policy.cost(&workstation.candidate(risk)), workstation.free())),
            wait: (standing == Standing::Full && !is_kept)
                .then(|| workstation.wait_ahead())
                .flatten(),
            due: workstation.due(config),
            room: if is_kept { 0 } else { workstation.room(standing) },
            places: workstation.places_known(),
        };
        let before = std::mem::replace(keys, after);
        self.tally[before.standing as usize] -= 1;
        self.tally[after.standing as usize] += 1;
        self.room = self.room - before.room + after.room;
        let (had, has) = (before.places, after.places);
        self.places = self.places - had.unwrap_or(0) + has.unwrap_or(0);
        self.unheard = self.unheard - u32::from(had.is_none()) + u32::from(has.is_none());
        if before.cost != after.cost {
            self.free.set_having(id, after.cost);
            // A cost that only aged lets nothing find a place that found none, and
            // neither does what was taken of a workstation.
            let is_no_news = match (before.cost, after.cost) {
                (Some((before, had)), Some((after, has))) => {
                    let aged = config.policy.ages() && idle_before == idle_after;
                    had.covers(has) && (aged || before == after)
                }
                (None, _) | (Some(_), None) => false,
            };
            self.version += u64::from(!is_no_news);
        }
        reindex(&mut self.ahead, before.wait, after.wait, id);
        reindex(&mut self.due, before.due, after.due, id);
        Some(result)
    }

    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Keeps a workstation, where most of what is asked for is free, from everybody
    /// until all of it is, or its owner comes. `false` if one is kept already, or
    /// there is none: what several gather for at once, nobody comes by.
    pub(crate) fn keep_for(&mut self, now: Moment, config: &Config, needs: Needs<'_>) -> bool {
        if self.kept.is_some() {
            return false;
        }
        let could = self.entries.iter().filter(|(_, entry)| {
            let it = &entry.workstation;
            is_open(entry.keys.standing) && it.would_have_free(needs.asked) && needs.are_met(it)
        });
        let has = |it: &Workstation| {
            let free = it.free();
            (free.cores.min(needs.asked.cores), free.memory_bytes.min(needs.asked.memory_bytes))
        };
        let best = could.max_by_key(|(id, entry)| (has(&entry.workstation), Reverse(**id)));
        let Some(id) = best.map(|(id, _)| *id) else { return false };
        self.kept = Some((id, needs.asked));
        self.update(now, config, id, |_| ());
        true
    }

    /// Nobody gathers any more.
    pub(crate) fn keep_no_more(&mut self, now: Moment, config: &Config) {
        if let Some((id, _)) = self.kept.take() {
            self.update(now, config, id, |_| ());
        }
    }

    pub(crate) fn kept(&self) -> Option<WorkstationId> {
        self.kept.map(|(id, _)| id)
    }

    /// The policy's choice of the free ones that have what is needed. One that is
    /// avoided is chosen only if no other is idle: a place elsewhere is worth
    /// waiting for.
    pub(crate) fn choose_for(&self, needs: Needs<'_>, avoided: &Avoided) -> Option<WorkstationId> {
        let Avoided { rather, never } = avoided;
        let will_do =
            |id: WorkstationId, w: &Workstation| !never.contains(&id) && needs.are_met_now(w);
        let suits = |id, w: &Workstation| !rather.contains(&id) && will_do(id, w);
        if needs.prefer.is_none()
            && let Some(first) = self.free.choose()
            && self.get(first).is_some_and(|w| suits(first, w))
        {
            return Some(first);
        }
        let other = self.choose_preferred(needs, suits);
        if other.is_some() || rather.is_empty() || self.has_other(needs, avoided) {
            return other;
        }
        let one = |one| self.choose_where(needs, |id, w| id == one && will_do(id, w));
        rather.iter().find_map(|id| one(*id))
    }

    /// Is one idle that is not avoided, whether or not it has room now?
    fn has_other(&self, needs: Needs<'_>, avoided: &Avoided) -> bool {
        let Avoided { rather, never } = avoided;
        // Most often there are more than all that are avoided.
        if needs.are_none() && self.open() as usize > rather.len() + never.len() {
            return true;
        }
        self.entries.iter().any(|(id, entry)| {
            let is_other = !rather.contains(id) && !never.contains(id);
            is_other && is_open(entry.keys.standing) && needs.are_met(&entry.workstation)
        })
    }

    /// Has any workstation that was ever heard of what is needed?
    pub(crate) fn could_take(&self, needs: Needs<'_>) -> bool {
        needs.are_none() || self.entries.values().any(|entry| needs.are_met(&entry.workstation))
    }

    /// How many connected ones, up to `most`, have what is needed, whether or not it is
    /// free, and are not among `but`.
    pub(crate) fn could_run(
        &self,
        needs: Needs<'_>,
        but: &BTreeSet<WorkstationId>,
        most: usize,
    ) -> usize {
        let others = self.entries.iter().filter(|(id, _)| !but.contains(id));
        let could = others.filter(|(_, entry)| {
            let it = &entry.workstation;
            it.session.is_some() && !it.removed && needs.are_met(it)
        });
        could.take(most).count()
    }

    /// Those that have said what they have.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Workstation> {
        let all = self.entries.values().map(|entry| &entry.workstation);
        all.filter(|workstation| workstation.facts.cores > 0)
    }

    /// The policy's choice of those that will do and are preferred most.
    fn choose_preferred(
        &self,
        needs: Needs<'_>,
        will_do: impl Fn(WorkstationId, &Workstation) -> bool,
    ) -> Option<WorkstationId> {
        if needs.prefer.is_none() {
            return self.choose_where(needs, will_do);
        }
        let of = |(id, cost)| Some((id, cost, self.get(id)?));
        let free = self.free.iter().filter_map(of).filter(|(id, _, w)| will_do(*id, w));
        let order = |(id, cost, w): &(WorkstationId, Cost, &Workstation)| {
            (Reverse(needs.preference(w)), *cost, *id)
        };
        free.min_by_key(order).map(|(id, ..)| id)
    }

    /// The policy's choice of those that will do and have free what is asked.
    pub(crate) fn choose_where(
        &self,
        needs: Needs<'_>,
        will_do: impl Fn(WorkstationId, &Workstation) -> bool,
    ) -> Option<WorkstationId> {
        let will_do = |id| self.get(id).is_some_and(|w| w.has_free(needs.asked) && will_do(id, w));
        self.free.choose_among(&|has: &Amounts| has.covers(needs.asked), &will_do)
    }

    /// All that are free, by number.
    pub(crate) fn free_ones(&self) -> impl Iterator<Item = (WorkstationId, &Workstation)> {
        self.free.iter().filter_map(|(id, _)| Some((id, self.get(id)?)))
    }

    /// How many more cores guests may have now.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// How many cores guests would have if no owner ever came; `None` while some
    /// workstation has not said.
    pub(crate) fn places(&self) -> Option<u32> {
        (self.unheard == 0 && self.places > 0).then_some(self.places)
    }

    /// How many more guests with these needs would find room now, as far as `most`
    /// of them.
    pub(crate) fn room_for(&self, most: u32, needs: Needs<'_>) -> u32 {
        let mut found = 0_u32;
        let may = |has: &Amounts| has.covers(needs.asked);
        self.free.each_among(may, |id| {
            let of = self.get(id).filter(|it| needs.are_met(it));
            found = found.saturating_add(of.map_or(0, |it| it.room_for(needs.asked)));
            found < most
        });
        found.min(most)
    }

    /// How many would if no guest were there and no owner ever came.
    pub(crate) fn places_for(&self, needs: Needs<'_>) -> u32 {
        let all = self.known().filter(|it| !it.removed && needs.are_met(it));
        let each = all.map(|it| it.facts.lends().count_of(it.facts.lends().part(needs.asked)));
        each.fold(0, u32::saturating_add)
    }

    /// A number that differs when what found no place might find one now.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Where something short finds a place soonest, if that is soon enough to
    /// send it ahead. What runs there now is part of the wait, so nothing
    /// short ever waits behind something long.
    pub(crate) fn choose_ahead(
        &self,
        needs: Needs<'_>,
        avoided: &Avoided,
    ) -> Option<WorkstationId> {
        let soon = |(wait, id): &(Duration, WorkstationId)| (*wait <= AHEAD).then_some(*id);
        let will_do = |id: &WorkstationId| {
            !avoided.rather.contains(id)
                && !avoided.never.contains(id)
                && self.get(*id).is_some_and(|w| w.would_have_free(needs.asked) && needs.are_met(w))
        };
        self.ahead.iter().take(2).filter_map(soon).find(will_do)
    }

    pub(crate) fn has_ahead(&self) -> bool {
        self.ahead.first().is_some_and(|(wait, _)| *wait <= AHEAD)
    }

    /// How many are connected.
    pub(crate) fn in_sight(&self) -> usize {
        self.len() - self.count(Standing::Away) as usize
    }

    /// How many are idle.
    pub(crate) fn open(&self) -> u32 {
        self.count(Standing::Free) + self.count(Standing::Full)
    }

    pub(crate) fn count(&self, standing: Standing) -> u32 {
        self.tally[standing as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the first of them is due, and which.
    pub(crate) fn first_due(&self) -> Option<(Moment, WorkstationId)> {
        self.due.first().copied()
    }
}

/// What is known of the lab's owners, and the time of day.
#[derive(Debug, Default)]
struct OwnersPast {
    common: Common,
    time: (Moment, WallTime),
    /// Workstations of which something was learned that is not written down,
    /// and those that are being written down in the present round.
    unwritten: BTreeSet<WorkstationId>,
    round: BTreeSet<WorkstationId>,
    /// When the next round begins.
    due: Option<Moment>,
}

impl OwnersPast {
    /// What the wall clock showed or shows at a moment.
    fn wall(&self, at: Moment) -> WallTime {
        let (now, wall) = self.time;
        let ns = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        WallTime(wall.0.saturating_sub(ns(now.since(at))).saturating_add(ns(at.since(now))))
    }

    /// An agent that leaves with notice is to guests what an owner's return is.
    /// Why a workstation fell silent or lost its connection is not known.
    fn learn(&mut self, outlook: &mut Outlook, before: Option<Moment>, after: &Workstation) {
        let heard = self.wall(after.heard);
        match (before, after.idle_since()) {
            (None, None) => {}
            (Some(_), None) if after.leaving.is_some() => {
                outlook.turned_busy(&mut self.common, heard);
            }
            (Some(_), None) if after.session.is_none() => {
                outlook.lost_sight(&mut self.common, heard);
            }
            (Some(_), None) => {
                let at = self.wall(after.present_since);
                outlook.turned_busy(&mut self.common, at);
            }
            (Some(since), Some(still)) if since == still => {
                outlook.still_idle(&mut self.common, heard);
            }
            (_, Some(since)) => outlook.turned_idle(self.wall(since)),
        }
    }
}

/// Is it idle, and may guests be placed there?
fn is_open(standing: Standing) -> bool {
    matches!(standing, Standing::Free | Standing::Full)
}

fn reindex<K: Ord + Copy>(
    index: &mut BTreeSet<(K, WorkstationId)>,
    before: Option<K>,
    after: Option<K>,
    id: WorkstationId,
) {
    if before == after {
        return;
    }
    if let Some(key) = before {
        index.remove(&(key, id));
    }
    if let Some(key) = after {
        index.insert((key, id));
    }
}
