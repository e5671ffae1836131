//! The reasons, as people read them.

use super::*;

#[track_caller]
fn check(reasons: Option<Vec<String>>, expected: &[&str]) {
    assert_eq!(reasons.unwrap(), expected);
}

#[test]
fn a_queued_subprogram_names_what_is_in_its_way() {
    let mut site = Site::with_idle(3);
    site.hear(2, AgentFrame::Presence(presence(true, 1)));
    site.handle(Event::Disconnected(link(3, 1)));
    let (job, offered) = site.submit(3, 0);
    assert_eq!(only(&offered).0, 1);
    check(
        site.core.why_subprogram(site.now, subprogram(job, 2)),
        &[
            "no workstation is free; of 3: 1 full, 1 busy with their owners, 1 not connected",
            "1 subprogram of its job before it",
        ],
    );
}

#[test]
fn one_that_was_tried_says_how_it_went() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, which, fence) = only(&offered);
    site.started(1, fence);
    site.hear(1, AgentFrame::Presence(presence(true, 0)));
    site.hear_of(1, AttemptEvent::Suspended { fence });
    check(
        site.core.why_subprogram(site.now, which),
        &["is suspended on host1 (#1): busy: pts/3, 2.0 s ago"],
    );
    site.retreated(1, fence);
    check(
        site.core.why_subprogram(site.now, which),
        &[
            "no workstation is free; of 1: 1 busy with their owners",
            "its last attempt, on host1, retreated: pts/3, 0.0 s ago (attempts: 1, failures: 0, \
             retries: 0)",
        ],
    );
    assert_eq!(site.core.why_subprogram(site.now, subprogram(job, 7)), None);
}

#[test]
fn a_job_says_what_it_waits_for() {
    let mut site = Site::with_idle(1);
    let (first, _) = site.submit(2, 0);
    let (second, _) = site.submit(2, 0);
    check(
        site.core.why_job(site.now, first),
        &[
            "no workstation is free; of 1: 1 full",
            "1 subprogram queued",
            "1 are on workstations, 0 of them suspended",
            "the one placed first, 1.0, is placed on host1 (#1) and has not started",
        ],
    );
    let reasons = site.core.why_job(site.now, second).unwrap();
    assert!(
        reasons.contains(
            &"1 subprogram of ann's own before it, of higher priority or earlier (1 jobs)"
                .to_owned()
        ),
        "{reasons:?}"
    );
}

#[test]
fn a_workstation_says_why_it_is_not_used() {
    let mut site = Site::with_idle(1);
    let id = WorkstationId(1);
    check(
        site.core.why_workstation(site.now, id),
        &["nothing is queued", "idle: no input for 5 min, load 0.01"],
    );
    site.submit(1, 0);
    check(
        site.core.why_workstation(site.now, id),
        &["full: guests: 1, room: 1, places: 1", "subprogram 1.0 of ann is placed there (#1)"],
    );
    site.handle(Event::Disconnected(link(1, 1)));
    site.now = site.now + s(3);
    let reasons = site.core.why_workstation(site.now, id).unwrap();
    assert_eq!(reasons[0], "not connected for 3.0 s");
}
