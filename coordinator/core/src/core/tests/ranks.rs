//! Programs of ranks: their places, their questions, their ends.

use gleaner_common::job::OnBusy;
use gleaner_common::program::{Life, ProgramSpec, RankAt, RankOffer};
use gleaner_common::report::{JobState, SubprogramState};
use gleaner_program_core::address::{Communicator, Rank, Request, Snapshot, Tag, Task};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::facts::{End, RankFacts, Stance};
use gleaner_program_core::wire::{self, Ask, FromRank, ToRank, Wait};

use super::*;
use crate::record::{AttemptRecord, SubprogramRecord};

pub(super) const LIFE: Life = Life(1);

impl Site {
    pub(super) fn submit_program(
        &mut self,
        ranks: u32,
        spec: ProgramSpec,
    ) -> (JobId, Vec<Offered>) {
        self.submit_program_that(ranks, spec, OnBusy::default())
    }

    pub(super) fn submit_program_that(
        &mut self,
        ranks: u32,
        spec: ProgramSpec,
        on_busy: OnBusy,
    ) -> (JobId, Vec<Offered>) {
        self.submit_program_like(ranks, spec, on_busy, 1)
    }

    pub(super) fn submit_program_with(
        &mut self,
        ranks: u32,
        spec: ProgramSpec,
        retries: u32,
    ) -> (JobId, Vec<Offered>) {
        self.submit_program_like(ranks, spec, OnBusy::default(), retries)
    }

    fn submit_program_like(
        &mut self,
        ranks: u32,
        spec: ProgramSpec,
        on_busy: OnBusy,
        retries: u32,
    ) -> (JobId, Vec<Offered>) {
        let indexes = IndexRange::count_of(ranks).unwrap();
        let mut job = JobSpec::new(vec!["./mesh".into()], indexes);
        let ranks_max = spec.ranks_max.max(ranks);
        job.program = Some(ProgramSpec { ranks_max, ..spec });
        job.on_busy = on_busy;
        job.retries = retries;
        let event =
            Event::Submitted { request: RequestId(1), user: "ann".into(), spec: Box::new(job) };
        let offered = self.handle(event);
        let answer = self.answer();
        let Some(Answer::Submitted(job)) = answer else { panic!("not accepted: {answer:?}") };
        (job, offered)
    }

    /// A program on so many workstations, each with a rank that runs.
    pub(super) fn with_ranks(ranks: u32) -> (Self, JobId, Vec<Offered>) {
        let mut site = Self::with_idle(ranks);
        let (job, offered) = site.submit_program(ranks, ProgramSpec::default());
        for (id, _, fence) in &offered {
            site.started(*id, *fence);
        }
        (site, job, offered)
    }

    pub(super) fn say(&mut self, at: Offered, said: &FromRank) -> Vec<Offered> {
        self.say_in(LIFE, at, said)
    }

    pub(super) fn say_in(
        &mut self,
        life: Life,
        (id, _, fence): Offered,
        said: &FromRank,
    ) -> Vec<Offered> {
        let bytes = postcard::to_stdvec(said).unwrap();
        self.hear(id, AgentFrame::FromRank { fence, life, bytes })
    }

    pub(super) fn ask(&mut self, at: Offered, request: u64, ask: Ask) {
        self.say(at, &FromRank::Ask { request: Request(request), ask });
    }

    /// What ranks were told by the last step: the workstation and the word.
    pub(super) fn told(&self) -> Vec<(u32, ToRank)> {
        let told = self.sent().filter_map(|(to, frame)| {
            let CoordinatorFrame::ToRank { bytes, .. } = frame else { return None };
            Some((to, postcard::from_bytes(bytes).unwrap()))
        });
        told.collect()
    }

    #[track_caller]
    pub(super) fn check_answer(&self, to: u32, request: u64, answer: &wire::Answer) {
        let said = ToRank::Answered { request: Request(request), answer: answer.clone() };
        let told = self.told();
        assert!(told.contains(&(to, said)), "{answer:?} was not answered: {told:?}");
    }

