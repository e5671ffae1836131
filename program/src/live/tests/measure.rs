//! `cargo test --release -p gleaner-program --lib live::tests::measure --
//! --ignored --nocapture --test-threads 1`

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

const ROUNDS: u32 = 20_000;

/// One way, in microseconds.
fn one_way(begun: Instant, rounds: u32) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(2 * rounds)
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Two ends talk through a third that passes on, each a thread with sockets of
/// its own: the floor.
fn relayed_sockets() -> f64 {
    let (mut a, mut a_relay) = UnixStream::pair().unwrap();
    let (mut b, mut b_relay) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while a_relay.read(&mut byte).unwrap_or(0) == 1 {
                b_relay.write_all(&byte).unwrap();
                b_relay.read_exact(&mut byte).unwrap();
                a_relay.write_all(&byte).unwrap();
            }
        });
        scope.spawn(move || {
            let mut byte = [0];
            while b.read(&mut byte).unwrap_or(0) == 1 {
                b.write_all(&byte).unwrap();
            }
        });
        let mut byte = [0];
        let begun = now();
        for _ in 0..ROUNDS {
            a.write_all(&byte).unwrap();
            a.read_exact(&mut byte).unwrap();
        }
        let result = one_way(begun, ROUNDS);
        drop(a);
        result
    })
}

fn ping_pong(log_bytes_max: u64) -> f64 {
    let setup = Setup { ranks: 2, log_bytes_max, ..Setup::default() };
    let ran = run_with(setup, |comm| {
        let begun = now();
        for _ in 0..ROUNDS {
            if comm.rank() == 0 {
                comm.send(1, 1, b"x")?;
                comm.recv(1, 1)?;
            } else {
                comm.recv(0, 1)?;
                comm.send(0, 1, b"x")?;
            }
        }
        Ok(one_way(begun, ROUNDS))
    });
    ran.values()[0]
}

/// Bytes a second, in GB.
fn bandwidth(bytes: usize, messages: u32) -> f64 {
    let ran = run(2, |comm| {
        let message = vec![7; bytes];
        let begun = now();
        for _ in 0..messages {
            if comm.rank() == 0 {
                comm.send(1, 1, &message)?;
            } else {
                comm.recv(0, 1)?;
            }
        }
        // The sender is not done before the receiver is.
        comm.barrier()?;
        Ok(begun.elapsed().as_secs_f64())
    });
    f64::from(messages) * bytes as f64 / ran.values()[0] / 1e9
}

#[test]
#[ignore = "a measurement"]
fn messages_between_two_ranks_of_one_agent() {
    for round in 0..3 {
        let (floor, plain, logged) = (relayed_sockets(), ping_pong(0), ping_pong(64 << 20));
        let (long, short) = (bandwidth(16 << 20, 60), bandwidth(100, 200_000));
        println!(
            "round {round}: one way {plain:.1} us, kept for a rollback {logged:.1} us, relayed \
             sockets {floor:.1} us; {long:.2} GB/s of 16 MiB, {:.2} million a second of 100 bytes",
            short * 10.0
        );
    }
}
