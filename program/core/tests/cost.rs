//! What a message costs at the endpoints: `cargo test --release -p
//! gleaner-program-core --test cost -- --ignored --nocapture`.

#![expect(clippy::wildcard_enum_match_arm, clippy::unwrap_used, reason = "a measurement")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::Instant;

use bytes::Bytes;
use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{
    Communicator, Envelope, PIECE_BYTES_MAX, Rank, Snapshot, Tag, cost,
};
use gleaner_program_core::endpoint::{Config, Effect, Endpoint, Event};
use gleaner_program_core::wire::{AgentFrame, ProgramFrame, VERSION};

fn endpoint(rank: u32, log_bytes_max: u64) -> Endpoint {
    let config = Config {
        rank: Rank(rank),
        ranks: 16,
        first: Rank(0),
        members: 16,
        parent: None,
        ranks_max: 16,
        log_bytes_max,
        snapshot: Snapshot(0),
        floor: Fence::of(0),
    };
    let mut endpoint = Endpoint::new(config, Fence::of(1));
    let hello = Event::FromProgram(ProgramFrame::Hello { version: VERSION });
    endpoint.handle(Moment(1), hello, &mut vec![]);
    endpoint
}

/// Sends back and forth; the time of one message, through both endpoints.
fn measure(payload: &Bytes, messages: u32, log_bytes_max: u64) -> f64 {
    let mut ends = [endpoint(0, log_bytes_max), endpoint(1, log_bytes_max)];
    let (mut effects, mut said) = (vec![], vec![]);
    let mut took = [0u64; 2];
    let begun = Instant::now();
    for index in 0..messages {
        let now = Moment(u64::from(index) * 10_000);
        let from = index as usize % 2;
        let envelope = Envelope::whole(Communicator(0), Tag(1));
        let to = Rank(u32::try_from(1 - from).unwrap());
        let frame = ProgramFrame::Send { to, envelope, payload: payload.clone() };
        ends[from].handle(now, Event::FromProgram(frame), &mut effects);
        let mut at = from;
        while !effects.is_empty() {
            let from = Rank(u32::try_from(at).unwrap());
            at = 1 - at;
            for effect in effects.drain(..) {
                match effect {
                    Effect::ToPeer { frame, .. } => {
                        let event = Event::FromPeer { from, fence: Fence::of(1), frame };
                        ends[at].handle(now, event, &mut said);
                    }
                    Effect::ToProgram(AgentFrame::Deliver { .. } | AgentFrame::Room { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            std::mem::swap(&mut effects, &mut said);
        }
        took[1 - from] += cost(payload.len());
        if index % 16 < 2 {
            let frame = ProgramFrame::Took {
                from: Rank(u32::try_from(from).unwrap()),
                total: took[1 - from],
            };
            ends[1 - from].handle(now, Event::FromProgram(frame), &mut effects);
            for effect in effects.drain(..) {
                if let Effect::ToPeer { frame, .. } = effect {
                    let own = Rank(u32::try_from(1 - from).unwrap());
                    let event = Event::FromPeer { from: own, fence: Fence::of(1), frame };
                    ends[from].handle(now, event, &mut said);
                }
            }
            said.clear();
        }
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(messages)
}

#[test]
#[ignore = "a measurement"]
fn what_a_message_costs() {
    let small = Bytes::from_static(b"x");
    let piece = Bytes::from(vec![7; PIECE_BYTES_MAX]);
    for round in 0..3 {
        let plain = measure(&small, 1_000_000, 0);
        let big = measure(&piece, 1_000_000, 0);
        println!("round {round}: one byte {plain:.0} ns, 64 KiB {big:.0} ns");
    }
}
