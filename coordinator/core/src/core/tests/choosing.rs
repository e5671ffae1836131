//! Which workstation is chosen, and how much choosing takes.

use super::*;
use crate::placement::{Policy, compared};

fn idle_since_each_second(policy: Policy) -> Site {
    let mut site = Site::new(Config { policy, ..Config::default() });
    for id in 1..=3 {
        site.enrol(id);
        site.connect(id, 2, 1);
        site.now = site.now + s(1);
    }
    site
}

#[track_caller]
fn check_order(policy: Policy, order: [u32; 3]) {
    let mut site = idle_since_each_second(policy);
    let (_, offered) = site.submit(3, 0);
    assert_eq!(offered.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), order);
}

#[test]
fn the_policies_differ() {
    check_order(Policy::LastIdleFirst, [3, 2, 1]);
    check_order(Policy::FirstIdleFirst, [1, 2, 3]);
}

/// Two workstations, both idle since now: the owner of the first returns
/// every ten minutes, that of the second every four hours.
fn after_two_weeks(policy: Policy) -> Site {
    let mut site = Site::new(Config { policy, ..Config::default() });
    for id in 1..=2 {
        site.enrol(id);
        site.connect(id, 1, 1);
    }
    for tenth in 1..=14 * 144 {
        site.now = site.now + s(600);
        for (id, every) in [(1, 1), (2, 24)] {
            if tenth % every == 0 {
                site.hear(id, AgentFrame::Presence(presence(true, 1)));
                site.hear(id, AgentFrame::Presence(presence(false, 1)));
            }
        }
    }
    site
}

#[test]
fn the_likely_longest_is_told_from_what_each_owner_did() {
    let (_, offered) = after_two_weeks(Policy::LikelyLongest).submit(1, 0);
    assert_eq!(only(&offered).0, 2);
    // A policy that does not look at the past takes the first of two equals.
    let (_, offered) = after_two_weeks(Policy::LastIdleFirst).submit(1, 0);
    assert_eq!(only(&offered).0, 1);
}

#[test]
fn a_lost_connection_is_no_return_of_the_owner() {
    let mut site = after_two_weeks(Policy::LikelyLongest);
    for serial in 2..40 {
        site.handle(Event::Disconnected(link(2, serial - 1)));
        site.now = site.now + s(60);
        site.reconnect(2, serial, &[]);
    }
    let (_, offered) = site.submit(1, 0);
    assert_eq!(only(&offered).0, 2);
}

/// A new life of the coordinator, with these rows of what was learned; both
/// workstations come back idle since the same moment.
fn restarted(site: &Site, learned: Vec<LearnedRecord>) -> Site {
    let workstations = (1..=2).map(|id| (WorkstationId(id), format!("ws-{id}"))).collect();
    let restored = Restored { workstations, learned, ..Restored::default() };
    let mut again = Site::new(Config::default());
    again.now = site.now + s(60);
    again.core = Core::restore(again.now, again.wall(), Config::default(), restored);
    for id in 1..=2 {
        again.connect(id, 1, 1);
    }
    again
}

/// What the store has when the coordinator has stopped.
fn kept(mut site: Site) -> (Site, Vec<LearnedRecord>) {
    site.last.changes = site.core.learned_to_keep();
    site.keep_journal();
    let rows = site.learned.values().cloned().collect();
    (site, rows)
}

#[test]
fn what_was_learned_of_owners_survives_a_restart() {
    let (site, rows) = kept(after_two_weeks(Policy::default()));
    assert_eq!(rows.len(), 3, "two owners, and what they have in common");
    let (_, offered) = restarted(&site, rows).submit(1, 0);
    assert_eq!(only(&offered).0, 2);
    // Without a memory the first of two equals is taken.
    let (_, offered) = restarted(&site, vec![]).submit(1, 0);
    assert_eq!(only(&offered).0, 1);
}

#[test]
fn a_damaged_memory_is_told_and_begun_anew() {
    let (site, mut rows) = kept(after_two_weeks(Policy::default()));
    for row in &mut rows {
        row.bytes[9] ^= 1;
    }
    let mut again = restarted(&site, rows);
    assert_eq!(again.core.forgotten().len(), 3);
    let (_, offered) = again.submit(1, 0);
    assert_eq!(only(&offered).0, 1);
}

