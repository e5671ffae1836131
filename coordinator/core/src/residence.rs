//! Guests and their workstations: who is to go elsewhere, who waits for that,
//! and in which order they get what is free.
//!
//! ```text
//!                is to leave                    something suits
//!   runs here ───────────────► seek ─────────────────────────────► goes there
//!      ▲  │                      │ nothing does                        ▲
//!      │  │ under an owner       ▼                                     │
//!      │  │                   the line ──── next, first come ──────────┤
//!      │  ▼                      │ its owner leaves first              │
//!      │ stays ── escape, longest first ───────────────────────────────┘
//!      └─────────────────────────┘
//! ```
//!
//! The live coordinator and replay both run this: the former over guests whose
//! agents have asked for another workstation, the latter over ranks and workers
//! in simulated time. The promise: nobody overtakes whom the same workstation
//! would suit as well. Which of the free workstations it is a placement policy
//! says, behind [`Workstations`]; when a job may begin or grow, the scheduler.
//! Knows nothing of how a guest is carried, and of no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_common::job::OnBusy;
use gleaner_common::reaction::{Keep, Step};
use gleaner_common::time::Moment;

/// What is a matter of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub wait: Wait,
    pub escape: Escape,
}

impl Rules {
    /// The live coordinator's.
    pub const LIVE: Self = Self { wait: Wait::Here, escape: Escape::Whenever };

    /// Those of Phalen's simulations, and of her Table 1 as replay has it.
    pub const PHALEN_1994: Self = Self { wait: Wait::Nowhere, escape: Escape::AtIncreases };
}

impl Default for Rules {
    fn default() -> Self {
        Self::LIVE
    }
}

/// Where a guest is that is to leave and has nowhere to go yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Where it was, frozen, until all of it is elsewhere ("resident at the
    /// current workstation in a suspended state until another workstation becomes
    /// available", Phalen 1994, §2.1.1). If its owner leaves first, it goes on.
    Here,
    /// It has left: "if there are no idle workstations, the subprogram blocks until
    /// a workstation becomes idle" (Phalen 1994, §6.4), be it the one that it left.
    Nowhere,
}

/// When a guest that stays under its owner goes elsewhere after all, of a program
/// that reacts to increases (Phalen 1994, §2.1.2 and Table 1: models 6 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Whenever something is free, with what its job takes along when it moves.
    Whenever,
    /// One of them when a workstation turns free, with its whole state.
    AtIncreases,
}

impl Escape {
    /// What a guest takes along; `None`: it stays.
    pub fn keep(self, on_busy: OnBusy, is_frozen: bool) -> Option<Keep> {
        match self {
            Self::AtIncreases => Some(Keep::State),
            // To one that runs on, going with less than its state is a loss.
            Self::Whenever => moves_with(on_busy).filter(|keep| is_frozen || *keep == Keep::State),
        }
    }
}

/// What a guest takes along whose job lets it move.
pub fn moves_with(on_busy: OnBusy) -> Option<Keep> {
    [on_busy.when_busy(), on_busy.then.step()].into_iter().find_map(|step| match step {
        Step::Move(keep) => Some(keep),
        Step::Stay | Step::Demote | Step::Freeze => None,
    })
}

/// The workstations, as guests that seek one see them.
pub trait Workstations<G> {
    type Id;

    /// Has the owner left the workstation where this guest waits, so that it could
    /// go on there?
    fn owner_has_left(&self, guest: G) -> bool;

    /// The placement policy's choice of those that are free and suit the guest.
    fn choose(&mut self, guest: G) -> Option<Self::Id>;
}

/// What becomes of a guest that is to go elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<W> {
    /// Its owner has left: it stays where it is.
    Stays,
    GoesTo(W),
}

/// Those who have no workstation that they can use.
#[derive(Debug)]
pub struct Residence<P, G> {
    rules: Rules,
    /// Those who are to go elsewhere, who has waited longest first.
    line: VecDeque<G>,
    /// Those who stay under their owners and would go: by program, since when, and of
    /// one moment by rank.
    under_owners: BTreeMap<P, BTreeSet<(Moment, u32, G)>>,
    stays: BTreeMap<G, (P, Moment, u32)>,
}

