//! Moves over the wire: told in two steps, and what agents hand each other
//! through the coordinator.

use std::time::Duration;

use gleaner_common::fingerprint::{Fingerprint, Version};
use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::{Destination, Handover, HandoverReply, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, GuestState, Offer, Purpose, Reply, Request, Role,
};
use gleaner_shell::stream::{self, read_opening};

use crate::agent::{Agent, finished, hello, presence};
use crate::coordinator::{Coordinator, spec, submit, watch};
use crate::ranks::{attempts, job_row, program};

/// The owner comes; returns what is offered to another agent, and where the
/// attempt is to depart to.
pub async fn owner_comes(one: &mut Agent, two: &mut Agent, fence: Fence) -> (Offer, Destination) {
    one.say(AgentFrame::Presence(presence(0))).await;
    let wants = AttemptEvent::WantsAway { fence, keep: Keep::Nothing, image_bytes: 4 };
    one.say(AgentFrame::Attempt(wants)).await;
    let to = one
        .until(|frame| match frame {
            CoordinatorFrame::Depart { to, .. } => Some(to),
            _ => None,
        })
        .await;
    (two.offer().await, to)
}

#[tokio::test]
async fn a_move_is_told_in_two_steps_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let first = coordinator.enrol(Role::Agent, "one").await;
    let mut one = Agent::connect(&first, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let old = one.offer().await;
    one.started(old.fence).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    let (new, to) = owner_comes(&mut one, &mut two, old.fence).await;
    assert_eq!((new.arrival.map(|it| it.old), to.at.fence), (Some(old.fence), new.fence));
    assert_eq!((to.at.workstation, to.at.name.as_str()), (WorkstationId(2), "two"));

    // The source's connection breaks meanwhile; it is told again.
    drop(one);
    let held = vec![(old.fence, GuestState::Leaving)];
    let mut one = Agent::with(&first, hello(1, 0, held)).await;
    assert_eq!(one.keep, [old.fence]);
    one.until(|frame| matches!(frame, CoordinatorFrame::Depart { .. }).then_some(())).await;

    let (fence, frozen) = (new.fence, Duration::from_millis(120));
    let arrived = AttemptEvent::Arrived { fence, bytes: 9_000, frozen };
    two.say(AgentFrame::Attempt(arrived)).await;
    two.until(|frame| (frame == CoordinatorFrame::GoOn { fence }).then_some(())).await;
    let fence = old.fence;
    one.until(|frame| (frame == CoordinatorFrame::Cancel { fence }).then_some(())).await;
    two.say(finished(new.fence, "there\n")).await;
    assert_eq!(watch(&ada, job).await.counts.moves, 1);
    let row = job_row(&ada, job).await;
    assert_eq!((row.moved_bytes, row.frozen_s), (9_000, 0.12));
    let ends: Vec<_> =
        attempts(&ada, old.subprogram).await.into_iter().filter_map(|row| row.end).collect();
    assert_eq!(ends, ["moved to two", "succeeded"]);
    coordinator.stop().await;
}

/// Two agents that know no address of each other, and a rank that is to go
/// from the one to the other.
struct ApartAgents {
    coordinator: Coordinator,
    one: Agent,
    two: Agent,
    purpose: Purpose,
    new: Fence,
    _dir: tempfile::TempDir,
}

impl ApartAgents {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = Coordinator::start(dir.path()).await;
        let ada = coordinator.client(Role::User, "ada").await;
        let mut one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
        submit(&ada, program(1)).await;
        let old = one.offer().await;
        one.started(old.fence).await;
        let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
        let (new, to) = owner_comes(&mut one, &mut two, old.fence).await;
        assert_eq!(to.at.addresses, [], "there is no way but through the coordinator");
        let what = Handover {
            subprogram: old.subprogram,
            old: old.fence,
            new: new.fence,
            ticket: to.ticket,
            keep: Keep::Nothing,
            endpoint_bytes: 0,
            frozen: Duration::ZERO,
        };
        let purpose = Purpose::Handover { to: to.at.workstation, what: Box::new(what) };
        Self { coordinator, one, two, purpose, new: new.fence, _dir: dir }
    }
}

