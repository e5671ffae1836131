//! Enrolled agents, whose machine is somebody's: what they say to the coordinator
//! and to each other.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use gleaner_common::frame::{FRAME_BYTES_MAX, encode};
use gleaner_common::id::{BootId, Fence, JobId, SpoolLife, SubprogramId, WorkstationId};
use gleaner_common::program::{Handover, HandoverReply, Life, ProgramSpec, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, Blame, Facts, Opening, Purpose, Reply, Request, UsageFrame,
    UsageReply, VERSION,
};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::peer::{Peer, finished, hello, peers_port};
use gleaner_hostile::world::{World, runtime, script, stage};
use gleaner_lab::LabHost;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_program_core::address::{Communicator, Envelope, Rank, Snapshot, Tag};
use gleaner_program_core::framing::encode_whole;
use gleaner_program_core::wire::{Ack, Between, Packet, PeerFrame};
use gleaner_shell::endpoint::{Credentials, Link, connect};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader};

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    an_agent_may_ask_for_nothing_that_users_ask_for,
    a_user_may_not_play_an_agent,
    an_agent_gets_no_files_of_jobs_that_it_was_not_offered,
    an_agent_cannot_end_anothers_attempt,
    an_agent_cannot_speak_for_anothers_rank,
    an_agent_cannot_forge_another_programs_messages,
    an_agents_usage_records_stay_its_own,
    frames_too_long_torn_and_of_another_version_are_explained_by_the_coordinator,
    frames_too_long_torn_and_of_another_version_end_their_connection_at_an_agents,
    an_agent_that_says_too_much_of_itself_is_refused,
    an_agent_that_opens_streams_and_says_nothing_holds_up_nobody,
    an_agent_cannot_hand_over_what_nobody_expects,
    an_agent_cannot_hand_over_through_the_coordinator_what_was_not_ordered,
    nonsense_that_is_relayed_to_an_agent_harms_nobody,
    nonsense_in_packets_harms_nobody,
);

async fn dial(identity: &Identity) -> Result<Link> {
    let credentials = Credentials::Identity(identity);
    Ok(connect(&identity.coordinator, credentials, None).await?)
}

fn an_agent_may_ask_for_nothing_that_users_ask_for(world: &World) -> Result<()> {
    let identity = world.enrol("agent", "curious")?;
    let id = SubprogramId { job: JobId(1), index: 0 };
    runtime()?.block_on(async {
        let link = dial(&identity).await?;
        for request in [
            Request::Jobs,
            Request::Job(JobId(1)),
            Request::Output(id),
            Request::Cancel(JobId(1)),
            Request::Submit(Box::new(script("true"))),
            Request::Users,
            Request::TokenCreate {
                role: gleaner_common::wire::Role::Admin,
                lifetime: Duration::from_secs(9),
                name: None,
            },
            Request::UserRemove { name: "ada".into(), keep_jobs: false },
        ] {
            let opened = stream::open(&link.connection, Purpose::Request).await;
            let (mut writer, mut reader) = opened?;
            writer.send(&request).await?;
            let Reply::No { reason } = reader.expect().await? else { anyhow::bail!("{request:?}") };
            ensure!(reason.contains("agent identities may not"), "{request:?}: {reason}");
        }
        Ok(())
    })
}

fn a_user_may_not_play_an_agent(world: &World) -> Result<()> {
    let identity = Identity::load(&world.mallory.identity)?;
    let what = Box::new(guessed(Fence::of(1), Fence::of(2)));
    runtime()?.block_on(async {
        let link = dial(&identity).await?;
        for purpose in [
            Purpose::Agent,
            Purpose::Usage,
            Purpose::Handover { to: WorkstationId(1), what },
            Purpose::Relay { workstation: WorkstationId(1), name: "host1".into() },
            Purpose::Packets,
            Purpose::Enrol,
        ] {
            let (mut writer, mut reader) = stream::open(&link.connection, purpose.clone()).await?;
            let _ = writer.send(&hello(Facts::default(), 1)).await;
            let answer = reader.next_raw().await;
            ensure!(answer.is_err(), "{purpose:?}: {answer:?}");
        }
        Ok(())
    })
}

