//! The bytes of every version: no change of format passes unseen. A line that
//! has to change is a new [`VERSION`]; the old line stays, and is refused.

use std::time::Duration;

use gleaner_common::time::Moment;
use proptest::prelude::*;

use super::*;
use crate::address::{Communicator, Negotiation, PIECE_BYTES_MAX, Part, Tag, Task};
use crate::endpoint::{Back, Effect, Endpoint, Event};
use crate::negotiation::{Party, Said, Statement, Why};
use crate::wire::{Ack, PeerFrame, ProgramFrame};

/// The bytes of [`filled`] in each version, the oldest first; of version 1, those
/// of an endpoint to which nothing has happened.
const GOLDEN: [(u16, &str); 4] = [
    (
        1,
        "010103000300802080804000008080100b0000008080400000000000000000000001000000000000000000\
         00000000000000000000000000",
    ),
    (
        2,
        "0201030003010204e80701050300020001020102ac02000268690304ac02e807059003de02882701050107\
         0601011204010104c801a01fac02fa0109010702030808000202ac02000268690102090901020701000a0a\
         000202ac0200026869000a080301010201030100030206010102010101060105010204c801a01fac02fa01\
         09010201010102060105010204c801a01fac02fa01090204030104040101ab0b0101020101020207ac0202\
         01020103",
    ),
    (
        3,
        "0301030003010204e80701050300020001020102ac02000268690304ac02e807059003de02882701050107\
         0601011204010104c801a01fac02fa0109010702030808000202ac02000268690102090901020701000a0a\
         000202ac0200026869000a080301010201030100030206010102010101060105010204c801a01fac02fa01\
         09010201010102060105010204c801a01fac02fa01090204030104040101ab0b0101020101020207ac0202\
         01020103",
    ),
    (
        4,
        "0401030003010204e80701050300020001020102ac02000268690304ac02e807059003de02882701050107\
         0601011204010104c801a01fac02fa0109010702030808000202ac02000268690102090901020701000a0a\
         000202ac0200026869000a080301010201030100030206010102010101060105010204c801a01fac02fa01\
         09010201010102060105010204c801a01fac02fa0109020403010104040101ab0b0101020101020207ac02\
         0201020103",
    ),
];

const SELF: Rank = Rank(1);
const OTHER: Rank = Rank(2);
const NOW: Moment = Moment(1_000_000_000);

fn envelope() -> Envelope {
    Envelope::whole(Communicator(2), Tag(300))
}

fn progress() -> Progress {
    let mut inside = Inside::default();
    assert!(inside.accept(Part::First { bytes: PIECE_BYTES_MAX as u64 + 9 }, PIECE_BYTES_MAX));
    Progress { last: 4, sent: 200, room: 4_000, given: 300, took: 250, inside }
}

fn mark(boundary: u64, kind: MarkKind) -> Mark {
    Mark {
        boundary: Boundary(boundary),
        kind,
        present: true,
        stood: true,
        save: boundary,
        given: 6,
        asked: Request(1),
        frames: 5,
        peers: [(OTHER, progress())].into(),
    }
}

fn entry(number: u64, what: What, matched: Option<u64>) -> Entry {
    Entry { number, message: number, what, matched }
}

