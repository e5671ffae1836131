//! Stores that went back in time: fences, old results and what is not known.

use gleaner_common::id::Generation;
use gleaner_common::program::{Life, ProgramSpec};

use super::*;

impl Site {
    /// Starts anew from this, as a shell does.
    fn starts_from(&mut self, mut restored: Restored) {
        let _ = restored.begin_generation(self.wall());
        self.core = Core::restore(self.now, self.wall(), Config::default(), restored);
    }

    fn greets(&mut self, serial: u64, held: &[Fence], seen: Fence) -> Vec<Offered> {
        let held = held.iter().map(|fence| (*fence, GuestState::Running)).collect();
        let frame = AgentFrame::Hello {
            incarnation: Incarnation(1),
            boot: BootId::default(),
            facts: Box::new(Facts { cores: 1, places: 1, ..Facts::default() }),
            presence: presence(false, 1),
            held,
            seen,
        };
        self.handle(Event::Heard { from: link(1, serial), frame })
    }

    /// What is reserved once the step is durable.
    fn reserved(&self) -> Option<Fence> {
        let reserved = |change: &Change| {
            let Change::FencesReserved { below } = change else { return None };
            Some(*below)
        };
        self.last.changes.iter().filter_map(reserved).next_back()
    }

    fn say_end(&mut self, serial: u64, fence: Fence) {
        let event = AttemptEvent::Finished(finished(fence, Outcome::Succeeded, s(2)));
        let frame = AgentFrame::Attempt(event);
        self.handle(Event::Heard { from: link(1, serial), frame });
    }

    fn succeeded(&self) -> bool {
        self.core.jobs().next().is_none()
    }

    fn told_unknown(&self) -> Vec<Fence> {
        let unknown = |effect: &Effect| {
            let Effect::Unknown { fence, .. } = effect else { return None };
            Some(*fence)
        };
        self.last.effects.iter().filter_map(unknown).collect()
    }
}

fn of(generation: u32, number: u32) -> Fence {
    Fence { generation: Generation(generation), number }
}

/// A store from before anything was placed, and an agent that has seen more.
fn went_back(seen: Fence) -> (Site, Vec<Offered>) {
    let mut site = Site::new(Config::default());
    site.submit(1, 0);
    let jobs = site.last.changes.iter().filter_map(|change| {
        let Change::Job(record) = change else { return None };
        Some((**record).clone())
    });
    let jobs: Vec<crate::record::JobRecord> = jobs.collect();
    site.starts_from(Restored {
        workstations: vec![(WorkstationId(1), "desk".into())],
        jobs,
        fences_below: of(4, 10_001),
        newest: of(4, 7),
        ..Restored::default()
    });
    let offered = site.greets(1, &[], seen);
    (site, offered)
}

#[test]
fn every_start_gives_out_later_fences_than_the_one_before() {
    let (mut site, offered) = went_back(of(4, 7));
    let (_, _, first) = only(&offered);
    assert!(first > of(4, u32::MAX), "{first:?}");
    assert_eq!(first.number, 10_001, "the numbers go on");
    assert_eq!(site.core.later_self(), None, "a plain restart is no news");
    site.starts_from(Restored { fences_below: of(4, 10_001), ..Restored::default() });
    assert!(site.core.fences.floor() >= of(5, 0));
}

/// An old copy of the store gave out the same fences again: every offer was
/// refused as overtaken, for ever.
#[test]
fn an_agent_that_has_seen_more_than_the_store_gave_out_gets_later_fences() {
    let (mut site, offered) = went_back(of(9, 70_000));
    assert_eq!(offered, [], "what the store does not know may run");
    assert!(site.last.effects.iter().any(|it| matches!(it, Effect::WentBack { .. })));
    let (_, _, fence) = only(&site.pass_heard(PAST_LEASE));
    assert!(fence > of(9, 70_000), "{fence:?}");
    assert!(site.reserved().is_some_and(|below| below > fence), "not durable first");
    assert_eq!(site.core.later_self(), Some(("desk", of(9, 70_000))));
}

#[test]
fn jobs_of_the_later_self_are_told_where_an_agent_knows_of_them() {
    let (mut site, _) = went_back(of(4, 20));
    let later = |number| SubprogramId { job: JobId(number), index: 3 };
    let attempts = [(18, later(5)), (19, later(5)), (6, later(6)), (17, later(1))];
    let attempts = attempts.map(|(number, of_job)| (of(4, number), of_job));
    site.hear(1, AgentFrame::Unknown(attempts.to_vec()));
    let told = site.core.later_job(JobId(5)).unwrap();
    assert!(told.contains("it was tried at desk (attempts: 2)"), "{told}");
    assert_eq!(site.core.later_job(JobId(6)), None, "the store has known that attempt");
    assert_eq!(site.core.later_job(JobId(1)), None, "the store knows that job");
}