fn an_agent_gets_no_files_of_jobs_that_it_was_not_offered(world: &World) -> Result<()> {
    let hash = stage(&world.ada, "private", b"adas private input", false)?.hash;
    let identity = world.enrol("agent", "collector-of-files")?;
    runtime()?.block_on(async {
        let link = dial(&identity).await?;
        let mut got = vec![];
        let said = gleaner_shell::blob::get(&link.connection, hash, &mut got).await;
        ensure!(said.is_err() && got.is_empty(), "it got {got:?}");
        Ok(())
    })
}

/// Everything that an agent may say of an attempt, of one that runs elsewhere.
fn an_agent_cannot_end_anothers_attempt(world: &World) -> Result<()> {
    let job = world.ada.asks.submit(script("read x < /tmp/never || sleep 2; echo right"))?;
    let id = SubprogramId { job, index: 0 };
    world.ada.runs_at(id)?;
    let fence = world.ada.row(id)?.fence.context("it runs")?;
    let peer = Peer::join(world.enrol("agent", "usurper")?, Facts::default(), 0)?;
    let reason = String::new();
    for event in [
        AttemptEvent::Refused { fence, reason: reason.clone(), blame: Blame::Job },
        AttemptEvent::Retreated { fence, reason: reason.clone(), suspensions: 0 },
        AttemptEvent::WantsAway { fence, keep: Keep::State, image_bytes: 1 },
        AttemptEvent::Arrived { fence, bytes: 1, frozen: Duration::ZERO },
        AttemptEvent::CannotLeave { fence, keep: Keep::State, reason },
        AttemptEvent::Suspended { fence },
        AttemptEvent::Finished(finished(fence, "poison\n")),
    ] {
        peer.tell(event)?;
    }
    peer.is_heard(1)?;
    let ended = world.ada.ended(job)?;
    assert_eq!((ended.said().as_str(), ended.outcome()), ("right\n", "succeeded"));
    assert_eq!((ended.row.attempts, ended.row.moves, ended.row.retreats), (1, 0, 0));
    Ok(())
}

/// A program of two ranks, each of which looks whether it hears what the other said.
fn program(world: &World, rounds: u32) -> Result<JobId> {
    let bytes = std::fs::read(gleaner_tests::example("naughty")?)?;
    let mut spec = script("true");
    let rounds = rounds.to_string();
    spec.command = ["./naughty", "good", "--rounds", &rounds].map(str::to_owned).to_vec();
    spec.inputs = vec![stage(&world.ada, "naughty", &bytes, true)?];
    spec.indexes.last = 1;
    spec.program = Some(ProgramSpec { ranks_max: 2, ..ProgramSpec::default() });
    world.ada.asks.submit(spec)
}

/// As its neighbour, from an agent that has none of its ranks: directly, and through
/// the coordinator.
fn an_agent_cannot_forge_another_programs_messages(world: &World) -> Result<()> {
    let rounds = 60;
    let job = program(world, rounds)?;
    let peer = Peer::join(world.enrol("agent", "forger")?, Facts::default(), 0)?;
    let mut streams = vec![];
    for host in [1, 2] {
        let connection = peer.dial(&format!("host{host}"), &[peers_port(host)?])?;
        let opened = stream::open(&connection, Purpose::Packets);
        streams.push((peer.runtime.block_on(opened)?, connection));
    }
    for index in [0, 1] {
        let id = SubprogramId { job, index };
        world.ada.runs_at(id)?;
        let fence = world.ada.row(id)?.fence.context("it runs")?;
        for number in 1..=u64::from(rounds) {
            let bytes = forged(job, (index, fence), number)?;
            for ((writer, _), _) in &mut streams {
                peer.runtime.block_on(writer.send_raw(&bytes))?;
            }
            for to in [WorkstationId(1), WorkstationId(2)] {
                peer.say(AgentFrame::Relay { to, bytes: bytes.clone() })?;
            }
        }
    }
    peer.is_heard(1)?;
    let summary = world.ada.asks.wait(job)?;
    let row = world.ada.asks.job(job)?;
    ensure!((summary.counts.succeeded, row.life) == (2, 1), "{row:?}");
    Ok(())
}

