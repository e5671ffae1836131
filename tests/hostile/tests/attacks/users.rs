//! Users: what an enrolled researcher can do to another, and to everybody.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use gleaner_common::id::SubprogramId;
use gleaner_common::job::{IndexRange, JobSpec, StagedFile};
use gleaner_common::program::ProgramSpec;
use gleaner_common::wire::{BlobReply, Purpose, Reply, Request, Role};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::world::{Ended, World, one, script, stage};
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_shell::blob::hash_bytes;
use gleaner_shell::identity::Identity;
use gleaner_shell::stream;

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_user_cannot_cancel_anothers_job,
    a_user_cannot_see_what_anothers_job_prints_and_leaves,
    a_user_cannot_see_anothers_command_lines,
    a_user_cannot_fetch_anothers_files,
    a_user_may_do_nothing_of_an_admins,
    a_user_cannot_take_anothers_key_for_their_own,
    a_user_cannot_stage_one_content_under_anothers_hash,
    a_stalled_upload_keeps_no_room_from_others,
    a_user_fills_their_own_room_only,
    a_user_who_opens_streams_and_says_nothing_holds_up_nobody,
    nonsense_in_a_job_is_refused_by_the_coordinator_itself,
    a_job_lays_no_files_outside_its_directory,
    what_cannot_be_written_to_is_refused_before_anything_runs,
    a_job_gets_into_no_directory_that_is_not_offered,
    a_job_that_no_workstation_can_take_is_told_so_and_rests_none,
    a_job_whose_directory_is_not_there_is_charged_and_rests_no_workstation,
    a_user_who_is_removed_is_out_at_once,
    a_stolen_key_that_was_rotated_away_is_out_at_once,
);

pub(crate) const ALONE: &[Claim] = claims!(Alone:
    one_users_flood_of_jobs_delays_anothers_by_a_turn,
    a_subprogram_whose_workstations_keep_dying_is_charged_and_held,
);

/// A job of ada's that has ended, with something printed and left.
fn adas(world: &World) -> Result<Ended> {
    let mut spec = script("echo printed by ada; echo left by ada > $GLEAN_OUTPUT/left; cat input");
    spec.name = "adas-name".into();
    spec.collect_output = true;
    spec.inputs = vec![stage(&world.ada, "input", b"adas input", false)?];
    let ended = world.run(&world.ada, spec)?;
    ensure!(ended.outputs.len() == 1, "{}: {:?}", ended.outcome(), ended.outputs);
    Ok(ended)
}

fn a_user_cannot_cancel_anothers_job(world: &World) -> Result<()> {
    let job = world.ada.asks.submit(script("exec sleep 1000"))?;
    let said = world.mallory.answer(&Request::Cancel(job));
    ensure!(said.contains("is ada's"), "{said}");
    world.ada.runs_at(SubprogramId { job, index: 0 })?;
    world.ada.asks.request(&Request::Cancel(job)).map(drop)
}

fn a_user_cannot_see_what_anothers_job_prints_and_leaves(world: &World) -> Result<()> {
    let job = adas(world)?.job;
    let id = SubprogramId { job, index: 0 };
    for request in [
        Request::Output(id),
        Request::WhySubprogram(id),
        Request::WhyJob(job),
        Request::Watch(job),
        Request::Attempts(id),
        Request::Subprograms { job, first: 0, count: 10 },
    ] {
        let said = world.mallory.listing(&request);
        ensure!(said.contains("ada's: only they"), "{request:?}: {said}");
    }
    let (well, out, said) = world.glean(&world.mallory, &["logs", &job.to_string()])?;
    ensure!(!well && out.is_empty(), "{out}{said}");
    Ok(())
}

fn a_user_cannot_see_anothers_command_lines(world: &World) -> Result<()> {
    let job = adas(world)?.job;
    for said in [
        world.mallory.answer(&Request::Job(job)),
        world.mallory.listing(&Request::Jobs),
        world.mallory.listing(&Request::Workstations),
        world.mallory.listing(&Request::Shares),
        world.mallory.answer(&Request::WhyWorkstation("host1".into())),
    ] {
        ensure!(!said.contains("by ada") && !said.contains("adas-name"), "{said}");
    }
    ensure!(world.ada.answer(&Request::Job(job)).contains("adas-name"), "its own user sees it");
    Ok(())
}

fn a_user_cannot_fetch_anothers_files(world: &World) -> Result<()> {
    let ended = adas(world)?;
    for hash in [ended.outputs[0].hash, hash_bytes(b"adas input")] {
        let got = world.mallory.asks.with(async |client| client.get_bytes(hash).await);
        let said = got.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let said = said.err().context("it was fetched")?.to_string();
        ensure!(said.contains("no staged file"), "{said}");
        world.ada.asks.with(async |client| client.get_bytes(hash).await)?;
    }
    Ok(())
}