impl<P, G> Default for Residence<P, G> {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            line: VecDeque::new(),
            under_owners: BTreeMap::new(),
            stays: BTreeMap::new(),
        }
    }
}

impl<P: Copy + Ord, G: Copy + Ord> Residence<P, G> {
    /// Nobody is left; the room is.
    pub fn clear(&mut self, rules: Rules) {
        self.rules = rules;
        self.line.clear();
        self.under_owners.clear();
        self.stays.clear();
    }

    pub fn rules(&self) -> Rules {
        self.rules
    }

    // ── the line ───────────────────────────────────────────────────────────

    /// What a guest can do now that is to go elsewhere.
    pub fn turn<W: Workstations<G>>(&self, guest: G, workstations: &mut W) -> Option<Turn<W::Id>> {
        if self.rules.wait == Wait::Here && workstations.owner_has_left(guest) {
            return Some(Turn::Stays);
        }
        workstations.choose(guest).map(Turn::GoesTo)
    }

    /// A guest is to go elsewhere. One that can do nothing now waits at the end of
    /// the line.
    pub fn seek<W: Workstations<G>>(
        &mut self,
        guest: G,
        workstations: &mut W,
    ) -> Option<Turn<W::Id>> {
        let turn = self.turn(guest, workstations);
        if turn.is_none() {
            self.line.push_back(guest);
        }
        turn
    }

    /// A guest is to go elsewhere, and has not been asked for yet. Who is in the line
    /// keeps its turn.
    pub fn join(&mut self, guest: G) {
        if !self.waits(guest) {
            self.line.push_back(guest);
        }
    }

    /// The first in the line that can do something now; it stays in the line. So many
    /// before could not when they were `asked`, and are not asked again.
    pub fn next<W: Workstations<G>>(
        &self,
        asked: &mut usize,
        workstations: &mut W,
    ) -> Option<(G, Turn<W::Id>)> {
        while let Some(guest) = self.line.get(*asked).copied() {
            if let Some(turn) = self.turn(guest, workstations) {
                return Some((guest, turn));
            }
            *asked += 1;
        }
        None
    }

    /// A guest does not wait any more.
    pub fn leaves_line(&mut self, guest: G) {
        if self.line.front() == Some(&guest) {
            self.line.pop_front();
        } else {
            self.line.retain(|other| *other != guest);
        }
    }

    pub fn waits(&self, guest: G) -> bool {
        self.line.contains(&guest)
    }

    pub fn nobody_waits(&self) -> bool {
        self.line.is_empty()
    }

    // ── under owners ───────────────────────────────────────────────────────

    /// A guest stays under its owner from now on, and would rather be elsewhere. If it
    /// was so before, it has been all the while.
    pub fn stays(&mut self, now: Moment, program: P, (rank, guest): (u32, G)) {
        if self.stays.contains_key(&guest) {
            return;
        }
        self.stays.insert(guest, (program, now, rank));
        self.under_owners.entry(program).or_default().insert((now, rank, guest));
    }

    pub fn no_longer_stays(&mut self, guest: G) {
        let Some((program, since, rank)) = self.stays.remove(&guest) else { return };
        let Some(those) = self.under_owners.get_mut(&program) else { return };
        those.remove(&(since, rank, guest));
        if those.is_empty() {
            self.under_owners.remove(&program);
        }
    }