/// What the rank that is at `fence` would say next to the other.
fn forged(job: JobId, (rank, fence): (u32, Fence), number: u64) -> Result<Vec<u8>> {
    let frame = PeerFrame::Data {
        snapshot: Snapshot(0),
        ack: Ack { received: 0, limit: 1 << 20, lost: false },
        number,
        envelope: Envelope::whole(Communicator(0), Tag(1)),
        payload: Bytes::from_static(&[99, 0, 0, 0]),
    };
    let packet = Packet { job, life: Life(1), to: Rank(1 - rank), from: Rank(rank), fence, frame };
    let mut bytes = vec![];
    encode_whole(&Between::Packet(packet), &mut bytes)?;
    Ok(bytes)
}

fn an_agent_cannot_speak_for_anothers_rank(world: &World) -> Result<()> {
    let job = program(world, 40)?;
    let peer = Peer::join(world.enrol("agent", "ventriloquist")?, Facts::default(), 0)?;
    for index in [0, 1] {
        let id = SubprogramId { job, index };
        world.ada.runs_at(id)?;
        let fence = world.ada.row(id)?.fence.context("it runs")?;
        for bytes in [vec![], vec![0; 9], vec![255; 1_000]] {
            peer.say(AgentFrame::FromRank { fence, life: Life(1), bytes })?;
        }
    }
    peer.is_heard(1)?;
    let summary = world.ada.asks.wait(job)?;
    let row = world.ada.asks.job(job)?;
    ensure!((summary.counts.succeeded, row.life) == (2, 1), "{row:?}");
    Ok(())
}

fn an_agents_usage_records_stay_its_own(world: &World) -> Result<()> {
    let identity = world.enrol("agent", "gossip")?;
    let record = UsageRecord {
        life: SpoolLife([9; 16]),
        boot: BootId([9; 16]),
        sequence: 1,
        at: WallTime(1_000_000_000),
        since_boot: Duration::from_secs(1),
        cause: Cause::Start,
        load: LoadAverages::default(),
        users: 9,
        input_idle: None,
        slots: 1,
        reason: "says gossip of host1".into(),
    };
    let confirmed = UsageReply::Confirmed { life: record.life, sequence: 1 };
    // Until the collector is there.
    until("its record is on the disk", PATIENCE, || {
        let record = record.clone();
        let reply = runtime()?.block_on(async {
            let link = dial(&identity).await?;
            let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Usage).await?;
            writer.send(&UsageFrame::Records(vec![record])).await?;
            Ok::<_, anyhow::Error>(reader.expect::<UsageReply>().await.ok())
        })?;
        Ok((reply.as_ref() == Some(&confirmed)).then_some(()))
    })?;
    let mut said = vec![];
    let mut directories = vec![world.lab.collector_data()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)?.flatten() {
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if let Ok(bytes) = std::fs::read(entry.path())
                && bytes.windows(11).any(|part| part == b"says gossip")
            {
                said.push(entry.path().display().to_string());
            }
        }
    }
    ensure!(!said.is_empty(), "it is nowhere");
    ensure!(said.iter().all(|path| path.contains("gossip")), "{said:?}");
    Ok(())
}

/// What a stream may begin with, and what is said of it.
fn breaches() -> Result<Vec<(Vec<u8>, &'static str)>> {
    let opening = |version, purpose| {
        let mut bytes = vec![];
        encode(&Opening { version, purpose }, &mut bytes).map(|()| bytes)
    };
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1)?.to_le_bytes();
    let greeted = [opening(VERSION, Purpose::Packets)?, too_long.to_vec()].concat();
    Ok(vec![
        (too_long.to_vec(), "expected at most 4194304"),
        (u32::MAX.to_le_bytes().to_vec(), "expected at most 4194304"),
        (vec![200, 0, 0, 0, 1, 2, 3], "before the end of a frame"),
        (vec![3, 0, 0, 0, 99, 99, 99], "protocol version"),
        (opening(VERSION + 1, Purpose::Agent)?, "expected the same release of glean"),
        (vec![], "ended where Opening was expected"),
        (greeted, ""),
    ])
}