fn a_user_may_do_nothing_of_an_admins(world: &World) -> Result<()> {
    let lifetime = Duration::from_secs(60);
    let name = || "host1".to_owned();
    for request in [
        Request::TokenCreate { role: Role::Admin, lifetime, name: None },
        Request::TokenCreate { role: Role::User, lifetime, name: Some("ada".into()) },
        Request::Tokens,
        Request::TokenRevoke { id: "12345678".into() },
        Request::Users,
        Request::UserRemove { name: "ada".into(), keep_jobs: false },
        Request::WorkstationRemove { name: name() },
        Request::WorkstationDrain { name: name(), drained: true, now: false },
    ] {
        let said = world.mallory.listing(&request);
        ensure!(said.contains("may not ask for this: expected an admin"), "{request:?}: {said}");
    }
    Ok(())
}

fn a_user_cannot_take_anothers_key_for_their_own(world: &World) -> Result<()> {
    for identity in [&world.ada.identity, &world.lab.admin(), &world.lab.hosts[0].identity()] {
        let public_key = Identity::load(identity)?.spki();
        let said = world.mallory.answer(&Request::Rotate { public_key, at_once: true });
        ensure!(!said.contains("Rotated"), "{}: {said}", identity.display());
    }
    // Everybody is who they were.
    ensure!(world.ada.answer(&Request::Health).contains("\"ada\""));
    ensure!(world.mallory.answer(&Request::Health).contains("\"mallory\""));
    Ok(())
}

fn a_user_cannot_stage_one_content_under_anothers_hash(world: &World) -> Result<()> {
    let hash = hash_bytes(b"what others believe it to be");
    let put = Purpose::Put { hash, size_bytes: 6 };
    let reply = world.mallory.asks.with(async |client| {
        let (mut writer, mut reader) = stream::open(&client.link().connection, put).await?;
        writer.send_raw(b"poison").await?;
        writer.finish();
        Ok::<BlobReply, anyhow::Error>(reader.expect().await?)
    })?;
    ensure!(matches!(reply, BlobReply::No { .. }), "{reply:?}");
    let asked = world.mallory.asks.request(&Request::Missing(vec![hash]))?;
    assert_eq!(asked, Reply::Missing(vec![hash]));
    Ok(())
}

/// Each of them announces as much as a file may be; together they are more than
/// everybody's room.
fn a_stalled_upload_keeps_no_room_from_others(world: &World) -> Result<()> {
    let slow = world.user("staller")?;
    let stalled = slow.asks.with(async |client| {
        let mut stalled = vec![];
        for number in 0..20_u8 {
            let put = Purpose::Put { hash: hash_bytes(&[number]), size_bytes: 4 << 30 };
            let (mut writer, reader) = stream::open(&client.link().connection, put).await?;
            writer.send_raw(&[number; 1_000]).await?;
            stalled.push((writer, reader));
        }
        Ok::<_, anyhow::Error>(stalled)
    })?;
    stage(&world.ada, "staged", &vec![b'a'; 1 << 20], false)?;
    drop(stalled);
    Ok(())
}

fn a_user_fills_their_own_room_only(world: &World) -> Result<()> {
    let hoarder = world.user("hoarder")?;
    let piece = |byte: u8| vec![byte; 24 << 20];
    stage(&hoarder, "one", &piece(1), false)?;
    stage(&hoarder, "two", &piece(2), false)?;
    let refused = stage(&hoarder, "three", &piece(3), false).err().context("all was taken")?;
    let said = format!("{refused:#}");
    ensure!(said.contains("hoarder has staged"), "{said}");
    stage(&world.ada, "mine", b"there is room for others", false).map(drop)
}

fn a_user_who_opens_streams_and_says_nothing_holds_up_nobody(world: &World) -> Result<()> {
    let slow = world.user("slow")?;
    let silent = slow.asks.with(async |client| {
        let mut silent = vec![];
        let open = async || client.link().connection.open_bi().await;
        // As many as there may be: the next one is not to be had.
        while let Ok(Ok((mut send, recv))) =
            tokio::time::timeout(Duration::from_millis(300), open()).await
        {
            send.write_all(&[1]).await?;
            silent.push((send, recv));
        }
        Ok::<_, anyhow::Error>(silent)
    })?;
    ensure!(!silent.is_empty() && silent.len() < 10_000, "{} streams", silent.len());
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    Ok(())
}

