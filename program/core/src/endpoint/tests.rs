#![expect(
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers; a test looks at what it is about"
)]

use std::collections::VecDeque;

use super::*;
use crate::address::{
    Communicator, Envelope, Negotiation, PIECE_BYTES_MAX, Part, Tag, Task, pieces,
};
use crate::negotiation::{Party, Statement, Why};
use crate::wire::{Ack, VERSION};

const NOW: Moment = Moment(1_000_000_000);

fn config(rank: u32) -> Config {
    Config {
        rank: Rank(rank),
        ranks: 3,
        first: Rank(0),
        members: 3,
        parent: None,
        ranks_max: 4_096,
        log_bytes_max: 1 << 20,
        snapshot: Snapshot(0),
        floor: Fence::of(0),
    }
}

/// An endpoint whose program has said `Hello`.
fn present(rank: u32) -> Endpoint {
    let mut endpoint = Endpoint::new(config(rank), Fence::of(10 + rank));
    say(&mut endpoint, ProgramFrame::Hello { version: VERSION });
    endpoint
}

fn handle(endpoint: &mut Endpoint, event: Event) -> Vec<Effect> {
    let mut out = vec![];
    endpoint.handle(NOW, event, &mut out);
    endpoint.check().unwrap();
    check_unpacks(endpoint);
    out
}

/// What is unpacked goes on as what was packed.
fn check_unpacks(endpoint: &Endpoint) {
    if endpoint.away {
        return;
    }
    let (mut here, bytes) = (endpoint.clone(), endpoint.to_bytes(&PipeRest::default()));
    let (mut there, _) = Endpoint::unpack(&bytes, endpoint.fence).unwrap();
    for endpoint in [&mut here, &mut there] {
        endpoint.handle(NOW, Event::Arrived, &mut vec![]);
    }
    assert_eq!(there, here);
}

fn say(endpoint: &mut Endpoint, frame: ProgramFrame) -> Vec<Effect> {
    handle(endpoint, Event::FromProgram(frame))
}

fn send(to: u32, tag: u32, payload: &'static [u8]) -> ProgramFrame {
    let envelope = Envelope::whole(Communicator(0), Tag(tag));
    ProgramFrame::Send { to: Rank(to), envelope, payload: Bytes::from_static(payload) }
}

#[test]
fn who_negotiates_without_being_answered_is_stopped() {
    let mut endpoint = present(1);
    let said = Said {
        opener: Party::Coordinator,
        negotiation: Negotiation(7),
        round: 1,
        statement: Statement::Reject(Why::Unwanted),
    };
    let haggle = |endpoint: &mut Endpoint| {
        let out = say(endpoint, ProgramFrame::Negotiate(said.clone()));
        out.iter().any(|effect| matches!(effect, Effect::Negotiate(_)))
    };
    assert!((0..64).all(|_| haggle(&mut endpoint)));
    handle(&mut endpoint, Event::Negotiate(said.clone()));
    assert!((0..64).all(|_| haggle(&mut endpoint)), "it was answered");
    assert!(!haggle(&mut endpoint));
}

/// Carries what was said between two endpoints until all is said.
fn carry(one: &mut Endpoint, other: &mut Endpoint, effects: Vec<Effect>) -> Vec<Effect> {
    let mut rest = vec![];
    let mut queue: VecDeque<(Rank, Effect)> =
        effects.into_iter().map(|effect| (one.rank(), effect)).collect();
    while let Some((from, effect)) = queue.pop_front() {
        let Effect::ToPeer { to, frame } = effect else {
            rest.push(effect);
            continue;
        };
        let fence = if from == one.rank() { one.fence() } else { other.fence() };
        let endpoint = if to == one.rank() { &mut *one } else { &mut *other };
        let said = handle(endpoint, Event::FromPeer { from, fence, frame });
        queue.extend(said.into_iter().map(|effect| (to, effect)));
    }
    rest
}

fn delivered(effects: &[Effect]) -> Vec<(u64, &[u8])> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ToProgram(AgentFrame::Deliver { number, payload, .. }) => {
                Some((*number, &payload[..]))
            }
            _ => None,
        })
        .collect()
}