/// Sends bytes on a stream of its own; why the connection ended, if it did.
async fn ended_by(connection: &quinn::Connection, bytes: &[u8]) -> Result<String> {
    let (mut send, recv) = connection.open_bi().await?;
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    let mut reader = FrameReader::new(recv);
    let answer = reader.next_raw().await;
    Ok(match connection.close_reason() {
        Some(reason) => reason.to_string(),
        None => format!("{answer:?}"),
    })
}

fn frames_too_long_torn_and_of_another_version_are_explained_by_the_coordinator(
    world: &World,
) -> Result<()> {
    let identity = world.enrol("agent", "breaker")?;
    for (bytes, told) in breaches()? {
        let said = runtime()?
            .block_on(async { ended_by(&dial(&identity).await?.connection, &bytes).await })?;
        ensure!(said.contains(told), "expected `{told}`: {said}");
    }
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    Ok(())
}

fn workers(world: &World) -> Result<Vec<u32>> {
    world.lab.hosts.iter().map(LabHost::agent_worker).collect()
}

fn frames_too_long_torn_and_of_another_version_end_their_connection_at_an_agents(
    world: &World,
) -> Result<()> {
    let before = workers(world)?;
    let peer = Peer::join(world.enrol("agent", "breaker-of-agents")?, Facts::default(), 0)?;
    for (bytes, told) in breaches()? {
        let connection = peer.dial("host1", &[peers_port(1)?])?;
        let said = peer.runtime.block_on(ended_by(&connection, &bytes))?;
        ensure!(said.contains(told), "expected `{told}`: {said}");
    }
    peer.dial("host1", &[peers_port(1)?])?;
    assert_eq!(workers(world)?, before, "nobody died of it");
    Ok(())
}

fn an_agent_that_says_too_much_of_itself_is_refused(world: &World) -> Result<()> {
    let many = |count: usize| vec!["x".to_owned(); count];
    let boast = |facts: Facts| {
        Peer::join(world.enrol("agent", &format!("boaster{}", facts.missing.len()))?, facts, 1)
    };
    for facts in [
        Facts { missing: many(10_000), ..Facts::default() },
        Facts { missing: many(65), ..Facts::default() },
        Facts { kernel: "x".repeat(100_000), ..Facts::default() },
    ] {
        ensure!(boast(facts.clone()).is_err(), "{} lines were taken", facts.missing.len());
    }
    Ok(())
}

fn an_agent_that_opens_streams_and_says_nothing_holds_up_nobody(world: &World) -> Result<()> {
    let peer = Peer::join(world.enrol("agent", "silent")?, Facts::default(), 0)?;
    let connection = peer.dial("host1", &[peers_port(1)?])?;
    let held = peer.runtime.block_on(async {
        let mut held = vec![];
        let connections = [&connection, &peer.link.connection];
        for connection in connections {
            while let Ok(Ok((mut send, recv))) =
                tokio::time::timeout(Duration::from_millis(300), connection.open_bi()).await
            {
                send.write_all(&[1]).await?;
                held.push((send, recv));
            }
        }
        Ok::<_, anyhow::Error>(held)
    })?;
    ensure!(!held.is_empty() && held.len() < 10_000, "{} streams", held.len());
    let other = Peer::join(world.enrol("agent", "talker")?, Facts::default(), 0)?;
    let said = handed(&other, guessed(Fence::of(1), Fence::of(2)))?;
    ensure!(said.contains("not expected here"), "{said}");
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    Ok(())
}

