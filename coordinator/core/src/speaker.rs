//! Which machine speaks as a workstation, where more than one has its identity:
//! images are cloned, with all that is enrolled in them.
//!
//! The promise: two machines that live at once do not push each other out. One
//! of them goes on, the other is refused and told why; and a disk that moves to
//! another machine, or a machine that was started anew, is let in as soon as
//! nothing of the former can run any more. Knows nothing of connections.
//!
//! ```text
//! the same life          ─► goes on
//! a life that was followed by another: both live ─► the later one is refused from now on
//! another life, same boot     ─► the agent was started anew
//! another boot, same machine  ─► the machine was, once nothing of the old boot can run
//! another machine             ─► the disk has moved, once a lease has passed unheard
//! another life of one that only the store knows ─► either, once nothing of it can run
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::id::{BootId, Incarnation, MachineId};
use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

/// Who was refused comes in after so long without a word of the one that was
/// not: longer than a machine takes to start anew. A guess.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// So many lives are remembered that were followed by another, and so many
/// machines that are refused.
const FOLLOWED_MAX: usize = 32;
const REFUSED_MAX: usize = 8;

/// One life of an agent, and where it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Speaker {
    pub(crate) incarnation: Incarnation,
    /// `None`: from before this life of the coordinator.
    pub(crate) boot: Option<BootId>,
    /// `None` where nothing tells it from others.
    pub(crate) machine: Option<MachineId>,
    /// For people.
    pub(crate) host: String,
}

/// What is known of the one that speaks, when another wants to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    /// It is connected, and was heard when it should have been.
    pub(crate) is_heard: bool,
    /// When it was heard last.
    pub(crate) heard: Moment,
    /// Nothing that it was given runs from then on.
    pub(crate) lease_until: Moment,
}

/// May it speak?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has done so all along.
    GoesOn,
    /// It takes over: what spoke before does not run any more.
    TakesOver,
    /// It was first, and the one that speaks now is refused from now on. It is let
    /// in when nothing that the other has can run any more.
    Returns,
    /// Another machine speaks.
    InUse,
    /// It may, but not before nothing of the other can run any more.
    NotYet,
}

/// All that have spoken as one workstation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speakers {
    present: Option<Speaker>,
    /// The life that was let in last: what is given out was given to it.
    let_in: Option<Incarnation>,
    others: Others,
    /// When the store was read, which does not say who was heard.
    since: Moment,
    /// Until then, what another has may still run.
    not_before: Moment,
}

/// Those that do not speak any more, or never did. They outlive the coordinator: it would
/// let a copy in at each of its starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Others {
    /// The lives that others came after, the oldest first.
    followed: VecDeque<Speaker>,
    /// Machines, boots or lives that have shown to be copies.
    refused: VecDeque<Speaker>,
}

impl Others {
    /// As the store keeps them.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self)
            .unwrap_or_else(|error| unreachable!("postcard writes what is plain: {error}"))
    }
}

impl Speaker {
    /// Is it at another machine, as far as that can be known?
    fn is_elsewhere(&self, than: &Self) -> bool {
        self.machine.zip(than.machine).is_some_and(|(one, other)| one != other)
    }

    fn is_at_home(&self, of: &Self) -> bool {
        self.machine.is_some() && self.machine == of.machine
    }

    fn is_other_boot(&self, than: &Self) -> bool {
        self.boot.zip(than.boot).is_some_and(|(one, other)| one != other)
    }

    /// As much as tells it from `present`, it has in common with `refused`.
    fn is_like(&self, refused: &Self, present: &Self) -> bool {
        if refused.is_elsewhere(present) {
            self.machine == refused.machine
        } else if refused.is_other_boot(present) {
            self.boot == refused.boot
        } else {
            self.incarnation == refused.incarnation
        }
    }
}

impl Speakers {
    /// The store knows the last life, and nothing else of it, and who the others were.
    pub(crate) fn restored(now: Moment, incarnation: Incarnation, others: Option<&[u8]>) -> Self {
        let host = String::new();
        let present = Some(Speaker { incarnation, boot: None, machine: None, host });
        // What does not read is of another version: a copy shows again.
        let others = others.and_then(|bytes| postcard::from_bytes(bytes).ok());
        let others = others.unwrap_or_default();
        Self { present, let_in: Some(incarnation), others, since: now, ..Self::default() }
    }

    pub(crate) fn others(&self) -> &Others {
        &self.others
    }

    /// The life that has what was given out.
    pub(crate) fn holder(&self) -> Option<Incarnation> {
        self.let_in
    }

    pub(crate) fn let_in(&mut self, life: Incarnation) {
        self.let_in = Some(life);
    }

    pub(crate) fn present(&self) -> Option<&Speaker> {
        self.present.as_ref()
    }

    /// An admin knows better: whoever was refused may speak when nobody else does.
    pub(crate) fn forgive(&mut self) {
        self.others = Others::default();
    }