#[track_caller]
fn check_fault(frame: ProgramFrame, expected: &str) {
    let mut endpoint = present(1);
    let effects = say(&mut endpoint, frame);
    let [Effect::Complain(complaint)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(complaint.to_string(), expected);
    assert!(complaint.is_fatal());
    assert_eq!(say(&mut endpoint, send(2, 1, b"x")), [], "its process is about to end");
}

#[test]
fn a_message_is_delivered_and_acknowledged() {
    let (mut one, mut two) = (present(1), present(2));
    let effects = say(&mut one, send(2, 7, b"hello"));
    let got = carry(&mut one, &mut two, effects);
    assert_eq!(delivered(&got), [(1, &b"hello"[..])]);
    let mut out = vec![];
    two.wake(two.deadline().unwrap(), &mut out);
    assert_eq!(carry(&mut two, &mut one, out), []);
    assert_eq!(one.held(), 0);
}

/// A rank whose process has not begun may begin elsewhere, without what came here.
#[test]
fn what_comes_before_the_process_has_begun_is_kept_by_its_sender() {
    let mut one = present(1);
    let mut early = Endpoint::new(config(2), Fence::of(12));
    let effects = say(&mut one, send(2, 7, b"hello"));
    assert_eq!(carry(&mut one, &mut early, effects), []);
    let mut out = vec![];
    if let Some(at) = early.deadline() {
        early.wake(at, &mut out);
    }
    carry(&mut early, &mut one, out);
    assert!(one.held() > 0, "it was acknowledged");
    // It is placed anew, and nothing is known of its first attempt.
    let mut two = Endpoint::new(config(2), Fence::of(22));
    let effects = handle(&mut one, Event::PeerAt(Rank(2)));
    carry(&mut one, &mut two, effects);
    let effects = say(&mut two, ProgramFrame::Hello { version: VERSION });
    let got = carry(&mut two, &mut one, effects);
    assert_eq!(delivered(&got), [(1, &b"hello"[..])]);
}

/// A task that came for a process that is gone would be done by nobody.
#[test]
fn what_a_process_wanted_to_be_given_is_not_asked_for_when_it_begins_anew() {
    let mut one = present(1);
    let asks = [Ask::PutTask { task: vec![1] }, Ask::NextTask, Ask::NextResult];
    for (number, ask) in (1..).zip(asks) {
        say(&mut one, ProgramFrame::Ask { request: Request(number), ask });
    }
    let asked = |one: &mut Endpoint| {
        let effects = handle(one, Event::CoordinatorBack);
        let asked = effects.into_iter().filter_map(|effect| {
            if let Effect::Ask { request, .. } = effect { Some(request.0) } else { None }
        });
        asked.collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut one), [1, 2, 3]);
    let effects = handle(&mut one, Event::RolledBack(Back::Nothing));
    let asks = effects.into_iter().filter(|effect| matches!(effect, Effect::Ask { .. }));
    let [put, begins] = [(1, Ask::PutTask { task: vec![1] }), (4, Ask::BeginsAnew)]
        .map(|(number, ask)| Effect::Ask { request: Request(number), ask });
    assert_eq!(asks.collect::<Vec<_>>(), [put, begins], "what it asked, and what it held");
    assert_eq!(asked(&mut one), [1, 4]);
    handle(&mut one, Event::RolledBack(Back::Nothing));
    assert_eq!(asked(&mut one), [1, 4], "nothing was asked in between");
}