fn guessed(old: Fence, new: Fence) -> Handover {
    Handover {
        subprogram: SubprogramId { job: JobId(1), index: 0 },
        old,
        new,
        ticket: Ticket([0; 16]),
        keep: Keep::State,
        endpoint_bytes: 0,
        frozen: Duration::ZERO,
    }
}

/// What a host says to what is handed to it. What comes early waits for the
/// coordinator's word, so others are sent until one is answered.
fn handed(peer: &Peer, what: Handover) -> Result<String> {
    let connection = peer.dial("host1", &[peers_port(1)?])?;
    peer.runtime.block_on(async {
        let mut streams = vec![];
        for more in 0..20 {
            let what = Handover { new: what.new.plus(more), ..what.clone() };
            let purpose = Purpose::Handover { to: WorkstationId(1), what: Box::new(what) };
            let (mut writer, reader) = stream::open(&connection, purpose).await?;
            writer.send_raw(b"no image").await?;
            streams.push((writer, reader));
        }
        let (_, reader) = streams.last_mut().context("some")?;
        match tokio::time::timeout(PATIENCE, reader.expect()).await?? {
            HandoverReply::No { reason } => Ok(reason),
            HandoverReply::Taken => anyhow::bail!("it was taken"),
        }
    })
}

fn an_agent_cannot_hand_over_what_nobody_expects(world: &World) -> Result<()> {
    let job = world.ada.asks.submit(script("sleep 1; echo right"))?;
    let id = SubprogramId { job, index: 0 };
    world.ada.runs_at(id)?;
    let fence = world.ada.row(id)?.fence.context("it runs")?;
    let peer = Peer::join(world.enrol("agent", "smuggler")?, Facts::default(), 0)?;
    let said = handed(&peer, Handover { subprogram: id, ..guessed(fence, fence) })?;
    ensure!(said.contains("not expected here"), "{said}");
    assert_eq!(world.ada.ended(job)?.said(), "right\n");
    Ok(())
}

fn an_agent_cannot_hand_over_through_the_coordinator_what_was_not_ordered(
    world: &World,
) -> Result<()> {
    let peer = Peer::join(world.enrol("agent", "forwarder")?, Facts::default(), 0)?;
    for to in [WorkstationId(1), WorkstationId(2), peer.workstation, WorkstationId(9_999)] {
        let what = (to, guessed(Fence::of(1), Fence::of(2)));
        let said = peer.hands_over(&peer.link.connection, what, b"no image")?;
        let HandoverReply::No { reason } = said else { anyhow::bail!("it was taken") };
        ensure!(reason.contains("is not to be carried to"), "{reason}");
    }
    Ok(())
}

fn nonsense_that_is_relayed_to_an_agent_harms_nobody(world: &World) -> Result<()> {
    let before = workers(world)?;
    let peer = Peer::join(world.enrol("agent", "relayer")?, Facts::default(), 0)?;
    for to in [WorkstationId(1), WorkstationId(2), WorkstationId(9_999)] {
        for bytes in [vec![], vec![255; 100], vec![0; 90_000], (0..=255).collect()] {
            peer.say(AgentFrame::Relay { to, bytes })?;
        }
    }
    peer.is_heard(1)?;
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    assert_eq!(workers(world)?, before, "nobody died of it");
    Ok(())
}

fn nonsense_in_packets_harms_nobody(world: &World) -> Result<()> {
    let before = workers(world)?;
    let peer = Peer::join(world.enrol("agent", "packer")?, Facts::default(), 0)?;
    for bytes in [vec![255; 100_000], vec![0; 100_000], (0..=255).cycle().take(50_000).collect()] {
        let connection = peer.dial("host1", &[peers_port(1)?])?;
        peer.runtime.block_on(async {
            let (mut writer, mut reader) = stream::open(&connection, Purpose::Packets).await?;
            let _ = writer.send_raw(&bytes).await;
            writer.finish();
            let _ = reader.next_raw().await;
            Ok::<_, anyhow::Error>(())
        })?;
    }
    assert_eq!(workers(world)?, before, "nobody died of it");
    Ok(())
}