#[tokio::test]
async fn a_handover_is_passed_on_both_ways_and_the_rank_goes_on() {
    let ApartAgents { coordinator, mut one, mut two, purpose, new, _dir } =
        ApartAgents::new().await;
    let opened = stream::open(&one.link.connection, purpose.clone()).await;
    let (mut writer, mut reader) = opened.unwrap();
    // Far more than any buffer on the way.
    let image = vec![5_u8; 20 << 20];
    let sends = async {
        writer.send_raw(&image).await.unwrap();
        writer.finish();
        reader.expect::<HandoverReply>().await.unwrap()
    };
    let takes = async {
        let passed = two.link.connection.accept_bi().await.unwrap();
        let (arrived, mut answers, mut bytes) = read_opening(passed).await.unwrap();
        assert_eq!(arrived, purpose);
        let mut total = 0;
        while let Some(chunk) = bytes.next_raw().await.unwrap() {
            assert!(chunk.iter().all(|byte| *byte == 5));
            total += chunk.len();
        }
        answers.send(&HandoverReply::Taken).await.unwrap();
        answers.finish();
        total
    };
    let (reply, total) = tokio::join!(sends, takes);
    assert_eq!((reply, total), (HandoverReply::Taken, 20 << 20));
    let arrived = AttemptEvent::Arrived { fence: new, bytes: 20 << 20, frozen: Duration::ZERO };
    two.say(AgentFrame::Attempt(arrived)).await;
    two.until(|frame| (frame == CoordinatorFrame::GoOn { fence: new }).then_some(())).await;
    let cancelled = |frame| matches!(frame, CoordinatorFrame::Cancel { .. }).then_some(());
    one.until(cancelled).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_target_that_goes_takes_the_handover_with_it() {
    let ApartAgents { coordinator, one, two, purpose, .. } = ApartAgents::new().await;
    let (mut writer, mut reader) = stream::open(&one.link.connection, purpose).await.unwrap();
    writer.flush().await.unwrap();
    let passed = two.link.connection.accept_bi().await.unwrap();
    drop(passed);
    drop(two);
    assert!(reader.expect::<HandoverReply>().await.is_err());
    coordinator.stop().await;
}

async fn refused(agent: &Agent, purpose: Purpose) -> String {
    let (mut writer, mut reader) = stream::open(&agent.link.connection, purpose).await.unwrap();
    writer.flush().await.unwrap();
    match reader.expect().await.unwrap() {
        HandoverReply::No { reason } => reason,
        HandoverReply::Taken => panic!("it was taken"),
    }
}

#[tokio::test]
async fn nothing_is_passed_on_to_who_is_not_there_or_does_not_expect_it() {
    let ApartAgents { coordinator, one, two, purpose, _dir, .. } = ApartAgents::new().await;
    let Purpose::Handover { to, what } = purpose.clone() else { unreachable!("a handover") };
    let never = Purpose::Handover { to: WorkstationId(1), what: what.clone() };
    assert_eq!(refused(&one, never).await, "1.0 is not to be carried to one");
    // Agent two may be enrolled, but the attempt does not come from there.
    assert_eq!(refused(&two, purpose.clone()).await, "1.0 is not to be carried to two");
    for other in [
        Handover { old: Fence::of(99), ..*what },
        // Who has counted the fences has not the ticket.
        Handover { ticket: Ticket([0; 16]), ..*what },
    ] {
        let other = Purpose::Handover { to, what: Box::new(other) };
        assert_eq!(refused(&one, other).await, "1.0 is not to be carried to two");
    }
    two.link.connection.close(0_u32.into(), b"");
    while refused(&one, purpose.clone()).await != "two is not connected to the coordinator" {
        tokio::task::yield_now().await;
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn why_names_what_keeps_a_guest_from_moving() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let machine = |kernel: &str| {
        let mut hello = hello(1, 1, vec![]);
        let AgentFrame::Hello { facts, .. } = &mut hello else { unreachable!("a hello") };
        let fingerprint = Fingerprint {
            architecture: "x86_64".into(),
            kernel: kernel.into(),
            criu: Version { major: 4, minor: 1, patch: 1 },
            processor: "Xeon".into(),
            features: [].into(),
            system: "Debian 13".into(),
            root: [1; 16],
        };
        facts.fingerprint = Some(Box::new(fingerprint));
        hello
    };
    let one = coordinator.enrol(Role::Agent, "one").await;
    let mut one = Agent::with(&one, machine("6.12.1")).await;
    let job = submit(&ada, program(1)).await;
    let Offer { fence, subprogram, .. } = one.offer().await;
    one.started(fence).await;
    let two = coordinator.enrol(Role::Agent, "two").await;
    let _two = Agent::with(&two, machine("6.1.0")).await;
    one.say(AgentFrame::Presence(presence(0))).await;
    let wants = AttemptEvent::WantsAway { fence, keep: Keep::State, image_bytes: 4 };
    one.say(AgentFrame::Attempt(wants)).await;
    let misfit = "not to two: older kernel: 6.12.1 here, 6.1.0 there";
    for (request, expected) in [
        (Request::WhySubprogram(subprogram), misfit.to_owned()),
        (Request::WhyJob(job), format!("rank 0 wants to leave one: {misfit}")),
    ] {
        loop {
            let Reply::Why(reasons) = ada.request(&request).await.unwrap() else { panic!() };
            if reasons.contains(&expected) {
                break;
            }
            // The wish to leave has not been handled yet.
            assert!(reasons.iter().any(|reason| reason.contains("runs on one")), "{reasons:?}");
        }
    }
    coordinator.stop().await;
}
