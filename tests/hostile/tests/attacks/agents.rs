//! Enrolled agents that are offered work, and lie about it.

use anyhow::{Result, ensure};
use gleaner_common::id::ContentHash;
use gleaner_common::job::JobSpec;
use gleaner_common::wire::{Facts, Finished, Offer, OutputFile, Request};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::peer::{Peer, finished, peers_port};
use gleaner_hostile::world::{World, script};
use gleaner_lab::wait::PATIENCE;
use gleaner_shell::endpoint::Ended;

pub(crate) const CLAIMS: &[Claim] = claims!(Alone:
    a_result_of_a_cancelled_attempt_is_not_accepted,
    a_result_that_names_files_outside_its_directory_is_refused,
    a_workstation_that_is_removed_is_heard_no_more,
    a_revoked_agent_is_spoken_with_by_no_other,
);

/// More than any real one has: who says so gets what asks for it.
const MEMORY: u64 = 32 << 40;

fn joins(world: &World, name: &str) -> Result<Peer> {
    let facts = Facts { memory_bytes: MEMORY, ..Facts::default() };
    Peer::join(world.enrol("agent", name)?, facts, 1)
}

fn for_the_liar() -> JobSpec {
    let mut spec = script("true");
    spec.limits.memory_bytes_max = MEMORY;
    spec.collect_output = true;
    spec
}

fn leaves(world: &World, name: &str) -> Result<()> {
    world.admin.request(&Request::WorkstationRemove { name: name.into() }).map(drop)
}

fn a_result_of_a_cancelled_attempt_is_not_accepted(world: &mut World) -> Result<()> {
    let peer = joins(world, "late")?;
    let job = world.ada.asks.submit(for_the_liar())?;
    let Offer { fence, .. } = peer.offer()?;
    world.ada.asks.request(&Request::Cancel(job))?;
    peer.ends(finished(fence, "too late\n"))?;
    let ended = world.ada.ended(job)?;
    let counts = ended.summary.counts;
    ensure!((counts.cancelled, counts.succeeded) == (1, 0), "{counts:?}");
    ensure!(!ended.said().contains("too late"), "{}", ended.said());
    leaves(world, "late")
}

fn a_result_that_names_files_outside_its_directory_is_refused(world: &mut World) -> Result<()> {
    let peer = joins(world, "climber")?;
    let job = world.ada.asks.submit(for_the_liar())?;
    let Offer { fence, .. } = peer.offer()?;
    let climbing = OutputFile {
        path: "../../.ssh/authorized_keys".into(),
        hash: ContentHash([0; 32]),
        size_bytes: 0,
        executable: false,
    };
    let said = peer.ends(Finished { outputs: vec![climbing], ..finished(fence, "") });
    ensure!(said.is_err(), "it was acknowledged");
    let counts = world.ada.asks.job(job)?.summary.counts;
    assert_eq!(counts.succeeded, 0);
    world.ada.asks.request(&Request::Cancel(job))?;
    leaves(world, "climber")
}

/// Neither on what is open, nor anew: agents hear of it from the coordinator.
fn a_revoked_agent_is_spoken_with_by_no_other(world: &mut World) -> Result<()> {
    let peer = joins(world, "revoked")?;
    let open = peer.dial("host1", &[peers_port(1)?])?;
    leaves(world, "revoked")?;
    peer.runtime.block_on(async { tokio::time::timeout(PATIENCE, open.closed()).await })?;
    let told = peer.dial("host1", &[peers_port(1)?]).and_then(|connection| {
        // A refusal arrives with the first read.
        peer.runtime
            .block_on(async { Ok(tokio::time::timeout(PATIENCE, connection.closed()).await?) })
    });
    let told = told.map_or_else(|error| format!("{error:#}"), |why| Ended::from(why).to_string());
    ensure!(told.contains("revoked"), "{told}");
    Ok(())
}

/// On the connection that is open, and on the next.
fn a_workstation_that_is_removed_is_heard_no_more(world: &mut World) -> Result<()> {
    let peer = joins(world, "removed")?;
    leaves(world, "removed")?;
    ensure!(peer.is_heard(1).is_err(), "it was heard");
    let again = Peer::join(peer.identity, Facts::default(), 1);
    let said = again.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("revoked"), "{said}");
    Ok(())
}