/// Something in every field, and nothing that contradicts the rest.
fn filled() -> PackedEndpoint {
    let payload = Bytes::from_static(b"hi");
    let piece = |payload: &Bytes| What::Piece {
        from: OTHER,
        envelope: envelope(),
        payload: payload.clone(),
    };
    let answer = What::Answer { request: Request(2), answer: Answer::Put { task: Task(1) } };
    let peer = PackedPeer {
        outgoing: PackedOutgoing {
            queue: [Piece { envelope: envelope(), payload: payload.clone() }].into(),
            acked: 3,
            sent: 4,
            acked_cost: 300,
            limit: 1_000,
        },
        incoming: PackedIncoming {
            received: 5,
            received_cost: 400,
            told_cost: 350,
            told_limit: 5_000,
            said_lost: Some(5),
            skipped: true,
            message: 7,
        },
        fence: Fence::of(6),
        end: Some((End::Signal(9), 4)),
        gone: true,
        told_gone: true,
        progress: progress(),
        remembered: [7].into(),
        remembered_from: 2,
    };
    let unreceived =
        Unreceived { from: OTHER, communicator: Communicator(2), tag: Tag(7), messages: 300 };
    PackedEndpoint {
        config: Config {
            rank: SELF,
            ranks: 3,
            first: Rank(0),
            members: 3,
            parent: Some(OTHER),
            ranks_max: 4,
            log_bytes_max: 1_000,
            snapshot: Snapshot(1),
            floor: Fence::of(5),
        },
        presence: Presence::Ended { end: End::ExitCode(1), drained: false },
        peers: [(OTHER, peer)].into(),
        log: PackedLog {
            entries: [
                entry(8, piece(&payload), Some(2)),
                entry(9, answer, None),
                entry(10, piece(&payload), None),
            ]
            .into(),
            last: 10,
            given: 8,
            saves: 3,
            said: true,
            given_up: true,
        },
        snapshot: Snapshot(2),
        cutting: Some(Snapshot(3)),
        deferred: vec![(Rank(0), Snapshot(3), (End::Left, 6))],
        boundary: Some(mark(1, MarkKind::Image)),
        pending: Some(mark(2, MarkKind::Saved)),
        boundaries: 2,
        asked: Request(4),
        program_asked: Request(3),
        former: Request(1),
        open: [(Request(4), Ask::Done { task: Task(1), result: vec![0xab] })].into(),
        frames: 11,
        wait: Some(Wait::Room { to: OTHER }),
        at_boundary: true,
        unreceived: vec![unreceived],
    }
}

fn rest() -> PipeRest {
    PipeRest { to_program: vec![1, 2], from_program: vec![3] }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn a_packed_endpoint_has_the_bytes_of_its_version() {
    let written = encode(&filled(), &rest());
    let hex = written.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let (newest, golden) = GOLDEN[GOLDEN.len() - 1];
    assert_eq!(VERSION, newest);
    assert_eq!(hex, golden, "a change of format is a new version, and a new line");
    let (mut endpoint, pipes) = Endpoint::unpack(&bytes_of(golden), Fence::of(9)).unwrap();
    assert_eq!((PackedEndpoint::from(&endpoint), &pipes), (filled(), &rest()));
    assert_eq!(endpoint.pack(&pipes), written, "nothing is lost on the way");
}

#[test]
fn an_endpoint_of_an_older_version_is_refused_with_its_number() {
    for (theirs, hex) in &GOLDEN[..GOLDEN.len() - 1] {
        let refused = Endpoint::unpack(&bytes_of(hex), Fence::of(9)).map(|_| ());
        assert_eq!(refused, Err(UnpackError::Version { theirs: *theirs }));
    }
}

/// A change that somebody makes to one number.
type Tamper = fn(&mut PackedEndpoint, u64);

fn other(packed: &mut PackedEndpoint) -> &mut PackedPeer {
    packed.peers.get_mut(&OTHER).unwrap()
}

fn at_boundary(packed: &mut PackedEndpoint) -> &mut Mark {
    packed.boundary.as_mut().unwrap()
}

fn progress_there(packed: &mut PackedEndpoint) -> &mut Progress {
    at_boundary(packed).peers.get_mut(&OTHER).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "any number will do")]
const NUMBERS: [Tamper; 43] = [
    |p, n| p.config.rank = Rank(n as u32),
    |p, n| p.config.ranks = n as u32,
    |p, n| p.config.first = Rank(n as u32),
    |p, n| p.config.members = n as u32,
    |p, n| p.config.ranks_max = n as u32,
    |p, n| p.config.log_bytes_max = n,
    |p, n| p.presence = if n % 2 == 0 { Presence::Absent } else { Presence::Present },
    |p, n| p.snapshot = Snapshot(n as u32),
    |p, n| p.cutting = Some(Snapshot(n as u32)),
    |p, n| p.deferred[0].0 = Rank(n as u32),
    |p, n| p.deferred[0].2.1 = n,
    |p, n| p.boundaries = n,
    |p, n| p.asked = Request(n),
    |p, n| p.program_asked = Request(n),
    |p, n| p.former = Request(n),
    |p, n| p.frames = n,
    |p, n| p.log.last = n,
    |p, n| p.log.given = n,
    |p, n| p.log.saves = n,
    |p, n| p.log.entries[0].number = n,
    |p, n| p.log.entries[0].message = n,
    |p, n| p.log.entries[0].matched = Some(n),
    |p, n| other(p).outgoing.acked = n,
    |p, n| other(p).outgoing.sent = n,
    |p, n| other(p).outgoing.acked_cost = n,
    |p, n| other(p).outgoing.limit = n,
    |p, n| other(p).incoming.received = n,
    |p, n| other(p).incoming.received_cost = n,
    |p, n| other(p).incoming.told_cost = n,
    |p, n| other(p).incoming.told_limit = n,
    |p, n| other(p).remembered_from = n,
    |p, n| other(p).progress.last = n,
    |p, n| other(p).progress.sent = n,
    |p, n| other(p).progress.room = n,
    |p, n| other(p).progress.given = n,
    |p, n| other(p).progress.took = n,
    |p, n| at_boundary(p).boundary = Boundary(n),
    |p, n| at_boundary(p).save = n,
    |p, n| at_boundary(p).given = n,
    |p, n| at_boundary(p).asked = Request(n),
    |p, n| progress_there(p).last = n,
    |p, n| progress_there(p).sent = n,
    |p, n| progress_there(p).room = n,
];