    pub(super) fn rank_offers(&self) -> Vec<RankOffer> {
        let offers = self.sent().filter_map(|(_, frame)| {
            let CoordinatorFrame::Offer(offer) = frame else { return None };
            offer.rank.as_deref().cloned()
        });
        offers.collect()
    }

    /// The places that this workstation was told with the last step.
    pub(super) fn places(&self, to: u32) -> Vec<(u32, u32, u32)> {
        let places = self.sent().filter(|(id, _)| *id == to).filter_map(|(_, frame)| {
            let CoordinatorFrame::Ranks { at, .. } = frame else { return None };
            Some(at.iter().map(|RankAt { rank, fence, workstation, .. }| {
                (*rank, fence.number, workstation.0)
            }))
        });
        places.flatten().collect()
    }

    pub(super) fn end_well(&mut self, at: Offered) -> Vec<Offered> {
        let (end, snapshot) = (End::ExitCode(0), Snapshot(0));
        self.say(at, &FromRank::Ended { end, snapshot, sent: vec![(Rank(1), 5)] });
        self.finished(at.0, at.2, Outcome::Succeeded)
    }

    pub(super) fn notes(&self, job: JobId) -> Vec<String> {
        self.core.job_row(job).unwrap().notes
    }

    /// A new life of the coordinator, from what the steps so far had kept.
    pub(super) fn restart(&mut self, job: JobId) {
        let restored = self.kept(job);
        self.core = Core::restore(self.now, self.wall(), Config::default(), restored);
    }

    /// What the store has of a program.
    pub(super) fn kept(&self, job: JobId) -> Restored {
        let before = &self.core.jobs[&job];
        let attempts = before.placed().map(|(position, fence)| {
            let attempt = &self.core.attempts[&fence];
            AttemptRecord {
                fence,
                replica: 0,
                subprogram: before.subprogram(position),
                workstation: attempt.workstation,
                placed: attempt.placed,
                end: None,
                coming: attempt.coming,
                arrived: attempt.arrived,
            }
        });
        let over = before.ended_ranks().iter().map(|(position, history)| {
            let (subprogram, history) = (before.subprogram(*position), history.clone());
            SubprogramRecord { subprogram, state: SubprogramState::Succeeded, history }
        });
        Restored {
            workstations: (1..=4).map(|id| (WorkstationId(id), format!("host{id}"))).collect(),
            jobs: vec![before.record().clone()],
            subprograms: over.collect(),
            attempts: attempts.collect(),
            fences_below: Fence::of(10_000),
            events: self.journal.clone(),
            ..Restored::default()
        }
    }
}

#[test]
fn every_rank_is_told_of_its_program_and_every_host_where_the_others_are() {
    let mut site = Site::with_idle(3);
    let (_, offered) = site.submit_program(3, ProgramSpec::default());
    assert_eq!(offered.len(), 3);
    let first = &site.rank_offers()[0];
    assert_eq!((first.life, first.ranks, first.first, first.members), (LIFE, 3, 0, 3));
    assert_eq!((first.parent, first.snapshot, first.cut), (None, 0, None));
    for id in 1..=3 {
        let at: Vec<_> =
            offered.iter().map(|(id, s, fence)| (s.index, fence.number, *id)).collect();
        assert_eq!(site.places(id), at, "host{id}");
    }
}

#[test]
fn ranks_without_a_place_wait_and_change_only_what_others_know() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit_program(2, ProgramSpec::default());
    let ((one, _, first), (other, which, refused)) = (offered[0], offered[1]);
    assert_eq!(site.refused(other, refused), []);
    site.enrol(3);
    let offered = site.connect(3, 1, 1);
    let (_, again, second) = only(&offered);
    assert_eq!(again, which);
    let (mine, its) = ((0, first.number, one), (1, second.number, 3));
    assert_eq!(site.places(one), [its]);
    assert_eq!(site.places(3), [mine, its]);
}

