//! What a program goes back to when a workstation dies.

use gleaner_common::id::ContentHash;
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::{self, Ask, FromRank, ToRank};

use super::*;

const EVERY: Duration = Duration::from_secs(3);

fn part(snapshot: u32, rank: u32) -> ContentHash {
    let number = |of: u32| u8::try_from(of).unwrap();
    let mut hash = [0; 32];
    (hash[0], hash[1]) = (number(snapshot), number(rank));
    ContentHash(hash)
}

fn cut(snapshot: u32, rank: u32) -> FromRank {
    FromRank::Cut { snapshot: Snapshot(snapshot), part: part(snapshot, rank), size_bytes: 9 }
}

impl Site {
    /// A program on so many workstations, each with a rank that runs, saved
    /// every 3 s.
    fn with_saved(ranks: u32) -> (Self, JobId, Vec<Offered>) {
        let mut site = Self::with_idle(ranks);
        let checkpoint_every = Some(EVERY);
        let ranks_max = ranks + 1;
        let spec = ProgramSpec { checkpoint_every, ranks_max, ..ProgramSpec::default() };
        let (job, offered) = site.submit_program(ranks, spec);
        for (id, _, fence) in &offered {
            site.started(*id, *fence);
        }
        (site, job, offered)
    }

    /// The next snapshot is begun: all are told to take part.
    #[track_caller]
    fn cut_begins(&mut self, snapshot: u32, offered: &[Offered]) {
        for at in offered {
            self.heartbeat(at.0);
        }
        self.pass(EVERY);
        let told: Vec<_> =
            offered.iter().map(|at| (at.0, ToRank::Cut(Snapshot(snapshot)))).collect();
        assert_eq!(self.told(), told);
    }

    #[track_caller]
    fn becomes_whole(&mut self, snapshot: u32, offered: &[Offered]) {
        self.cut_begins(snapshot, offered);
        for at in offered {
            self.say(*at, &cut(snapshot, at.1.index));
        }
        let parts = offered.iter().map(|at| part(snapshot, at.1.index)).collect();
        let cuts = Change::Cuts { job: offered[0].1.job, parts };
        assert!(self.last.changes.contains(&cuts), "{:?}", self.last.changes);
    }

    /// The rank's agent is killed and begins anew.
    fn dies(&mut self, id: u32) -> Vec<Offered> {
        let facts = Facts { cores: 1, places: 1, ..Facts::default() };
        self.hello(link(id, 2), Incarnation(2), facts, presence(false, 1), vec![])
    }

    fn unneeded(&self) -> Vec<ContentHash> {
        let parts = self.last.effects.iter().filter_map(|effect| {
            let Effect::Unneeded(parts) = effect else { return None };
            Some(parts.clone())
        });
        parts.flatten().collect()
    }

    #[track_caller]
    fn check_begins_with(&self, expected: &[Option<ContentHash>]) {
        let parts: Vec<_> = self.rank_offers().iter().map(|offer| offer.cut).collect();
        assert_eq!(parts, expected);
    }
}

#[test]
fn a_dead_workstation_takes_the_program_back_to_its_last_whole_snapshot() {
    let (mut site, job, offered) = Site::with_saved(2);
    site.becomes_whole(1, &offered);
    let dead = offered[0].0;
    let again = site.dies(dead);
    assert_eq!(again.len(), 2, "all of it goes back");
    site.check_begins_with(&[Some(part(1, 0)), Some(part(1, 1))]);
    let offers = site.rank_offers();
    assert!(offers.iter().all(|offer| offer.life == Life(2) && offer.snapshot == 1));
    let note = format!(
        "begins again from snapshot 1: rank 0 was lost on host{dead}: the agent died, and its \
         guests with it"
    );
    assert_eq!(site.notes(job), [note]);
}

#[test]
fn a_snapshot_that_is_not_whole_is_not_gone_back_to() {
    let (mut site, _, offered) = Site::with_saved(2);
    site.becomes_whole(1, &offered);
    site.cut_begins(2, &offered);
    site.say(offered[0], &cut(2, 0));
    site.dies(offered[1].0);
    site.check_begins_with(&[Some(part(1, 0)), Some(part(1, 1))]);
    assert_eq!(site.unneeded(), [part(2, 0)]);
}