/// Owners come every ten minutes; what is learned is written in rounds.
#[test]
fn what_is_learned_is_written_down_once_an_hour() {
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.connect(1, 1, 1);
    let mut written = 0;
    for _ in 0..24 * 6 {
        site.now = site.now + s(600);
        for busy in [true, false] {
            site.hear(1, AgentFrame::Presence(presence(busy, 1)));
            let is_learned = |change: &&Change| matches!(change, Change::Learned(_));
            written += site.last.changes.iter().filter(is_learned).count();
        }
    }
    assert!((46..=48).contains(&written), "{written} rows of two in a day");
    site.now = site.now + s(600);
    site.hear(1, AgentFrame::Presence(presence(true, 1)));
    assert_eq!(site.core.learned_to_keep().len(), 2);
    assert_eq!(site.core.learned_to_keep(), [], "all is written down");
}

#[test]
fn a_busy_workstation_is_offered_nothing() {
    let mut site = Site::with_idle(1);
    site.hear(1, AgentFrame::Presence(presence(true, 1)));
    let (job, offered) = site.submit(1, 0);
    assert_eq!(offered, []);
    let offered = site.hear(1, AgentFrame::Presence(presence(false, 1)));
    assert_eq!(only(&offered).1, subprogram(job, 0));
}

#[test]
fn cores_that_the_owner_needs_come_off_the_places() {
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.connect(1, 4, 2);
    site.hear(1, AgentFrame::Presence(presence(false, 3)));
    let (_, offered) = site.submit(4, 0);
    assert_eq!(offered.len(), 1);
    assert_eq!(site.hear(1, AgentFrame::Presence(presence(false, 4))).len(), 1);
    assert_eq!(site.hear(1, AgentFrame::Presence(presence(false, 0))).len(), 0);
}

#[test]
fn a_workstation_that_refuses_rests_for_a_moment() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    let refusal = AttemptEvent::Refused {
        fence,
        reason: "busy: pts/3, 0.0 s ago".into(),
        blame: Blame::Workstation,
    };
    assert_eq!(site.hear_of(1, refusal), []);
    assert_eq!(only(&site.pass(s(2))).1, subprogram(job, 0));
    assert_eq!(site.core.subprogram_row(subprogram(job, 0)).unwrap().failures, 0);
}

#[test]
fn one_that_goes_on_refusing_is_asked_less_and_less() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(2, 0);
    let mut offer = only(&offered);
    let mut rests = vec![];
    for _ in 0..9 {
        let refusal = AttemptEvent::Refused {
            fence: offer.2,
            reason: "no space left".into(),
            blame: Blame::Workstation,
        };
        site.hear_of(1, refusal);
        let from = site.now;
        let next = (0..100).find_map(|_| {
            site.now = site.now + s(1);
            site.heartbeat(1).first().copied()
        });
        offer = next.expect("it rests for ever");
        rests.push(site.now.since(from).as_secs());
    }
    assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    site.started(1, offer.2);
    let offer = only(&site.finished(1, offer.2, Outcome::Succeeded));
    site.hear_of(
        1,
        AttemptEvent::Refused {
            fence: offer.2,
            reason: "no space left".into(),
            blame: Blame::Workstation,
        },
    );
    assert_eq!(site.pass(s(1)).len(), 1, "it has started something since");
}

#[test]
fn one_that_is_leaving_or_silent_is_offered_nothing() {
    let mut site = Site::with_idle(2);
    site.hear(1, AgentFrame::Leaving { reason: "the machine is about to sleep".into() });
    site.pass(s(30));
    let (_, offered) = site.submit(1, 0);
    assert_eq!(offered, [], "the second has not been heard from for longer than it may");
    assert_eq!(only(&site.heartbeat(2)).0, 2);
}

#[test]
fn one_that_was_leaving_and_says_how_it_is_has_stayed() {
    let mut site = Site::with_idle(1);
    site.hear(1, AgentFrame::Leaving { reason: "the machine is about to sleep".into() });
    let (_, offered) = site.submit(1, 0);
    assert_eq!(offered, []);
    let offered = site.hear(1, AgentFrame::Presence(presence(false, 1)));
    assert_eq!(only(&offered).0, 1, "it woke");
}

