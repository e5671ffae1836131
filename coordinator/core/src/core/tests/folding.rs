//! Ranks that share places.

use gleaner_common::fingerprint::Fingerprint;
use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::program::ProgramSpec;
use gleaner_common::shape::{Class, Shape};
use gleaner_program_core::wire::Ask;

use super::super::SchedulerConfig;
use super::moves::machine;
use super::*;
use crate::scheduler::{Decision, Obligation};

/// Under the policy that halves jobs for others.
fn site(policy: &str) -> Site {
    let scheduler = SchedulerConfig { policy: policy.into(), ..SchedulerConfig::default() };
    Site::new(Config { scheduler, ..Config::default() })
}

fn workstations(policy: &str, places: &[u16]) -> Site {
    let mut site = site(policy);
    for (id, places) in (1..).zip(places) {
        site.enrol(id);
        site.connect(id, *places, *places);
        site.now = site.now + Duration::from_millis(1);
    }
    site
}

fn program(ranks: u32, min: Option<u32>) -> JobSpec {
    let mut spec = JobSpec::new(vec!["./mesh".into()], IndexRange::count_of(ranks).unwrap());
    let increases = min.is_some();
    spec.program = Some(ProgramSpec { ranks_max: ranks, increases, ..ProgramSpec::default() });
    spec.shape = Shape { min, ..Shape::default() };
    spec
}

impl Site {
    /// A program of so many ranks that run, on so many places at least.
    fn with_folding(&mut self, ranks: u32, min: u32, on_busy: OnBusy) -> (JobId, Vec<Offered>) {
        let spec = JobSpec { on_busy, ..program(ranks, Some(min)) };
        assert_eq!(spec.class(), Class::Malleable);
        let (job, offered) = self.submit_spec(spec);
        for (id, _, fence) in &offered {
            self.started(*id, *fence);
        }
        self.now = self.now + s(3);
        (job, offered)
    }

    /// Who shares a place, as agents were told by the last step.
    fn riders(&self) -> Vec<(u32, Vec<Fence>)> {
        let riders = self.sent().filter_map(|(to, frame)| {
            let CoordinatorFrame::Riders { fences } = frame else { return None };
            Some((to, fences.clone()))
        });
        riders.collect()
    }

    #[track_caller]
    fn check_size(&self, job: JobId, size: u32) {
        self.core.check_places().unwrap();
        let state = self.core.schedule.scheduler.state();
        assert_eq!(state.get(job).map(|it| it.size), Some(size));
    }
}

#[test]
fn a_program_of_ranks_gives_places_to_another_by_sharing_and_has_them_back() {
    let mut site = workstations("folding", &[2, 2]);
    let (first, ranks) = site.with_folding(4, 2, OnBusy::default());
    site.check_size(first, 4);
    let (second, offered) = site.submit_spec(program(2, None));
    assert_eq!(offered.len(), 2, "at once, and nobody has moved");
    assert_eq!(site.riders().len(), 2, "one at each workstation");
    for (at, fences) in site.riders() {
        let newest = ranks.iter().filter(|rank| rank.0 == at).map(|rank| rank.2).max();
        assert_eq!(Some(&fences[..]), newest.as_ref().map(std::slice::from_ref));
    }
    site.check_size(first, 2);
    site.check_size(second, 2);
    for (at, _, fence) in &offered {
        site.started(*at, *fence);
        site.finished(*at, *fence, Outcome::Succeeded);
    }
    assert!(site.riders().iter().all(|(_, fences)| fences.is_empty()), "{:?}", site.riders());
    site.check_size(first, 4);
}

#[test]
fn nobody_is_asked_for_more_than_can_be_shared() {
    // Without moves each workstation with a rank takes one place.
    let mut site = workstations("folding", &[1, 1]);
    let (first, _) = site.with_folding(2, 1, OnBusy::default());
    assert_eq!(site.submit_spec(program(1, None)).1, []);
    assert_eq!(site.riders(), []);
    site.check_size(first, 2);
}

