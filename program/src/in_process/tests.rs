use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gleaner_common::trace::Op;
use proptest::prelude::*;

use super::*;
use crate::{ANY, Agreed, Awaited, Proposal, Response, Wanted};

fn run<T: Send>(
    ranks: u32,
    program: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, RunError> {
    let run = Run { ranks, ..Run::default() };
    Ok(run_in_process(run, program)?.values.into_values().collect())
}

#[test]
fn a_message_goes_round_a_ring() {
    let sums = run(5, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        comm.send((rank + 1) % size, 7, &[u8::try_from(rank)?])?;
        let message = comm.recv((rank + size - 1) % size, 7)?;
        Ok(message.bytes[0])
    });
    assert_eq!(sums.unwrap(), [4, 0, 1, 2, 3]);
}

#[test]
fn messages_of_a_pair_and_tag_come_in_order_whatever_else_comes() {
    let came = run(3, |comm| {
        if comm.rank() > 0 {
            (0..100_u8).try_for_each(|number| comm.send(0, u32::from(number % 3), &[number]))?;
            return Ok(vec![]);
        }
        let ordered = [(1, 2), (2, 0), (1, 0)];
        let mut came = vec![];
        for (from, tag) in ordered {
            for _ in 0..33 {
                came.push(comm.recv(from, tag)?.bytes[0]);
            }
        }
        while came.len() < 200 {
            came.push(comm.recv(ANY, ANY)?.bytes[0]);
        }
        Ok(came)
    });
    let came = came.unwrap().remove(0);
    let of_tag = |tag: u8| (0..33).map(move |number| number * 3 + tag);
    assert!(came[..99].iter().copied().eq(of_tag(2).chain(of_tag(0)).chain(of_tag(0))));
}

#[test]
fn receives_can_be_begun_tested_and_finished_later() {
    let said = run(2, |comm| {
        let other = 1 - comm.rank();
        let receiving = comm.irecv(other, 1)?;
        let late = comm.irecv(ANY, 2)?;
        assert!(!comm.test(&receiving)?);
        comm.barrier()?;
        let sending = comm.isend(other, 1, b"one")?;
        assert!(comm.test_sent(&sending)?);
        comm.send(other, 2, b"two")?;
        comm.barrier()?;
        assert!(comm.test(&late)?);
        let messages = comm.wait_all(vec![late, receiving])?;
        Ok(messages.into_iter().map(|message| message.bytes).collect::<Vec<_>>())
    });
    assert_eq!(said.unwrap(), vec![vec![b"two".to_vec(), b"one".to_vec()]; 2]);
}

#[test]
fn a_bad_rank_or_tag_is_refused() {
    let refused = run(2, |comm| {
        Ok([
            comm.send(2, 0, &[]).unwrap_err().to_string(),
            comm.recv(7, 0).unwrap_err().to_string(),
            comm.send(0, u32::MAX, &[]).unwrap_err().to_string(),
        ])
    });
    assert_eq!(
        refused.unwrap()[0],
        [
            "rank 2 of 2: expected 0 to 1",
            "rank 7 of 2: expected 0 to 1",
            "tag 4294967295: expected 0 to 2147483647"
        ]
    );
}