#[test]
fn how_a_sensor_is_now_is_shown_and_not_how_it_was_first() {
    let mut site = Site::with_idle(1);
    let why = |site: &Site| {
        let id = WorkstationId(1);
        let row = site.core.workstation_row(site.now, id).unwrap();
        (row.missing, site.core.why_workstation(site.now, id).unwrap().join("; "))
    };
    let absent = "sessions: absent: no system bus".to_owned();
    site.hear(1, AgentFrame::Missing(vec![absent.clone()]));
    let (missing, reasons) = why(&site);
    assert_eq!(missing, [absent]);
    assert!(reasons.contains("it lacks sessions: absent"), "{reasons}");
    site.hear(1, AgentFrame::Missing(vec![]));
    let (missing, reasons) = why(&site);
    assert!(missing.is_empty() && !reasons.contains("lacks"), "{reasons}");
}

#[test]
fn earlier_jobs_go_first_and_those_that_cannot_use_what_is_free_do_not_block() {
    let mut site = Site::with_idle(2);
    let (first, offered) = site.submit(2, 1);
    let [(2, _, failing), _] = offered[..] else { panic!("{offered:?}") };
    let (second, offered) = site.submit(1, 0);
    assert_eq!(offered, []);
    let (id, which, _) = only(&site.finished(2, failing, Outcome::ExitCode(1)));
    assert_eq!((id, which.job), (2, second), "what failed there waits for the other one");
    assert_eq!(site.core.summary(first).unwrap().queued, 1);
}

#[test]
fn short_ones_are_sent_ahead_once_they_are_known_to_be_short() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(200, 0);
    let (_, _, fence) = only(&offered);
    let ms = Duration::from_millis(1);
    let ahead = site.hear_of(1, AttemptEvent::Finished(finished(fence, Outcome::Succeeded, ms)));
    assert_eq!(ahead.len(), 49, "one at the place and 48 that wait");
    let (_, _, fence) = ahead[0];
    let next = site.hear_of(1, AttemptEvent::Finished(finished(fence, Outcome::Succeeded, ms)));
    assert_eq!(next.len(), 1);
    // One of them takes long: no more are sent until the rest is shorter.
    let (_, _, fence) = ahead[1];
    let long = finished(fence, Outcome::Succeeded, s(5));
    assert_eq!(site.hear_of(1, AttemptEvent::Finished(long)), []);
}

#[test]
fn nothing_short_waits_behind_something_long() {
    let mut site = Site::with_idle(2);
    site.submit(1, 0);
    let (_, offered) = site.submit(100, 0);
    let (1, _, fence) = only(&offered) else { panic!("{offered:?}") };
    let ms = Duration::from_millis(1);
    let ahead = site.hear_of(1, AttemptEvent::Finished(finished(fence, Outcome::Succeeded, ms)));
    assert!(ahead.len() > 10 && ahead.iter().all(|(id, ..)| *id == 1), "{ahead:?}");
}

#[test]
fn a_large_job_is_one_row_and_placed_in_many_small_steps() {
    let mut site = Site::with_idle(500);
    let (job, offered) = site.submit(100_000, 0);
    let of_queue = |change: &&Change| !matches!(change, Change::Attempt(_));
    let rows = site.last.changes.iter().filter(of_queue).count();
    assert_eq!(rows, 2, "the job, and the reservation of fences");
    assert_eq!(offered.len(), 64);
    assert_eq!(site.core.deadline(), Some(Moment::ZERO));
    assert_eq!(site.pass(Duration::ZERO).len(), 436);
    let summary = site.core.summary(job).unwrap();
    assert_eq!((summary.queued, summary.running), (99_500, 500));
}

/// Figures of the day: 10,000 workstations, about 30 comparisons to place one
/// (two moves in a tree of 10,000, each 14 levels of halving).
#[test]
fn placing_among_ten_thousand_is_no_scan() {
    for policy in Policy::ALL {
        let comparisons = |workstations: u32| {
            let mut site = Site::new(Config { policy, ..Config::default() });
            for id in 1..=workstations {
                site.enrol(id);
                site.connect(id, 2, 2);
                site.now = site.now + Duration::from_millis(7);
            }
            compared::COUNT.with(|count| count.set(0));
            let (_, offered) = site.submit(64, 0);
            assert_eq!(offered.len(), 64);
            compared::COUNT.with(std::cell::Cell::get) / 64
        };
        let (few, many) = (comparisons(100), comparisons(10_000));
        assert!(many < 150 && many < few * 6, "{policy:?}: {few} grew to {many}");
    }
}