    /// Somebody wants to speak. What follows from it is done here but for the
    /// connections.
    pub(crate) fn judge(
        &mut self,
        now: Moment,
        contact: Contact,
        lease: Duration,
        new: &Speaker,
    ) -> Verdict {
        let Some(present) = self.present.clone() else {
            self.present = Some(new.clone());
            return Verdict::TakesOver;
        };
        let unheard = now.since(contact.heard);
        let may_run = now < contact.lease_until;
        if self.others.refused.iter().any(|refused| new.is_like(refused, &present)) {
            if may_run || now.since(contact.heard.max(self.since)) < REFUSED_FOR {
                return Verdict::InUse;
            }
        } else if new.incarnation == present.incarnation && !new.is_elsewhere(&present) {
            if now < self.not_before {
                return Verdict::NotYet;
            }
            // The store knew no more of it than its number.
            self.present = Some(new.clone());
            return Verdict::GoesOn;
        } else if self.others.followed.iter().any(|it| it.incarnation == new.incarnation) {
            self.others.followed.retain(|it| it.incarnation != new.incarnation);
            bounded(&mut self.others.refused, present, REFUSED_MAX);
            self.present = Some(new.clone());
            self.not_before = contact.lease_until;
            return Verdict::Returns;
        } else if new.is_elsewhere(&present) {
            if contact.is_heard || may_run || unheard < lease {
                bounded(&mut self.others.refused, new.clone(), REFUSED_MAX);
                return Verdict::InUse;
            }
        } else if new.is_other_boot(&present) {
            if contact.is_heard || !new.is_at_home(&present) && (may_run || unheard < lease) {
                return Verdict::InUse;
            }
            // Of its own name, too, another may have been given a copy.
            if may_run {
                return Verdict::NotYet;
            }
        } else if may_run && present.boot.is_none() {
            // An agent that was started anew, or a copy: nobody is left who knows.
            return Verdict::NotYet;
        } else if contact.is_heard && self.has_a_copy_here(&present) {
            return Verdict::InUse;
        }
        if now < self.not_before {
            // What waits began anew meanwhile.
            return Verdict::NotYet;
        }
        self.others.refused.retain(|refused| !new.is_like(refused, &present));
        bounded(&mut self.others.followed, present, FOLLOWED_MAX);
        self.present = Some(new.clone());
        Verdict::TakesOver
    }

    /// Was one refused that differs in nothing but its life?
    fn has_a_copy_here(&self, present: &Speaker) -> bool {
        let differs = |it: &Speaker| it.is_elsewhere(present) || it.is_other_boot(present);
        self.others.refused.iter().any(|refused| !differs(refused))
    }
}

