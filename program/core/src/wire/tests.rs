//! The bytes of every frame: no change of format passes unseen. A line that
//! has to change is a new [`VERSION`](super::VERSION).

use super::*;
use crate::address::{Negotiation, Part};
use crate::framing::{self, Frame};
use crate::negotiation::{
    Change, Item, Obligation, Party, Price, Resource, Statement, Template, Terms, Why,
};

#[track_caller]
fn check<F: Frame + PartialEq + std::fmt::Debug>(frame: &F, hex: &str) {
    let mut bytes = vec![];
    framing::encode_whole(frame, &mut bytes).unwrap();
    let payload = Bytes::from(bytes.split_off(4));
    let written = payload.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(written, hex, "{frame:?}");
    assert_eq!(&framing::decode::<F>(&payload).unwrap(), frame);
}

fn envelope(part: Part) -> Envelope {
    Envelope { communicator: Communicator(2), tag: Tag(300), part }
}

const REQUEST: Request = Request(5);

fn said(statement: Statement) -> Said {
    Said { opener: Party::Coordinator, negotiation: Negotiation(7), round: 2, statement }
}

#[test]
fn what_programs_say() {
    check(&ProgramFrame::Hello { version: 1 }, "0001");
    let payload = Bytes::from_static(b"hi");
    for (part, hex) in [
        (Part::Whole, "010302ac0200026869"),
        (Part::First { bytes: 300 }, "010302ac0201ac02026869"),
        (Part::Middle, "010302ac0202026869"),
        (Part::Last, "010302ac0203026869"),
    ] {
        let payload = payload.clone();
        check(&ProgramFrame::Send { to: Rank(3), envelope: envelope(part), payload }, hex);
    }
    check(&ProgramFrame::Took { from: Rank(3), total: 300 }, "0203ac02");
    check(&ProgramFrame::Matched(vec![1, 300]), "030201ac02");
    let tag = Some(Tag(7));
    let on = Wait::Message { from: Some(Rank(3)), communicator: Communicator(2), tag };
    check(&ProgramFrame::Waiting { on, read: 9 }, "0400010302010709");
    let on = Wait::Message { from: None, communicator: Communicator(2), tag: None };
    check(&ProgramFrame::Waiting { on, read: 9 }, "040000020009");
    check(&ProgramFrame::Waiting { on: Wait::Room { to: Rank(3) }, read: 9 }, "04010309");
    check(&ProgramFrame::Waiting { on: Wait::Answer { request: REQUEST }, read: 9 }, "04020509");
    check(&ProgramFrame::Waiting { on: Wait::End { rank: Rank(3) }, read: 9 }, "04030309");
    check(&ProgramFrame::Retreated, "06");
    let left =
        Unreceived { from: Rank(3), communicator: Communicator(2), tag: Tag(7), messages: 300 };
    check(&ProgramFrame::Bye { unreceived: vec![left] }, "0701030207ac02");
    check(&ProgramFrame::Save { last: true, state: payload }, "0801026869");
    check(&ProgramFrame::Boundary, "09");
    check(&ProgramFrame::Negotiate(said(Statement::Noted)), "0a00070206");
}

#[test]
fn what_programs_ask() {
    let task = Task(6);
    for (ask, hex) in [
        (Ask::Spawn { count: 300 }, "050500ac02"),
        (Ask::Leave, "050501"),
        (Ask::Processors, "050502"),
        (Ask::NextTask, "050503"),
        (Ask::Done { task, result: vec![0xab] }, "0505040601ab"),
        (Ask::ReturnTask { task }, "05050506"),
        (Ask::PutTask { task: vec![0xab] }, "05050601ab"),
        (Ask::CloseBag, "050507"),
        (Ask::NextResult, "050508"),
        (Ask::Negotiates, "050509"),
        (Ask::Negotiate(said(Statement::Reject(Why::Price))), "05050a0007020407"),
        (Ask::BeginsAnew, "05050b"),
    ] {
        check(&ProgramFrame::Ask { request: REQUEST, ask }, hex);
    }
}