#[test]
fn a_rank_without_a_part_brings_a_snapshot_to_nothing() {
    let (mut site, _, offered) = Site::with_saved(2);
    site.cut_begins(1, &offered);
    site.say(offered[0], &cut(1, 0));
    site.say(offered[1], &FromRank::NoCut(Snapshot(1)));
    assert_eq!(site.unneeded(), [part(1, 0)]);
    // Told too late.
    site.say(offered[1], &cut(1, 1));
    site.dies(offered[0].0);
    site.check_begins_with(&[None, None]);
}

/// The one that it begins as elsewhere was offered without that part.
#[test]
fn a_snapshot_is_not_whole_by_a_rank_that_begins_elsewhere() {
    let (mut site, _, offered) = Site::with_saved(2);
    site.enrol(3);
    site.connect(3, 1, 1);
    site.cut_begins(1, &offered);
    site.say(offered[0], &cut(1, 0));
    let (id, _, fence) = offered[0];
    let (reason, blame) = ("full".to_owned(), Blame::Workstation);
    let again = site.hear_of(id, AttemptEvent::Refused { fence, reason, blame });
    assert_eq!((again.len(), site.unneeded()), (1, vec![part(1, 0)]));
    site.say(offered[1], &cut(1, 1));
    assert!(!site.last.changes.iter().any(|it| matches!(it, Change::Cuts { .. })));
}

/// It says that it has ended before its agent says how, and lacks nobody then.
#[test]
fn a_snapshot_is_not_whole_by_a_rank_that_has_failed() {
    for takes_part in [false, true] {
        let mut site = Site::with_idle(2);
        let spec = ProgramSpec { checkpoint_every: Some(EVERY), ..ProgramSpec::default() };
        let (_, offered) = site.submit_program_with(2, spec, 5);
        for (id, _, fence) in &offered {
            site.started(*id, *fence);
        }
        site.becomes_whole(1, &offered);
        site.cut_begins(2, &offered);
        site.say(offered[0], &cut(2, 0));
        let (end, snapshot) = (End::Signal(9), Snapshot(2));
        site.say(offered[1], &FromRank::Ended { end, snapshot, sent: vec![] });
        if takes_part {
            site.say(offered[1], &cut(2, 1));
        }
        site.say(offered[1], &FromRank::Drained);
        site.finished(offered[1].0, offered[1].2, Outcome::Signal(9));
        site.check_begins_with(&[Some(part(1, 0)), Some(part(1, 1))]);
    }
}

/// What others had sent it is kept nowhere.
#[test]
fn a_rank_that_had_ended_and_is_lost_unheard_begins_again_only_with_all_others() {
    for heard in [true, false] {
        let (mut site, _, offered) = Site::with_saved(2);
        let (end, snapshot) = (End::ExitCode(0), Snapshot(0));
        site.say(offered[1], &FromRank::Ended { end, snapshot, sent: vec![] });
        site.say(offered[1], &FromRank::Drained);
        site.cut_begins(1, &offered);
        site.say(offered[0], &cut(1, 0));
        if heard {
            site.finished(offered[1].0, offered[1].2, Outcome::Succeeded);
            site.dies(offered[0].0);
            site.check_begins_with(&[Some(part(1, 0))]);
        } else {
            site.dies(offered[1].0);
            site.check_begins_with(&[None, None]);
        }
    }
}

#[test]
fn the_next_whole_snapshot_takes_the_place_of_the_one_before() {
    let (mut site, _, offered) = Site::with_saved(2);
    site.becomes_whole(1, &offered);
    assert_eq!(site.unneeded(), []);
    site.becomes_whole(2, &offered);
    assert_eq!(site.unneeded(), [part(1, 0), part(1, 1)]);
    // The agent says so again on a new connection.
    site.say(offered[0], &cut(2, 0));
    assert_eq!((&*site.last.changes, site.unneeded()), (&[][..], vec![]));
    site.dies(offered[1].0);
    site.check_begins_with(&[Some(part(2, 0)), Some(part(2, 1))]);
}

#[test]
fn a_program_that_is_over_needs_no_parts() {
    let (mut site, job, offered) = Site::with_saved(1);
    site.becomes_whole(1, &offered);
    site.cancel(job);
    assert_eq!(site.unneeded(), [part(1, 0)]);
}

#[test]
fn the_next_life_of_the_coordinator_goes_back_to_the_same_snapshot() {
    let (mut site, job, offered) = Site::with_saved(2);
    site.becomes_whole(1, &offered);
    site.restart(job);
    for (id, _, fence) in &offered {
        site.reconnect(*id, 2, &[*fence]);
    }
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let from = link(offered[0].0, 3);
    site.hello(from, Incarnation(9), facts, presence(false, 1), vec![]);
    site.check_begins_with(&[Some(part(1, 0)), Some(part(1, 1))]);
}

