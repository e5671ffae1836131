//! Programs that react to increases in availability.

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::program::ProgramSpec;
use gleaner_common::reaction::Keep;
use gleaner_program_core::address::{Request, Task};
use gleaner_program_core::wire::{self, Ask, FromRank};

use super::*;

const GROWS: ProgramSpec = ProgramSpec {
    increases: true,
    spawns: false,
    ranks_max: 4,
    checkpoint_every: None,
    record: false,
};

fn put_a_task(site: &mut Site, at: Offered) -> Vec<Offered> {
    let ask = Ask::PutTask { task: vec![1] };
    site.say(at, &FromRank::Ask { request: Request(1), ask })
}

fn becomes_idle(site: &mut Site, id: u32) -> Vec<Offered> {
    site.enrol(id);
    site.connect(id, 1, 1)
}

#[test]
fn a_bag_takes_what_becomes_free_up_to_the_most_ranks_it_may_have() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit_program(2, GROWS);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    assert_eq!(put_a_task(&mut site, offered[0]), [], "nothing is free");
    for (workstation, more) in [(3, 1), (4, 1), (5, 0)] {
        let begun = becomes_idle(&mut site, workstation);
        assert_eq!(begun.len(), more, "workstation {workstation}");
    }
}

#[test]
fn a_program_without_a_bag_gets_no_ranks_that_nobody_asked_for() {
    let mut site = Site::with_idle(3);
    let (_, offered) = site.submit_program(2, GROWS);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    assert_eq!(becomes_idle(&mut site, 4), []);
}

/// A rank that stands still for its owner, and where.
fn with_frozen(increases: bool) -> (Site, u32, Fence) {
    let mut site = Site::with_idle(1);
    let spec = ProgramSpec { increases, ranks_max: 1, ..GROWS };
    let patient = OnBusy::suspend(None, Reaction::Retreat);
    let (_, offered) = site.submit_program_that(1, spec, patient);
    let (id, _, fence) = offered[0];
    site.started(id, fence);
    site.hear(id, AgentFrame::Attempt(AttemptEvent::Suspended { fence }));
    (site, id, fence)
}

#[test]
fn a_frozen_rank_goes_where_it_can_run_and_stays_frozen_where_the_program_does_not_ask() {
    for (increases, moves) in [(true, 1), (false, 0)] {
        let (mut site, id, _) = with_frozen(increases);
        becomes_idle(&mut site, 2);
        let departs = site.sent().filter(|(to, frame)| {
            *to == id && matches!(frame, CoordinatorFrame::Depart { keep: Keep::Nothing, .. })
        });
        assert_eq!(departs.count(), moves);
    }
}

#[test]
fn a_frozen_rank_that_cannot_leave_is_asked_again_after_a_while_only() {
    let (mut site, id, fence) = with_frozen(true);
    becomes_idle(&mut site, 2);
    let departs = |site: &Site| {
        site.sent().filter(|(_, frame)| matches!(frame, CoordinatorFrame::Depart { .. })).count()
    };
    assert_eq!(departs(&site), 1);
    let (keep, reason) = (Keep::Nothing, "an open socket".to_owned());
    site.hear_of(id, AttemptEvent::CannotLeave { fence, keep, reason });
    site.hear_of(id, AttemptEvent::Suspended { fence });
    assert_eq!(departs(&site), 0, "not at once");
    let mut asked = 0;
    for _ in 0..10 {
        (1..=2).for_each(|id| drop(site.heartbeat(id)));
        site.pass(s(4));
        asked += departs(&site);
    }
    assert_eq!(asked, 1);
}

/// Its agent tells it again on each connection, and in between the rank has asked.
#[test]
fn what_a_rank_held_that_begins_anew_is_given_to_another() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit_program(2, ProgramSpec { ranks_max: 2, ..GROWS });
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    put_a_task(&mut site, offered[0]);
    let (task, bytes) = (Task(0), vec![1]);
    site.ask(offered[1], 1, Ask::NextTask);
    site.check_answer(offered[1].0, 1, &wire::Answer::Task { task, bytes: bytes.clone() });
    site.ask(offered[0], 2, Ask::NextTask);
    let (id, _, fence) = offered[1];
    site.hear_of(id, AttemptEvent::Stays { fence, keep: Keep::State });
    assert_eq!(site.told(), [], "it does it");
    site.hear_of(id, AttemptEvent::Stays { fence, keep: Keep::Nothing });
    site.ask(offered[1], 2, Ask::BeginsAnew);
    let given = wire::Answer::Task { task, bytes: bytes.clone() };
    site.check_answer(offered[0].0, 2, &given);
    site.check_answer(id, 2, &wire::Answer::Returned);
    site.ask(offered[1], 3, Ask::NextTask);
    site.hear_of(id, AttemptEvent::Stays { fence, keep: Keep::Nothing });
    site.ask(offered[1], 2, Ask::BeginsAnew);
    site.ask(offered[0], 3, Ask::ReturnTask { task });
    site.check_answer(id, 3, &wire::Answer::Task { task, bytes });
}

#[test]
fn a_program_that_fails_does_not_grow_any_more() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_program(2, GROWS);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    put_a_task(&mut site, offered[0]);
    let fault = Outcome::Fault("it floods".into());
    assert_eq!(site.finished(offered[1].0, offered[1].2, fault), []);
    assert!(site.core.job_row(job).is_none(), "it is over");
}

#[test]
fn of_frozen_ranks_the_one_that_has_been_so_longest_goes_first() {
    let mut site = Site::with_idle(2);
    let patient = OnBusy::suspend(None, Reaction::Retreat);
    let (_, offered) = site.submit_program_that(2, ProgramSpec { ranks_max: 2, ..GROWS }, patient);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    for at in [1, 0] {
        let (id, _, fence) = offered[at];
        site.now = site.now + Duration::from_secs(1);
        site.hear(id, AgentFrame::Attempt(AttemptEvent::Suspended { fence }));
    }
    for (workstation, at) in [(3, 1), (4, 0)] {
        becomes_idle(&mut site, workstation);
        let departs = site
            .sent()
            .find_map(|(to, frame)| matches!(frame, CoordinatorFrame::Depart { .. }).then_some(to));
        assert_eq!(departs, Some(offered[at].0));
    }
}