#[test]
fn what_agents_say() {
    let welcome = Welcome {
        version: 1,
        rank: Rank(3),
        ranks: 16,
        members: 2..9,
        parent: Some(Rank(1)),
        window: 300,
        rooms: vec![(Rank(2), 100)],
        logged: true,
        request: REQUEST,
        restored: Some(Boundary(4)),
    };
    check(&AgentFrame::Welcome(welcome), "0001031002090101ac0201026401050104");
    check(&AgentFrame::Refused { reason: "r".into() }, "010172");
    let payload = Bytes::from_static(b"hi");
    let (from, envelope) = (Rank(3), envelope(Part::Whole));
    let state = payload.clone();
    check(&AgentFrame::Deliver { number: 300, from, envelope, payload }, "02ac020302ac0200026869");
    check(&AgentFrame::Room { to: Rank(3), total: 300 }, "0303ac02");
    check(&AgentFrame::PleaseSave, "05");
    check(&AgentFrame::Retreat { within: Duration::from_millis(1_500) }, "060180cab5ee01");
    check(&AgentFrame::Ranks { count: 300 }, "07ac02");
    check(&AgentFrame::Gone { rank: Rank(3), end: End::ExitCode(1) }, "08030002");
    check(&AgentFrame::Gone { rank: Rank(3), end: End::Signal(9) }, "08030112");
    check(&AgentFrame::Gone { rank: Rank(3), end: End::Left }, "080302");
    check(&AgentFrame::Gone { rank: Rank(3), end: End::Retreated }, "080303");
    check(&AgentFrame::Gone { rank: Rank(3), end: End::Stopped }, "080304");
    let waits = vec![(Rank(1), Wait::Room { to: Rank(3) })];
    check(&AgentFrame::Deadlock { waits }, "0901010103");
    check(&AgentFrame::State { last: false, state }, "0a00026869");
    check(&AgentFrame::GoOn, "0b");
    check(&AgentFrame::Negotiate(said(Statement::Noted)), "0c00070206");
}

#[test]
fn what_programs_are_answered() {
    let (task, bytes) = (Task(6), vec![0xab]);
    for (answer, hex) in [
        (Answer::Spawned { first: Rank(3), count: 2 }, "0405000302"),
        (Answer::Left, "040501"),
        (Answer::Processors { count: 300 }, "040502ac02"),
        (Answer::Task { task, bytes: bytes.clone() }, "0405030601ab"),
        (Answer::NoMoreTasks, "040504"),
        (Answer::Done { first: true }, "04050501"),
        (Answer::Returned, "040506"),
        (Answer::Put { task }, "04050706"),
        (Answer::Closed, "040508"),
        (Answer::Result { task, bytes }, "0405090601ab"),
        (Answer::NoMoreResults, "04050a"),
        (Answer::BagClosed, "04050b"),
        (Answer::TooMany { available: 300 }, "04050cac02"),
        (Answer::Declined { reason: "r".into() }, "04050d0172"),
        (Answer::Noted, "04050e"),
        (Answer::Negotiated(said(Statement::Noted)), "04050f00070206"),
    ] {
        check(&AgentFrame::Answer { request: REQUEST, answer }, hex);
    }
}

#[test]
fn what_agents_say_to_each_other() {
    let (snapshot, ack) = (Snapshot(1), Ack { received: 300, limit: 1_000, lost: true });
    let payload = Bytes::from_static(b"hi");
    for (frame, hex) in [
        (PeerFrame::Ack { snapshot, ack }, "0001ac02e80701"),
        (PeerFrame::Probe { snapshot, ack }, "0101ac02e80701"),
        (PeerFrame::Gone { snapshot, ack }, "0201ac02e80701"),
        (
            PeerFrame::Data { snapshot, ack, number: 301, envelope: envelope(Part::Last), payload },
            "0301ac02e80701ad0202ac0203026869",
        ),
    ] {
        check(&frame, hex);
        let (job, to, from) = (JobId(8), Rank(2), Rank(3));
        let packet = Packet { job, life: Life(5), to, from, fence: Fence::of(300), frame };
        check(&packet, &format!("08050203ac02{hex}"));
    }
    let begun = Begun { job: JobId(8), rank: Rank(2), fence: Fence::of(300) };
    assert_eq!(postcard::to_stdvec(&begun).unwrap(), [8, 2, 0xac, 2]);
}

#[test]
fn what_is_said_in_negotiations() {
    let within = Duration::from_secs(3);
    let mut template =
        Template::processors(within, Change::Grow { by: 300 }, Obligation::Mandatory);
    let terms = Terms { obligation: Obligation::Voluntary, price: Some(Price(300)) };
    template.items.push(Item::open(Resource::Gpus, Change::Shrink { by: 1 }, terms));
    let items = "0300020000ac0201000003010100 01ac0200".replace(' ', "");
    for (statement, hex) in [
        (Statement::Offer(template.clone()), format!("00{items}")),
        (Statement::CounterOffer(template.clone()), format!("01{items}")),
        (Statement::FinalOffer(template.clone()), format!("02{items}")),
        (
            Statement::Accept { agreed: template.clone(), first: Some(Rank(3)) },
            format!("03{items}0103"),
        ),
        (Statement::Enforce(template), format!("05{items}")),
        (Statement::Noted, "06".to_owned()),
    ] {
        check(&ProgramFrame::Negotiate(said(statement)), &format!("0a000702{hex}"));
    }
    for (why, hex) in [
        (Why::Unwanted, "00"),
        (Why::Late, "01"),
        (Why::Nonsense, "02"),
        (Why::Busy, "03"),
        (Why::Overtaken, "04"),
        (Why::TooFew { available: 300 }, "05ac02"),
        (Why::NotNegotiable, "06"),
        (Why::Price, "07"),
        (Why::Over, "08"),
        (Why::Gone, "09"),
    ] {
        check(&ProgramFrame::Negotiate(said(Statement::Reject(why))), &format!("0a00070204{hex}"));
    }
}
