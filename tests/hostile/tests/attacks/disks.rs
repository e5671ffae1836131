//! The disk: past its limit, and past what whoever clears up can walk.

use anyhow::{Result, ensure};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::world::{World, script};
use gleaner_lab::LabHost;

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    directories_deeper_than_a_stack_end_no_agent,
    files_beyond_any_path_count_to_the_disk_limit,
    deleted_files_that_are_open_count_to_the_disk_limit,
    deleted_files_that_are_mapped_count_to_the_disk_limit,
);

fn directories_deeper_than_a_stack_end_no_agent(world: &World) -> Result<()> {
    let workers = || world.lab.hosts.iter().map(LabHost::agent_worker).collect::<Result<Vec<_>>>();
    let before = workers()?;
    for place in [".", "OUTPUT", "/tmp", "/dev/shm"] {
        let mut spec = world.attack(&["nest", "1500", "1", place]);
        spec.collect_output = true;
        let ended = world.run(&world.mallory, spec)?;
        ensure!(ended.said() == "nested: done\n", "{place}: {}", ended.said());
    }
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    assert_eq!(workers()?, before, "nobody died of it");
    Ok(())
}

fn ends_at_its_limit(world: &World, attack: &[&str]) -> Result<()> {
    let mut spec = world.attack(attack);
    // The program itself lies there as well.
    spec.limits.disk_bytes_max = 64 << 20;
    let ended = world.run(&world.mallory, spec)?;
    let told = "over its limit: disk: at most 64.0 MiB";
    ensure!(ended.outcome() == told, "{}: {}", ended.outcome(), ended.said());
    Ok(())
}

fn files_beyond_any_path_count_to_the_disk_limit(world: &World) -> Result<()> {
    ends_at_its_limit(world, &["nest", "200", "400000", "."])
}

fn deleted_files_that_are_open_count_to_the_disk_limit(world: &World) -> Result<()> {
    ends_at_its_limit(world, &["deleted", "80000000"])
}

fn deleted_files_that_are_mapped_count_to_the_disk_limit(world: &World) -> Result<()> {
    ends_at_its_limit(world, &["mapped", "80000000"])
}