/// The new one would take it for an answer to what it has not asked.
#[test]
fn a_process_is_not_given_what_a_former_one_was_answered() {
    for answered_while in ["away", "absent", "there"] {
        let mut one = present(1);
        let answer = |one: &mut Endpoint, of, answer| {
            handle(one, Event::Answered { request: Request(of), answer })
        };
        let put = Answer::Put { task: Task(1) };
        for (number, task) in [(1, vec![1]), (2, vec![2])] {
            let ask = Ask::PutTask { task };
            say(&mut one, ProgramFrame::Ask { request: Request(number), ask });
        }
        handle(&mut one, Event::RolledBack(Back::Nothing));
        if answered_while == "away" {
            // It moves on, and begins anew once more.
            answer(&mut one, 1, put.clone());
            handle(&mut one, Event::RolledBack(Back::Nothing));
        }
        let early = (answered_while == "absent").then(|| answer(&mut one, 1, put.clone()));
        let effects = say(&mut one, ProgramFrame::Hello { version: VERSION });
        let welcomes = |request| {
            let welcome = |effect: &Effect| matches!(effect, Effect::ToProgram(AgentFrame::Welcome(it)) if it.request == request);
            effects.iter().any(welcome)
        };
        assert!(welcomes(Request(4)), "{effects:?}");
        let late = answer(&mut one, 2, put.clone());
        let returned = answer(&mut one, 3, Answer::Returned);
        for effects in [early.unwrap_or_default(), effects, late, returned] {
            let is_answer =
                |effect: &Effect| matches!(effect, Effect::ToProgram(AgentFrame::Answer { .. }));
            assert!(!effects.iter().any(is_answer), "{answered_while}: {effects:?}");
        }
        // It may ask as much as any other.
        for number in (4..).take(OPEN_ASKS_MAX) {
            let ask = Ask::PutTask { task: vec![3] };
            let said = say(&mut one, ProgramFrame::Ask { request: Request(number), ask });
            assert!(matches!(said[..], [Effect::Ask { .. }]), "{said:?}");
        }
        one.check().unwrap();
        assert_eq!(answer(&mut one, 4, put).len(), 1, "its own");
    }
}

#[test]
fn programs_that_break_the_protocol_are_told_how() {
    let whole = |bytes| ProgramFrame::Send {
        to: Rank(2),
        envelope: Envelope::whole(Communicator(0), Tag(1)),
        payload: vec![0; bytes].into(),
    };
    let broke = |what: &str| format!("rank 1 broke the protocol of its pipes: {what}");
    check_fault(send(9, 1, b""), "rank 1 sends to rank 9: the program has ranks 0 to 2");
    check_fault(ProgramFrame::Hello { version: VERSION }, &broke("it says Hello twice"));
    check_fault(whole(PIECE_BYTES_MAX + 1), &broke("pieces that make no message"));
    let took = ProgramFrame::Took { from: Rank(2), total: 1 };
    check_fault(took, &broke("it has taken what it was not given"));
    let ask = ProgramFrame::Ask { request: Request(2), ask: Ask::Processors };
    check_fault(ask, &broke("its questions are not numbered one after the other"));
    let ask = ProgramFrame::Ask { request: Request(1), ask: Ask::BeginsAnew };
    check_fault(ask, &broke("it asks what its agent asks"));
    let ask = Ask::PutTask { task: vec![0; 1 << 20] };
    check_fault(ProgramFrame::Ask { request: Request(1), ask }, &broke("it asks too much at once"));
    let mut stands = present(1);
    say(&mut stands, ProgramFrame::Boundary);
    let said = say(&mut stands, ProgramFrame::Boundary);
    let [Effect::Complain(complaint)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(complaint.to_string(), broke("it stands at a boundary already"));
    let matched = ProgramFrame::Matched(vec![0; 1_001]);
    check_fault(matched, &broke("too many numbers at once"));
}

#[test]
fn a_program_of_another_version_is_refused_with_both_versions() {
    let mut endpoint = Endpoint::new(config(1), Fence::of(1));
    let effects = say(&mut endpoint, ProgramFrame::Hello { version: VERSION + 1 });
    let [Effect::ToProgram(AgentFrame::Refused { reason }), Effect::Complain(_)] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(reason, "rank 1 speaks version 2 of the protocol, this agent 1");
}

#[test]
fn a_program_that_floods_is_ended() {
    let mut endpoint = present(1);
    let piece = |part| ProgramFrame::Send {
        to: Rank(2),
        envelope: Envelope { communicator: Communicator(0), tag: Tag(1), part },
        payload: vec![0; PIECE_BYTES_MAX].into(),
    };
    let mut last = vec![];
    for _ in 0..4 {
        last = say(&mut endpoint, piece(Part::Whole));
    }
    let [Effect::Complain(complaint)] = &last[..] else { panic!("{last:?}") };
    assert_eq!(
        complaint.to_string(),
        "rank 1 floods rank 2: 256 bytes more than there was room for"
    );
    assert!(endpoint.held() <= window(4_096));
}

#[test]
fn a_slow_receiver_slows_its_sender_and_no_buffer_grows() {
    let (mut one, mut two) = (present(1), present(2));
    let payload = Bytes::from(vec![7; PIECE_BYTES_MAX]);
    let (mut room, mut sent, mut total) = (window(4_096), 0, 0);
    let (mut given, mut took) = (0, 0);
    for round in 0..400 {
        // The sender sends whenever it may; the receiver takes now and then.
        let cost = crate::address::cost(payload.len());
        let mut effects = vec![];
        while sent + cost <= room {
            let envelope = Envelope::whole(Communicator(0), Tag(1));
            let frame = ProgramFrame::Send { to: Rank(2), envelope, payload: payload.clone() };
            let said = say(&mut one, frame);
            effects.extend(carry(&mut one, &mut two, said));
            (sent, total) = (sent + cost, total + 1);
        }
        if round % 3 == 0 && given > took {
            took = given;
            let said = say(&mut two, ProgramFrame::Took { from: Rank(1), total: took });
            effects.extend(carry(&mut two, &mut one, said));
        }
        let mut out = vec![];
        two.wake(NOW + Duration::from_secs(9), &mut out);
        effects.extend(carry(&mut two, &mut one, out));
        for effect in effects {
            match effect {
                Effect::ToProgram(AgentFrame::Room { total, .. }) => room = total,
                Effect::ToProgram(AgentFrame::Deliver { payload, .. }) => {
                    given += crate::address::cost(payload.len());
                }
                _ => {}
            }
        }
        assert!(one.held() <= window(4_096), "{}", one.held());
        assert!(two.held() <= window(4_096), "{}", two.held());
    }
    assert!(total > 250, "{total}");
}

#[test]
fn what_a_repeated_subtask_sends_again_goes_no_further() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"first"));
    carry(&mut one, &mut two, said);
    handle(&mut one, Event::RolledBack(Back::Process));
    say(&mut one, ProgramFrame::Hello { version: VERSION });
    let said = say(&mut one, send(2, 7, b"first"));
    assert_eq!(said, []);
    let said = say(&mut one, send(2, 7, b"second"));
    let got = carry(&mut one, &mut two, said);
    assert_eq!(delivered(&got), [(2, &b"second"[..])]);
}