#[test]
fn a_rank_that_panics_is_named_to_those_who_wait_and_to_the_caller() {
    let told = Mutex::new(vec![]);
    let error = run(4, |comm| {
        assert!(comm.rank() != 2, "a wheel came off");
        let error = if comm.rank() == 0 { comm.recv(2, 5) } else { comm.recv(ANY, ANY) };
        told.lock().unwrap().push((comm.rank(), error.clone().unwrap_err().to_string()));
        error?;
        Ok(())
    });
    assert_eq!(error.unwrap_err().to_string(), "rank 2 panicked: a wheel came off");
    let told = told.into_inner().unwrap();
    let zero = told.iter().find(|(rank, _)| *rank == 0).unwrap();
    assert_eq!(
        zero.1,
        "waited for a message of tag 5 from rank 2, but rank 2 panicked: a wheel came off"
    );
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn a_rank_that_returns_while_others_wait_for_it_is_named() {
    let error = run(2, |comm| {
        if comm.rank() == 1 {
            comm.send(0, 1, b"the last")?;
            return Ok(());
        }
        comm.recv(1, 1)?;
        comm.recv(1, 1)?;
        Ok(())
    });
    let said = error.unwrap_err().to_string();
    let expected = "waited for a message of tag 1 from rank 1, but rank 1 has returned";
    assert_eq!(said, format!("rank 0 failed: {expected}"));
}

#[test]
fn a_deadlock_is_told_to_every_rank_with_what_all_wait_for() {
    let told = Mutex::new(vec![]);
    let error = run(3, |comm| {
        let rank = comm.rank();
        let error = comm.recv((rank + 1) % 3, rank).unwrap_err();
        told.lock().unwrap().push(error.clone());
        Err::<(), _>(error.into())
    });
    let wants = |rank: u32| {
        let wanted = Wanted { from: Some((rank + 1) % 3), tag: Some(rank) };
        (rank, Awaited::Message(wanted))
    };
    let deadlock = Error::Deadlock { waiting: (0..3).map(wants).collect() };
    assert!(told.into_inner().unwrap().iter().all(|error| *error == deadlock));
    let said = error.unwrap_err().to_string();
    assert!(
        said.contains("every rank waits: rank 0 for a message of tag 0 from rank 1,"),
        "{said}"
    );
}

#[test]
fn a_rank_that_waits_for_itself_is_told_at_once() {
    let error = run(2, |comm| {
        if comm.rank() == 0 {
            comm.recv(0, 0)?;
        }
        Ok(())
    });
    assert!(error.unwrap_err().to_string().contains("every rank waits: rank 0 for"));
}

#[test]
fn collectives_agree_with_their_meaning_on_any_number_of_ranks() {
    for ranks in 1..=9 {
        let results = run(ranks, |comm| {
            let (rank, size) = (comm.rank(), comm.size());
            let root = size / 2;
            comm.barrier()?;
            assert_eq!(comm.broadcast(root, vec![rank; 3])?, [root; 3]);
            let sum = size * (size - 1) / 2;
            let reduced = comm.reduce(root, &[rank, 1], |a, b| a + b)?;
            assert_eq!(reduced, (rank == root).then(|| vec![sum, size]));
            assert_eq!(comm.allreduce(&[rank, 1], |a, b| a + b)?, [sum, size]);
            let gathered = comm.gather(root, &vec![rank; rank as usize])?;
            let expected = || (0..size).map(|rank| vec![rank; rank as usize]).collect::<Vec<_>>();
            assert_eq!(gathered, (rank == root).then(expected));
            let parts = if rank == root { expected() } else { vec![] };
            assert_eq!(comm.scatter(root, &parts)?, vec![rank; rank as usize]);
            let parts = (0..size).map(|to| vec![(rank, to)]).collect();
            let received = comm.all_to_all(parts)?;
            assert!(received.into_iter().eq((0..size).map(|from| vec![(from, rank)])));
            Ok(())
        });
        results.unwrap();
    }
}

#[test]
fn a_group_is_on_its_own() {
    let sums = run(6, |comm| {
        let (rank, odd) = (comm.rank(), comm.rank() % 2);
        let mut group = comm.group((0..6).filter(|rank| rank % 2 == odd))?;
        let sum = group.allreduce(&[1_u64 << (4 * rank)], |a, b| a + b)?;
        Ok(sum[0])
    });
    assert_eq!(sums.unwrap(), [0x10101, 0x10_1010].repeat(3));
    let error = run(2, |comm| Ok(comm.group([5]).map(|_| ()).unwrap_err())).unwrap();
    assert_eq!(error[1].to_string(), "rank 1 is not of this group, so it cannot take part");
}

#[test]
fn a_recording_is_a_trace_of_what_was_sent_and_computed() {
    let run = Run { ranks: 2, record: Some("ping".to_owned()), ..Run::default() };
    let outcome = run_in_process(run, |comm| {
        if comm.rank() == 0 {
            comm.send(1, 3, &[0; 10])?;
            comm.recv(ANY, ANY)?;
        } else {
            comm.recv(0, 3)?;
            std::hint::black_box((0..2_000_000_u64).fold(1, |a, b| std::hint::black_box(a ^ b)));
            comm.send(0, 4, &[])?;
        }
        Ok(())
    });
    let trace = outcome.unwrap().trace.unwrap();
    let messages = |rank: usize| {
        let ops = trace.ranks[rank].iter().filter(|op| !matches!(op, Op::Compute { .. }));
        ops.copied().collect::<Vec<_>>()
    };
    assert_eq!(
        messages(0),
        [Op::Send { to: 1, bytes: 10, tag: 3 }, Op::Receive { from: 1, tag: 4 }]
    );
    assert_eq!(
        messages(1),
        [Op::Receive { from: 0, tag: 3 }, Op::Send { to: 0, bytes: 0, tag: 4 }]
    );
    assert!(trace.critical_path().unwrap() > Duration::from_micros(100));
}

#[test]
fn a_message_that_nobody_receives_is_not_recorded_as_a_good_trace() {
    let run = Run { ranks: 2, record: Some("lost".to_owned()), ..Run::default() };
    let error = run_in_process(run, |comm| Ok(comm.send(1 - comm.rank(), 0, &[])?));
    assert!(matches!(error, Err(RunError::Trace(Problem::UnmatchedSend { .. }))));
}

/// Rank 0 fills the bag and adds up what the others do with it.
fn add_squares(comm: &mut Communicator) -> Result<u64, Failure> {
    if comm.rank() > 0 {
        while let Some(task) = comm.next_task()? {
            let number = u64::from(task.work[0]);
            comm.done(task.id, &(number * number).to_le_bytes())?;
        }
        return Ok(0);
    }
    (1..=20_u8).try_for_each(|number| comm.add_task(&[number]).map(|_| ()))?;
    comm.close_bag()?;
    let mut sum = 0;
    while let Some((_, result)) = comm.next_result()? {
        sum += u64::from_le_bytes(result.as_slice().try_into()?);
    }
    Ok(sum)
}

#[test]
fn a_bag_is_emptied_by_whoever_is_free() {
    assert_eq!(run(4, add_squares).unwrap()[0], 2_870);
}

#[test]
fn the_task_of_a_rank_that_retreats_is_done_by_another() {
    let retreats = vec![Retreat { rank: 1, task: 1 }, Retreat { rank: 2, task: 3 }];
    let run = Run { ranks: 4, retreats, ..Run::default() };
    let outcome = run_in_process(run, add_squares).unwrap();
    assert_eq!(outcome.values[&0], 2_870);
}

#[test]
fn a_retreat_handler_keeps_what_is_done_and_gives_back_the_rest() {
    let run = Run { ranks: 2, retreats: vec![Retreat { rank: 0, task: 1 }], ..Run::default() };
    let outcome = run_in_process(run, |comm| {
        if comm.rank() == 1 {
            // Begins once the other has taken the first task.
            comm.recv(0, 0)?;
            let mut numbers = vec![];
            while let Some(task) = comm.next_task()? {
                numbers.extend(task.work.clone());
                comm.done(task.id, &[])?;
            }
            return Ok(numbers);
        }
        comm.add_task(&[1, 2, 3, 4])?;
        let task = comm.next_task()?.ok_or("an empty bag")?;
        comm.on_retreat(move |comm| {
            assert!(comm.is_retreating());
            comm.add_task(&task.work[2..])?;
            comm.close_bag()?;
            comm.done(task.id, &[1, 2])?;
            comm.send(1, 0, &[])
        });
        let refused = comm.next_task();
        assert_eq!(refused, Err(Error::Retreated));
        assert_eq!(comm.send(1, 0, &[]), Err(Error::Retreated));
        refused?;
        Ok(vec![])
    });
    assert_eq!(outcome.unwrap().values, BTreeMap::from([(1, vec![3, 4])]));
}

#[test]
fn spawned_ranks_run_the_same_program_and_know_their_parent() {
    let run = Run { ranks: 2, processors: 3, record: Some("grows".to_owned()), ..Run::default() };
    let outcome = run_in_process(run, |comm| {
        if let Some(parent) = comm.parent() {
            let among = comm.allreduce(&[1_u32], |a, b| a + b)?[0];
            comm.send(parent, 9, &[u8::try_from(among)?])?;
        } else if comm.rank() == 0 {
            assert_eq!(comm.processors()?, 3);
            let refused = comm.spawn(4).unwrap_err();
            assert_eq!(refused, Error::NoProcessors { wanted: 4, available: 3 });
            let ranks = comm.spawn(3)?;
            assert_eq!((ranks.clone(), comm.size()), (2..5, 5));
            for rank in ranks {
                assert_eq!(comm.recv(rank, 9)?.bytes, [3]);
            }
            comm.send(1, 8, &[])?;
        } else {
            // Here until then: a rank that has ended leaves its processor.
            comm.recv(0, 8)?;
        }
        Ok(comm.members())
    })
    .unwrap();
    assert_eq!(outcome.values[&4], 2..5);
    let spawns =
        outcome.trace.unwrap().ranks[0].iter().filter(|op| matches!(op, Op::Spawn { .. })).count();
    assert_eq!(spawns, 3);
}

#[test]
fn whoever_spawned_a_rank_can_wait_for_its_end() {
    let run = Run { ranks: 1, processors: 2, ..Run::default() };
    let outcome = run_in_process(run, |comm| {
        if let Some(parent) = comm.parent() {
            comm.send(parent, 1, b"before its end")?;
            if comm.rank() == 1 {
                comm.leave()?;
            }
            return Ok(vec![]);
        }
        let ended = comm.spawn(2)?.map(|rank| comm.join(rank)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(comm.recv(1, 1)?.bytes, b"before its end");
        assert_eq!(comm.recv(2, 1)?.bytes, b"before its end");
        let itself = comm.join(0).unwrap_err();
        assert_eq!(itself.to_string(), "deadlock: every rank waits: rank 0 for the end of rank 0");
        Ok(ended)
    });
    assert_eq!(outcome.unwrap().values[&0], [Ending::Left, Ending::Returned]);
}

#[test]
fn a_rank_that_has_left_is_named_and_calls_no_more() {
    let error = run(2, |comm| {
        if comm.rank() == 0 {
            comm.leave()?;
            assert_eq!(comm.send(1, 0, &[]), Err(Error::Left));
            return Ok(());
        }
        comm.recv(0, 0)?;
        Ok(())
    });
    assert!(error.unwrap_err().to_string().ends_with("but rank 0 has left"));
}

/// Counts to ten, saving each number; fails at five if it began at zero.
fn count(comm: &mut Communicator) -> Result<u8, Failure> {
    let from = comm.restore().map_or(0, |state| state[0]);
    for number in from + 1..=10 {
        comm.save(&[number])?;
        if from == 0 && number == 5 {
            return Ok(5);
        }
    }
    Ok(from)
}

#[test]
fn a_program_begun_again_goes_on_from_what_it_saved() {
    let first = run_in_process(Run { ranks: 2, ..Run::default() }, count).unwrap();
    assert_eq!(first.saved, BTreeMap::from([(0, vec![5]), (1, vec![5])]));
    let again = Run { ranks: 2, saved: first.saved, ..Run::default() };
    let second = run_in_process(again, count).unwrap();
    assert_eq!(second.values, BTreeMap::from([(0, 5), (1, 5)]));
    assert_eq!(second.saved[&0], [10]);
}

#[test]
fn waiting_for_a_bag_that_nobody_closes_is_a_deadlock() {
    let error = run(2, |comm| Ok(comm.next_task()?.is_some())).unwrap_err().to_string();
    assert!(error.ends_with("every rank waits: rank 0 for a task, rank 1 for a task"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A program in which all sends come first cannot hang, and its recording
    /// replays.
    #[test]
    fn what_runs_is_recorded_as_a_trace_that_replays(
        sends in proptest::collection::vec((0..4_u32, 0..4_u32, 0..3_u32), 0..40),
    ) {
        let run = Run { ranks: 4, record: Some("random".to_owned()), ..Run::default() };
        let outcome = run_in_process(run, |comm| {
            let me = comm.rank();
            for &(from, to, tag) in &sends {
                if from == me {
                    comm.send(to, tag, &[])?;
                }
            }
            for &(from, to, tag) in sends.iter().rev() {
                if to == me {
                    comm.recv(from, tag)?;
                }
            }
            Ok(())
        });
        let trace = outcome.unwrap().trace.unwrap();
        prop_assert_eq!(trace.messages().0, sends.len() as u64);
    }
}

/// What rank 0 is told, call by call, of what it was offered.
fn offered(
    offers: Vec<(Change, Obligation)>,
    answer: fn(&Proposal) -> Response,
) -> Vec<(u32, Option<Agreed>)> {
    let run = Run { ranks: 1, processors: 4, offers, ..Run::default() };
    let outcome = run_in_process(run, move |comm| {
        if comm.parent().is_some() {
            return Ok(vec![]);
        }
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        comm.on_offer(move |proposal| {
            count.fetch_add(1, Ordering::Relaxed);
            answer(proposal)
        })?;
        let mut told = vec![];
        for _ in 0..3 {
            comm.heed()?;
            comm.heed()?;
            told.push((asked.load(Ordering::Relaxed), comm.agreed()?));
        }
        Ok(told)
    });
    outcome.unwrap().values.remove(&0).unwrap()
}

#[test]
fn the_next_offer_is_answered_when_the_program_knows_what_was_agreed_before() {
    let grow = |by| (Change::Grow { by }, Obligation::Voluntary);
    let told = offered(vec![grow(1), grow(2)], |_| Response::Accept);
    let more = |ranks| Some(Agreed::More(ranks));
    assert_eq!(told, [(1, more(1..2)), (2, more(2..4)), (2, None)]);
}

#[test]
fn what_is_declined_changes_nothing_unless_it_must_be() {
    let by = 1;
    let told = offered(vec![(Change::Grow { by }, Obligation::Voluntary)], |_| Response::Decline);
    assert_eq!(told, [(1, None), (1, None), (1, None)]);
    let told = offered(vec![(Change::Shrink { by }, Obligation::Mandatory)], |proposal| {
        assert!(proposal.is_mandatory && !proposal.is_final && proposal.price.is_none());
        Response::Decline
    });
    assert_eq!(told[0], (1, Some(Agreed::Fewer { by: 1, enforced: true })));
}

#[test]
fn a_request_gets_what_can_be_had_and_a_release_counts_on_what_is_there() {
    let run = Run { ranks: 1, processors: 3, ..Run::default() };
    let outcome = run_in_process(run, |comm| {
        if comm.parent().is_some() {
            comm.join(0)?;
            return Ok((0..0, 0..0, 0));
        }
        Ok((comm.request(2)?, comm.request(5)?, comm.release(2)?))
    });
    assert_eq!(outcome.unwrap().values[&0], (1..3, 3..4, 2));
}