#[test]
fn what_a_reverted_machine_gives_out_again_is_of_another_generation() {
    let (mut site, offered) = went_back(of(4, 7));
    let given = only(&offered).2;
    // Later ones of the same generation: of before the machine was reverted.
    let seen = given.plus(5);
    site.greets(2, &[given], seen);
    let now = site.core.fences.floor();
    assert!(now.generation > given.generation);
    // What it had given out itself goes on.
    site.say_end(2, given);
    assert_eq!(site.told_unknown(), []);
    assert!(site.succeeded());
}

#[test]
fn an_old_result_is_nothing_of_a_new_job_and_named_once() {
    let (mut site, offered) = went_back(of(4, 20));
    let fence = only(&offered).2;
    // The number of the new attempt, in the generation of the old one.
    let old = Fence { generation: Generation(4), number: fence.number };
    site.say_end(1, old);
    assert_eq!(site.told_unknown(), [old]);
    assert!(!site.succeeded());
    site.say_end(1, old);
    assert_eq!(site.told_unknown(), []);
    let row = site.core.workstation_row(site.now, WorkstationId(1)).unwrap();
    assert!(row.missing.iter().any(|line| line.starts_with("unknown here: 1")), "{row:?}");
    site.say_end(1, fence);
    assert!(site.succeeded());
}

#[test]
fn no_agent_draws_generations_from_a_far_future() {
    let (site, offered) = went_back(of(u32::MAX, 9));
    assert_eq!(offered, []);
    let refused = |it: &Effect| matches!(it, Effect::Refuse { reason, .. } if reason.contains("far in the future"));
    assert!(site.last.effects.iter().any(refused), "{:?}", site.last);
    assert!(site.core.fences.floor().generation < Generation(u32::MAX));
}

/// An agent that says nothing does not notice that its coordinator died: work waited
/// for 17 s.
#[test]
fn agents_without_guests_are_heard_the_more_often_the_fewer_they_are() {
    let told = |site: &Site| {
        let beats = site.sent().find_map(|(_, frame)| {
            let CoordinatorFrame::Welcome { heartbeat_without_guests, .. } = frame else {
                return None;
            };
            Some(*heartbeat_without_guests)
        });
        beats.unwrap()
    };
    let mut site = Site::with_idle(1);
    assert_eq!(told(&site), s(3));
    (2..=5_000).for_each(|id| site.enrol(id));
    site.connect(2, 1, 1);
    assert_eq!(told(&site), s(10));
    (5_001..=20_000).for_each(|id| site.enrol(id));
    site.connect(3, 1, 1);
    assert_eq!(told(&site), s(20));
}

/// Agents may know of ranks that any self of the store had.
#[test]
fn a_copy_that_comes_back_twice_begins_its_programs_in_later_lives_each_time() {
    let mut site = Site::with_idle(2);
    // The clock is right: it is long after 2024.
    site.now = site.now + s(3_000_000_000);
    site.connect(1, 1, 1);
    site.connect(2, 1, 1);
    let (job, _) = site.submit_program(2, ProgramSpec::default());
    let mut lives = vec![Life(1)];
    for _ in 0..3 {
        let copy = Restored { is_copy: true, ..site.kept(job) };
        for _ in 0..2 {
            site.starts_from(copy.clone());
            site.pass(s(5));
            lives.push(site.core.jobs[&job].progress().life);
        }
        site.keep_journal();
    }
    assert!(lives.is_sorted_by(|before, after| before < after), "{lives:?}");
}

/// The coordinator died before the programs of a restored backup had begun again: then
/// their ranks went on, and knew more than it.
#[test]
fn a_store_that_went_back_is_an_original_when_nothing_unknown_runs_any_more() {
    let said = |site: &Site| {
        let went_back = |change: &Change| {
            let Change::WentBack(it) = change else { return None };
            Some(*it)
        };
        site.last.changes.iter().filter_map(went_back).collect::<Vec<_>>()
    };
    let mut site = Site::new(Config::default());
    site.starts_from(Restored { is_copy: true, ..Restored::default() });
    site.pass(LEASE);
    assert_eq!(said(&site), []);
    site.pass(PAST_LEASE);
    assert_eq!(said(&site), [false]);
    assert_eq!(site.core.deadline(), None, "once");
    // An agent that knows better says so, and that is durable with its welcome.
    let (mut site, _) = went_back(of(9, 70_000));
    assert_eq!(said(&site), [true]);
    site.pass(PAST_LEASE);
    assert_eq!(said(&site), [false]);
}