    /// A program's guests that stay under owners, who does longest first.
    pub fn under_owners(&self, program: P) -> impl Iterator<Item = G> + '_ {
        self.under_owners.get(&program).into_iter().flatten().map(|(.., guest)| *guest)
    }

    /// Of those, the first whom something suits, and what.
    pub fn escape<W: Workstations<G>>(
        &self,
        program: P,
        workstations: &mut W,
    ) -> Option<(G, W::Id)> {
        self.under_owners(program).find_map(|guest| Some((guest, workstations.choose(guest)?)))
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::job::Reaction;

    use super::*;

    /// Guests 1, 2, .. of the program 0; each is suited by the workstations of its
    /// own parity only, or by all.
    #[derive(Default)]
    struct Lab {
        free: Vec<u32>,
        left: Vec<u32>,
        is_choosy: bool,
    }

    impl Workstations<u32> for Lab {
        type Id = u32;

        fn owner_has_left(&self, guest: u32) -> bool {
            self.left.contains(&guest)
        }

        fn choose(&mut self, guest: u32) -> Option<u32> {
            let suits = |at: &&u32| !self.is_choosy || **at % 2 == guest % 2;
            self.free.iter().find(suits).copied()
        }
    }

    fn residence(rules: Rules) -> Residence<u32, u32> {
        let mut residence = Residence::default();
        residence.clear(rules);
        residence
    }

    fn free(these: &[u32]) -> Lab {
        Lab { free: these.to_vec(), ..Lab::default() }
    }

    #[test]
    fn who_has_waited_longest_goes_first_whatever_its_number() {
        let mut residence = residence(Rules::LIVE);
        for guest in [5, 3, 4] {
            assert_eq!(residence.seek(guest, &mut free(&[])), None);
        }
        let mut order = vec![];
        while let Some((guest, Turn::GoesTo(7))) = residence.next(&mut 0, &mut free(&[7])) {
            residence.leaves_line(guest);
            order.push(guest);
        }
        assert_eq!(order, [5, 3, 4]);
    }

    #[test]
    fn who_is_in_the_line_keeps_its_turn() {
        let mut residence = residence(Rules::LIVE);
        for guest in [1, 2, 1] {
            residence.join(guest);
        }
        assert_eq!(residence.next(&mut 0, &mut free(&[7])), Some((1, Turn::GoesTo(7))));
        residence.leaves_line(1);
        assert!(!residence.waits(1) && residence.waits(2));
    }

    #[test]
    fn one_whom_nothing_suits_holds_nobody_up() {
        let mut residence = residence(Rules::LIVE);
        for guest in [1, 2] {
            residence.join(guest);
        }
        let mut lab = Lab { is_choosy: true, ..free(&[8]) };
        let mut asked = 0;
        assert_eq!(residence.next(&mut asked, &mut lab), Some((2, Turn::GoesTo(8))));
        assert_eq!(asked, 1, "the first was asked");
    }

    #[test]
    fn a_guest_whose_owner_leaves_goes_on_only_if_it_was_still_there() {
        for (rules, turn) in [(Rules::LIVE, Turn::Stays), (Rules::PHALEN_1994, Turn::GoesTo(7))] {
            let mut lab = Lab { left: vec![1], ..free(&[7]) };
            assert_eq!(residence(rules).seek(1, &mut lab), Some(turn));
        }
    }

    #[test]
    fn who_has_stayed_under_an_owner_longest_escapes_first() {
        let mut residence = residence(Rules::LIVE);
        for (guest, since) in [(1, 9), (5, 5), (2, 5), (3, 7), (1, 2)] {
            residence.stays(Moment(since), 0, (100 - guest, guest));
        }
        residence.stays(Moment(1), 1, (0, 4));
        assert_eq!(residence.under_owners(0).collect::<Vec<_>>(), [5, 2, 3, 1]);
        assert_eq!(residence.escape(0, &mut free(&[6])), Some((5, 6)));
        residence.no_longer_stays(2);
        let mut lab = Lab { is_choosy: true, ..free(&[8]) };
        assert_eq!(residence.escape(0, &mut lab), None, "of 5, 3 and 1, even ones suit none");
        assert_eq!(residence.escape(1, &mut lab), Some((4, 8)));
    }

    #[test]
    fn a_job_says_what_escapes_and_phalens_models_take_all() {
        let patient = OnBusy::suspend(None, Reaction::Rollback);
        let demoted = OnBusy::at_once(Reaction::Renice);
        for (on_busy, is_frozen, live) in [
            (patient, true, Some(Keep::SubtaskStart)),
            (patient, false, None),
            (OnBusy::at_once(Reaction::Migrate), false, Some(Keep::State)),
            (demoted, false, None),
        ] {
            assert_eq!(Escape::Whenever.keep(on_busy, is_frozen), live, "{on_busy}");
            assert_eq!(Escape::AtIncreases.keep(on_busy, is_frozen), Some(Keep::State));
        }
    }
}