/// It has refused a rank, and others were placed since: it has not heard of them.
#[test]
fn a_host_that_a_rank_comes_to_again_is_told_of_all_of_them() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit_program(2, ProgramSpec::default());
    for (at, _, fence) in offered {
        assert_eq!(site.refused(at, fence), []);
    }
    let mut placed = vec![];
    for id in 3..=4 {
        site.enrol(id);
        placed.extend(site.connect(id, 1, 1));
    }
    let (at, _, fence) = placed[0];
    site.started(placed[1].0, placed[1].2);
    let mut again = site.refused(at, fence);
    site.handle(Event::Disconnected(link(at, 1)));
    while again.is_empty() {
        again = site.pass_heard(s(1));
    }
    let (back, ..) = only(&again);
    assert!(back <= 2, "it knew of the first places");
    let ranks: Vec<u32> = site.places(back).iter().map(|(rank, ..)| *rank).collect();
    assert_eq!(ranks, [0, 1]);
}

#[test]
fn a_task_is_given_to_one_rank_and_its_result_accepted_once() {
    let (mut site, _, offered) = Site::with_ranks(2);
    let (a, b) = (offered[0], offered[1]);
    site.ask(a, 1, Ask::PutTask { task: b"x".to_vec() });
    site.check_answer(a.0, 1, &wire::Answer::Put { task: Task(0) });
    assert!(matches!(site.last.changes[..], [Change::ProgramEvent { sequence: 1, .. }]));
    site.ask(b, 1, Ask::NextTask);
    site.check_answer(b.0, 1, &wire::Answer::Task { task: Task(0), bytes: b"x".to_vec() });
    site.ask(b, 1, Ask::NextTask);
    site.check_answer(b.0, 1, &wire::Answer::Task { task: Task(0), bytes: b"x".to_vec() });
    assert_eq!(site.last.changes, [], "a question that comes again changes nothing");
    site.ask(a, 2, Ask::CloseBag);
    site.ask(b, 2, Ask::Done { task: Task(0), result: b"y".to_vec() });
    site.check_answer(b.0, 2, &wire::Answer::Done { first: true });
    site.ask(a, 3, Ask::NextResult);
    site.check_answer(a.0, 3, &wire::Answer::Result { task: Task(0), bytes: b"y".to_vec() });
}

#[test]
fn ranks_are_spawned_where_there_is_room_now_and_not_beyond_what_was_asked_for() {
    let mut site = Site::with_idle(4);
    let spec = ProgramSpec { ranks_max: 4, spawns: true, ..ProgramSpec::default() };
    let (job, offered) = site.submit_program(1, spec);
    let root = only(&offered);
    site.ask(root, 1, Ask::Processors);
    site.check_answer(root.0, 1, &wire::Answer::Processors { count: 3 });
    site.ask(root, 2, Ask::Spawn { count: 4 });
    site.check_answer(root.0, 2, &wire::Answer::TooMany { available: 3 });
    let bytes =
        postcard::to_stdvec(&FromRank::Ask { request: Request(3), ask: Ask::Spawn { count: 2 } });
    let frame = AgentFrame::FromRank { fence: root.2, life: LIFE, bytes: bytes.unwrap() };
    let offered = site.hear(root.0, frame.clone());
    site.check_answer(root.0, 3, &wire::Answer::Spawned { first: Rank(1), count: 2 });
    let told: Vec<ToRank> = site.told().into_iter().map(|(_, what)| what).collect();
    let [ToRank::Ranks(3), ToRank::Answered { .. }, ..] = &told[..] else {
        panic!("it must know of them before it may send to them: {told:?}");
    };
    assert_eq!(offered.len(), 2);
    let offer = &site.rank_offers()[1];
    assert_eq!((offer.ranks, offer.first, offer.members, offer.parent), (3, 1, 2, Some(0)));
    assert_eq!(site.core.summary(job).unwrap().total, 3);
    assert_eq!(site.hear(root.0, frame), [], "the question came again");
    site.check_answer(root.0, 3, &wire::Answer::Spawned { first: Rank(1), count: 2 });
}

