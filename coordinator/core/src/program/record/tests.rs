//! The bytes of every event: no change of format passes unseen. A line that
//! has to change is a new [`VERSION`].

use gleaner_program_core::address::Task;
use proptest::prelude::*;

use super::*;
use crate::program::Past;

const RANK: Rank = Rank(3);
const REQUEST: Request = Request(5);

#[track_caller]
fn check(happened: &Happened, hex: &str) {
    let bytes = happened.to_bytes();
    let written = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(written, hex, "{happened:?}");
    assert_eq!(Happened::from_bytes(&bytes).as_ref(), Some(happened));
}

fn ended() -> Ended {
    Ended { end: End::Signal(9), snapshot: Snapshot(2), sent: vec![(Rank(0), 300)], drained: true }
}

fn spawned() -> BTreeMap<Rank, VecDeque<(Request, Answer)>> {
    let answer = Answer::Spawned { first: Rank(4), count: 2 };
    [(RANK, [(REQUEST, answer)].into())].into()
}

fn whole() -> Whole {
    Whole {
        snapshot: Snapshot(2),
        parts: [(RANK, ContentHash([0xab; 32]))].into(),
        groups: vec![Group { first: 0, count: 4, parent: Some(RANK) }],
        ended: [(Rank(1), ended())].into(),
        spawned: spawned(),
        negotiator: Some(RANK),
    }
}

fn state() -> ProgramState {
    ProgramState {
        floor: Fence::of(300),
        failures: 1,
        groups: vec![Group { first: 0, count: 4, parent: None }],
        ended: [(Rank(1), ended())].into(),
        newest: Snapshot(2),
        whole: Some(whole()),
    }
}

/// Something in every field, as events leave it.
fn past() -> Past {
    let mut past = Past::begin(state());
    let asks = [
        (RANK, Ask::PutTask { task: vec![0xaa] }),
        (RANK, Ask::PutTask { task: vec![0xbb] }),
        (RANK, Ask::PutTask { task: vec![0xcc] }),
        (Rank(2), Ask::NextTask),
        (Rank(2), Ask::Done { task: Task(0), result: vec![0xdd] }),
        (Rank(2), Ask::NextTask),
        (Rank(1), Ask::NextResult),
        (Rank(1), Ask::NextResult),
        (RANK, Ask::Done { task: Task(2), result: vec![0xee] }),
        (RANK, Ask::CloseBag),
        (RANK, Ask::NextTask),
    ];
    for (request, (rank, ask)) in (1..).zip(asks) {
        let _ = past.apply(Happened::Asked { rank, request: Request(request), ask });
    }
    let _ = past.apply(Happened::Gone { rank: Rank(0), lost: true });
    let _ = past.apply(Happened::Spawned { by: RANK, request: REQUEST, first: Rank(4), count: 2 });
    let _ = past.apply(Happened::Negotiates(RANK));
    past
}

fn all_this() -> Happened {
    Happened::AllThis(Box::new(past().into()))
}

#[test]
fn an_event_has_the_bytes_of_its_version() {
    let (rank, request, snapshot) = (RANK, REQUEST, Snapshot(2));
    let parts = [(RANK, ContentHash([0xab; 32]))].into();
    let (end, sent) = (End::ExitCode(1), vec![(Rank(0), 300)]);
    check(&Happened::Asked { rank, request, ask: Ask::Leave }, "0301030501");
    check(&Happened::Gone { rank, lost: true }, "03020301");
    let first = Rank(4);
    check(&Happened::Spawned { by: rank, request, first, count: 2 }, "030303050402");
    check(&Happened::Ended { rank, end, snapshot, sent }, "0304030002020100ac02");
    check(&Happened::Drained(rank), "030503");
    check(&Happened::CutBegan(snapshot), "030602");
    check(&Happened::Whole { snapshot, parts }, &format!("0307020103{}", "ab".repeat(32)));
    check(&Happened::Grew { first, count: 2 }, "03080402");
    check(&Happened::Began(Box::new(state())), BEGAN);
    check(&all_this(), ALL_THIS);
    check(&Happened::Negotiates(rank), "030a03");
}

const BEGAN: &str = "0300ac02010100040001010112020100ac02010201020103ababababababababababababababa\
                     bababababababababababababababababab010004010301010112020100ac0201010301050004\
                     020103";

const ALL_THIS: &str = "0309ac0201020004000402010301010112020100ac02010201020103ababababababababab\
                        ababababababababababababababababababababababab010004010301010112020100ac02\
                        010103010500040201030102c0843d8080802003000002000101bb01020002000200000101\
                        000103010301080207090001dd08090201ee02060304030001aa05050106030101bb030b05\
                        0107000207010307020905010a0801030b000301080206030b000103020500040205000402\
                        0103";

#[test]
fn a_past_is_what_it_was_after_it_was_written_and_read() {
    let Some(Happened::AllThis(read)) = Happened::from_bytes(&all_this().to_bytes()) else {
        panic!("it does not read")
    };
    assert_eq!(Past::try_from(*read), Ok(past()));
}

#[test]
fn an_event_of_another_version_is_none() {
    let mut bytes = Happened::Drained(RANK).to_bytes();
    bytes[0] += 1;
    assert_eq!(Happened::from_bytes(&bytes), None);
}

proptest! {
    #[test]
    fn a_damaged_past_is_refused_or_goes_on(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        asked in 0..20_u64,
    ) {
        let mut bytes = all_this().to_bytes();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let Some(Happened::AllThis(packed)) = Happened::from_bytes(&bytes) else { return Ok(()) };
        let Ok(mut past) = Past::try_from(*packed) else { return Ok(()) };
        for (rank, ask) in [
            (1, Ask::PutTask { task: vec![1] }),
            (1, Ask::NextTask),
            (2, Ask::Done { task: Task(1), result: vec![2] }),
            (2, Ask::ReturnTask { task: Task(1) }),
            (3, Ask::NextResult),
        ] {
            let request = Request(asked + u64::from(rank));
            let _ = past.apply(Happened::Asked { rank: Rank(rank), request, ask });
            let _ = past.apply(Happened::Gone { rank: Rank(rank), lost: true });
        }
    }
}