#[test]
fn a_subtask_that_repeats_itself_differently_is_noticed() {
    let mut one = present(1);
    say(&mut one, send(2, 7, b"first"));
    handle(&mut one, Event::RolledBack(Back::Process));
    say(&mut one, ProgramFrame::Hello { version: VERSION });
    let effects = say(&mut one, send(2, 7, b"other"));
    let [Effect::Complain(complaint)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        complaint.to_string(),
        "rank 1 repeats its subtask differently: its message 1 to rank 2 is not what it was the \
         first time"
    );
}

#[test]
fn what_was_received_after_the_boundary_is_delivered_again() {
    let (mut one, mut two) = (present(1), present(2));
    for payload in [&b"a"[..], b"b", b"c"] {
        let said = say(&mut one, send(2, 7, payload));
        carry(&mut one, &mut two, said);
    }
    say(&mut two, ProgramFrame::Matched(vec![1]));
    let saved = say(&mut two, ProgramFrame::Save { last: true, state: Bytes::new() });
    assert!(matches!(saved[..], [Effect::Keep { boundary: Boundary(1), last: true, .. }]));
    say(&mut two, ProgramFrame::Matched(vec![2]));
    assert_eq!(handle(&mut two, Event::Kept(Boundary(1))), [Effect::Forget(Boundary(1))]);
    assert_eq!(two.way_back(), Some((Boundary(1), Back::Process)));
    handle(&mut two, Event::RolledBack(Back::Process));
    let again = say(&mut two, ProgramFrame::Hello { version: VERSION });
    assert!(again.contains(&Effect::Restore(Boundary(1))));
    assert_eq!(delivered(&again), [(2, &b"b"[..]), (3, b"c")]);
}

#[test]
fn a_state_counts_only_once_it_is_kept() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"a"));
    carry(&mut one, &mut two, said);
    say(&mut two, ProgramFrame::Matched(vec![1]));
    say(&mut two, ProgramFrame::Save { last: true, state: Bytes::new() });
    handle(&mut two, Event::NotKept(Boundary(1)));
    assert_eq!(two.way_back(), Some((Boundary(0), Back::Process)));
    handle(&mut two, Event::RolledBack(Back::Process));
    let again = say(&mut two, ProgramFrame::Hello { version: VERSION });
    assert_eq!(delivered(&again), [(1, &b"a"[..])]);
}

