//! Machines that exist twice: an image is cloned with the identity in it, and two
//! agents say that they are one workstation.
//!
//! The copy is a machine of its own, with its own clock, owner and guests; what tells
//! it from its original is what a lab drew for that workstation. Where nothing does but
//! its life, the coordinator cannot know at first whether an agent was started anew, and
//! what the original has may run until its lease is over.
//!
//! Usage is recorded by originals only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{BootId, Incarnation, MachineId, WorkstationId};
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame};
use gleaner_coordinator_core::{Change, Effect, Event, Link, Step};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::bound::RECONNECTED;
use super::clock::Clock;
use super::copies::{LEASE_PART, SEEN};
use super::host::Host;
use super::invariant::holds;
use super::setting::Setting;
use super::troubles::Trouble;
use super::{Happening, Lab, index_of};

/// So often another machine may speak, beside twice for each fault that struck one of
/// them: a new life takes over, one that was first returns, and that once more after
/// the coordinator has forgotten who was.
const CHANGES_MAX: u64 = 4;

/// The longest that a refused agent waits before it dials again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What tells a copy from its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Machine,
    /// Machines that have no name, or whose name was copied.
    Boot,
    /// Nothing does: two containers of one machine.
    Life,
}

/// What the coordinator was told of one workstation so far.
#[derive(Debug, Default)]
struct Spoken {
    /// Which machine speaks, in which life of its agent.
    by: Option<(usize, u64)>,
    /// When it was heard last.
    heard: Moment,
    lives: BTreeSet<Incarnation>,
    changes: u64,
    faults: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Twins {
    /// Of each workstation, if there are copies in this lab.
    differ: Vec<Difference>,
    spoken: BTreeMap<WorkstationId, Spoken>,
    pub(crate) refused: u64,
}

impl Twins {
    /// Copies are beside their originals from the beginning, and switched off.
    pub(super) fn new(seed: u64, setting: &Setting, hosts: &mut Vec<Host>) -> Self {
        let of = |troubles: &super::Troubles| troubles.every(Trouble::Twin).is_some();
        if !of(&setting.troubles) && !of(&setting.quiet_troubles) {
            return Self::default();
        }
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x0007_3155_7313);
        let originals = setting.hosts;
        let mut differ = vec![];
        for id in 1..=originals {
            let how = match rng.random_range(0..10) {
                0..4 => Difference::Machine,
                4..8 => Difference::Boot,
                _ => Difference::Life,
            };
            let named = how != Difference::Boot || rng.random_bool(0.5);
            let drift = setting.drift_ppm;
            let ppm = if drift > 0 { rng.random_range(-drift..=drift) } else { 0 };
            let offset = Duration::from_secs(u64::from(originals + id) * 977);
            let clock = Clock { offset, ppm };
            let original = &mut hosts[id as usize - 1];
            // It may be the one that stays: then there must be room for what there was.
            let sizes = original.cores_and_places();
            let mut twin = Host::new(originals + id, sizes, clock, setting.owner_quiet);
            original.identity.machine = named.then(|| machine(id));
            twin.identity.workstation = original.identity.workstation;
            twin.identity.machine = match how {
                Difference::Machine => Some(machine(originals + id)),
                Difference::Boot | Difference::Life => original.identity.machine,
            };
            if how == Difference::Life {
                twin.identity.boot = original.identity.boot;
            }
            twin.is_on = false;
            hosts.push(twin);
            differ.push(how);
        }
        Self { differ, ..Self::default() }
    }
}

fn machine(id: u32) -> MachineId {
    MachineId([u8::try_from(id % 256).unwrap_or(0); 16])
}

/// What one of two machines tells the coordinator, and who spoke until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    from: Link,
    /// Its agent's life, if it says hello.
    hello: Option<Incarnation>,
    present: Option<Link>,
}

impl Lab {
    // ── the machines ───────────────────────────────────────────────────────

    pub(super) fn originals(&self) -> &[Host] {
        self.hosts.split_at(self.setting.hosts as usize).0
    }

