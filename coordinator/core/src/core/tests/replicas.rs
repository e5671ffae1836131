//! Subprograms that run on several workstations, because an owner can lie.

use std::collections::BTreeMap;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::reaction::Keep;
use gleaner_common::report::{JobState, ReplicaState, SubprogramState};

use super::*;
use crate::record::{AttemptRecord, ReplicaRecord};

fn replicated(count: u32, replicas: u8, retries: u32) -> JobSpec {
    let mut spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(count).unwrap());
    (spec.replicas, spec.retries) = (replicas, retries);
    spec
}

impl Site {
    /// A guest ends with this on its standard output.
    fn answers(&mut self, (at, _, fence): Offered, text: &str) -> Vec<Offered> {
        let mut end = finished(fence, Outcome::Succeeded, s(60));
        end.stdout = Printed::Inline(text.into());
        self.hear_of(at, AttemptEvent::Finished(end))
    }

    fn remarks(&self) -> Vec<String> {
        let notes = self.last.changes.iter().find_map(|change| {
            let Change::Notes { notes, .. } = change else { return None };
            Some(notes.clone())
        });
        notes.unwrap_or_default()
    }

    fn states(&self, id: SubprogramId) -> Vec<ReplicaState> {
        let rows = self.core.replica_rows(id).unwrap();
        rows.into_iter().map(|row| row.state).collect()
    }
}

#[test]
fn two_workstations_that_agree_make_a_result() {
    let mut site = Site::with_idle(3);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    assert_eq!((a.1, b.1), (subprogram(job, 0), subprogram(job, 0)));
    assert_ne!(a.0, b.0, "they are different workstations");
    assert_eq!(site.core.shares.running("ann"), 2, "every replica is charged");
    let summary = site.core.summary(job).unwrap();
    assert_eq!((summary.running, summary.queued), (1, 0), "a subprogram is one, however often");
    site.answers(a, "42");
    assert_eq!(site.accepted(), [], "one word is not enough");
    assert_eq!(site.states(a.1), [ReplicaState::Answered, ReplicaState::Placed]);
    site.answers(b, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
    assert_eq!(site.summary().state, JobState::Succeeded);
    let cpu = site.progress();
    assert_eq!((cpu.cpu, cpu.wasted_cpu), (s(2), s(2)), "the other run is the price");
}

#[test]
fn a_lie_is_outvoted_and_told() {
    let mut site = Site::with_idle(3);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.answers(a, "42");
    let third = only(&site.answers(b, "13"));
    assert!(![a.0, b.0].contains(&third.0), "neither of those two decides");
    site.answers(third, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
    let (liar, a, c) = (b.0, a.0, third.0);
    let told = format!("subprogram 1.0: host{liar} gave other output than host{a} and host{c}");
    assert_eq!(site.remarks(), [told]);
}

#[test]
fn where_all_disagree_it_is_held_and_says_who() {
    let mut site = Site::with_idle(4);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.answers(a, "1");
    let c = only(&site.answers(b, "2"));
    let why = site.core.why_subprogram(site.now, subprogram(job, 0)).unwrap();
    assert!(
        why.iter().any(|it| it.contains("it counts when 2 agree; so far answered host")),
        "{why:?}"
    );
    let d = only(&site.answers(c, "3"));
    site.answers(d, "4");
    assert_eq!(site.accepted(), [], "nothing of it counts");
    assert_eq!((site.summary().state, site.summary().counts.failed), (JobState::Failed, 1));
    let names = format!("host{}, host{}, host{} and host{}", a.0, b.0, c.0, d.0);
    assert_eq!(site.remarks(), [format!("subprogram 1.0 is held: {names} gave different outputs")]);
    let record = site.last.changes.iter().find_map(|change| {
        let Change::Subprogram(record) = change else { return None };
        Some(record.clone())
    });
    let record = record.unwrap();
    assert_eq!(record.state, SubprogramState::Failed);
    assert!(record.history.last.outcome.contains("gave different outputs"), "{record:?}");
    assert_eq!(record.history.attempts, 4);
}

#[test]
fn what_is_not_needed_any_more_is_stopped() {
    let mut site = Site::with_idle(3);
    let (_, offered) = site.submit_spec(replicated(1, 3, 0));
    let [a, b, c] = offered[..] else { panic!("{offered:?}") };
    site.answers(a, "42");
    site.answers(b, "42");
    assert_eq!(site.accepted().len(), 1);
    site.check_sent(c.0, &CoordinatorFrame::Cancel { fence: c.2 });
    let is_last = |change: &Change| {
        matches!(change, Change::Subprogram(record) if record.history.last.fence == b.2
            && &*record.history.last.outcome == "succeeded" && record.history.cpu == s(2))
    };
    assert!(site.last.changes.iter().any(is_last), "what counts is shown: {:?}", site.last);
    assert!(site.core.attempts.is_empty());
    assert_eq!(site.core.shares.running("ann"), 0);
}

#[test]
fn a_workstation_that_has_answered_is_not_asked_again() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit_spec(replicated(2, 2, 0));
    assert_eq!(site.remarks(), ["of 2 workstations that each subprogram is to run on there are 1"]);
    let first = only(&offered);
    let second = only(&site.answers(first, "0"));
    assert_eq!(second.1, subprogram(job, 1), "the next one begins meanwhile");
    assert_eq!(site.answers(second, "1"), [], "nothing more for it");
    let why = site.core.why_subprogram(site.now, first.1).unwrap();
    let reason = "it waits for another workstation than host1, where others of it have run";
    assert!(why.iter().any(|it| it == reason), "{why:?}");
    site.enrol(2);
    let other = only(&site.connect(2, 1, 1));
    assert_eq!((other.0, other.1), (2, first.1));
    let last = only(&site.answers(other, "0"));
    site.answers(last, "1");
    assert_eq!(site.summary().state, JobState::Succeeded);
}

#[test]
fn a_failure_is_tried_again_where_no_other_replica_is() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_spec(replicated(1, 2, 1));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    let again = only(&site.finished(a.0, a.2, Outcome::Signal(9)));
    assert_eq!(again.0, a.0, "there is no other choice: {b:?} is the other replica's");
    site.answers(b, "42");
    site.answers(again, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
    assert_eq!(site.progress().counts.retried, 1);
}

#[test]
fn a_program_that_fails_everywhere_alike_has_failed() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    for (at, _, fence) in offered {
        site.finished(at, fence, Outcome::ExitCode(3));
    }
    assert_eq!(site.accepted(), [subprogram(job, 0)], "all say so");
    assert_eq!(site.summary().counts.failed, 1);
    assert_eq!(site.remarks(), Vec::<String>::new());
}