#[test]
fn too_much_received_since_the_boundary_closes_the_way_back_until_the_next() {
    let (mut one, mut two) = (present(1), present(2));
    let (mut asked, mut full) = (false, false);
    for number in 1..30 {
        let envelope = Envelope::whole(Communicator(0), Tag(1));
        let payload = vec![7; PIECE_BYTES_MAX].into();
        let said = say(&mut one, ProgramFrame::Send { to: Rank(2), envelope, payload });
        let mut got = carry(&mut one, &mut two, said);
        say(&mut two, ProgramFrame::Matched(vec![number]));
        let total = number * crate::address::cost(PIECE_BYTES_MAX);
        let said = say(&mut two, ProgramFrame::Took { from: Rank(1), total });
        got.extend(carry(&mut two, &mut one, said));
        asked |= got.contains(&Effect::ToProgram(AgentFrame::PleaseSave));
        full |= got.iter().any(|e| matches!(e, Effect::Complain(Complaint::LogFull { .. })));
        assert!(asked || !full, "it is asked to save before it is too late");
    }
    assert!(full);
    assert_eq!(two.way_back(), None);
    let effects = handle(&mut two.clone(), Event::RolledBack(Back::Process));
    assert_eq!(effects, [Effect::Complain(Complaint::NothingKept { rank: Rank(2) })]);
    say(&mut two, ProgramFrame::Save { last: true, state: Bytes::new() });
    handle(&mut two, Event::Kept(Boundary(1)));
    assert_eq!(two.way_back(), Some((Boundary(1), Back::Process)));
}

#[test]
fn answers_are_given_again_and_questions_not_asked_again() {
    let mut one = present(1);
    let ask = ProgramFrame::Ask { request: Request(1), ask: Ask::NextTask };
    assert_eq!(say(&mut one, ask.clone()).len(), 1);
    let answer = Answer::Task { task: Task(4), bytes: vec![1] };
    let answered = Event::Answered { request: Request(1), answer };
    assert_eq!(handle(&mut one, answered.clone()).len(), 1);
    assert_eq!(handle(&mut one, answered), [], "answered once");
    handle(&mut one, Event::RolledBack(Back::Process));
    let again = say(&mut one, ProgramFrame::Hello { version: VERSION });
    assert!(matches!(again[1], Effect::ToProgram(AgentFrame::Answer { request: Request(1), .. })));
    assert_eq!(say(&mut one, ask), []);
}

#[test]
fn a_retreat_forgets_what_was_received_and_repeats_nothing() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"a"));
    carry(&mut one, &mut two, said);
    let said = say(&mut two, send(1, 7, b"x"));
    carry(&mut two, &mut one, said);
    handle(&mut two, Event::RolledBack(Back::Nothing));
    let welcomed = say(&mut two, ProgramFrame::Hello { version: VERSION });
    assert_eq!(delivered(&welcomed), []);
    let said = say(&mut two, send(1, 7, b"y"));
    assert_eq!(delivered(&carry(&mut two, &mut one, said)), [(2, &b"y"[..])]);
}

#[test]
fn an_endpoint_moves_with_messages_on_their_way_to_it() {
    let (mut one, mut two) = (present(1), present(2));
    let rest = PipeRest { to_program: vec![1, 2], from_program: vec![3] };
    let late = say(&mut one, send(2, 7, b"late"));
    let bytes = two.pack(&rest);
    assert_eq!(carry(&mut one, &mut two, late), [], "nobody is there");
    let (mut there, again) = Endpoint::unpack(&bytes, Fence::of(99)).unwrap();
    assert_eq!(again, rest);
    let arrived = handle(&mut there, Event::Arrived);
    assert_eq!(arrived, [], "nothing was ever between the two");
    // The sender asks after a while, or when it hears where rank 2 is.
    let said = handle(&mut one, Event::PeerAt(Rank(2)));
    assert_eq!(delivered(&carry(&mut one, &mut there, said)), [(1, &b"late"[..])]);
}

