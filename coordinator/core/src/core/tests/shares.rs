//! Whose turn it is, and whose mistake it was.

use gleaner_common::requirement::{Attributes, Value};

use super::*;
use crate::record::UsageRecord;
use crate::shares::{Group, ShareConfig};

impl Site {
    pub(super) fn submit_as(&mut self, user: &str, spec: JobSpec) -> Vec<Offered> {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.handle(Event::Submitted { request, user: user.into(), spec: Box::new(spec) })
    }

    fn submitted_job(&self) -> JobId {
        let Some(Answer::Submitted(job)) = self.answer() else { panic!("{:?}", self.answer()) };
        job
    }

    pub(super) fn refusal_of(&mut self, user: &str, spec: JobSpec) -> String {
        assert_eq!(self.submit_as(user, spec), []);
        self.refusal()
    }

    fn refusal(&self) -> String {
        let Some(Answer::No(why)) = self.answer() else { panic!("{:?}", self.answer()) };
        why
    }

    pub(super) fn connect_with(&mut self, id: u32, facts: Facts) -> Vec<Offered> {
        self.enrol(id);
        self.hello(link(id, 1), Incarnation(1), facts, presence(false, 1), vec![])
    }

    fn user_of(&self, offered: &Offered) -> String {
        self.core.job_row(offered.1.job).unwrap().user
    }

    fn refused_by_job(&mut self, id: u32, fence: Fence) -> Vec<Offered> {
        let reason = "shared directory /x is not offered here".to_owned();
        self.hear_of(id, AttemptEvent::Refused { fence, reason, blame: Blame::Job })
    }
}

fn count(count: u32) -> JobSpec {
    JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(count).unwrap())
}

pub(super) fn one_place(memory_bytes: u64) -> Facts {
    Facts { cores: 1, places: 1, memory_bytes, ..Facts::default() }
}

#[test]
fn two_million_subprograms_delay_anothers_one_by_one_slots_turn() {
    let mut site = Site::with_idle(3);
    let mut running = site.submit_as("bob", count(2_000_000));
    assert_eq!(running.len(), 3);
    for _ in 0..10 {
        site.now = site.now + s(60);
        let (at, _, fence) = running.remove(0);
        running.extend(site.finished(at, fence, Outcome::Succeeded));
    }
    assert_eq!(site.submit_as("ada", count(1)), []);
    let ada = site.submitted_job();
    let (at, _, fence) = running.remove(0);
    let next = site.finished(at, fence, Outcome::Succeeded);
    assert_eq!(only(&next).1, subprogram(ada, 0), "the next free place is hers");
}

#[test]
fn short_subprograms_that_are_sent_ahead_do_not_keep_others_out() {
    let mut site = Site::with_idle(1);
    let offered = site.submit_as("bob", count(2_000_000));
    let ms = Duration::from_millis(1);
    let short = |fence| AttemptEvent::Finished(finished(fence, Outcome::Succeeded, ms));
    let mut waiting = site.hear_of(1, short(only(&offered).2));
    assert!(waiting.len() > 10, "{waiting:?}");
    site.submit_as("ada", count(1));
    let ada = site.submitted_job();
    let before = waiting.len();
    let mut turns = 0;
    while !waiting.iter().any(|offer| offer.1.job == ada) {
        site.now = site.now + ms;
        let (_, _, fence) = waiting.remove(0);
        waiting.extend(site.hear_of(1, short(fence)));
        turns += 1;
        assert!(turns <= before, "what was there already, and no more");
    }
}

#[test]
fn users_take_turns_and_priorities_are_within_a_users_own() {
    let mut site = Site::with_idle(1);
    let first = site.submit_as("bob", count(3));
    let urgent = JobSpec { priority: 100, ..count(1) };
    site.submit_as("bob", urgent);
    let urgent = site.submitted_job();
    site.submit_as("ada", JobSpec { priority: -100, ..count(1) });
    site.now = site.now + s(60);
    let second = site.finished(1, only(&first).2, Outcome::Succeeded);
    assert_eq!(site.user_of(&only(&second)), "ada", "her priority is nothing to bob's");
    site.now = site.now + s(60);
    let third = site.finished(1, only(&second).2, Outcome::Succeeded);
    assert_eq!(only(&third).1.job, urgent);
}