#[test]
fn a_retreat_of_one_replica_leaves_the_others_alone() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.started(a.0, a.2);
    site.started(b.0, b.2);
    site.retreated(a.0, a.2);
    assert_eq!(site.states(a.1), [ReplicaState::Queued, ReplicaState::Running]);
    let again = only(&site.pass(s(1)));
    assert_eq!(again.0, a.0, "it had done nothing there that is left");
    site.answers(again, "42");
    site.answers(b, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
    assert_eq!(site.progress().counts.retreats, 1);
}

#[test]
fn a_cancelled_job_stops_all_replicas() {
    let mut site = Site::with_idle(3);
    let (job, offered) = site.submit_spec(replicated(4, 2, 0));
    assert_eq!(offered.len(), 3);
    site.answers(offered[0], "0");
    site.cancel(job);
    for (at, _, fence) in &offered[1..] {
        site.check_sent(*at, &CoordinatorFrame::Cancel { fence: *fence });
    }
    let progress = site.progress();
    assert_eq!((progress.state, progress.counts.cancelled), (JobState::Cancelled, 4));
    assert_eq!((site.core.queued(), site.core.shares.running("ann")), (0, 0));
}

/// Whoever had its state in hand could have changed it.
#[test]
fn where_a_moved_replica_has_been_no_other_of_it_runs() {
    let mut site = Site::with_idle(4);
    let mut spec = replicated(1, 2, 0);
    spec.on_busy = OnBusy::at_once(Reaction::Migrate);
    let (job, offered) = site.submit_spec(spec);
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.started(a.0, a.2);
    site.started(b.0, b.2);
    site.hear(a.0, AgentFrame::Presence(presence(true, 0)));
    let wants = AttemptEvent::WantsAway { fence: a.2, keep: Keep::Nothing, image_bytes: 1 };
    let target = only(&site.hear_of(a.0, wants));
    assert!(![a.0, b.0].contains(&target.0));
    let arrived = AttemptEvent::Arrived { fence: target.2, bytes: 1, frozen: s(1) };
    site.hear_of(target.0, arrived);
    site.hear(a.0, AgentFrame::Presence(presence(false, 1)));
    // The other replica is lost: a is idle, and has had the first one in hand.
    site.retreated(b.0, b.2);
    let again = site.offers();
    let [(elsewhere, ..)] = again[..] else { panic!("{again:?}") };
    assert!(![a.0, target.0].contains(&elsewhere), "{again:?}");
    assert_eq!(site.core.summary(job).unwrap().running, 1);
}