#[test]
fn who_is_back_is_told_of_the_snapshot_under_way() {
    let (mut site, _, offered) = Site::with_saved(2);
    site.cut_begins(1, &offered);
    let (id, _, fence) = offered[1];
    site.reconnect(id, 2, &[fence]);
    assert_eq!(site.told(), [(id, ToRank::Cut(Snapshot(1)))]);
}

#[test]
fn a_question_from_before_a_snapshot_is_not_answered_twice() {
    let (mut site, job, offered) = Site::with_saved(2);
    site.enrol(3);
    site.connect(3, 1, 1);
    let spawn = Ask::Spawn { count: 1 };
    let bytes = FromRank::Ask { request: Request(1), ask: spawn.clone() };
    let third = site.say(offered[0], &bytes);
    site.started(third[0].0, third[0].2);
    let offered = [offered, third].concat();
    site.becomes_whole(1, &offered);
    let again = site.dies(offered[1].0);
    assert_eq!(again.len(), 3);
    // The answer was on its way when the rank took part.
    let root = *again.iter().find(|at| at.1.index == 0).unwrap();
    let bytes = FromRank::Ask { request: Request(1), ask: spawn };
    assert_eq!(site.say_in(Life(2), root, &bytes), []);
    site.check_answer(root.0, 1, &wire::Answer::Spawned { first: Rank(2), count: 1 });
    assert_eq!(site.core.summary(job).unwrap().total, 3);
}

#[test]
fn a_program_that_uses_its_bag_takes_no_snapshots_and_says_so() {
    let (mut site, job, offered) = Site::with_saved(2);
    site.becomes_whole(1, &offered);
    site.ask(offered[0], 1, Ask::PutTask { task: vec![1] });
    for _ in 0..3 {
        for at in &offered {
            site.heartbeat(at.0);
        }
        site.pass(EVERY);
        assert_eq!(site.told(), []);
    }
    let notes = site.notes(job);
    assert!(notes[0].starts_with("it uses its bag of tasks"), "{notes:?}");
    site.dies(offered[1].0);
    site.check_begins_with(&[None, None]);
    assert_eq!(site.unneeded(), [part(1, 0), part(1, 1)]);
}

#[test]
fn a_snapshot_from_which_a_program_fails_again_is_not_gone_back_to_twice() {
    let mut site = Site::with_idle(2);
    let spec = ProgramSpec { checkpoint_every: Some(EVERY), ..ProgramSpec::default() };
    let (job, offered) = site.submit_program_with(2, spec, 5);
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    site.becomes_whole(1, &offered);
    let again = site.finished(offered[0].0, offered[0].2, Outcome::Signal(11));
    site.check_begins_with(&[Some(part(1, 0)), Some(part(1, 1))]);
    for (id, _, fence) in &again {
        site.started(*id, *fence);
    }
    site.finished(again[0].0, again[0].2, Outcome::Signal(11));
    site.check_begins_with(&[None, None]);
    assert_eq!(site.unneeded(), [part(1, 0), part(1, 1)]);
    let notes = site.notes(job);
    assert!(notes[1].starts_with("begins again from its start: rank 0 on host"), "{notes:?}");
}

#[test]
fn why_snapshots_come_to_nothing_is_told_once_until_one_is_whole() {
    let (mut site, job, offered) = Site::with_saved(2);
    let missed = |site: &mut Site, snapshot, at: Offered| {
        let (rank, snapshot) = (Rank(at.1.index), Snapshot(snapshot));
        let because = "images are not taken for snapshots".to_owned();
        let complaint = Complaint::NoCut { rank, snapshot, because };
        site.say(at, &FromRank::NoCut(snapshot));
        site.say(at, &FromRank::Complain(complaint));
    };
    for snapshot in 1..=3 {
        site.cut_begins(snapshot, &offered);
        for at in &offered {
            missed(&mut site, snapshot, *at);
        }
    }
    let first = "rank 0 took no part in snapshot 1: images are not taken for snapshots";
    assert_eq!(site.notes(job), [first]);
    site.becomes_whole(4, &offered);
    site.cut_begins(5, &offered);
    missed(&mut site, 5, offered[0]);
    assert_eq!(site.notes(job).len(), 2);
}
