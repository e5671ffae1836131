//! The program's half against the agent's, over real pipes.

use std::sync::Mutex;
use std::time::Duration;

use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::wire::PIPES_VARIABLE;

use super::run::perform;
use super::*;
use crate::in_process::RunError;
use crate::{ANY, Communicator, Failure};

#[path = "../../tests/support/agent.rs"]
mod agent;
mod measure;

use agent::{Agent, Ends, Setup};

/// What came of all ranks, and of the agent.
struct Ran<T> {
    values: BTreeMap<u32, Result<T, String>>,
    complaints: Vec<String>,
    held_max: u64,
}

impl<T> Ran<T> {
    #[track_caller]
    fn values(self) -> Vec<T> {
        let result: Result<Vec<T>, String> = self.values.into_values().collect();
        result.unwrap()
    }
}

fn run<T: Send>(
    ranks: u32,
    program: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Ran<T> {
    run_with(Setup { ranks, ..Setup::default() }, program)
}

fn run_with<T: Send>(
    setup: Setup,
    program: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Ran<T> {
    let (mut agent, pipes) = Agent::new(setup);
    let values = Mutex::new(BTreeMap::new());
    let (program, values_of) = (&program, &values);
    std::thread::scope(|scope| {
        let begin = |rank: u32, ends: Ends| {
            scope.spawn(move || {
                let value = match perform(taken(ends), false, program) {
                    Ok((outcome, _)) => {
                        outcome.values.into_values().next().ok_or("retreated".into())
                    }
                    Err(RunError::Failed { source, .. }) => Err(source.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                values_of.lock().unwrap().insert(rank, value);
            });
        };
        for (rank, pipes) in (0..).zip(pipes) {
            begin(rank, pipes);
        }
        agent.run(begin);
    });
    let complaints = agent.complaints.iter().map(Complaint::to_string).collect();
    Ran { values: values.into_inner().unwrap(), complaints, held_max: agent.held_max }
}

fn taken(ends: Ends) -> Pipes {
    Pipes::new(ends.read, ends.write)
}

#[test]
fn a_message_goes_round_a_ring() {
    let ran = run(5, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        comm.send((rank + 1) % size, 7, &[u8::try_from(rank)?])?;
        Ok(comm.recv((rank + size - 1) % size, 7)?.bytes[0])
    });
    assert_eq!(ran.complaints, [""; 0]);
    assert_eq!(ran.values(), [4, 0, 1, 2, 3]);
}

#[test]
fn collectives_work_as_in_process() {
    let ran = run(6, |comm| {
        let rank = u64::from(comm.rank());
        comm.barrier()?;
        let sum = comm.allreduce(&[rank, 1], |a, b| a + b)?;
        let parts = (0..6).map(|to| vec![rank * 10 + to]).collect();
        let all = comm.all_to_all(parts)?;
        let root = comm.broadcast(2, vec![rank])?;
        Ok((sum, all.concat(), root))
    });
    for (rank, (sum, all, root)) in (0..).zip(ran.values()) {
        assert_eq!(sum, [15, 6]);
        assert_eq!(all, (0..6).map(|from| from * 10 + rank).collect::<Vec<u64>>());
        assert_eq!(root, [2]);
    }
}

fn long(seed: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|index| ((index ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn long_messages_cross_each_other_whole_and_little_is_held() {
    const BYTES: u32 = 16 << 20;
    let ran = run(2, |comm| {
        let (rank, other) = (comm.rank(), 1 - comm.rank());
        let sending = comm.isend(other, 1, &long(rank, BYTES))?;
        let message = comm.recv(other, 1)?;
        comm.wait_sent(&sending)?;
        Ok(message.bytes == long(other, BYTES))
    });
    assert_eq!(ran.complaints, [""; 0]);
    assert!(ran.held_max <= 4 * (4 << 20), "{}", ran.held_max);
    assert_eq!(ran.values(), [true, true]);
}

/// Its pages are lent to the pipe, and its own again when the call comes back.
#[test]
fn what_was_sent_may_be_changed_at_once() {
    const BYTES: usize = 6 << 20;
    let sizes = [BYTES, 300_000, BYTES + 12_345, (1 << 20) + 1];
    let ran = run(2, |comm| {
        let mut bytes = vec![0; 2 * BYTES];
        let mut wrong = 0;
        for (round, size) in (0_u8..).zip(sizes.into_iter().cycle().take(24)) {
            // Not at a page's beginning.
            let bytes = &mut bytes[usize::from(round)..][..size];
            if comm.rank() == 0 {
                bytes.fill(round);
                comm.send(1, 1, bytes)?;
                bytes.fill(u8::MAX);
            } else {
                let message = comm.recv(0, 1)?;
                wrong += usize::from(message.bytes != vec![round; size]);
            }
        }
        Ok(wrong)
    });
    assert_eq!(ran.complaints, [""; 0]);
    assert_eq!(ran.values(), [0, 0]);
}

#[test]
fn what_was_lent_is_waited_for_as_long_as_somebody_may_read_it() {
    const BYTES: usize = 32 << 10;
    let sevens = vec![7; BYTES];
    let lend = |write: std::io::PipeWriter| {
        let (unused, _) = std::io::pipe().unwrap();
        let mut pipes = Pipes::new(unused.into(), write.into());
        let envelope = Envelope::whole(SPACE, Tag(1));
        pipes.write_piece(Rank(1), envelope, &sevens, true).unwrap();
        pipes
    };
    let (mut read, write) = std::io::pipe().unwrap();
    let pipes = lend(write);
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 2 * BYTES];
        let length = std::io::Read::read(&mut read, &mut bytes).unwrap();
        (read, bytes[length - BYTES..length].to_vec())
    });
    pipes.wait_until_read();
    let (_open, bytes) = reader.join().unwrap();
    assert!(bytes == sevens);
    let (gone, write) = std::io::pipe().unwrap();
    let pipes = lend(write);
    drop(gone);
    pipes.wait_until_read();
}

#[test]
fn what_is_not_waited_for_does_not_stand_in_the_way() {
    let ran = run(2, |comm| {
        if comm.rank() == 0 {
            // More than any window, and received last.
            let early = comm.isend(1, 1, &long(0, 12 << 20))?;
            comm.send(1, 2, b"small")?;
            comm.wait_sent(&early)?;
            return Ok(0);
        }
        assert_eq!(comm.recv(0, 2)?.bytes, b"small");
        Ok(comm.recv(0, 1)?.bytes.len())
    });
    assert_eq!(ran.values(), [0, 12 << 20]);
}

#[test]
fn a_receive_begun_and_left_alone_does_not_hold_its_sender_for_ever() {
    let ran = run(3, |comm| {
        let bytes = 9 << 20;
        match comm.rank() {
            0 => {
                comm.send(1, 1, &long(0, bytes))?;
                comm.send(2, 1, b"now")?;
            }
            1 => {
                let receiving = comm.irecv(0, 1)?;
                comm.recv(2, 1)?;
                assert_eq!(comm.wait(receiving)?.bytes, long(0, bytes));
            }
            _ => {
                comm.recv(0, 1)?;
                comm.send(1, 1, b"after it")?;
            }
        }
        Ok(())
    });
    assert_eq!(ran.values(), [(), (), ()]);
}

#[test]
fn a_slow_receiver_slows_its_sender() {
    let ran = run(2, |comm| {
        let payload = vec![7; 50_000];
        if comm.rank() == 0 {
            for _ in 0..600 {
                comm.send(1, 1, &payload)?;
            }
            return Ok(0);
        }
        let mut bytes = 0;
        for number in 0..600 {
            if number % 100 == 0 {
                std::thread::sleep(Duration::from_millis(30));
            }
            bytes += comm.recv(0, 1)?.bytes.len();
        }
        Ok(bytes)
    });
    assert!(ran.held_max <= 2 * (4 << 20), "{}", ran.held_max);
    assert_eq!(ran.values(), [0, 30_000_000]);
}

#[test]
fn messages_of_a_pair_and_tag_come_in_order_from_anybody() {
    let ran = run(4, |comm| {
        if comm.rank() > 0 {
            for number in 0..500u32 {
                comm.send_values(0, number % 3, &[number])?;
            }
            return Ok(true);
        }
        let mut last: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for _ in 0..1_500 {
            let message = comm.recv(ANY, ANY)?;
            let number = u32::from_le_bytes(message.bytes[..4].try_into()?);
            let before = last.insert((message.from, message.tag), number);
            assert!(before.is_none_or(|before| before < number));
        }
        Ok(last.len() == 9)
    });
    assert_eq!(ran.values(), [true; 4]);
}

#[test]
fn a_bag_of_tasks_is_worked_off() {
    let ran = run(4, |comm| {
        if comm.rank() == 0 {
            for task in 0..100u8 {
                comm.add_task(&[task])?;
            }
            comm.close_bag()?;
            let mut sum = 0u32;
            while let Some((_, result)) = comm.next_result()? {
                sum += u32::from(result[0]);
            }
            return Ok(sum);
        }
        let mut mine = 0;
        while let Some(task) = comm.next_task()? {
            comm.done(task.id, &[task.work[0] / 2])?;
            mine += 1;
        }
        Ok(mine)
    });
    let values = ran.values();
    assert_eq!(values[0], (0..100u32).map(|task| task / 2).sum::<u32>());
    assert_eq!(values[1..].iter().sum::<u32>(), 100);
}

#[test]
fn processors_and_spawning_are_asked_of_the_coordinator() {
    let ran = run(1, |comm| Ok((comm.processors()?, comm.spawn(9).unwrap_err().to_string())));
    let (processors, declined) = ran.values().remove(0);
    assert_eq!(processors, 3);
    assert_eq!(declined, "9 ranks more: expected at most 3, the processors to be had now");
}

#[test]
fn spawned_ranks_begin_and_are_waited_for() {
    let ran = run(1, |comm| {
        if let Some(parent) = comm.parent() {
            let among = comm.allreduce(&[comm.rank()], |a, b| a + b)?;
            comm.send_values(parent, 7, &among)?;
            comm.leave()?;
            return Ok(vec![]);
        }
        let spawned = comm.spawn(2)?;
        let mut told = vec![];
        for rank in spawned {
            assert_eq!(comm.join(rank)?, crate::Ending::Left);
            told.extend(comm.recv_values::<u32>(rank, 7)?);
        }
        told.push(comm.processors()?);
        Ok(told)
    });
    assert_eq!(ran.complaints, [""; 0]);
    assert_eq!(ran.values()[0], [3, 3, 3]);
}

#[test]
fn ranks_that_wait_for_each_others_end_are_told_so() {
    let ran = run(2, |comm| Ok(comm.join(1 - comm.rank()).unwrap_err().to_string()));
    let told = "deadlock: every rank waits: rank 0 for the end of rank 1, rank 1 for the end of \
                rank 0";
    assert_eq!(ran.values(), [told, told]);
}

#[test]
fn a_rank_hears_that_its_state_is_wanted() {
    let setup = Setup { save_asked: vec![0], ..Setup::default() };
    let ran = run_with(setup, |comm| {
        while !comm.wants_state()? {
            std::thread::yield_now();
        }
        comm.save(b"here")?;
        Ok(comm.wants_state()?)
    });
    assert_eq!(ran.values(), [false]);
}

/// Marks a hundred boundaries: how often was an image asked for?
#[track_caller]
fn check_images(log_bytes_max: u64, expected: &[&str]) {
    let ran = run_with(Setup { ranks: 1, log_bytes_max, ..Setup::default() }, |comm| {
        for _ in 0..100 {
            comm.boundary()?;
        }
        Ok(())
    });
    assert_eq!(ran.complaints, expected);
}

#[test]
fn a_rank_stands_at_one_boundary_until_another_image_is_wanted() {
    check_images(64 << 20, &["no image of rank 0 was taken to go back to: threads have none"]);
    check_images(0, &[]);
}

#[test]
fn a_rank_that_breaks_begins_again_where_it_saved_and_nobody_notices() {
    let broken = Mutex::new(false);
    let setup = Setup { ranks: 3, log_bytes_max: 64 << 20, restarts: vec![1], ..Setup::default() };
    let ran = run_with(setup, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let restored = comm.restore();
        let began = restored.as_ref().map_or(0, |state| state[0]);
        let mut sum =
            restored.map_or(0, |state| u64::from_le_bytes(state[1..9].try_into().unwrap()));
        for round in began..40 {
            let mut state = vec![round];
            state.extend_from_slice(&sum.to_le_bytes());
            if round % 5 == 0 {
                comm.save(&state)?;
            }
            comm.send_values(right, 1, &[u64::from(round) * 10 + u64::from(rank)])?;
            sum += comm.recv_values::<u64>(left, 1)?[0];
            let again = std::mem::replace(&mut *broken.lock().unwrap(), round == 23 && rank == 1);
            if rank == 1 && round == 23 && !again && began == 0 {
                return Err("it breaks".into());
            }
        }
        Ok((began, sum))
    });
    assert_eq!(ran.complaints, [""; 0]);
    let values = ran.values();
    let rounds: u64 = (0..40).map(|round| round * 10).sum();
    assert_eq!(values[1], (20, rounds), "rank 1 hears rank 0");
    assert_eq!(values[0], (0, rounds + 80));
    assert_eq!(values[2], (0, rounds + 40));
}

#[test]
fn whoever_waits_for_a_rank_that_has_ended_is_told() {
    let ran = run(2, |comm| {
        if comm.rank() == 0 {
            return Ok(String::new());
        }
        Ok(comm.recv(0, 7).unwrap_err().to_string())
    });
    assert_eq!(
        ran.values()[1],
        "waited for a message of tag 7 from rank 0, but rank 0 has returned"
    );
}

#[test]
fn ranks_that_wait_for_each_other_are_told_so() {
    let ran = run(2, |comm| Ok(comm.recv(1 - comm.rank(), 7).unwrap_err().to_string()));
    let told = "deadlock: every rank waits: rank 0 for a message of tag 7 from rank 1, rank 1 for \
                a message of tag 7 from rank 0";
    assert!(ran.complaints[0].starts_with("deadlock: rank 0 waits"), "{:?}", ran.complaints);
    assert_eq!(ran.values(), [told, told]);
}

#[test]
fn what_a_rank_never_receives_is_named() {
    let ran = run(2, |comm| {
        if comm.rank() == 0 {
            comm.send(1, 7, b"unwanted")?;
            comm.send(1, 8, b"wanted")?;
        } else {
            comm.recv(0, 8)?;
        }
        Ok(())
    });
    assert_eq!(ran.complaints, ["rank 1 ended without receiving 1 messages of rank 0, tag 7"]);
    assert_eq!(ran.values(), [(), ()]);
}

#[test]
fn a_program_that_corrupts_its_pipe_is_named_and_harms_nobody() {
    let (mut agent, mut pipes) = Agent::new(Setup { ranks: 2, ..Setup::default() });
    let (sick, well) = (pipes.remove(0), pipes.remove(0));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| agent::corrupt(sick));
        let well = scope.spawn(|| {
            perform(taken(well), false, |comm| Ok(comm.recv(0, 7).unwrap_err().to_string()))
                .unwrap()
        });
        agent.run(|_, _| {});
        well.join().unwrap().0.values.into_values().next()
    });
    let complaint = agent.complaints[0].to_string();
    assert!(
        complaint.starts_with("rank 0 broke the protocol of its pipes: a frame of"),
        "{complaint}"
    );
    assert!(said.unwrap().contains("rank 0"));
}