#[test]
fn an_endpoint_that_stays_after_all_has_lost_nothing() {
    let (mut one, mut two) = (present(1), present(2));
    two.pack(&PipeRest::default());
    let said = say(&mut one, send(2, 7, b"late"));
    carry(&mut one, &mut two, said);
    let said = handle(&mut two, Event::Stayed);
    assert_eq!(delivered(&carry(&mut two, &mut one, said)), [(1, &b"late"[..])]);
}

#[test]
fn an_attempt_that_is_over_is_not_heard() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"new"));
    carry(&mut one, &mut two, said);
    let frame = PeerFrame::Data {
        snapshot: Snapshot(0),
        ack: Ack::default(),
        number: 2,
        envelope: Envelope::whole(Communicator(0), Tag(1)),
        payload: Bytes::from_static(b"zombie"),
    };
    let event = Event::FromPeer { from: Rank(1), fence: Fence::of(3), frame };
    assert_eq!(handle(&mut two, event), []);
}

#[test]
fn who_waits_for_an_ended_rank_is_told_and_named() {
    let mut one = present(1);
    let on =
        Wait::Message { from: Some(Rank(2)), communicator: Communicator(0), tag: Some(Tag(7)) };
    assert_eq!(say(&mut one, ProgramFrame::Waiting { on, read: 1 }), []);
    let end = End::ExitCode(3);
    let ended = Event::PeerEnded { rank: Rank(2), snapshot: Snapshot(0), end, last: 0 };
    let effects = handle(&mut one, ended);
    let [Effect::Complain(complaint), Effect::ToProgram(AgentFrame::Gone { .. })] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(
        complaint.to_string(),
        "rank 1 waits for a message of rank 2, tag 7, which will not come: rank 2 has ended \
         (exit code 3)"
    );
}

#[test]
fn a_wait_from_before_a_delivery_is_out_of_date() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"a"));
    carry(&mut one, &mut two, said);
    let on = Wait::Message { from: None, communicator: Communicator(0), tag: None };
    say(&mut two, ProgramFrame::Waiting { on, read: 1 });
    assert_eq!(two.facts().stance, Stance::Active);
    say(&mut two, ProgramFrame::Waiting { on, read: 2 });
    assert_eq!(two.facts().stance, Stance::Waits(on));
}

#[test]
fn who_sends_to_an_ended_rank_is_told_and_not_held_up() {
    let (mut one, mut two) = (present(1), present(2));
    let ended = handle(&mut two, Event::Ended(End::ExitCode(0)));
    assert!(matches!(ended[..], [Effect::Ended { .. }, Effect::Drained]));
    let said = say(&mut one, send(2, 7, b"too late"));
    let told = carry(&mut one, &mut two, said);
    let [Effect::Complain(complaint)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        complaint.to_string(),
        "rank 1 sends to rank 2 (tag 7), which has ended (it was stopped)"
    );
    assert_eq!(one.held(), 0);
}

#[test]
fn a_rank_that_ended_stays_until_all_it_sent_has_arrived() {
    let (mut one, mut two) = (present(1), present(2));
    let said = say(&mut one, send(2, 7, b"last words"));
    let ended = handle(&mut one, Event::Ended(End::ExitCode(0)));
    assert!(!ended.contains(&Effect::Drained));
    carry(&mut one, &mut two, said);
    let mut out = vec![];
    two.wake(two.deadline().unwrap(), &mut out);
    assert_eq!(carry(&mut two, &mut one, out), [Effect::Drained]);
}

#[test]
fn whoever_hears_of_a_newer_snapshot_takes_its_cut_first() {
    let (mut one, mut two) = (present(1), present(2));
    handle(&mut one, Event::Cut(Snapshot(1)));
    let said = say(&mut one, send(2, 7, b"after"));
    let got = carry(&mut one, &mut two, said);
    let [Effect::Cut { snapshot: Snapshot(1), state, .. }, Effect::ToProgram(_)] = &got[..] else {
        panic!("{got:?}")
    };
    let mut back = Endpoint::restore(state, Fence::of(50), Fence::of(40)).unwrap();
    handle(&mut back, Event::Arrived);
    handle(&mut back, Event::RolledBack(Back::Process));
    let welcomed = say(&mut back, ProgramFrame::Hello { version: VERSION });
    assert_eq!(delivered(&welcomed), [], "what was sent after the cut has not happened");
}