#[track_caller]
fn check_refused(tamper: impl FnOnce(&mut PackedEndpoint), expected: &'static str) {
    let mut packed = filled();
    tamper(&mut packed);
    let bytes = encode(&packed, &rest());
    let refused = Endpoint::unpack(&bytes, Fence::of(9)).map(|_| ());
    assert_eq!(refused, Err(UnpackError::Inconsistent(expected)));
}

#[test]
fn an_endpoint_that_contradicts_itself_is_refused_with_what_is_wrong() {
    check_refused(|p| p.config.ranks_max = 0, "a program of too many ranks, or of none");
    check_refused(|p| p.config.ranks_max = 1 << 20, "a program of too many ranks, or of none");
    check_refused(|p| p.config.rank = Rank(4), "a rank beyond the last");
    check_refused(|p| p.config.members = u32::MAX, "it began with ranks beyond the last");
    check_refused(|p| p.config.log_bytes_max = u64::MAX, "it would keep too much");
    check_refused(
        |p| p.presence = Presence::Present,
        "something waits for a program that is there",
    );
    check_refused(|p| p.peers.clear(), "the log has something of nobody");
    check_refused(|p| p.cutting = Some(Snapshot(2)), "it waits for a cut it has had");
    check_refused(|p| p.frames = u64::MAX, "too high a count");
    check_refused(|p| p.program_asked = Request(5), "the program has asked more than the rank");
    let former = "its program has asked less than a former process";
    check_refused(|p| p.former = Request(4), former);
    check_refused(|p| at_boundary(p).asked = Request(0), "a boundary of a former process");
    check_refused(|p| p.log.given = 11, "more was given than delivered");
    check_refused(|p| p.log.entries.swap(0, 1), "the log is out of order");
    check_refused(|p| other(p).outgoing.sent = 2, "more is sent than there is");
    check_refused(|p| other(p).outgoing.sent = 5, "more is sent than there is");
    check_refused(|p| other(p).outgoing.limit = 365, "more is sent than allowed");
    check_refused(|p| other(p).incoming.told_limit = 399, "more has arrived than was allowed");
    check_refused(|p| other(p).incoming.told_limit = 1 << 30, "more was allowed than the window");
    check_refused(|p| other(p).progress.last = 5, "the program has sent more than the pair");
    check_refused(|p| other(p).progress.took = 301, "the program has taken what it was not given");
    check_refused(|p| other(p).remembered_from = 4, "what was not sent is remembered");
    check_refused(|p| at_boundary(p).boundary = Boundary(3), "a boundary that was not reached");
    check_refused(|p| progress_there(p).last = 1, "what the program has not sent is forgotten");
    let stranger = |p: &mut PackedEndpoint| {
        at_boundary(p).peers.insert(Rank(3), Progress::default());
    };
    check_refused(stranger, "a boundary knows a peer that is none");
    let long = Bytes::from(vec![0; PIECE_BYTES_MAX + 1]);
    let too_long = |p: &mut PackedEndpoint| other(p).outgoing.queue[0].payload = long;
    check_refused(too_long, "too long a piece is kept");
}