#[test]
fn a_rank_waits_for_what_it_has_sent_to_itself() {
    let ran = run(2, |comm| {
        let (rank, mut heard) = (comm.rank(), vec![]);
        for number in 0..100 {
            comm.send(rank, 7, &[number])?;
            heard.push(if number % 2 == 0 { comm.recv(rank, 7)? } else { comm.recv(ANY, 7)? });
        }
        let numbers: Vec<u8> = heard.iter().map(|message| message.bytes[0]).collect();
        let nothing = comm.recv(rank, 7).unwrap_err().to_string();
        Ok((numbers == (0..100).collect::<Vec<_>>(), nothing))
    });
    let deadlock = |rank| {
        let own = format!("rank {rank} for a message of tag 7 from rank {rank}");
        (true, format!("deadlock: every rank waits: {own}"))
    };
    assert_eq!(ran.values(), [deadlock(0), deadlock(1)]);
}

#[test]
fn a_rank_without_its_agent_says_so() {
    let (agent, mut pipes) = Agent::new(Setup::default());
    drop(agent);
    let error = perform::<()>(taken(pipes.remove(0)), false, |_| Ok(())).unwrap_err();
    assert!(error.to_string().starts_with("cannot reach this rank's agent: lost touch"), "{error}");
}

#[test]
#[ignore = "the process that the next test starts"]
fn a_process_of_its_own() {
    let outcome = run_live(|comm| {
        let message = comm.recv(0, 1)?;
        comm.send(0, 2, &message.bytes)?;
        Ok(comm.rank())
    });
    assert_eq!(outcome.unwrap().values.into_keys().collect::<Vec<_>>(), [1]);
    assert!(Pipes::inherited().is_err(), "the pipes are given once");
}

#[test]
fn a_process_finds_the_pipes_it_was_started_with() {
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::os::fd::AsRawFd;

    let (mut agent, mut pipes) = Agent::new(Setup { ranks: 2, ..Setup::default() });
    let (own, Ends { read, write }) = (pipes.remove(0), pipes.remove(0));
    for fd in [&read, &write] {
        fcntl_setfd(fd, FdFlags::empty()).unwrap();
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "live::tests::a_process_of_its_own"])
        .env(PIPES_VARIABLE, format!("{},{}", read.as_raw_fd(), write.as_raw_fd()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop((read, write));
    let said = std::thread::scope(|scope| {
        let own = scope.spawn(|| {
            perform(taken(own), false, |comm| {
                comm.send(1, 1, b"there and back")?;
                Ok(comm.recv(1, 2)?.bytes)
            })
        });
        agent.run(|_, _| {});
        own.join().unwrap().unwrap().0.values.remove(&0)
    });
    assert!(process.wait().unwrap().success());
    assert_eq!(said.unwrap(), b"there and back");
}
