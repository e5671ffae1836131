//! What one guest leaves for the next: nothing.

use anyhow::{Result, bail, ensure};
use gleaner_common::job::{JobSpec, OnBusy, Reaction};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::world::{Ended, User, World, nothing_done, nothing_there, script, stage};

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_guest_cannot_read_another_guests_queues_memory_and_files,
    a_guest_cannot_read_another_guests_keys,
    a_guest_cannot_poison_the_cache_of_inputs,
    a_guest_cannot_have_a_name_of_its_own_for_anothers_file,
);

/// So many guests come and go before one must have been at any place, also while
/// another attack's guest stays there: one takes some 60 ms.
const TIMES: usize = 2_000;

/// Runs a job again and again, until one of its guests was where it is wanted.
fn comes_after(
    world: &World,
    user: &User,
    spec: &JobSpec,
    is_there: impl Fn(&Ended) -> bool,
) -> Result<Ended> {
    for _ in 0..TIMES {
        let ended = world.run(user, spec.clone())?;
        ensure!(ended.outcome() == "succeeded", "{}: {}", ended.outcome(), ended.said());
        if is_there(&ended) {
            return Ok(ended);
        }
    }
    bail!("nobody came to that place in {TIMES} times")
}

/// The line that says as which user a guest ran: at which place of which host.
fn place(ended: &Ended) -> String {
    ended.said().lines().next().unwrap_or_default().to_owned()
}

fn rest(ended: &Ended) -> String {
    ended.said().split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

fn a_guest_cannot_read_another_guests_queues_memory_and_files(world: &World) -> Result<()> {
    let left = world.run(&world.mallory, world.attack(&["leave"]))?;
    ensure!(left.outcome() == "succeeded", "{}: {}", left.outcome(), left.said());
    let find = world.attack(&["find"]);
    let at = place(&left);
    let found = comes_after(world, &world.mallory, &find, |ended| place(ended) == at)?;
    nothing_there(&rest(&found), 7)
}

/// Who can move has no filter, and may keep keys: its own.
fn a_guest_cannot_read_another_guests_keys(world: &World) -> Result<()> {
    let that_moves = |attack: &str| {
        let mut spec = world.attack(&[attack]);
        spec.on_busy = OnBusy::at_once(Reaction::Migrate);
        spec
    };
    let left = world.run(&world.mallory, that_moves("leave-keys"))?;
    ensure!(left.said().contains(": done"), "nothing was left: {}", left.said());
    let at = place(&left);
    let find = that_moves("find-keys");
    let found = comes_after(world, &world.mallory, &find, |ended| place(ended) == at)?;
    nothing_done(&rest(&found), 2)
}

fn a_guest_cannot_poison_the_cache_of_inputs(world: &World) -> Result<()> {
    let content = "the right input";
    let mut spoils = world.attack(&["spoil", "input", "executable"]);
    let mut reads = script("cat input; ./executable");
    for (path, text, executable) in
        [("input", content, false), ("executable", "#!/bin/sh\necho well\n", true)]
    {
        spoils.inputs.push(stage(&world.mallory, path, text.as_bytes(), executable)?);
        reads.inputs.push(stage(&world.ada, path, text.as_bytes(), executable)?);
    }
    let done = world.run(&world.mallory, spoils)?;
    ensure!(done.said().matches(": done").count() == 2, "{}", done.said());
    let host = done.row.workstation;
    let read = comes_after(world, &world.ada, &reads, |ended| ended.row.workstation == host)?;
    assert_eq!(read.said(), format!("{content}well\n"));
    Ok(())
}

/// A hard link lasts longer than the file that it was made to.
fn a_guest_cannot_have_a_name_of_its_own_for_anothers_file(world: &World) -> Result<()> {
    let file = world.owners_file("named")?;
    let said = world.tried(&["link", &file, "/etc/passwd", "/bin/sh", "/proc/self/exe"])?;
    nothing_done(&said, 4)
}