#[test]
fn a_program_begins_on_fewer_places_than_it_has_ranks() {
    let mut site = workstations("fair", &[2]);
    let (job, offered) = site.with_folding(4, 2, OnBusy::default());
    assert_eq!(offered.len(), 4);
    let riders = site.core.pool.get(WorkstationId(1)).unwrap().riders().len();
    assert_eq!(riders, 2);
    site.check_size(job, 2);
    let (other, none) = site.submit(1, 0);
    assert_eq!(none, [], "no place is free");
    // Whose place is shared ends: whoever shared it has it.
    let (at, _, first) = offered[0];
    site.finished(at, first, Outcome::Succeeded);
    site.core.check_places().unwrap();
    assert!(site.core.job_row(other).is_some());
}

#[test]
fn ranks_move_to_where_others_of_their_program_are_and_back() {
    let mut site = site("folding");
    (1..=2).for_each(|id| drop(site.connect_machine(id, "6.12.1")));
    let moves = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
    let (first, _) = site.with_folding(2, 1, moves);
    let (second, offered) = site.submit_spec(program(1, None));
    assert_eq!(only(&offered).1.job, first, "what was asked for is not free yet");
    let fold = site.begun().expect("one of them is to leave");
    assert_eq!(site.riders(), [(fold.to, vec![fold.new])], "told before it is offered there");
    site.check_size(first, 2);
    site.arrives(fold);
    let offered = site.offers();
    assert_eq!(only(&offered).1.job, second);
    site.check_size(first, 1);
    let (at, _, fence) = only(&offered);
    site.started(at, fence);
    site.finished(at, fence, Outcome::Succeeded);
    let unfold = site.begun().expect("it goes where it is alone");
    site.check_size(first, 2);
    site.arrives(unfold);
    site.check_size(first, 2);
    assert!(site.core.pool.ids().all(|id| site.core.pool.get(id).unwrap().riders().len() == 0));
}

#[test]
fn ranks_share_places_as_soon_as_they_have_begun() {
    let mut site = site("folding");
    (1..=2).for_each(|id| drop(site.connect_machine(id, "6.12.1")));
    let on_busy = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
    let (_, ranks) = site.submit_spec(JobSpec { on_busy, ..program(2, Some(1)) });
    site.submit_spec(program(1, None));
    assert_eq!(site.begun(), None, "there is nothing to carry");
    site.started(ranks[0].0, ranks[0].2);
    assert_eq!(site.begun(), None);
    site.started(ranks[1].0, ranks[1].2);
    assert_eq!(site.begun(), None, "it may not have greeted its agent");
    (1..=2).for_each(|id| drop(site.heartbeat(id)));
    site.pass(s(5));
    assert!(site.begun().is_some());
}

#[test]
fn a_rank_that_cannot_leave_after_all_keeps_its_place_and_its_user_is_told() {
    let mut site = site("folding");
    (1..=2).for_each(|id| drop(site.connect_machine(id, "6.12.1")));
    let moves = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
    let (first, _) = site.with_folding(2, 1, moves);
    site.submit_spec(program(1, None));
    let fold = site.begun().unwrap();
    site.is_refused(fold);
    site.check_size(first, 2);
    let notes = site.notes(first);
    assert!(notes.iter().any(|note| note.contains("found no place to move to")), "{notes:?}");
    let state = site.core.schedule.scheduler.state();
    assert_eq!(state.releasing(), 0, "nobody waits for what does not come");
}

#[test]
fn a_rank_whose_owner_returns_shares_a_place_where_none_is_free() {
    let mut site = site("fair");
    (1..=2).for_each(|id| drop(site.connect_machine(id, "6.12.1")));
    let moves = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
    let (job, ranks) = site.with_folding(2, 1, moves);
    let (at, _, fence) = ranks[1];
    let fold = site.move_away(at, fence);
    assert_eq!(site.riders(), [(fold.to, vec![fold.new])]);
    site.arrives(fold);
    site.check_size(job, 1);
    site.hear(at, AgentFrame::Presence(presence(false, 1)));
    let unfold = site.begun().expect("it goes where it is alone");
    assert_eq!((unfold.from, unfold.to), (fold.to, at));
    site.check_size(job, 2);
}

