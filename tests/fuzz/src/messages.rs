//! What comes over the network, and what was durably written of it.

use bytes::Bytes;
use gleaner_common::frame::{self, Decoder};
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::program::Life;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire;
use gleaner_coordinator_core::outlook::LearnedRecord;
use gleaner_coordinator_core::{
    Config, Core, Event, JobProgress, JobRecord, Link, ProgramEvent, RequestId, Restored,
};
use gleaner_program_core::address::Rank;
use gleaner_program_core::endpoint::Endpoint;
use gleaner_program_core::framing::{self, Frame, FrameReader};
use gleaner_program_core::wire as program;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What agents, users and the coordinator say to each other.
pub fn frames(bytes: &[u8]) {
    let Some((which, payload)) = bytes.split_first() else { return };
    match which % 11 {
        0 => reads_as_written::<wire::AgentFrame>(payload),
        1 => reads_as_written::<wire::CoordinatorFrame>(payload),
        2 => reads_as_written::<wire::Request>(payload),
        3 => reads_as_written::<wire::Reply>(payload),
        4 => reads_as_written::<wire::UsageFrame>(payload),
        5 => reads_as_written::<wire::UsageReply>(payload),
        6 => reads_as_written::<wire::EnrolRequest>(payload),
        7 => reads_as_written::<wire::EnrolReply>(payload),
        8 => reads_as_written::<wire::BlobReply>(payload),
        9 => reads_as_written::<wire::Opening>(payload),
        _ => in_pieces(payload),
    }
}

fn reads_as_written<T: Serialize + DeserializeOwned>(payload: &[u8]) {
    let Ok(first) = frame::decode_payload::<T>(payload) else { return };
    let mut written = vec![];
    // What is read may be longer when it is written: numbers have long forms.
    if frame::encode(&first, &mut written).is_err() {
        return;
    }
    let mut decoder = Decoder::new();
    decoder.push(&written);
    let again: Option<T> = decoder.next_frame().unwrap_or_else(|error| panic!("{error}"));
    let again = again.unwrap_or_else(|| panic!("a whole frame is not read"));
    let mut twice = vec![];
    frame::encode(&again, &mut twice).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(written, twice);
}

fn in_pieces(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    for piece in bytes.chunks(7) {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.next_frame::<wire::AgentFrame>() {}
    }
    let _ = decoder.take_rest();
}

const HOSTILE: Link = Link { workstation: WorkstationId(1), serial: 1 };
const HONEST: Link = Link { workstation: WorkstationId(2), serial: 2 };

/// A workstation that says anything in any order to a coordinator with work.
///
/// # Panics
/// It takes down the core, or the core's own promises with it.
pub fn core(bytes: &[u8]) {
    let mut now = Moment::ZERO;
    let wall = WallTime(0);
    let mut core = Core::restore(now, wall, Config::default(), Restored::default());
    for (link, name) in [(HOSTILE, "hostile"), (HONEST, "honest")] {
        let workstation = link.workstation;
        let _ = core.handle(now, wall, Event::Enrolled { workstation, name: name.to_owned() });
    }
    let indexes = IndexRange { first: 0, last: 3, step: 1 };
    let spec = Box::new(JobSpec::new(vec!["work".to_owned()], indexes));
    let submitted = Event::Submitted { request: RequestId(1), user: "ada".to_owned(), spec };
    let _ = core.handle(now, wall, submitted);
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    while let Ok(Some(frame)) = decoder.next_frame() {
        now = Moment(now.0 + 1_000_000_000);
        let _ = core.handle(now, wall, Event::Heard { from: HOSTILE, frame });
        if core.deadline().is_some_and(|due| due <= now) {
            let _ = core.wake(now, wall);
        }
    }
}

/// What programs, agents and other agents' routers say to each other.
pub fn programs(bytes: &[u8]) {
    let Some((which, payload)) = bytes.split_first() else { return };
    match which % 7 {
        0 => frame_of::<program::ProgramFrame>(payload),
        1 => frame_of::<program::AgentFrame>(payload),
        2 => frame_of::<program::PeerFrame>(payload),
        3 => frame_of::<program::Packet>(payload),
        4 => reads_as_written::<program::FromRank>(payload),
        5 => reads_as_written::<program::ToRank>(payload),
        _ => packed_endpoint(payload),
    }
}