    /// All that say that they are this workstation, also those that are switched off.
    pub(super) fn machines_of(&self, id: WorkstationId) -> impl Iterator<Item = usize> + use<> {
        let (first, all) = (id.0 as usize - 1, self.hosts.len());
        (first..all).step_by(self.setting.hosts as usize)
    }

    /// The one that the coordinator means when it names a workstation.
    pub(super) fn speaks_as(&self, id: WorkstationId) -> usize {
        let spoken = self.twins.spoken.get(&id);
        spoken.and_then(|it| it.by).map_or(id.0 as usize - 1, |(index, _)| index)
    }

    fn twin_of(&self, original: usize) -> Option<usize> {
        let twin = original + self.setting.hosts as usize;
        (twin < self.hosts.len()).then_some(twin)
    }

    /// It comes for so long or for good, or goes if it is there.
    pub(super) fn twin_comes(&mut self, original: usize, which: f64, long: Duration) {
        let Some(twin) = self.twin_of(original) else { return };
        if self.hosts[twin].is_on {
            return self.twin_goes(twin);
        }
        let id = self.hosts[twin].id;
        self.hosts[twin].is_on = true;
        self.boots_anew(twin);
        self.plan(Duration::ZERO, Happening::AgentStarts(id));
        if which < 0.5 {
            self.plan(long, Happening::TwinGoes(id));
        }
    }

    pub(super) fn twin_goes(&mut self, twin: usize) {
        if std::mem::take(&mut self.hosts[twin].is_on) {
            self.strikes(twin);
            let host = &mut self.hosts[twin];
            (host.asleep, host.owner_here) = (false, false);
            self.agent_crashes(twin);
        }
    }

    /// Before the next round somebody has found them all, and lets the originals in.
    pub(super) fn twins_go(&mut self) {
        for original in 0..self.twins.differ.len() {
            self.twin_goes(original + self.twins.differ.len());
            let id = self.hosts[original].id;
            self.plan(RECONNECTED, Happening::Drains(id, false));
        }
    }

    /// Its machine was started anew. All containers of a machine would be.
    pub(super) fn boots_anew(&mut self, index: usize) {
        let known = self.twins.differ.len();
        if known == 0 || self.twins.differ[index % known] == Difference::Life {
            return;
        }
        let BootId(boot) = &mut self.hosts[index].identity.boot;
        boot[15] = boot[15].wrapping_add(64);
    }

    /// The longest until one that is refused is let in, once nobody else is there.
    pub(super) fn let_in_within(&self) -> Duration {
        let all = RECONNECTED * 2 + self.setting.config.lease + PAUSE_MAX * 2;
        if self.twins.differ.is_empty() { Duration::ZERO } else { all }
    }

    // ── what befalls them ──────────────────────────────────────────────────

    /// Of two machines a fault strikes one.
    pub(super) fn struck(&mut self, trouble: Trouble, original: usize, long: f64) -> usize {
        let everybody = matches!(
            trouble,
            Trouble::CoordinatorCrash
                | Trouble::CommitHangs
                | Trouble::StoreFull
                | Trouble::Restored
                | Trouble::CoordinatorStop
        );
        if everybody {
            (0..self.setting.hosts as usize).for_each(|index| self.strikes(index));
        }
        let of_a_machine = matches!(
            trouble,
            Trouble::Cut
                | Trouble::Corruption
                | Trouble::Silence
                | Trouble::Loss
                | Trouble::AgentCrash
                | Trouble::KeeperDeath
                | Trouble::WorkerStop
                | Trouble::Sleep
                | Trouble::Owner
        );
        let twin = self.twin_of(original).filter(|twin| self.hosts[*twin].is_on && of_a_machine);
        let index = twin.filter(|_| long * 1_000.0 % 2.0 >= 1.0).unwrap_or(original);
        self.strikes(index);
        index
    }