#[test]
fn while_an_image_is_taken_newer_frames_wait() {
    let mut quick = config(2);
    quick.log_bytes_max = 0;
    let (mut one, mut two) = (present(1), Endpoint::new(quick, Fence::of(12)));
    say(&mut two, ProgramFrame::Hello { version: VERSION });
    handle(&mut one, Event::Cut(Snapshot(1)));
    let said = say(&mut one, send(2, 7, b"after"));
    assert_eq!(carry(&mut one, &mut two, said), [Effect::TakeImage]);
    assert_eq!(handle(&mut two, Event::ImageBegun), []);
    let said = handle(&mut two, Event::Imaged);
    assert!(said.iter().any(|effect| matches!(effect, Effect::Cut { .. })));
    let got = carry(&mut two, &mut one, said);
    assert_eq!(delivered(&got), [(1, &b"after"[..])]);
}

/// A rank that stands at a boundary, of which an image is being taken.
fn imaged(rank: u32) -> Endpoint {
    let mut endpoint = present(rank);
    let ask = ProgramFrame::Ask { request: Request(1), ask: Ask::Processors };
    say(&mut endpoint, ask);
    assert_eq!(say(&mut endpoint, ProgramFrame::Boundary), [Effect::TakeImage]);
    assert_eq!(handle(&mut endpoint, Event::ImageBegun), []);
    endpoint
}

const GO_ON: Effect = Effect::ToProgram(AgentFrame::GoOn);

#[test]
fn what_comes_while_an_image_is_taken_is_delivered_again_after_going_back() {
    let (mut one, mut two) = (present(1), imaged(2));
    let said = say(&mut one, send(2, 7, b"meanwhile"));
    let got = carry(&mut one, &mut two, said);
    assert_eq!(delivered(&got), [(1, &b"meanwhile"[..])]);
    let (request, answer) = (Request(1), Answer::Processors { count: 7 });
    handle(&mut two, Event::Answered { request, answer: answer.clone() });
    assert_eq!(two.way_back(), Some((Boundary(0), Back::Process)), "it is not there yet");
    assert_eq!(handle(&mut two, Event::Imaged), [Effect::Forget(Boundary(1)), GO_ON]);
    assert_eq!(two.way_back(), Some((Boundary(1), Back::Image)));
    let back = handle(&mut two, Event::RolledBack(Back::Image));
    assert_eq!(back[0], GO_ON, "the process of then stands at the boundary");
    assert_eq!(delivered(&back), [(1, &b"meanwhile"[..])]);
    assert!(back.contains(&Effect::ToProgram(AgentFrame::Answer { request, answer })), "{back:?}");
}

#[test]
fn an_image_that_is_not_taken_leaves_the_way_back_as_it_was() {
    let mut endpoint = imaged(1);
    let because = "it holds a socket".to_owned();
    assert_eq!(handle(&mut endpoint, Event::NotImaged { because }), [GO_ON]);
    assert_eq!(endpoint.way_back(), Some((Boundary(0), Back::Process)));
    assert_eq!(say(&mut endpoint, ProgramFrame::Boundary), [Effect::TakeImage]);
}

#[test]
fn an_image_that_is_lost_is_no_way_back() {
    let mut endpoint = imaged(1);
    handle(&mut endpoint, Event::Imaged);
    assert_eq!(handle(&mut endpoint, Event::ImageLost), []);
    assert_eq!(endpoint.way_back(), None);
}

#[test]
fn a_boundary_costs_nothing_where_nothing_is_kept() {
    let mut endpoint = Endpoint::new(Config { log_bytes_max: 0, ..config(1) }, Fence::of(1));
    say(&mut endpoint, ProgramFrame::Hello { version: VERSION });
    assert_eq!(say(&mut endpoint, ProgramFrame::Boundary), [GO_ON]);
}

#[test]
fn a_rank_that_moves_before_its_image_is_taken_asks_for_it_there() {
    let mut here = present(1);
    say(&mut here, ProgramFrame::Boundary);
    let packed = here.pack(&PipeRest::default());
    let (mut there, _) = Endpoint::unpack(&packed, Fence::of(20)).unwrap();
    assert!(handle(&mut there, Event::Arrived).contains(&Effect::TakeImage));
}