#[test]
fn a_mandatory_shrink_that_a_program_does_not_answer_is_carried_out() {
    let mut site = workstations("fair", &[2, 2]);
    let (job, ranks) = site.with_folding(4, 2, OnBusy::default());
    site.ask(ranks[0], 1, Ask::Negotiates);
    let mut draft = super::super::Draft::new(site.now, site.wall());
    let obligation = Obligation::Mandatory;
    site.core.negotiate(&mut draft, job, &Decision::Shrink { job, by: 2, obligation });
    for _ in 0..10 {
        (1..=2).for_each(|id| _ = site.heartbeat(id));
        site.pass(s(4));
        if !site.riders().is_empty() {
            break;
        }
    }
    let notes = site.notes(job);
    let told = "2 of its processors are taken: its ranks share the others".to_owned();
    assert!(notes.contains(&told), "{notes:?}");
    assert_eq!(site.riders().len(), 2);
    site.core.check_places().unwrap();
}

#[test]
fn who_shares_is_found_out_again_after_a_restart() {
    let mut site = workstations("fair", &[2]);
    let (job, offered) = site.with_folding(4, 2, OnBusy::default());
    site.restart(job);
    let held: Vec<Fence> = offered.iter().map(|offer| offer.2).collect();
    let facts = Facts { cores: 2, places: 2, ..Facts::default() };
    let held = held.into_iter().map(|fence| (fence, GuestState::Running)).collect();
    site.hello(link(1, 2), Incarnation(1), facts, presence(false, 2), held);
    let (_, riders) = only_riders(&site);
    assert_eq!(riders.len(), 2);
    site.core.check_places().unwrap();
}

#[track_caller]
fn only_riders(site: &Site) -> (u32, Vec<Fence>) {
    site.riders().last().cloned().expect("its agent is told")
}

impl Site {
    /// A program of so many ranks, which spawns one more.
    fn with_grown(&mut self, ranks: u32, min: u32, on_busy: OnBusy) -> JobId {
        let mut spec = JobSpec { on_busy, ..program(ranks, Some(min)) };
        spec.program.as_mut().unwrap().ranks_max = ranks + 1;
        let (job, offered) = self.submit_spec(spec);
        for (at, _, fence) in &offered {
            self.started(*at, *fence);
        }
        self.ask(offered[0], 1, Ask::Spawn { count: 1 });
        let (at, _, fence) = only(&self.offers());
        self.started(at, fence);
        job
    }
}

#[test]
fn a_program_that_has_grown_is_not_asked_for_more_than_its_ranks_can_share() {
    let mut site = workstations("folding", &[5]);
    let moves = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
    let job = site.with_grown(4, 2, moves);
    site.check_size(job, 5);
    let sizes = site.core.schedule.scheduler.state().sizes(job);
    assert_eq!(sizes.map(crate::scheduler::Sizes::min), Some(3), "two at each place");
}

#[test]
fn programs_that_give_less_than_they_were_asked_for_are_not_asked_without_end() {
    for policy in crate::scheduler::ALL {
        let mut site = site(policy.name);
        let moves = OnBusy { reaction: Reaction::Migrate, ..OnBusy::default() };
        let another_library = |number| Fingerprint { root: [number; 16], ..machine("6.12.1") };
        for (id, library) in (1..).zip(1..=3) {
            site.connect_as(id, 1, another_library(library));
        }
        // Of three ranks none can go where another is, which shows too late.
        site.with_grown(2, 2, moves);
        // Two that can share what they have.
        site.connect_as(4, 2, another_library(4));
        site.with_folding(2, 1, moves);
        site.submit_spec(program(2, None));
        assert!(site.core.has_come_to_rest(), "{}", policy.name);
        let told = site.riders().len();
        assert!(told <= 2, "{}: it shared {told} times in a moment", policy.name);
    }
}
