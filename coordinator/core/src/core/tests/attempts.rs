//! Attempts, leases, fences, and what ends a subprogram.

use gleaner_common::report::{JobState, SubprogramState, WorkstationState};

use super::*;

#[test]
fn a_retreat_costs_no_retry_and_goes_first() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(3, 0);
    let (_, first, fence) = only(&offered);
    site.started(1, fence);
    assert_eq!(site.retreated(1, fence), [], "it rests: its owner is back");
    site.check_sent(1, &CoordinatorFrame::Acknowledge { fence });
    site.hear(1, AgentFrame::Presence(presence(true, 0)));
    let offered = site.hear(1, AgentFrame::Presence(presence(false, 1)));
    let (_, again, fence) = only(&offered);
    assert_eq!(again, first);
    site.finished(1, fence, Outcome::Succeeded);
    let summary = site.core.summary(job).unwrap();
    assert_eq!(
        (summary.counts.retreats, summary.counts.suspensions, summary.counts.succeeded),
        (1, 1, 1)
    );
}

#[test]
fn what_waited_and_went_back_untouched_is_no_retreat() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    site.retreated(1, only(&offered).2);
    assert_eq!(site.core.summary(job).unwrap().counts.retreats, 0);
    assert_eq!(site.core.summary(job).unwrap().queued, 1);
}

#[test]
fn a_failure_costs_a_retry_and_is_tried_last_and_elsewhere() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit(3, 1);
    let [(2, first, fence), (1, second, other)] = offered[..] else { panic!("{offered:?}") };
    let third = only(&site.finished(2, fence, Outcome::ExitCode(3)));
    assert_eq!((third.0, third.1), (2, subprogram(job, 2)), "the failed one goes last");
    assert_eq!(site.finished(2, third.2, Outcome::Succeeded), [], "not where it failed");
    let again = only(&site.finished(1, other, Outcome::Succeeded));
    assert_eq!((again.0, again.1), (1, first));
    site.finished(1, again.2, Outcome::Signal(11));
    assert_eq!(site.accepted(), [first], "the last failure is the result");
    assert_ne!(first, second);
    let summary = site.summary();
    assert_eq!(summary.state, JobState::Failed);
    assert_eq!(
        (summary.counts.succeeded, summary.counts.failed, summary.counts.retried),
        (2, 1, 1)
    );
    site.check_sent(1, &CoordinatorFrame::Forget { job });
    assert_eq!(site.core.summary(job), None, "what is over is the store's");
}

#[test]
fn where_it_failed_is_good_enough_if_nothing_else_is_idle() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(1, 1);
    let again = only(&site.finished(1, only(&offered).2, Outcome::ExitCode(1)));
    assert_eq!(again.0, 1);
}

#[test]
fn an_attempt_is_given_up_after_its_lease_and_not_before() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit(1, 0);
    let (2, _, old) = only(&offered) else { panic!("{offered:?}") };
    site.started(2, old);
    site.handle(Event::Disconnected(link(2, 1)));
    site.now = site.now + s(3);
    site.heartbeat(1);
    assert_eq!(site.pass(s(7)), [], "its guest may still run");
    let (elsewhere, _, new) = only(&site.pass(Duration::from_millis(251)));
    assert_eq!(elsewhere, 1);
    assert_eq!(site.core.summary(job).unwrap().counts.lost, 1);
    // The agent comes back with the result, too late.
    site.reconnect(2, 2, &[]);
    let late = AttemptEvent::Finished(finished(old, Outcome::Succeeded, s(1)));
    site.handle(Event::Heard { from: link(2, 2), frame: AgentFrame::Attempt(late) });
    site.check_sent(2, &CoordinatorFrame::Acknowledge { fence: old });
    assert_eq!((site.accepted(), site.last.changes.len()), (vec![], 0));
    site.finished(1, new, Outcome::Succeeded);
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
}

#[test]
fn heartbeats_keep_an_attempt() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit(1, 0);
    let (id, _, _) = only(&offered);
    for _ in 0..20 {
        assert_eq!(site.pass(s(3)), []);
        site.heartbeat(id);
        site.check_sent(id, &CoordinatorFrame::HeartbeatAck { sequence: 1 });
    }
    assert_eq!(site.core.attempts.len(), 1);
}