#[test]
fn everybody_hears_of_a_ranks_end_those_that_begin_later_too() {
    let mut site = Site::with_idle(2);
    let (_, offered) = site.submit_program(2, ProgramSpec::default());
    let first = offered[0];
    site.started(first.0, first.2);
    assert_eq!(site.refused(offered[1].0, offered[1].2), [], "it waits");
    let offered = site.end_well(first);
    let second = only(&offered);
    let (end, snapshot) = (End::ExitCode(0), Snapshot(0));
    let ended = ToRank::PeerEnded { rank: Rank(0), snapshot, end, last: 5 };
    assert!(site.told().contains(&(first.0, ended.clone())), "with the offer");
    site.started(second.0, second.2);
    assert!(site.told().contains(&(first.0, ended)), "and when it has begun");
}

#[test]
fn a_program_succeeds_when_all_its_ranks_have() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.end_well(offered[0]);
    assert!(site.accepted().is_empty(), "what ranks come to is provisional");
    assert_eq!(site.progress().counts.succeeded, 1);
    site.end_well(offered[1]);
    assert_eq!(site.progress().state, JobState::Succeeded);
    assert!(site.last.changes.contains(&Change::ProgramOver { job }));
    assert_eq!(site.core.ended_ranks.len(), 0);
}

#[test]
fn a_lost_rank_takes_the_whole_program_back_to_its_start() {
    let (mut site, job, offered) = Site::with_ranks(3);
    site.end_well(offered[0]);
    // The agent of rank 1 died and is back.
    let dead = offered[1].0;
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let (from, reborn) = (link(dead, 2), Incarnation(2));
    let again = site.hello(from, reborn, facts, presence(false, 1), vec![]);
    site.check_sent(offered[2].0, &CoordinatorFrame::Cancel { fence: offered[2].2 });
    let offers = site.rank_offers();
    assert_eq!(again.len(), 3, "rank 0, too, though it had ended: {again:?}");
    assert!(offers.iter().all(|offer| offer.life == Life(2) && offer.floor > offered[2].2));
    assert_eq!(site.core.summary(job).unwrap().counts.succeeded, 0);
    let notes = site.notes(job);
    let why = format!(
        "begins again from its start: rank 1 was lost on host{dead}: the agent died, and its \
         guests with it"
    );
    assert_eq!(notes, [why]);
    // What the old life still says is not heard.
    site.say_in(LIFE, offered[2], &FromRank::Drained);
    assert_eq!(site.last, Step::default());
}

/// One that is known to be short was sent ahead, and began without the others.
#[test]
fn no_rank_of_a_program_that_begins_again_is_sent_ahead_alone() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let ((a, _, ended), (b, ..)) = (offered[0], offered[1]);
    let (end, snapshot) = (End::ExitCode(0), Snapshot(0));
    site.say(offered[0], &FromRank::Ended { end, snapshot, sent: vec![(Rank(1), 5)] });
    let ms = Duration::from_millis(1);
    let _ = site.hear_of(a, AttemptEvent::Finished(finished(ended, Outcome::Succeeded, ms)));
    site.handle(Event::Disconnected(link(b, 1)));
    for _ in 0..5 {
        site.pass(s(3));
        let offered = site.heartbeat(a);
        assert_eq!(offered, [], "there is one place, and two ranks begin together");
    }
    assert_eq!(site.core.summary(job).unwrap().queued, 2);
}

#[test]
fn an_ended_rank_whose_messages_are_lost_takes_the_program_back() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let (a, b) = (offered[0], offered[1]);
    site.end_well(a);
    for _ in 0..12 {
        site.pass(s(3));
        site.heartbeat(b.0);
    }
    assert_eq!(site.core.job_row(job).unwrap().life, 2, "{:?}", site.notes(job));
}