/// What may happen to an endpoint that was taken in.
fn events() -> Vec<Event> {
    let data = |number| PeerFrame::Data {
        snapshot: Snapshot(2),
        ack: Ack { received: number, limit: u64::MAX, lost: true },
        number,
        envelope: envelope(),
        payload: Bytes::from_static(b"there"),
    };
    let from_peer = |frame| Event::FromPeer { from: OTHER, fence: Fence::of(90), frame };
    let ack = Ack { received: 4, limit: u64::MAX, lost: true };
    let payload = Bytes::from_static(b"back");
    let ask = Ask::Processors;
    let mut events = vec![
        Event::Arrived,
        Event::RolledBack(Back::Process),
        Event::RolledBack(Back::Image),
        Event::RolledBack(Back::Nothing),
        Event::ImageBegun,
        Event::Imaged,
        Event::ImageLost,
        Event::NotImaged { because: "of a test".to_owned() },
        Event::Kept(Boundary(2)),
        Event::PeerAt(OTHER),
        Event::PeerEnded { rank: OTHER, snapshot: Snapshot(0), end: End::Left, last: u64::MAX },
        Event::Cut(Snapshot(u32::MAX)),
        Event::Negotiate(said()),
        Event::Ranks(4),
        Event::CoordinatorBack,
        Event::Answered { request: Request(4), answer: Answer::Left },
        Event::Ended(End::Stopped),
        from_peer(PeerFrame::Probe { snapshot: Snapshot(3), ack }),
        from_peer(PeerFrame::Gone { snapshot: Snapshot(2), ack }),
    ];
    events.extend((4..8).map(|number| from_peer(data(number))));
    events.extend(
        [
            ProgramFrame::Hello { version: crate::wire::VERSION },
            ProgramFrame::Send { to: OTHER, envelope: envelope(), payload: payload.clone() },
            ProgramFrame::Took { from: OTHER, total: 300 },
            ProgramFrame::Matched(vec![8, 10]),
            ProgramFrame::Ask { request: Request(4), ask: ask.clone() },
            ProgramFrame::Ask { request: Request(2), ask },
            ProgramFrame::Save { last: true, state: payload },
            ProgramFrame::Boundary,
            ProgramFrame::Negotiate(said()),
            ProgramFrame::Waiting {
                on: Wait::Message { from: None, communicator: Communicator(0), tag: None },
                read: 11,
            },
        ]
        .map(Event::FromProgram),
    );
    events
}

fn said() -> Said {
    let statement = Statement::Reject(Why::Unwanted);
    Said { opener: Party::Coordinator, negotiation: Negotiation(1), round: 1, statement }
}

/// Lives with whatever was taken in: nothing of it may panic.
fn live(mut endpoint: Endpoint, choices: &[usize]) {
    let (events, mut out) = (events(), vec![]);
    for choice in choices {
        endpoint.handle(NOW, events[choice % events.len()].clone(), &mut out);
        endpoint.wake(NOW + Duration::from_secs(10), &mut out);
        let (_, _) = (endpoint.facts(), endpoint.held());
    }
    for effect in out {
        if let Effect::Cut { state, .. } = effect {
            let _ = Endpoint::restore(&state, Fence::of(99), Fence::of(98));
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..20_u64,
        Just(COUNT_MAX),
        Just(u64::MAX),
        Just(u64::from(u32::MAX)),
        0..10_000_u64,
        any::<u64>()
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_numbers_an_endpoint_comes_with_nothing_panics(
        changes in prop::collection::vec((0..NUMBERS.len(), number()), 1..4),
        choices in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let mut packed = filled();
        for (index, number) in changes {
            NUMBERS[index](&mut packed, number);
        }
        if let Ok((endpoint, _)) = Endpoint::unpack(&encode(&packed, &rest()), Fence::of(9)) {
            live(endpoint, &choices);
        }
    }

    #[test]
    fn whatever_bytes_come_are_an_endpoint_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        choices in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let mut bytes = encode(&filled(), &rest());
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        match Endpoint::unpack(&bytes, Fence::of(9)) {
            Ok((endpoint, _)) => live(endpoint, &choices),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn an_endpoint_that_ends_too_early_is_refused() {
    let bytes = encode(&filled(), &rest());
    for length in 0..bytes.len() {
        let refused = Endpoint::unpack(&bytes[..length], Fence::of(9));
        assert!(matches!(refused, Err(UnpackError::Malformed(_))), "{length}");
    }
}
