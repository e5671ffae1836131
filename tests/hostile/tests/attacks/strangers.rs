//! Strangers on the network: whoever can send a datagram, and is enrolled nowhere.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use gleaner_common::wire::{Purpose, Reply, Request, Role};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::peer::{anybody, peers_port};
use gleaner_hostile::world::{World, runtime, script};
use gleaner_lab::LabHost;
use gleaner_shell::endpoint::{Credentials, connect, dial_peer, listen_to_peers};
use gleaner_shell::identity::{Authority, Identity};
use gleaner_shell::stream;

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_stranger_gets_no_further_than_the_coordinators_handshake,
    a_stranger_gets_no_further_than_an_agents_handshake,
    a_user_gets_no_further_than_an_agents_handshake,
    noise_at_every_port_disturbs_nobody,
);

/// An authority of the stranger's own, that calls itself whatever it likes.
fn forged(world: &World, role: Role, name: &str) -> Result<Identity> {
    let home = tempfile::tempdir()?;
    let authority = Authority::create(home.path())?;
    Ok(authority.issue_identity(role, name, world.lab.address())?)
}

/// What the coordinator says to a request with this identity.
fn asks(identity: &Identity) -> Result<String> {
    runtime()?.block_on(async {
        let link = match connect(&identity.coordinator, Credentials::Identity(identity), None).await
        {
            Ok(link) => link,
            Err(error) => return Ok(error.to_string()),
        };
        let answer = async {
            let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Request).await?;
            writer.send(&Request::Jobs).await?;
            reader.expect::<Reply>().await
        };
        Ok(answer.await.err().context("it was answered")?.to_string())
    })
}

fn a_stranger_gets_no_further_than_the_coordinators_handshake(world: &World) -> Result<()> {
    for (role, name) in [(Role::Admin, "admin"), (Role::User, "ada"), (Role::Agent, "host1")] {
        let said = asks(&forged(world, role, name)?)?;
        ensure!(said.contains("certificate"), "{said}");
    }
    Ok(())
}

/// Dials a host's port, and opens a stream there: what comes of it.
fn calls(identity: &Identity, host: usize) -> Result<String> {
    runtime()?.block_on(async {
        let endpoint = listen_to_peers("0.0.0.0:0".parse()?, identity, anybody())?;
        let name = format!("host{host}");
        let port = [peers_port(host)?];
        let connection = match dial_peer(&endpoint, identity, &name, &port, anybody()).await {
            Ok(connection) => connection,
            Err(error) => return Ok(error.to_string()),
        };
        let answer = async {
            let (mut writer, mut reader) = stream::open(&connection, Purpose::Packets).await?;
            writer.send(&7_u32).await?;
            reader.expect::<u32>().await
        };
        Ok(answer.await.err().context("it was answered")?.to_string())
    })
}

fn a_stranger_gets_no_further_than_an_agents_handshake(world: &World) -> Result<()> {
    for name in ["host2", "coordinator"] {
        let said = calls(&forged(world, Role::Agent, name)?, 1)?;
        ensure!(said.contains("certificate") || said.contains("handshake"), "{said}");
    }
    Ok(())
}

fn a_user_gets_no_further_than_an_agents_handshake(world: &World) -> Result<()> {
    for identity in [&world.mallory.identity, &world.lab.admin()] {
        let said = calls(&Identity::load(identity)?, 1)?;
        ensure!(!said.contains("gave up the stream"), "a stream was looked at: {said}");
    }
    Ok(())
}

/// Bytes of chance, beginnings of QUIC's own, and far too many of them.
fn noise_at_every_port_disturbs_nobody(world: &World) -> Result<()> {
    let workers = || world.lab.hosts.iter().map(LabHost::agent_worker).collect::<Result<Vec<_>>>();
    let before = workers()?;
    let ports: [SocketAddr; 3] = [world.lab.address().parse()?, peers_port(1)?, peers_port(2)?];
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut seed = 7_u64;
    let mut noise = vec![0_u8; 1_400];
    for round in 0..3_000_usize {
        for byte in &mut noise {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = seed.to_le_bytes()[7];
        }
        // An initial packet of version 1, or a short one of a connection.
        noise[..5].copy_from_slice(if round % 2 == 0 { &[0xc3, 0, 0, 0, 1] } else { &[0x43; 5] });
        for port in ports {
            let _ = socket.send_to(&noise[..(round * 7) % 1_400], port);
        }
    }
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    assert_eq!(workers()?, before, "nobody died of it");
    Ok(())
}