#[test]
fn a_connection_does_not_outlive_the_attempts_given_up_on_it() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    site.pass(PAST_LEASE);
    let refused =
        |effect: &Effect| matches!(effect, Effect::Refuse { link: l, .. } if *l == link(1, 1));
    assert!(site.last.effects.iter().any(refused), "{:?}", site.last.effects);
    site.heartbeat(1);
    assert_eq!(site.last, Step::default(), "an answer would renew the lease of {fence}");
    assert_eq!(site.reconnect(1, 2, &[fence]).len(), 1);
    let keeps_nothing = |(_, frame): (_, &CoordinatorFrame)| matches!(frame, CoordinatorFrame::Welcome { keep, .. } if keep.is_empty());
    assert!(site.sent().any(keeps_nothing));
}

#[test]
fn a_new_life_of_an_agent_says_that_the_old_ones_guests_are_dead() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit(1, 0);
    let (2, _, fence) = only(&offered) else { panic!("{offered:?}") };
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let again = site.hello(link(2, 2), Incarnation(2), facts, presence(true, 0), vec![]);
    let (elsewhere, which, new) = only(&again);
    assert_eq!((elsewhere, which), (1, subprogram(job, 0)));
    assert!(new > fence);
    assert!(site.last.effects.contains(&Effect::Replace(link(2, 1))));
}

#[test]
fn a_connection_that_breaks_costs_nothing() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    site.started(1, fence);
    site.handle(Event::Disconnected(link(1, 1)));
    assert_eq!(site.reconnect(1, 2, &[fence]), []);
    let keep = site.sent().find_map(|(_, frame)| {
        let CoordinatorFrame::Welcome { keep, .. } = frame else { return None };
        Some(keep.clone())
    });
    assert_eq!(keep, Some(vec![fence]));
    assert_eq!(
        site.core.subprogram_row(subprogram(job, 0)).unwrap().state,
        SubprogramState::Running
    );
}

#[test]
fn an_offer_that_never_arrived_is_made_again() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(1, 0);
    assert_eq!(site.reconnect(1, 2, &[]), offered);
    let frames: Vec<_> = site.sent().map(|(_, frame)| frame).collect();
    assert!(matches!(
        frames[..],
        [
            CoordinatorFrame::Welcome { .. },
            CoordinatorFrame::Job { .. },
            CoordinatorFrame::Offer(_)
        ]
    ));
}

#[test]
fn news_of_an_old_connection_is_not_news() {
    let mut site = Site::with_idle(1);
    site.reconnect(1, 2, &[]);
    site.handle(Event::Disconnected(link(1, 1)));
    site.hear(1, AgentFrame::Presence(presence(true, 0)));
    let row = site.core.workstation_row(site.now, WorkstationId(1)).unwrap();
    assert_eq!(row.state, WorkstationState::Idle);
    site.connect(1, 1, 1);
    assert_eq!(site.last.effects, [Effect::Replace(link(1, 1))]);
}

#[test]
fn only_the_workstation_of_an_attempt_can_end_it() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit(1, 0);
    let (2, _, fence) = only(&offered) else { panic!("{offered:?}") };
    site.finished(1, fence, Outcome::Succeeded);
    assert_eq!(site.accepted(), []);
    assert_eq!(site.core.summary(job).unwrap().running, 1);
}

#[test]
fn a_result_that_is_told_twice_counts_once() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(2, 0);
    let (_, which, fence) = only(&offered);
    site.finished(1, fence, Outcome::Succeeded);
    assert_eq!(site.accepted(), [which]);
    site.finished(1, fence, Outcome::Succeeded);
    site.check_sent(1, &CoordinatorFrame::Acknowledge { fence });
    assert_eq!((site.accepted(), site.core.summary(job).unwrap().counts.succeeded), (vec![], 1));
}