fn nonsense_in_a_job_is_refused_by_the_coordinator_itself(world: &World) -> Result<()> {
    let job = || script("true");
    let ranks = |ranks_max| Some(ProgramSpec { ranks_max, ..ProgramSpec::default() });
    let with = |change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job();
        change(&mut spec);
        spec
    };
    for (spec, told) in [
        (with(&|spec| spec.limits.memory_bytes_max = 900 << 40), "900.0 TiB of memory"),
        (with(&|spec| spec.timeout = Some(Duration::ZERO)), "a timeout of nothing"),
        (with(&|spec| (spec.indexes.last, spec.program) = (2, ranks(2))), "3 ranks and may have 2"),
        (with(&|spec| spec.program = ranks(1 << 20)), "1048576 ranks"),
        (with(&|spec| spec.priority = 101), "priority 101"),
        (with(&|spec| spec.indexes.last = 20_000_000), "20000001 subprograms"),
        (with(&|spec| spec.indexes = IndexRange { first: 1, last: 0, step: 1 }), "0 subprograms"),
        (with(&|spec| spec.indexes.step = 0), "0 subprograms"),
        (with(&|spec| spec.name = "x".repeat(10_000)), "name takes 10000 bytes"),
        (with(&|spec| spec.command.clear()), "no command"),
        (with(&|spec| spec.command.push("a\0b".into())), "NUL"),
        (with(&|spec| spec.command.push("x".repeat(200_000))), "expected at most 131072"),
        (with(&|spec| spec.environment.push(("A=B".into(), String::new()))), "`A=B`"),
    ] {
        let said = world.mallory.answer(&Request::Submit(Box::new(spec)));
        ensure!(said.contains(told), "expected `{told}`: {said}");
    }
    Ok(())
}

fn a_job_lays_no_files_outside_its_directory(world: &World) -> Result<()> {
    let staged = stage(&world.mallory, "x", b"* * * * * root id", false)?;
    for path in ["../x", "/etc/cron.d/x", "a/../../x", "./x", "a//x", "", "a/\0x", "a/.."] {
        let mut spec = script("true");
        spec.inputs = vec![StagedFile { path: path.into(), ..staged.clone() }];
        let said = world.mallory.answer(&Request::Submit(Box::new(spec)));
        ensure!(said.contains("stay inside the working directory"), "{path:?}: {said}");
    }
    Ok(())
}

fn what_cannot_be_written_to_is_refused_before_anything_runs(world: &World) -> Result<()> {
    let before = world.mallory.asks.rows(&Request::Jobs)?.len();
    for out in ["/etc/passwd", "/etc/passwd/x"] {
        let submit = ["submit", "--out", out, "--name", "unwritable", "--", "/bin/true"];
        let (well, _, said) = world.glean(&world.mallory, &submit)?;
        ensure!(!well && said.contains("--out"), "{out}: {said}");
    }
    ensure!(!world.mallory.listing(&Request::Jobs).contains("unwritable"), "of {before}");
    Ok(())
}

fn a_job_gets_into_no_directory_that_is_not_offered(world: &World) -> Result<()> {
    world.owners_file("shown")?;
    let shared = world.site.path().join("shared");
    std::os::unix::fs::symlink(world.site.path().join("owner"), shared.join("link"))?;
    let inside = shared.display().to_string();
    let mut spec = script("cat link/shown link/../owner/shown");
    spec.shared_directory = Some(inside.clone());
    let said = world.run(&world.mallory, spec)?;
    ensure!(!said.said().contains("the owner's"), "by a link: {}", said.said());
    for directory in [format!("{inside}/../owner"), format!("{inside}/link"), world.owner("")] {
        let mut spec = script("cat shown");
        spec.shared_directory = Some(directory.clone());
        let Ok(job) = world.mallory.asks.submit(spec) else { continue };
        if world.mallory.asks.job(job)?.notes.is_empty() {
            let ended = world.mallory.ended(job)?;
            ensure!(!ended.said().contains("the owner's"), "{directory}: {}", ended.said());
        } else {
            // No workstation offers it, and its user has been told.
            world.mallory.asks.request(&Request::Cancel(job))?;
        }
    }
    Ok(())
}

fn a_job_that_no_workstation_can_take_is_told_so_and_rests_none(world: &World) -> Result<()> {
    let mut spec = script("true");
    spec.indexes.last = 7;
    spec.shared_directory = Some("/nobody/offers/this".into());
    let Err(refused) = world.mallory.asks.submit(spec) else { bail!("it was taken") };
    ensure!(refused.to_string().contains("/nobody/offers/this"), "{refused}");
    let mut others = script("true");
    others.indexes.last = 19;
    let others = world.ada.asks.submit(others)?;
    ensure!(world.ada.asks.wait(others)?.counts.succeeded == 20, "the others' job");
    Ok(())
}