#[test]
fn an_ended_rank_whose_agent_began_anew_takes_the_program_back() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let (a, _) = (offered[0], offered[1]);
    site.end_well(a);
    assert_eq!(site.core.job_row(job).unwrap().life, 1);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    site.hello(link(a.0, 2), Incarnation(2), facts, presence(false, 1), vec![]);
    assert_eq!(site.core.job_row(job).unwrap().life, 2, "{:?}", site.notes(job));
}

#[test]
fn an_ended_rank_that_is_drained_may_be_lost() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let (a, b) = (offered[0], offered[1]);
    site.end_well(a);
    site.say(a, &FromRank::Drained);
    for _ in 0..12 {
        site.pass(s(3));
        site.heartbeat(b.0);
    }
    assert_eq!(site.core.job_row(job).unwrap().life, 1);
}

#[test]
fn a_failure_begins_the_program_again_while_retries_are_left() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let again = site.finished(offered[1].0, offered[1].2, Outcome::ExitCode(3));
    assert_eq!(again.len(), 2);
    let at = offered[1].0;
    let why = format!("begins again from its start: rank 1 on host{at}: exit code 3");
    assert_eq!(site.notes(job), [why]);
    for (id, _, fence) in &again {
        site.started(*id, *fence);
    }
    let (id, _, fence) = again[0];
    assert_eq!(site.finished(id, fence, Outcome::Signal(11)), []);
    let progress = site.progress();
    assert_eq!(
        (progress.state, progress.counts.failed, progress.counts.cancelled),
        (JobState::Failed, 1, 1)
    );
    let stopped = again[1];
    site.check_sent(stopped.0, &CoordinatorFrame::Cancel { fence: stopped.2 });
    let notes = site.last.changes.iter().find_map(|change| {
        let Change::Notes { notes, .. } = change else { return None };
        notes.last().cloned()
    });
    assert_eq!(notes.unwrap(), format!("rank 0 on host{id}: ended by signal 11"));
}

#[test]
fn what_a_rank_said_last_before_it_failed_is_told_with_it() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let (id, _, fence) = offered[1];
    let mut end = finished(fence, Outcome::ExitCode(2), s(60));
    end.stderr = Printed::Inline(b"reading\nmesh: no such file\n".to_vec());
    let _ = site.hear_of(id, AttemptEvent::Finished(end));
    let said = format!("rank 1 on host{id}: exit code 2: mesh: no such file");
    assert_eq!(site.notes(job), [format!("begins again from its start: {said}")]);
}

#[test]
fn a_fault_is_not_tried_again() {
    let (mut site, _, offered) = Site::with_ranks(2);
    let fault = Outcome::Fault("rank 0 sends to rank 7: the program has ranks 0 to 1".into());
    assert_eq!(site.finished(offered[0].0, offered[0].2, fault), []);
    assert_eq!(site.progress().state, JobState::Failed);
}

#[test]
fn a_rank_that_never_began_begins_elsewhere_without_a_new_life() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_program(1, ProgramSpec::default());
    let (id, _, fence) = only(&offered);
    let again = site.hear_of(
        id,
        AttemptEvent::Refused { fence, reason: "full".into(), blame: Blame::Workstation },
    );
    assert_eq!((again.len(), site.core.job_row(job).unwrap().life), (1, 1));
}

#[test]
fn what_does_not_read_ends_the_connection_and_nothing_else() {
    let (mut site, job, offered) = Site::with_ranks(1);
    let (id, _, fence) = offered[0];
    let bytes = vec![0xff; 40];
    site.hear(id, AgentFrame::FromRank { fence, life: LIFE, bytes });
    let [Effect::Refuse { link: refused, reason }] = &site.last.effects[..] else {
        panic!("{:?}", site.last.effects)
    };
    assert_eq!(*refused, link(id, 1));
    assert_eq!(reason, &format!("what it says of rank 0 of job {job} does not read"));
}

#[test]
fn a_cancelled_program_leaves_nothing_behind() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.end_well(offered[0]);
    site.cancel(job);
    site.check_sent(offered[1].0, &CoordinatorFrame::Cancel { fence: offered[1].2 });
    assert!(site.last.changes.contains(&Change::ProgramOver { job }));
    assert_eq!((site.core.ended_ranks.len(), site.core.timers.len()), (0, 0));
}