fn bounded(list: &mut VecDeque<Speaker>, new: Speaker, most: usize) {
    list.push_back(new);
    if list.len() > most {
        list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const BEAT: Duration = Duration::from_secs(3);

    /// A machine with a copy of the identity, and the life of its agent.
    #[derive(Clone, Debug)]
    struct Machine {
        name: &'static str,
        id: Option<MachineId>,
        boot: u8,
        life: u64,
    }

    impl Machine {
        fn speaker(&self) -> Speaker {
            Speaker {
                incarnation: Incarnation(self.life),
                boot: Some(BootId([self.boot; 16])),
                machine: self.id,
                host: String::new(),
            }
        }
    }

    /// The coordinator's side: who is connected, and since when all its guests run.
    #[derive(Debug)]
    struct World {
        now: Moment,
        speakers: Speakers,
        connected: Option<u64>,
        heard: Moment,
        /// When the coordinator began: from then on what it knows of has a lease.
        began: Moment,
        lives: u64,
        changes: usize,
        /// Whom all that was given out was given to.
        holder: Option<&'static str>,
    }

    impl World {
        fn new() -> Self {
            Self {
                now: Moment(1 << 50),
                speakers: Speakers::default(),
                connected: None,
                heard: Moment::ZERO,
                began: Moment::ZERO,
                lives: 100,
                changes: 0,
                holder: None,
            }
        }

        /// The machine's agent says hello, or, if it is connected, a heartbeat.
        fn tries(&mut self, machine: &Machine) -> Verdict {
            if self.connected == Some(machine.life) {
                self.heard = self.now;
                return Verdict::GoesOn;
            }
            let is_heard = self.connected.is_some() && self.now.since(self.heard) <= BEAT * 2;
            // Guests all the time: the worst of it.
            let lease_until = self.heard.max(self.began) + LEASE;
            let contact = Contact { is_heard, heard: self.heard, lease_until };
            let verdict = self.speakers.judge(self.now, contact, LEASE, &machine.speaker());
            match verdict {
                Verdict::GoesOn | Verdict::TakesOver => {
                    self.changes += usize::from(verdict == Verdict::TakesOver);
                    let before = self.holder.replace(machine.name);
                    let is_over = self.now >= self.heard + LEASE;
                    // Of two containers, nothing tells one from a life that has died.
                    let may = before == Some(machine.name) || is_over || machine.name == "box";
                    assert!(before.is_none() || may, "{machine:?} is let in: {:?}", self.speakers);
                    (self.connected, self.heard) = (Some(machine.life), self.now);
                }
                Verdict::Returns => (self.changes, self.connected) = (self.changes + 1, None),
                Verdict::InUse | Verdict::NotYet => {}
            }
            verdict
        }

        /// The coordinator starts anew, with what its store knows.
        fn restart(&mut self) {
            let others = self.speakers.others().to_bytes();
            let Some(holder) = self.speakers.holder().or(self.connected.map(Incarnation)) else {
                return;
            };
            self.speakers = Speakers::restored(self.now, holder, Some(&others));
            // Its guests may run, and when it was heard nobody knows.
            (self.connected, self.heard, self.began) = (None, Moment::ZERO, self.now);
        }

        fn pass(&mut self, span: Duration) {
            self.now = self.now + span;
        }
    }

    fn kinds() -> [(Machine, Machine); 4] {
        let id = |n| Some(MachineId([n; 16]));
        let machine = |name, id, boot, life| Machine { name, id, boot, life };
        [
            (machine("desk", id(1), 1, 1), machine("clone", id(2), 2, 2)),
            (machine("desk", None, 1, 1), machine("clone", None, 2, 2)),
            (machine("desk", id(1), 1, 1), machine("clone", id(1), 2, 2)),
            // As like as two containers of one machine.
            (machine("box", id(1), 1, 1), machine("box", id(1), 1, 2)),
        ]
    }

    /// What may happen at a step: time passes, and one of two machines tries to be
    /// heard, loses its connection, starts its agent anew, or starts anew itself.
    #[test]
    fn whatever_happens_to_two_machines_the_one_that_stays_is_heard_and_the_other_is_not() {
        for (kind, (first, second)) in kinds().into_iter().enumerate() {
            for path in 0..7_usize.pow(5) {
                let mut world = World::new();
                let mut both = [first.clone(), second.clone()];
                world.tries(&both[0]);
                for depth in 0..5 {
                    world.pass(BEAT);
                    match path / 7_usize.pow(depth) % 7 {
                        at @ 0..=1 => drop(world.tries(&both[at])),
                        2 => world.connected = None,
                        at @ 3..=4 => {
                            world.lives += 1;
                            both[at - 3].life = world.lives;
                            if world
                                .connected
                                .is_some_and(|life| both.iter().all(|m| m.life != life))
                            {
                                world.connected = None;
                            }
                        }
                        5 => {
                            world.lives += 1;
                            both[0].life = world.lives;
                            both[0].boot += 10;
                            world.connected = None;
                            world.pass(LEASE);
                        }
                        _ => world.pass(LEASE * 3),
                    }
                }
                // From now on both live on, and try as often as they can.
                world.changes = 0;
                for _ in 0..60 {
                    world.tries(&both[0]);
                    world.tries(&both[1]);
                    world.pass(BEAT);
                }
                let told = format!("kind {kind}, path {path}: {:?}, {both:?}", world.speakers);
                // A new life that is not known yet, one that takes over, one that returns.
                assert!(world.changes <= 3, "{} changes: {told}", world.changes);
                assert!(world.now.since(world.heard) <= BEAT, "nobody is heard: {told}");
            }
        }
    }

    #[test]
    fn a_machine_that_was_started_anew_and_a_disk_that_has_moved_are_let_in() {
        for (mut first, second) in kinds() {
            let mut world = World::new();
            world.tries(&first);
            (first.boot, first.life) = (9, 9);
            world.connected = None;
            world.pass(LEASE);
            assert_eq!(world.tries(&first), Verdict::TakesOver);
            world.connected = None;
            world.pass(LEASE);
            assert_eq!(world.tries(&second), Verdict::TakesOver);
        }
    }

    #[test]
    fn a_copy_stays_refused_when_the_coordinator_starts_anew() {
        for (first, second) in kinds() {
            let mut world = World::new();
            for machine in [&first, &second, &first, &second] {
                world.pass(BEAT);
                world.tries(machine);
            }
            world.pass(LEASE);
            world.tries(&first);
            for _ in 0..3 {
                world.restart();
                world.pass(BEAT);
                assert_ne!(world.tries(&second), Verdict::TakesOver, "{second:?}");
                assert_eq!(world.tries(&first), Verdict::GoesOn, "{first:?}: {:?}", world.speakers);
                assert_eq!(world.tries(&second), Verdict::InUse, "{second:?}");
            }
        }
    }

    #[test]
    fn one_that_was_refused_waits_until_the_other_was_away_for_long() {
        let [(first, second), ..] = kinds();
        let mut world = World::new();
        world.tries(&first);
        assert_eq!(world.tries(&second), Verdict::InUse);
        world.connected = None;
        world.pass(LEASE * 6);
        assert_eq!(world.tries(&second), Verdict::InUse, "the first may be starting anew");
        let mut forgiven = World { speakers: world.speakers.clone(), ..World::new() };
        (forgiven.now, forgiven.heard) = (world.now, world.heard);
        forgiven.speakers.forgive();
        assert_eq!(forgiven.tries(&second), Verdict::TakesOver, "an admin knows better");
        world.pass(REFUSED_FOR);
        assert_eq!(world.tries(&second), Verdict::TakesOver);
    }
}
