#![expect(
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers; a test looks at what it is about"
)]

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { tasks_max: 1_000, bytes_max: 1 << 20 };

/// A bag, and ranks that number their questions.
struct Desk {
    bag: Bag,
    requests: BTreeMap<Rank, u64>,
    accepted: Vec<Task>,
    given_up: Vec<Task>,
}

impl Desk {
    fn new(tasks: Option<u8>) -> Self {
        let tasks = tasks.map(|count| (0..count).map(|task| vec![task]).collect());
        let bag = Bag::new(LIMITS, tasks);
        Self { bag, requests: BTreeMap::new(), accepted: vec![], given_up: vec![] }
    }

    fn take(&mut self, effects: Vec<Effect>) -> Vec<(u32, Answer)> {
        let mut answers = vec![];
        for effect in effects {
            match effect {
                Effect::Answer { rank, answer, .. } => answers.push((rank.0, answer)),
                Effect::Accept { task, .. } => self.accepted.push(task),
                Effect::GiveUp { task, .. } => self.given_up.push(task),
            }
        }
        answers
    }

    fn ask(&mut self, rank: u32, ask: Ask) -> Vec<(u32, Answer)> {
        let request = self.requests.entry(Rank(rank)).or_default();
        *request += 1;
        let effects = self.bag.ask(Rank(rank), Request(*request), ask);
        self.take(effects)
    }

    fn gone(&mut self, rank: u32, lost: bool) -> Vec<(u32, Answer)> {
        let effects = self.bag.gone(Rank(rank), lost);
        self.take(effects)
    }
}

#[test]
fn results_that_nobody_takes_have_a_bound() {
    let mut desk = Desk::new(Some(40));
    let result = vec![7; 60_000];
    let declined = (0..40).find_map(|number| {
        desk.ask(0, Ask::NextTask);
        let done = Ask::Done { task: Task(number), result: result.clone() };
        let answers = desk.ask(0, done.clone());
        let is_declined = matches!(answers[..], [(0, Answer::Declined { .. })]);
        is_declined.then_some(done)
    });
    let done = declined.expect("two mebibytes are the most");
    assert_eq!(desk.accepted.len(), 34);
    // With one taken there is room again.
    desk.ask(1, Ask::NextResult);
    assert_eq!(desk.ask(0, done), [(0, Answer::Done { first: true })]);
}

fn task(number: u64) -> Answer {
    Answer::Task { task: Task(number), bytes: vec![number as u8] }
}

fn done(number: u64, result: u8) -> Ask {
    Ask::Done { task: Task(number), result: vec![result] }
}

#[test]
fn tasks_are_given_in_order_and_each_to_one_rank() {
    let mut desk = Desk::new(Some(2));
    assert_eq!(desk.ask(1, Ask::NextTask), [(1, task(0))]);
    assert_eq!(desk.ask(2, Ask::NextTask), [(2, task(1))]);
    assert_eq!(desk.ask(3, Ask::NextTask), [], "it waits while others hold the last ones");
    assert_eq!(desk.ask(1, done(0, 9)), [(1, Answer::Done { first: true })]);
    let over = [(2, Answer::Done { first: true }), (3, Answer::NoMoreTasks)];
    assert_eq!(desk.ask(2, done(1, 9)), over);
}

#[test]
fn a_returned_task_goes_to_who_waits_for_one() {
    let mut desk = Desk::new(Some(1));
    desk.ask(1, Ask::NextTask);
    desk.ask(2, Ask::NextTask);
    let returned = desk.ask(1, Ask::ReturnTask { task: Task(0) });
    assert_eq!(returned, [(1, Answer::Returned), (2, task(0))]);
}

#[test]
fn who_dies_returns_what_it_held_and_the_oldest_first() {
    let mut desk = Desk::new(Some(3));
    desk.ask(1, Ask::NextTask);
    desk.ask(1, Ask::NextTask);
    desk.gone(1, true);
    assert_eq!(desk.ask(2, Ask::NextTask), [(2, task(0))]);
    assert_eq!(desk.ask(2, Ask::NextTask), [(2, task(1))]);
}