#[test]
fn a_result_that_outlived_the_coordinator_is_accepted() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(2, 0);
    let (_, _, fence) = only(&offered);
    let record = site.core.jobs[&job].record().clone();
    let attempt = crate::record::AttemptRecord {
        fence,
        replica: 0,
        subprogram: subprogram(job, 0),
        workstation: WorkstationId(1),
        placed: WallTime(0),
        end: None,
        coming: None,
        arrived: false,
    };
    let restored = Restored {
        workstations: vec![(WorkstationId(1), "host1".into())],
        jobs: vec![record],
        attempts: vec![attempt],
        fences_below: Fence::of(10_000),
        ..Restored::default()
    };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    assert_eq!(site.pass(s(9)), []);
    let offered = site.reconnect(1, 1, &[fence]);
    assert_eq!(offered, [], "its one place is taken");
    let offered = site.finished(1, fence, Outcome::Succeeded);
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
    let (_, next, newer) = only(&offered);
    assert_eq!((next, newer), (subprogram(job, 1), Fence::of(10_000)));
}

#[test]
fn agents_that_do_not_come_back_after_a_restart_lose_their_attempts() {
    let mut site = Site::with_idle(1);
    let (job, _) = site.submit(1, 0);
    let record = site.core.jobs[&job].record().clone();
    let attempt = crate::record::AttemptRecord {
        fence: Fence::of(1),
        replica: 0,
        subprogram: subprogram(job, 0),
        workstation: WorkstationId(7),
        placed: WallTime(0),
        end: None,
        coming: None,
        arrived: false,
    };
    let restored = Restored { jobs: vec![record], attempts: vec![attempt], ..Restored::default() };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    site.pass(LEASE);
    assert_eq!(site.core.summary(job).unwrap().running, 1);
    site.pass(s(1));
    assert_eq!(site.core.summary(job).unwrap().counts.lost, 1);
}

#[test]
fn a_cancelled_job_stops_everywhere_and_at_once() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit(5, 0);
    let [(_, _, a), (_, _, b)] = offered[..] else { panic!("{offered:?}") };
    site.finished(2, a, Outcome::Succeeded);
    let c = only(&site.offers());
    site.cancel(job);
    assert_eq!(site.answer(), Some(Answer::Cancelled(job)));
    site.check_sent(1, &CoordinatorFrame::Cancel { fence: b });
    site.check_sent(2, &CoordinatorFrame::Cancel { fence: c.2 });
    let progress = site.progress();
    assert_eq!(
        (progress.state, progress.counts.succeeded, progress.counts.cancelled),
        (JobState::Cancelled, 1, 4)
    );
    assert_eq!(site.core.queued(), 0);
    site.cancel(job);
    assert!(matches!(site.answer(), Some(Answer::No(_))));
}

#[test]
fn a_coordinator_that_slept_listens_before_it_gives_up() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    site.now = site.now + s(60);
    site.last = site.core.wake(site.now, WallTime(0));
    assert_eq!(site.core.attempts.len(), 1);
    site.heartbeat(1);
    site.started(1, fence);
    assert_eq!(site.pass(s(9)), []);
    assert_eq!(site.core.attempts.len(), 1);
}

#[test]
fn suspensions_are_counted_once_however_they_are_heard_of() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    site.started(1, fence);
    site.hear_of(1, AttemptEvent::Suspended { fence });
    let summary = site.core.summary(job).unwrap();
    assert_eq!((summary.suspended, summary.running, summary.counts.suspensions), (1, 0, 1));
    site.hear_of(1, AttemptEvent::Resumed { fence });
    let mut end = finished(fence, Outcome::Succeeded, s(60));
    end.suspensions = 3;
    site.hear_of(1, AttemptEvent::Finished(end));
    assert_eq!(site.progress().counts.suspensions, 3);
}

#[test]
fn mad_durations_do_no_harm() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(4, 0);
    let mut offer = only(&offered);
    for ran in [Duration::MAX, Duration::ZERO, Duration::MAX] {
        let mut mad = finished(offer.2, Outcome::Succeeded, ran);
        (mad.cpu, mad.suspended, mad.suspensions) = (Duration::MAX, Duration::MAX, u32::MAX);
        offer = only(&site.hear_of(1, AttemptEvent::Finished(mad)));
    }
}