#[test]
fn usage_survives_a_restart_with_what_was_running() {
    let mut site = Site::with_idle(1);
    let offered = site.submit_as("bob", count(2));
    site.now = site.now + s(100);
    site.finished(1, only(&offered).2, Outcome::Succeeded);
    let used = site.core.share_rows(site.now)[0].usage_s;
    assert!((used - 100.0).abs() < 0.2, "{used}");
    assert_eq!(site.core.usage_to_keep(site.now, site.wall()), [], "a minute is over");
    let usage = site.last.changes.iter().find_map(|change| {
        let Change::Usage(usage) = change else { return None };
        Some(usage.clone())
    });
    let restored = Restored { usage: usage.into_iter().collect(), ..Restored::default() };
    site.now = site.now + s(86_400);
    let core = Core::restore(site.now, site.wall(), Config::default(), restored);
    let used = core.share_rows(site.now)[0].usage_s;
    assert!((used - 50.0).abs() < 0.2, "a half-life later: {used}");
}

#[test]
fn usage_is_not_written_with_every_attempt() {
    let mut site = Site::with_idle(1);
    let mut offered = site.submit_as("bob", count(1_000));
    let mut written = 0;
    for _ in 0..600 {
        site.now = site.now + s(1);
        offered = site.finished(1, only(&offered).2, Outcome::Succeeded);
        let is_usage = |change: &&Change| matches!(change, Change::Usage(UsageRecord { .. }));
        written += site.last.changes.iter().filter(is_usage).count();
    }
    assert!((9..=10).contains(&written), "{written} in ten minutes");
}

#[test]
fn limits_of_a_user_are_told_at_submission() {
    let shares = ShareConfig { queued_max: 10, jobs_max: 2, running_max: 3, ..Default::default() };
    let mut site = Site::new(Config { shares, ..Config::default() });
    for id in 1..=5 {
        site.connect_with(id, one_place(0));
    }
    site.submit_as("bob", count(11));
    assert!(site.refusal().contains("expected at most 10 altogether"), "{}", site.refusal());
    assert_eq!(site.submit_as("bob", count(10)).len(), 3, "no more places than one user may have");
    let job = site.submitted_job();
    let why = site.core.why_job(site.now, job).unwrap();
    assert!(why.contains(&"bob has 3 places, as many as one user may".to_owned()), "{why:?}");
    site.submit_as("bob", count(1));
    site.submit_as("bob", count(1));
    assert!(site.refusal().contains("expected fewer than 2"), "{}", site.refusal());
    assert_eq!(site.submit_as("ada", count(2)).len(), 2, "another's limit is her own");
}

#[test]
fn why_tells_who_comes_first_and_for_what_reason() {
    let groups = [("vision".to_owned(), Group { weight: 1, members: vec!["eve".into()] })];
    let shares = ShareConfig { groups: groups.into(), ..ShareConfig::default() };
    let mut site = Site::new(Config { shares, ..Config::default() });
    site.connect_with(1, one_place(0));
    site.submit_as("bob", count(5));
    let bob = site.submitted_job();
    site.now = site.now + s(600);
    for user in ["ada", "eve"] {
        site.submit_as(user, count(1));
    }
    let why = site.core.why_job(site.now, bob).unwrap();
    let first = "2 users come first: ada used less of their share".to_owned();
    assert!(why.contains(&first), "{why:?}");
}

/// Eight such subprograms rested every workstation, and the lab stood still.
#[test]
fn a_jobs_own_mistake_rests_no_workstation_and_is_charged_to_it() {
    let shared = || vec!["/x".to_owned()];
    let mut site = Site::new(Config::default());
    for id in 1..=2 {
        site.connect_with(id, Facts { shared_directories: shared(), ..one_place(0) });
    }
    let wrong = JobSpec { shared_directory: Some("/x/gone".into()), retries: 1, ..count(1) };
    let offered = site.submit_as("bob", wrong);
    let (at, which, fence) = only(&offered);
    let again = site.refused_by_job(at, fence);
    assert_ne!(only(&again).0, at, "it is tried elsewhere, at once");
    let (at, _, fence) = only(&again);
    assert_eq!(site.refused_by_job(at, fence), []);
    assert_eq!(site.summary().counts.failed, 1, "{which} has used up its retries");
    assert_eq!(site.submit_as("ada", count(2)).len(), 2, "both workstations are free");
}