/// Below what is offered: it was refused for ever, and workstations rested for it.
fn a_job_whose_directory_is_not_there_is_charged_and_rests_no_workstation(
    world: &World,
) -> Result<()> {
    let mut spec = script("true");
    spec.indexes.last = 7;
    let gone = world.site.path().join("shared/not-there");
    spec.shared_directory = Some(gone.display().to_string());
    let job = world.mallory.asks.submit(spec)?;
    let mut others = script("true");
    others.indexes.last = 19;
    let others = world.ada.asks.submit(others)?;
    assert_eq!(world.ada.asks.wait(others)?.counts.succeeded, 20);
    assert_eq!(world.mallory.asks.wait(job)?.counts.failed, 8);
    let why = world.mallory.row(SubprogramId { job, index: 0 })?.outcome.unwrap_or_default();
    ensure!(why.contains("cannot enter") && why.contains("not-there"), "{why}");
    Ok(())
}

/// Also on the connection that is open.
fn a_user_who_is_removed_is_out_at_once(world: &World) -> Result<()> {
    let fired = world.user("fired")?;
    ensure!(fired.answer(&Request::Health).contains("fired"));
    world.admin.request(&Request::UserRemove { name: "fired".into(), keep_jobs: false })?;
    let said = fired.answer(&Request::Jobs);
    ensure!(said.contains("revoked") || said.contains("not enrolled"), "{said}");
    let said = fired.answer(&Request::Submit(Box::new(script("true"))));
    ensure!(!said.contains("Submitted"), "{said}");
    let again = BlockingClient::connect(&fired.identity, None);
    let again = again.and_then(|client| client.request(&Request::Health));
    ensure!(again.is_err(), "{again:?}");
    Ok(())
}

/// The thief's connection is open, and its owner makes another key.
fn a_stolen_key_that_was_rotated_away_is_out_at_once(world: &World) -> Result<()> {
    let robbed = world.user("robbed")?;
    let thief = BlockingClient::connect(&robbed.identity, None)?;
    thief.request(&Request::Health)?;
    let (well, _, said) = world.glean(&robbed, &["identity", "rotate"])?;
    ensure!(well, "{said}");
    let heard = thief.request(&Request::Submit(Box::new(script("true"))));
    ensure!(heard.is_err(), "{heard:?}");
    let mine = BlockingClient::connect(&robbed.identity, None)?;
    mine.request(&Request::Health).map(drop)
}

fn one_users_flood_of_jobs_delays_anothers_by_a_turn(world: &mut World) -> Result<()> {
    let greedy = world.user("greedy")?;
    let mut taken = vec![];
    for number in 0..300 {
        let mut spec = script("sleep 0.1");
        spec.indexes = IndexRange { first: 0, last: 9_999_999, step: 1 };
        match greedy.asks.submit(spec) {
            Ok(job) => taken.push(job),
            Err(error) => ensure!(error.to_string().contains("queued"), "{number}: {error}"),
        }
    }
    ensure!(taken.len() <= 2, "{} jobs of ten million were taken", taken.len());
    let before = greedy.asks.wait_for(taken[0], |summary| summary.counts.succeeded > 0)?;
    let mut spec = JobSpec::new(vec!["/bin/true".into()], one());
    spec.retries = 0;
    let ended = world.run(&world.ada, spec)?;
    ensure!(ended.outcome() == "succeeded", "{}", ended.outcome());
    let after = greedy.asks.job(taken[0])?.summary.counts.succeeded;
    let meanwhile = after - before.counts.succeeded;
    // A turn of each place, and those that ended while the guest itself ran.
    ensure!(meanwhile < 200, "{meanwhile} others went before");
    for job in taken {
        greedy.asks.request(&Request::Cancel(job))?;
    }
    Ok(())
}

fn a_subprogram_whose_workstations_keep_dying_is_charged_and_held(world: &mut World) -> Result<()> {
    let mut spec = script("exec sleep 1000");
    spec.retries = 0;
    let job = world.mallory.asks.submit(spec)?;
    let id = SubprogramId { job, index: 0 };
    let mut before = None;
    // Two are chance; what is lost with the third is charged, and nothing is tried again.
    for _ in 0..3 {
        let (name, fence) = until("it runs, again", PATIENCE, || {
            let row = world.mallory.row(id)?;
            let is_new = row.state.name() == "running" && row.fence != before;
            Ok(row.workstation.filter(|_| is_new).map(|name| (name, row.fence)))
        })?;
        before = fence;
        let host = world.lab.hosts.iter_mut().find(|host| host.name == name);
        let host = host.context("a host of ours")?;
        host.agent.as_mut().context("it runs")?.kill();
        host.start_agent()?;
        world.lab.wait_for_idle(2)?;
    }
    let ended = world.mallory.ended(job)?;
    ensure!(ended.summary.counts.failed == 1, "{:?}", ended.summary);
    ensure!(ended.outcome().contains("attempts were lost"), "{}", ended.outcome());
    assert_eq!(world.run(&world.ada, script("echo well"))?.said(), "well\n");
    Ok(())
}
