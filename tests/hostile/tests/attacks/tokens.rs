//! Tokens and names: who may come to be whom.

use anyhow::{Context as _, Result, ensure};
use gleaner_common::wire::{Purpose, Reply, Request};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::world::{World, runtime};
use gleaner_shell::endpoint::{Credentials, connect};
use gleaner_shell::enrol::enrol;
use gleaner_shell::identity::Token;
use gleaner_shell::stream;

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_token_for_nobody_takes_no_users_name,
    a_token_for_nobody_takes_no_workstations_name_and_the_live_one_stays,
    a_token_for_one_name_enrols_no_other,
    a_token_is_good_once,
    a_token_that_was_revoked_is_good_for_nothing,
    a_guessed_token_is_good_for_nothing,
    a_token_opens_nothing_but_enrolment,
    a_name_holds_no_codes_for_a_terminal,
);

/// Why nobody is enrolled.
fn refused(world: &World, token: &Token, name: &str) -> Result<String> {
    let enrolled = runtime()?.block_on(enrol(world.lab.address(), token, name));
    Ok(enrolled.err().with_context(|| format!("{name} was enrolled"))?.to_string())
}

fn a_token_for_nobody_takes_no_users_name(world: &World) -> Result<()> {
    for name in ["ada", "admin"] {
        let said = refused(world, &world.token("user", None)?, name)?;
        ensure!(said.contains("is known here with another key"), "{said}");
    }
    ensure!(world.ada.answer(&Request::Health).contains("\"ada\""), "she is who she was");
    Ok(())
}

fn a_token_for_nobody_takes_no_workstations_name_and_the_live_one_stays(
    world: &World,
) -> Result<()> {
    let said = refused(world, &world.token("agent", None)?, "host1")?;
    ensure!(said.contains("glean workstations rm host1"), "{said}");
    let rows = world.admin.rows(&Request::Workstations)?;
    let lives = rows.iter().any(|row| {
        matches!(row, Reply::Workstation(row) if row.name == "host1" && row.state.name() != "away")
    });
    ensure!(lives, "{rows:?}");
    Ok(())
}

fn a_token_for_one_name_enrols_no_other(world: &World) -> Result<()> {
    let token = world.token("user", Some("eve"))?;
    let said = refused(world, &token, "ada")?;
    ensure!(said.contains("the token is for `eve`, not for `ada`"), "{said}");
    Ok(())
}

fn a_token_is_good_once(world: &World) -> Result<()> {
    let token = world.token("user", None)?;
    runtime()?.block_on(enrol(world.lab.address(), &token, "first"))?;
    let said = refused(world, &token, "second")?;
    ensure!(said.contains("used"), "{said}");
    Ok(())
}

fn a_token_that_was_revoked_is_good_for_nothing(world: &World) -> Result<()> {
    let token = world.token("agent", None)?;
    world.admin.request(&Request::TokenRevoke { id: token.id() })?;
    let said = refused(world, &token, "late")?;
    ensure!(said.contains("revoked") || said.contains("not known here"), "{said}");
    Ok(())
}

/// Its authority is known to everybody who has a token.
fn a_guessed_token_is_good_for_nothing(world: &World) -> Result<()> {
    let token = Token::create(world.token("user", None)?.authority()).unwrap();
    let said = refused(world, &token, "guesser")?;
    ensure!(said.contains("not known here"), "{said}");
    Ok(())
}

fn a_token_opens_nothing_but_enrolment(world: &World) -> Result<()> {
    let token = world.token("admin", None)?;
    let said = runtime()?.block_on(async {
        let link = connect(world.lab.address(), Credentials::Token(&token), None).await?;
        let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Request).await?;
        writer.send(&Request::Jobs).await?;
        let answer = reader.expect::<Reply>().await;
        Ok::<_, anyhow::Error>(answer.err().context("it was answered")?.to_string())
    })?;
    ensure!(said.contains("a token is for enrolling, not for requests"), "{said}");
    Ok(())
}

fn a_name_holds_no_codes_for_a_terminal(world: &World) -> Result<()> {
    for name in ["a\u{1b}[2K", "a\nb", "", "a b", "../etc", "a\u{202e}b", &"x".repeat(300)] {
        let said = refused(world, &world.token("agent", None)?, name)?;
        ensure!(said.contains("cannot be a name"), "{name:?}: {said}");
    }
    Ok(())
}