    /// Who speaks may be another one after this.
    pub(super) fn strikes(&mut self, index: usize) {
        if !self.twins.differ.is_empty() {
            let id = self.hosts[index].identity.workstation;
            self.twins.spoken.entry(id).or_default().faults += 1;
        }
    }

    // ── who speaks ─────────────────────────────────────────────────────────

    pub(super) fn said_by_one_of_two(&self, event: &Event) -> Option<Said> {
        let Event::Heard { from, frame } = event else { return None };
        if self.twins.differ.is_empty() {
            return None;
        }
        let present = self.core.as_ref()?.link(from.workstation);
        let said = Said { from: *from, hello: None, present };
        if let AgentFrame::Hello { incarnation, .. } = frame {
            return Some(Said { hello: Some(*incarnation), ..said });
        }
        // What else arrives late says nothing of how its agent is.
        matches!(frame, AgentFrame::Heartbeat { .. }).then_some(said)
    }

    pub(super) fn check_speaker(&mut self, said: Said, step: &Step) {
        let Said { from, hello, present } = said;
        let Some(life) = hello else {
            if present == Some(from) {
                let spoken = self.twins.spoken.entry(from.workstation).or_default();
                spoken.heard = self.now;
            }
            return;
        };
        for effect in &step.effects {
            if let Effect::Send { to, frame: CoordinatorFrame::Welcome { .. } } = effect
                && *to == from
            {
                self.is_welcomed(from, life, present);
            }
            if let Effect::Refuse { link, reason } = effect {
                self.is_refused(*link, reason, step);
            }
        }
    }

    fn is_welcomed(&mut self, from: Link, life: Incarnation, present: Option<Link>) {
        let (index, id, now) = (index_of(from), from.workstation, self.now);
        self.hosts[index].refusals = 0;
        let lease = self.setting.config.lease;
        let beat = self.setting.config.heartbeat.mul_f64(0.9);
        let differ = self.twins.differ[id.0 as usize - 1];
        let spoken = self.twins.spoken.entry(id).or_default();
        let has_spoken = !spoken.lives.insert(life);
        let before = spoken.by.replace((index, life.0));
        let heard = std::mem::replace(&mut spoken.heard, now);
        let Some((other, life_of_other)) = before.filter(|(other, _)| *other != index) else {
            return;
        };
        spoken.changes += 1;
        let (changes, most) = (spoken.changes, CHANGES_MAX + 2 * spoken.faults);
        holds!(OneSpeaker, changes <= most, "{id} was {changes} times another machine: {most}");
        let lives = self.hosts[other].incarnation == life_of_other;
        let is_heard = present.is_some_and(|link| index_of(link) == other) && now < heard + beat;
        let may = has_spoken || differ == Difference::Life || !is_heard || !lives;
        holds!(OneSpeaker, may, "{id}: host{} pushes host{} out", index + 1, other + 1);
        if differ == Difference::Life && lives {
            let until = now + lease.mul_f64(LEASE_PART) + SEEN;
            self.hosts[other].replaced_until = Some(until);
        }
    }

    /// What the one has that speaks goes on.
    fn is_refused(&mut self, link: Link, reason: &str, step: &Step) {
        let (index, id) = (index_of(link), link.workstation);
        self.hosts[index].refusals += 1;
        self.twins.refused += 1;
        if !reason.contains("in use on another machine") {
            return;
        }
        let ended = step.changes.iter().find_map(|change| {
            let Change::Attempt(record) = change else { return None };
            let (_, how) = record.end.as_ref().filter(|_| record.workstation == id)?;
            how.contains("agent died").then_some(record.fence)
        });
        holds!(OneSpeaker, ended.is_none(), "{ended:?} ends, and its agent lives: {reason}");
        let own = self.clock.reads(self.now);
        let row = self.core.as_ref().and_then(|core| core.workstation_row(own, id));
        let told = row.is_some_and(|row| row.reason.contains("two machines"));
        holds!(OneSpeaker, told, "{id} was refused, and nobody can see why");
    }
}