#[test]
fn what_no_workstation_has_is_refused_and_the_nearest_named() {
    let mut site = Site::new(Config::default());
    site.connect_with(1, one_place(4 << 30));
    let attributes = Attributes::from([("matlab".to_owned(), Value::Flag(true))]);
    let shared_directories = vec!["/srv".into()];
    site.connect_with(2, Facts { shared_directories, attributes, ..one_place(8 << 30) });
    let mut large = count(1);
    large.limits.memory_bytes_max = 16 << 30;
    let told = "no workstation meets all that is required; of 2: `16.0 GiB of memory` excludes 2; \
                the nearest is host2, without `16.0 GiB of memory` (it lends 8.0 GiB of memory)";
    assert_eq!(site.refusal_of("bob", large), told);
    let nowhere = JobSpec { shared_directory: Some("/nowhere".into()), ..count(1) };
    assert!(site.refusal_of("bob", nowhere).contains("`the shared directory /nowhere` excludes 2"));
    let asked = |text: &str| JobSpec { require: text.parse().unwrap(), ..count(1) };
    let told = "of 2: `has(\"matlab\")` excludes 1, `memory < 6GiB` excludes 1; \
                the nearest is host1, without `has(\"matlab\")`";
    let refusal = site.refusal_of("bob", asked(r#"memory < 6GiB && has("matlab")"#));
    assert!(refusal.ends_with(told), "{refusal}");
    // What some have goes there.
    let mut fits = count(1);
    fits.limits.memory_bytes_max = 6 << 30;
    let (at, _, fence) = only(&site.submit_as("bob", fits));
    assert_eq!(at, 2);
    site.finished(at, fence, Outcome::Succeeded);
    assert_eq!(only(&site.submit_as("bob", asked(r#"has("matlab")"#))).0, 2);
    // What waits for a workstation that has it keeps nobody out.
    assert_eq!(site.submit_as("bob", asked("memory > 6GiB")), []);
    assert_eq!(only(&site.submit_as("ada", count(1))).0, 1);
}

/// A workstation that was not heard of yet may have it.
#[test]
fn what_none_that_is_known_has_waits_for_those_that_are_not() {
    let mut site = Site::new(Config::default());
    site.connect_with(1, one_place(4 << 30));
    site.enrol(2);
    let asked = JobSpec { require: "memory > 6GiB".parse().unwrap(), ..count(1) };
    assert_eq!(site.submit_as("bob", asked), []);
    let told = "no workstation meets all that is required; of 1: `memory > 6GiB` excludes 1; \
                the nearest is host1, without `memory > 6GiB`";
    let job = site.submitted_job();
    assert_eq!(site.core.job_row(job).unwrap().notes, [told]);
    assert_eq!(site.core.why_job(site.now, job).unwrap()[0], told);
    assert_eq!(only(&site.connect_with(2, one_place(8 << 30))).0, 2);
}

#[test]
fn of_what_is_free_the_preferred_is_chosen_first() {
    let mut site = Site::new(Config::default());
    site.connect_with(1, one_place(4 << 30));
    site.connect_with(2, one_place(8 << 30));
    site.connect_with(3, one_place(8 << 30));
    let prefer = "memory > 6GiB && name == \"host3\"";
    let asked = JobSpec { prefer: prefer.parse().unwrap(), ..count(3) };
    let offered: Vec<_> = site.submit_as("bob", asked).iter().map(|(at, ..)| *at).collect();
    assert_eq!(offered, [3, 2, 1], "all are taken in the end");
}

#[test]
fn what_its_workstations_are_lost_with_is_charged_after_the_second_and_held() {
    let mut site = Site::with_idle(81);
    let mut offered = site.submit_as("bob", JobSpec { retries: 2, ..count(1) });
    let which = only(&offered).1;
    let mut killed = 0;
    while let [(at, _, fence)] = offered[..] {
        site.started(at, fence);
        killed += 1;
        let facts = Facts { cores: 1, places: 1, ..Facts::default() };
        let busy = presence(true, 1);
        let serial = killed + 1;
        offered = site.hello(link(at, serial), Incarnation(99), facts, busy, vec![]);
        let row = site.core.subprogram_row(which);
        assert!(row.is_none_or(|row| u64::from(row.failures) == killed.saturating_sub(2)));
    }
    assert_eq!(killed, 5, "two by chance, and one for each retry and the first");
    let counts = site.summary().counts;
    assert_eq!((counts.failed, counts.lost), (1, 5));
    let told = site.last.changes.iter().find_map(|change| {
        let Change::Subprogram(record) = change else { return None };
        Some(record.history.last.outcome.clone())
    });
    assert!(told.unwrap().ends_with("its last 5 attempts were lost"));
}

/// Bounded however late it happens: a guest might bring its keeper down by itself.
#[test]
fn a_keepers_death_costs_no_retry_until_the_third_in_a_row() {
    let lease = s(1_000_000);
    let mut site = Site::new(Config { lease, ..Config::default() });
    for id in 1..=4 {
        site.enrol(id);
        site.connect(id, 1, 1);
    }
    let mut offered = site.submit_as("bob", JobSpec { retries: 0, ..count(1) });
    let mut died = 0;
    while let [(at, _, fence)] = offered[..] {
        site.started(at, fence);
        // Longer than after which a workstation's loss is nobody's doing.
        site.pass(s(7_200));
        died += 1;
        let reason = "its keeper died".to_owned();
        let lost = AttemptEvent::Lost { fence, reason, suspensions: 0 };
        offered = site.hear_of(at, lost);
    }
    assert_eq!(died, 3, "two by chance");
    let counts = site.summary().counts;
    assert_eq!((counts.failed, counts.lost, counts.retried), (1, 3, 0));
}

fn hello_of(host: &str, boot: u8) -> AgentFrame {
    let mut facts = Facts { cores: 1, places: 1, ..Facts::default() };
    facts.machine.hostname = host.into();
    AgentFrame::Hello {
        incarnation: Incarnation(boot.into()),
        boot: BootId([boot; 16]),
        facts: Box::new(facts),
        presence: presence(false, 1),
        held: vec![],
        seen: gleaner_common::id::Fence::default(),
    }
}

/// Cloned images pushed each other out for good.
#[test]
fn a_second_machine_with_the_same_identity_is_refused_while_the_first_is_heard() {
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.handle(Event::Heard { from: link(1, 1), frame: hello_of("desk", 1) });
    site.handle(Event::Heard { from: link(1, 2), frame: hello_of("clone", 2) });
    let refusal = site.last.effects.iter().find_map(|effect| {
        let Effect::Refuse { link, reason } = effect else { return None };
        (link.serial == 2).then(|| reason.clone())
    });
    let told = "host1 is in use on another machine, desk, and this is clone: ";
    assert!(refusal.unwrap().starts_with(told));
    let reason = site.core.workstation_row(site.now, WorkstationId(1)).unwrap().reason;
    assert!(reason.contains("two machines have its identity: desk, and clone, refused for "));
    assert_eq!(site.submit(1, 0).1.len(), 1, "the first goes on");
    // The same machine comes back at once after its agent's death.
    site.handle(Event::Heard { from: link(1, 3), frame: hello_of("desk", 1) });
    assert!(!site.last.effects.iter().any(|effect| matches!(effect, Effect::Refuse { .. })));
    // And one that was started anew, when the old one is not heard any more.
    site.now = site.now + s(60);
    site.handle(Event::Heard { from: link(1, 4), frame: hello_of("desk", 9) });
    assert!(!site.last.effects.iter().any(|effect| matches!(effect, Effect::Refuse { .. })));
}

#[test]
fn nothing_new_is_placed_on_a_drained_workstation_and_guests_there_finish() {
    let mut site = Site::with_idle(1);
    let (_, offered) = site.submit(2, 0);
    let (_, _, fence) = only(&offered);
    let drained = |drained| Event::Drained { workstation: WorkstationId(1), drained, now: false };
    site.handle(drained(true));
    site.started(1, fence);
    assert_eq!(site.finished(1, fence, Outcome::Succeeded), []);
    let why = site.core.why_workstation(site.now, WorkstationId(1)).unwrap();
    assert_eq!(why[0], "drained: an admin wants nothing placed here");
    assert_eq!(site.handle(drained(false)).len(), 1);
}