#[test]
fn programs_that_cannot_be_are_refused() {
    let mut site = Site::with_idle(1);
    let mut spec = JobSpec::new(vec!["x".into()], IndexRange { first: 1, last: 4, step: 1 });
    spec.program = Some(ProgramSpec { ranks_max: 4, ..ProgramSpec::default() });
    site.handle(Event::Submitted { request: RequestId(3), user: "ann".into(), spec: spec.into() });
    let Some(Answer::No(reason)) = site.answer() else { panic!("accepted") };
    assert_eq!(reason, "the ranks of a program are numbered 0, 1, ..: expected such indexes");
}

fn waits(from: u32) -> Stance {
    let tag = Some(Tag(7));
    Stance::Waits(Wait::Message { from: Some(Rank(from)), communicator: Communicator(0), tag })
}

/// Both ranks tell their facts when asked; returns what they were told with the
/// last one.
fn answer_round(site: &mut Site, offered: &[Offered], stances: [Stance; 2]) {
    let asked = site.told().into_iter().find_map(|(_, told)| {
        let ToRank::TellFacts { asked } = told else { return None };
        Some(asked)
    });
    for (at, stance) in offered.iter().zip(stances) {
        let rank = Rank(at.1.index);
        let facts = RankFacts { rank, stance, sent: vec![], received: vec![] };
        site.say(*at, &FromRank::Facts { asked, facts });
    }
}

#[test]
fn a_deadlock_is_told_after_two_rounds_that_say_the_same() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let facts = RankFacts { rank: Rank(0), stance: waits(1), sent: vec![], received: vec![] };
    site.say(offered[0], &FromRank::Facts { asked: None, facts });
    answer_round(&mut site, &offered, [waits(1), waits(0)]);
    assert_eq!(site.notes(job), [""; 0], "a suspicion");
    answer_round(&mut site, &offered, [waits(1), waits(0)]);
    let told = site.told();
    let deadlocks = told.iter().filter(|(_, told)| matches!(told, ToRank::Deadlock(_)));
    assert_eq!(deadlocks.count(), 2, "{told:?}");
    assert!(site.notes(job)[0].starts_with("deadlock: rank 0 waits for"), "{:?}", site.notes(job));
}

#[test]
fn a_suspicion_that_does_not_last_is_forgotten() {
    let (mut site, job, offered) = Site::with_ranks(2);
    let facts = RankFacts { rank: Rank(0), stance: waits(1), sent: vec![], received: vec![] };
    site.say(offered[0], &FromRank::Facts { asked: None, facts });
    answer_round(&mut site, &offered, [waits(1), waits(0)]);
    answer_round(&mut site, &offered, [waits(1), Stance::Active]);
    assert_eq!((site.notes(job).len(), site.told()), (0, vec![]));
}

#[test]
fn a_complaint_is_kept_for_the_user() {
    let (mut site, job, offered) = Site::with_ranks(1);
    let complaint =
        Complaint::NeverReceived { rank: Rank(0), from: Rank(0), tag: Tag(3), messages: 2 };
    for _ in 0..2 {
        site.say(offered[0], &FromRank::Complain(complaint.clone()));
    }
    assert_eq!(site.notes(job), [complaint.to_string()]);
}

#[test]
fn where_a_rank_is_can_be_asked() {
    let (mut site, _, offered) = Site::with_ranks(2);
    site.say(offered[0], &FromRank::WhereIs(Rank(1)));
    assert_eq!(site.places(offered[0].0), [(1, offered[1].2.number, offered[1].0)]);
}