#[test]
fn a_long_message_arrives_in_its_pieces() {
    let (mut one, mut two) = (present(1), present(2));
    let message: Vec<u8> = (0..150_000u32).map(|n| n as u8).collect();
    let mut got = vec![];
    for (part, range) in pieces(message.len()) {
        let envelope = Envelope { communicator: Communicator(0), tag: Tag(1), part };
        let payload = Bytes::copy_from_slice(&message[range]);
        let said = say(&mut one, ProgramFrame::Send { to: Rank(2), envelope, payload });
        got.extend(carry(&mut one, &mut two, said));
    }
    let joined: Vec<u8> = delivered(&got).into_iter().flat_map(|(_, part)| part.to_vec()).collect();
    assert_eq!(joined, message);
}

/// Two ranks, four messages, and every order of what may befall them: the
/// receiver moves, goes back, or a frame is lost or repeated.
#[test]
fn no_six_troubles_lose_repeat_or_reorder_a_message() {
    const TROUBLES: usize = 6;
    const DEPTH: u32 = 6;
    for path in 0..TROUBLES.pow(DEPTH) {
        let (mut one, mut two) = (present(1), present(2));
        let mut under_way: VecDeque<(Rank, PeerFrame)> = VecDeque::new();
        let mut got: Vec<u8> = vec![];
        let mut fence = 100;
        let mut sent = 0u8;
        for depth in 0..DEPTH {
            let effects = match path / TROUBLES.pow(depth) % TROUBLES {
                0 => {
                    sent += 1;
                    let payload = Bytes::copy_from_slice(&[sent]);
                    let envelope = Envelope::whole(Communicator(0), Tag(1));
                    say(&mut one, ProgramFrame::Send { to: Rank(2), envelope, payload })
                }
                1 => arrive(&mut one, &mut two, under_way.pop_front()),
                2 => arrive(&mut one, &mut two, under_way.front().cloned()),
                3 => arrive(&mut one, &mut two, under_way.pop_back()),
                4 => {
                    fence += 1;
                    let bytes = two.pack(&PipeRest::default());
                    two = Endpoint::unpack(&bytes, Fence::of(fence)).unwrap().0;
                    handle(&mut two, Event::Arrived)
                }
                _ => {
                    got.clear();
                    handle(&mut two, Event::RolledBack(Back::Process));
                    say(&mut two, ProgramFrame::Hello { version: VERSION })
                }
            };
            take(effects, &mut under_way, &mut got);
            // The first of what is under way is lost now and then.
            if path % 7 == 3 {
                under_way.pop_front();
            }
        }
        let mut now = NOW;
        for _ in 0..12 {
            while let Some(frame) = under_way.pop_front() {
                let effects = arrive(&mut one, &mut two, Some(frame));
                take(effects, &mut under_way, &mut got);
            }
            now = now + Duration::from_secs(6);
            let mut effects = vec![];
            one.wake(now, &mut effects);
            two.wake(now, &mut effects);
            take(effects, &mut under_way, &mut got);
        }
        assert_eq!(got, (1..=sent).collect::<Vec<_>>(), "path {path}");
        assert_eq!(one.held(), 0, "path {path}");
    }
}

fn arrive(one: &mut Endpoint, two: &mut Endpoint, frame: Option<(Rank, PeerFrame)>) -> Vec<Effect> {
    let Some((to, frame)) = frame else { return vec![] };
    if to == Rank(1) {
        let fence = two.fence();
        handle(one, Event::FromPeer { from: Rank(2), fence, frame })
    } else {
        let fence = one.fence();
        handle(two, Event::FromPeer { from: Rank(1), fence, frame })
    }
}

fn take(effects: Vec<Effect>, under_way: &mut VecDeque<(Rank, PeerFrame)>, got: &mut Vec<u8>) {
    for effect in effects {
        match effect {
            Effect::ToPeer { to, frame } => under_way.push_back((to, frame)),
            Effect::ToProgram(AgentFrame::Deliver { payload, .. }) => got.push(payload[0]),
            Effect::ToProgram(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