#[test]
fn a_result_is_accepted_once_whoever_brings_it() {
    let mut desk = Desk::new(Some(1));
    desk.ask(1, Ask::NextTask);
    desk.gone(1, false);
    desk.ask(2, Ask::NextTask);
    // Rank 1 had done it; it was only thought to be gone.
    assert_eq!(desk.ask(1, done(0, 7)), [(1, Answer::Done { first: true })]);
    assert_eq!(desk.ask(2, done(0, 8)), [(2, Answer::Done { first: false })]);
    assert_eq!(desk.accepted, [Task(0)]);
    assert_eq!(
        desk.ask(3, Ask::NextResult),
        [(3, Answer::Result { task: Task(0), bytes: vec![7] })]
    );
    assert_eq!(desk.ask(3, Ask::NextResult), [(3, Answer::NoMoreResults)]);
}

#[test]
fn a_question_that_is_asked_again_gets_the_same_answer() {
    let mut desk = Desk::new(Some(2));
    let first = desk.bag.ask(Rank(1), Request(1), Ask::NextTask);
    assert_eq!(desk.bag.ask(Rank(1), Request(1), Ask::NextTask), first);
    let _ = desk.bag.ask(Rank(2), Request(1), Ask::NextTask);
    assert_eq!(desk.bag.ask(Rank(3), Request(1), Ask::NextTask), []);
    assert_eq!(desk.bag.ask(Rank(3), Request(1), Ask::NextTask), [], "it waits once");
    assert_eq!(desk.bag.gone(Rank(1), true).len(), 1);
}

#[test]
fn a_question_that_is_repeated_while_it_waits_gets_one_task() {
    let mut desk = Desk::new(None);
    assert_eq!(desk.bag.ask(Rank(1), Request(1), Ask::NextTask), []);
    assert_eq!(desk.bag.ask(Rank(1), Request(1), Ask::NextTask), []);
    let put = |number: u64| (2, Answer::Put { task: Task(number) });
    assert_eq!(desk.ask(2, Ask::PutTask { task: vec![0] }), [put(0), (1, task(0))]);
    assert_eq!(desk.ask(2, Ask::PutTask { task: vec![1] }), [put(1)]);
    assert_eq!(desk.ask(3, Ask::NextTask), [(3, task(1))]);
}

#[test]
fn a_task_that_was_returned_and_is_done_after_all_is_given_to_nobody() {
    let mut desk = Desk::new(Some(1));
    desk.ask(1, Ask::NextTask);
    desk.ask(1, Ask::ReturnTask { task: Task(0) });
    assert_eq!(desk.ask(1, done(0, 7)), [(1, Answer::Done { first: true })]);
    assert_eq!(desk.ask(2, Ask::NextTask), [(2, Answer::NoMoreTasks)]);
    assert_eq!(desk.bag.counts(), (0, 0, 1));
}

#[test]
fn a_result_goes_to_who_still_waits_for_one_and_not_to_who_is_gone() {
    let mut desk = Desk::new(Some(1));
    desk.ask(1, Ask::NextTask);
    assert_eq!(desk.ask(2, Ask::NextResult), []);
    assert_eq!(desk.ask(3, Ask::NextResult), []);
    assert_eq!(desk.gone(2, false), []);
    let result = Answer::Result { task: Task(0), bytes: vec![7] };
    assert_eq!(desk.ask(1, done(0, 7)), [(1, Answer::Done { first: true }), (3, result),]);
}

#[test]
fn a_task_that_kills_its_workers_is_given_up() {
    let mut desk = Desk::new(Some(1));
    for rank in 1..=LOSSES_MAX {
        assert_eq!(desk.ask(rank, Ask::NextTask), [(rank, task(0))]);
        desk.gone(rank, true);
    }
    assert_eq!(desk.given_up, [Task(0)]);
    assert_eq!(desk.ask(99, Ask::NextTask), [(99, Answer::NoMoreTasks)]);
}