#[test]
fn what_was_answered_stays_answered_in_the_next_life_of_the_coordinator() {
    let mut site = Site::with_idle(2);
    let (job, offered) = site.submit_program(2, ProgramSpec::default());
    for (request, ask) in
        [Ask::PutTask { task: vec![1] }, Ask::PutTask { task: vec![2] }].into_iter().enumerate()
    {
        site.ask(offered[0], request as u64 + 1, ask);
    }
    site.ask(offered[1], 1, Ask::NextTask);
    let past = site.core.jobs[&job].program.as_ref().unwrap().past().clone();
    site.restart(job);
    assert_eq!(*site.core.jobs[&job].program.as_ref().unwrap().past(), past);
    site.reconnect(offered[1].0, 2, &[offered[1].2]);
    let bytes = postcard::to_stdvec(&FromRank::Ask { request: Request(1), ask: Ask::NextTask });
    let frame = AgentFrame::FromRank { fence: offered[1].2, life: LIFE, bytes: bytes.unwrap() };
    site.handle(Event::Heard { from: link(offered[1].0, 2), frame });
    site.check_answer(offered[1].0, 1, &wire::Answer::Task { task: Task(0), bytes: vec![1] });
}

#[test]
fn a_long_life_does_not_grow_its_journal_without_end() {
    let (mut site, job, offered) = Site::with_ranks(1);
    let at = offered[0];
    for request in 0..100 {
        site.ask(at, 3 * request + 1, Ask::PutTask { task: vec![7; 60_000] });
        site.ask(at, 3 * request + 2, Ask::NextTask);
        let task = Task(request);
        site.ask(at, 3 * request + 3, Ask::Done { task, result: vec![8] });
        let bytes: usize = site.journal.iter().map(|event| event.bytes.len()).sum();
        assert!(bytes < 4 << 20, "{bytes} after {request}");
    }
    let past = site.core.jobs[&job].program.as_ref().unwrap().past().clone();
    site.restart(job);
    assert_eq!(*site.core.jobs[&job].program.as_ref().unwrap().past(), past);
}

#[test]
fn a_program_whose_past_does_not_read_begins_again() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.journal.truncate(1);
    site.journal[0].bytes = vec![0xff; 9];
    site.restart(job);
    site.pass(s(0));
    let notes = site.notes(job);
    assert!(notes[0].starts_with("begins again from its start: the coordinator was"), "{notes:?}");
    assert_eq!(site.core.job_row(job).unwrap().life, 2);
    let first = site.journal.first().unwrap();
    assert_eq!((site.journal.len(), first.life), (1, Life(2)));
    // What had begun is not kept, and begins again.
    let again = site.reconnect(offered[0].0, 2, &[offered[0].2]);
    assert_eq!(again, [], "with both of its ranks");
    let again = site.reconnect(offered[1].0, 2, &[offered[1].2]);
    assert_eq!(again.len(), 2);
    let keeps = site.sent().any(
        |(_, frame)| matches!(frame, CoordinatorFrame::Welcome { keep, .. } if !keep.is_empty()),
    );
    assert!(!keeps, "{:?}", site.last.effects);
}

#[test]
fn who_had_a_part_of_a_job_is_told_to_forget_it_also_by_the_next_life() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.end_well(offered[0]);
    site.restart(job);
    for (id, _, fence) in &offered {
        site.reconnect(*id, 2, &[*fence]);
    }
    let (id, _, fence) = offered[1];
    let event = AttemptEvent::Finished(finished(fence, Outcome::Succeeded, s(1)));
    site.handle(Event::Heard { from: link(id, 2), frame: AgentFrame::Attempt(event) });
    for (id, _, _) in offered {
        site.check_sent(id, &CoordinatorFrame::Forget { job });
    }
}

#[test]
fn a_failed_program_leaves_nothing_behind() {
    let (mut site, _, offered) = Site::with_ranks(2);
    site.end_well(offered[0]);
    site.finished(offered[1].0, offered[1].2, Outcome::Fault("it floods".into()));
    assert_eq!(site.progress().state, JobState::Failed);
    let core = &site.core;
    assert_eq!((core.ended_ranks.len(), core.timers.len(), core.jobs.len()), (0, 0, 0));
    assert!(core.pool.ids().all(|id| core.pool.get(id).unwrap().undelivered.is_empty()));
}
