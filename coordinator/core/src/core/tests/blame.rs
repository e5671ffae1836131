//! Whose fault failures are, and what follows.

use std::collections::BTreeMap;

use super::*;

/// What every attempt comes to, until all has ended: how many each workstation had.
fn run_out(
    site: &mut Site,
    mut offered: Vec<Offered>,
    outcome: impl Fn(u32, SubprogramId) -> Outcome,
) -> BTreeMap<u32, u32> {
    let mut attempts = BTreeMap::new();
    for _ in 0..5_000 {
        let Some((at, which, fence)) = offered.pop() else {
            offered = site.pass(s(1));
            if offered.is_empty() && site.core.jobs().next().is_none() {
                break;
            }
            (1..=20).for_each(|id| drop(site.heartbeat(id)));
            continue;
        };
        *attempts.entry(at).or_default() += 1;
        site.started(at, fence);
        // What fails does so at once, and is offered the next before others are done.
        let outcome = outcome(at, which);
        let more = site.finished(at, fence, outcome.clone());
        if outcome.is_success() {
            offered.splice(..0, more);
        } else {
            offered.extend(more);
        }
    }
    attempts
}

/// All of it failed there, was placed there again, and some of it for good.
#[test]
fn a_workstation_where_all_fails_burns_few_attempts_and_fails_none_for_good() {
    let mut site = Site::with_idle(4);
    let (job, offered) = site.submit(200, 2);
    let fails_on_first = |at, _| if at == 1 { Outcome::ExitCode(1) } else { Outcome::Succeeded };
    let attempts = run_out(&mut site, offered, fails_on_first);
    let told = site.reason_of(1);
    assert!(told.ends_with("; what ann submits fails here and works elsewhere"), "{told}");
    assert!(attempts[&1] <= 8, "{attempts:?}");
    assert_eq!(site.core.summary(job), None, "it has ended");
    assert_eq!(attempts.values().sum::<u32>(), 200 + attempts[&1], "all others succeeded");
}

#[test]
fn what_fails_everywhere_fails_as_soon_as_its_retries_are_used_up() {
    let mut site = Site::with_idle(6);
    let (_, offered) = site.submit(20, 2);
    let attempts = run_out(&mut site, offered, |_, _| Outcome::ExitCode(1));
    assert_eq!(attempts.values().sum::<u32>(), 20 * 3);
    assert!((1..=6).all(|id| site.reason_of(id).starts_with("idle: ")));
}

#[test]
fn a_subprogram_avoids_every_workstation_where_it_has_failed() {
    let mut site = Site::with_idle(6);
    let (_, mut offered) = site.submit(1, 10);
    let mut seen = vec![];
    for _ in 0..6 {
        let (at, _, fence) = only(&offered);
        seen.push(at);
        site.started(at, fence);
        offered = site.finished(at, fence, Outcome::ExitCode(1));
    }
    assert_eq!(seen.iter().collect::<std::collections::BTreeSet<_>>().len(), 6, "{seen:?}");
    assert_eq!(only(&offered).0, seen[0], "there is no other: the one of longest ago");
}

#[test]
fn where_the_work_of_two_users_fails_nobodys_goes_until_it_has_rested_or_an_admin_says() {
    let mut site = Site::with_idle(4);
    let fails_on_first = |at, _| if at == 1 { Outcome::ExitCode(1) } else { Outcome::Succeeded };
    for user in ["ann", "ben"] {
        let spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(40).unwrap());
        let offered = site.submit_as(user, spec);
        run_out(&mut site, offered, fails_on_first);
        // The first may try it again: it has not yet rested for everybody.
        site.pass(s(61));
        (1..=4).for_each(|id| drop(site.heartbeat(id)));
        let spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(40).unwrap());
        let offered = site.submit_as(user, spec);
        run_out(&mut site, offered, fails_on_first);
    }
    let told = site.reason_of(1);
    let reason = "what 2 users submit fails here and works elsewhere: ann, ben";
    assert!(told.starts_with("rests for ") && told.ends_with(reason), "{told}");
    let spec = || JobSpec::new(vec!["x".into()], IndexRange::count_of(4).unwrap());
    let offered = site.submit_as("eva", spec());
    assert_eq!(offered.iter().filter(|(at, ..)| *at == 1).count(), 0);
    let workstation = WorkstationId(1);
    let offered = site.handle(Event::Drained { workstation, drained: false, now: false });
    assert_eq!(only(&offered).0, 1);
}

#[test]
fn what_is_full_gets_nothing_until_it_says_that_there_is_room() {
    let mut site = Site::with_idle(1);
    site.hear(1, AgentFrame::Unready(Some("disk: 9 B free in /data".into())));
    let (_, offered) = site.submit(1, 0);
    assert_eq!(offered, []);
    assert_eq!(site.reason_of(1), "not ready: disk: 9 B free in /data");
    assert_eq!(only(&site.hear(1, AgentFrame::Unready(None))).0, 1);
}

impl Site {
    fn reason_of(&self, id: u32) -> String {
        self.core.workstation_row(self.now, WorkstationId(id)).unwrap().reason
    }
}