/// Whoever has been everywhere leaves no workstation to the others.
#[test]
fn a_replica_does_not_move_to_the_last_workstation_that_is_left_to_another() {
    let mut site = Site::with_idle(2);
    let mut spec = replicated(1, 2, 0);
    spec.on_busy = OnBusy::at_once(Reaction::Migrate);
    let (_, offered) = site.submit_spec(spec);
    let [first, second] = offered[..] else { panic!("{offered:?}") };
    site.started(first.0, first.2);
    site.hear(second.0, AgentFrame::Presence(presence(true, 0)));
    site.retreated(second.0, second.2);
    // Nobody is where the other replica was when the first one is to leave.
    site.hear(first.0, AgentFrame::Presence(presence(true, 0)));
    let wants = AttemptEvent::WantsAway { fence: first.2, keep: Keep::Nothing, image_bytes: 1 };
    site.hear_of(first.0, wants);
    let back = site.hear(second.0, AgentFrame::Presence(presence(false, 1)));
    assert_eq!(back.len(), 1, "there the other one begins");
    assert_eq!(site.states(first.1), [ReplicaState::Suspended, ReplicaState::Placed]);
    site.answers(back[0], "42");
    let why = site.core.why_job(site.now, first.1.job).unwrap();
    assert!(why.iter().any(|it| it.contains("another replica has been there")), "{why:?}");
}

/// What a store would hold, as a new life finds it.
#[derive(Default)]
struct Kept {
    replicas: BTreeMap<(SubprogramId, u8), ReplicaRecord>,
    attempts: BTreeMap<Fence, AttemptRecord>,
}

impl Kept {
    fn take(&mut self, step: &Step) {
        for change in &step.changes {
            if let Change::Replica { record, .. } = change {
                let key = (record.subprogram, record.replica);
                self.replicas.insert(key, (**record).clone());
            }
            let Change::Attempt(attempt) = change else { continue };
            self.attempts.insert(attempt.fence, attempt.clone());
        }
        self.attempts.retain(|_, attempt| attempt.end.is_none());
    }
}

#[test]
fn votes_and_open_replicas_outlive_the_coordinator() {
    let mut site = Site::with_idle(3);
    let mut kept = Kept::default();
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    kept.take(&site.last);
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.answers(a, "42");
    kept.take(&site.last);
    site.answers(b, "13");
    kept.take(&site.last);
    let third = only(&site.offers());
    let restored = Restored {
        workstations: (1..=3).map(|id| (WorkstationId(id), format!("host{id}"))).collect(),
        jobs: vec![site.core.jobs[&job].record().clone()],
        replicas: kept.replicas.into_values().collect(),
        attempts: kept.attempts.into_values().collect(),
        fences_below: Fence::of(10_000),
        ..Restored::default()
    };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    let states = [ReplicaState::Answered, ReplicaState::Answered, ReplicaState::Placed];
    assert_eq!(site.states(a.1), states);
    for id in 1..=3 {
        let held: &[Fence] = if id == third.0 { &[third.2] } else { &[] };
        assert_eq!(site.reconnect(id, 1, held), [], "nothing more is needed");
    }
    site.answers(third, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
}

#[test]
fn what_names_files_that_were_not_staged_is_no_vote() {
    let mut site = Site::with_idle(3);
    let (job, offered) = site.submit_spec(replicated(1, 2, 0));
    let [a, b] = offered[..] else { panic!("{offered:?}") };
    site.started(a.0, a.2);
    let offered = site.handle(Event::Unstaged { from: link(a.0, 1), fence: a.2 });
    site.check_sent(a.0, &CoordinatorFrame::Acknowledge { fence: a.2 });
    let again = only(&offered);
    assert!(![a.0, b.0].contains(&again.0), "{again:?}");
    site.answers(b, "42");
    site.answers(again, "42");
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
}

#[test]
fn what_kills_workstations_is_held_with_all_its_replicas() {
    let mut site = Site::with_idle(6);
    let (job, mut offered) = site.submit_spec(replicated(1, 2, 0));
    let mut killed = 0;
    while let Some((at, _, fence)) = offered.pop() {
        if !site.core.attempts.contains_key(&fence) {
            continue;
        }
        site.started(at, fence);
        killed += 1;
        let facts = Facts { cores: 1, places: 1, ..Facts::default() };
        let incarnation = Incarnation(1 + killed);
        let (serial, there) = (link(at, 1 + killed), presence(true, 0));
        offered.extend(site.hello(serial, incarnation, facts, there, vec![]));
    }
    assert!(killed <= 6, "{killed}");
    assert_eq!(site.core.summary(job), None, "it is held");
    assert_eq!(site.core.attempts.len(), 0);
}