#[test]
fn retreats_do_not_count_as_losses() {
    let mut desk = Desk::new(Some(1));
    for rank in 1..=2 * LOSSES_MAX {
        desk.ask(rank, Ask::NextTask);
        desk.gone(rank, false);
    }
    assert_eq!(desk.given_up, []);
}

#[test]
fn a_program_fills_and_closes_its_own_bag() {
    let mut desk = Desk::new(None);
    assert_eq!(desk.ask(1, Ask::NextTask), []);
    let put = desk.ask(0, Ask::PutTask { task: vec![0] });
    assert_eq!(put, [(0, Answer::Put { task: Task(0) }), (1, task(0))]);
    desk.ask(1, done(0, 1));
    assert_eq!(desk.ask(1, Ask::NextTask), [], "more may come");
    assert_eq!(desk.ask(0, Ask::CloseBag), [(0, Answer::Closed), (1, Answer::NoMoreTasks)]);
    let late = desk.ask(0, Ask::PutTask { task: vec![0] });
    assert_eq!(late, [(0, Answer::BagClosed)]);
}

#[test]
fn a_bag_takes_no_more_than_it_may_hold() {
    let mut desk = Desk::new(None);
    let big = vec![0; 1 << 19];
    desk.ask(0, Ask::PutTask { task: big.clone() });
    desk.ask(0, Ask::PutTask { task: big });
    let full = desk.ask(0, Ask::PutTask { task: vec![0] });
    assert!(matches!(full[..], [(0, Answer::Declined { .. })]));
}

proptest! {
    #[test]
    fn every_task_is_done_once_whatever_the_ranks_do(
        tasks in 1u8..12,
        steps in proptest::collection::vec((0u32..4, 0u8..6, any::<u8>()), 0..200),
    ) {
        let mut desk = Desk::new(Some(tasks));
        let mut held: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut waiting: BTreeSet<u32> = BTreeSet::new();
        // At the end rank 9 does what is left.
        let last = std::iter::repeat_n((9, 0, 0), 2 * usize::from(tasks) + 2);
        let all_gone = (0..4).map(|rank| (rank, 3, 0));
        for (rank, what, which) in steps.into_iter().chain(all_gone).chain(last) {
            let mine = held.entry(rank).or_default();
            let chosen = (!mine.is_empty()).then(|| usize::from(which) % mine.len());
            let answers = match (what, chosen) {
                (3, _) => {
                    mine.clear();
                    waiting.remove(&rank);
                    desk.requests.remove(&Rank(rank));
                    desk.gone(rank, false)
                }
                _ if waiting.contains(&rank) => vec![],
                (1, Some(index)) => {
                    let task = Task(mine.remove(index));
                    desk.ask(rank, Ask::ReturnTask { task })
                }
                (2, Some(index)) => {
                    let task = mine.remove(index);
                    desk.ask(rank, done(task, rank as u8))
                }
                (0 | 4, Some(_)) if rank == 9 => {
                    let task = mine.remove(0);
                    desk.ask(rank, done(task, 9))
                }
                _ => {
                    waiting.insert(rank);
                    desk.ask(rank, Ask::NextTask)
                }
            };
            for (rank, answer) in answers {
                match answer {
                    Answer::Task { task, .. } => {
                        waiting.remove(&rank);
                        held.entry(rank).or_default().push(task.0);
                    }
                    Answer::NoMoreTasks => { waiting.remove(&rank); }
                    _ => {}
                }
            }
            let mut all: Vec<u64> = held.values().flatten().copied().collect();
            all.sort_unstable();
            prop_assert!(all.is_sorted_by(|a, b| a < b), "one task is held by two");
        }
        let mut accepted = desk.accepted.clone();
        accepted.sort_unstable();
        prop_assert_eq!(accepted, (0..u64::from(tasks)).map(Task).collect::<Vec<_>>());
        prop_assert!(desk.bag.is_done());
    }
}