fn frame_of<F: Frame>(bytes: &[u8]) {
    if let Ok(frame) = framing::decode::<F>(&Bytes::copy_from_slice(bytes)) {
        let mut written = vec![];
        if framing::encode_whole(&frame, &mut written).is_ok() {
            let mut reader = FrameReader::default();
            reader.push(&written);
            assert!(matches!(reader.next_frame::<F>(), Ok(Some(_))), "it does not read again");
        }
    }
    let mut reader = FrameReader::default();
    for piece in bytes.chunks(7) {
        reader.push(piece);
        while let Ok(Some(_)) = reader.next_frame::<F>() {}
    }
}

/// What is unpacked is packed as it was, for a rank that travels on at once.
fn packed_endpoint(bytes: &[u8]) {
    let _ = Endpoint::restore(bytes, Fence::of(2), Fence::of(1));
    let Ok((mut endpoint, rest)) = Endpoint::unpack(bytes, Fence::of(2)) else { return };
    let packed = endpoint.pack(&rest);
    assert!(Endpoint::unpack(&packed, Fence::of(3)).is_ok(), "it does not travel on");
}

/// A store whose journal of a program, and whose memory of owners, were written by
/// something else.
pub fn journal(bytes: &[u8]) {
    let job = JobId(1);
    let events = bytes.split(|byte| *byte == 0xff).map(|event| ProgramEvent {
        job,
        life: Life(1),
        bytes: event.to_vec(),
    });
    let indexes = IndexRange { first: 0, last: 3, step: 1 };
    let mut spec = JobSpec::new(vec!["work".to_owned()], indexes);
    spec.program = Some(gleaner_common::program::ProgramSpec::default());
    let record = JobRecord {
        job,
        user: "ada".to_owned(),
        submitted: WallTime(0),
        spec,
        progress: JobProgress::new(job),
        notes: vec![],
    };
    let learned = |workstation| LearnedRecord { workstation, bytes: bytes.to_vec() };
    let restored = Restored {
        jobs: vec![record],
        events: events.collect(),
        learned: vec![learned(None), learned(Some(WorkstationId(1)))],
        ..Restored::default()
    };
    Core::restore(Moment::ZERO, WallTime(0), Config::default(), restored);
}

pub(crate) mod seeds {
    use gleaner_program_core::address::Snapshot;
    use gleaner_program_core::endpoint::PipeRest;

    use super::{Endpoint, Fence, Rank, frame, wire};

    fn framed(frames: &[wire::AgentFrame]) -> Vec<u8> {
        let mut out = vec![];
        for frame in frames {
            frame::encode(frame, &mut out).unwrap_or_else(|error| panic!("{error}"));
        }
        out
    }

    fn said() -> Vec<wire::AgentFrame> {
        let facts = wire::Facts::default();
        let load = gleaner_common::usage::LoadAverages::default();
        let presence = wire::Presence {
            busy: false,
            reason: String::new(),
            lasted: std::time::Duration::ZERO,
            slots: 2,
            load,
            users: 0,
        };
        vec![
            wire::AgentFrame::Hello {
                incarnation: gleaner_common::id::Incarnation(1),
                boot: gleaner_common::id::BootId([7; 16]),
                facts: Box::new(facts),
                presence,
                held: vec![],
                seen: gleaner_common::id::Fence::default(),
            },
            wire::AgentFrame::Heartbeat { sequence: 1, slots: 2, load },
        ]
    }

    pub(crate) fn frames() -> Vec<Vec<u8>> {
        let of_agents = said().into_iter().map(|frame| {
            let mut seed = vec![0];
            seed.extend_from_slice(&framed(&[frame])[4..]);
            seed
        });
        let mut all: Vec<_> = of_agents.collect();
        all.push([&[10], framed(&said()).as_slice()].concat());
        all
    }

    pub(crate) fn core() -> Vec<Vec<u8>> {
        vec![framed(&said())]
    }

    pub(crate) fn programs() -> Vec<Vec<u8>> {
        let config = gleaner_program_core::endpoint::Config {
            rank: Rank(1),
            ranks: 3,
            first: Rank(0),
            members: 3,
            parent: None,
            ranks_max: 3,
            log_bytes_max: 1 << 20,
            snapshot: Snapshot::default(),
            floor: Fence::of(1),
        };
        let packed = Endpoint::new(config, Fence::of(1)).pack(&PipeRest::default());
        vec![[&[6], packed.as_slice()].concat(), vec![0, 1, 1], vec![4, 0, 0]]
    }

    pub(crate) fn journal() -> Vec<Vec<u8>> {
        vec![vec![1, 0, 0, 0], vec![1, 1, 0, 0, 0xff, 1, 2]]
    }
}
