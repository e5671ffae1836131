//! Certificates that run out: keys are renewed while everybody works.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_shell::clock::Clock;
use gleaner_shell::identity::Identity;
use gleaner_tests::options;

const LIFE: Duration = Duration::from_secs(9);

/// A third of it is left after a renewal, in which a coordinator stops, goes back and starts.
const LONGER: Duration = Duration::from_secs(45);

fn lab(hosts: usize, certificate_life: Duration) -> Result<Lab> {
    let mut options = options(hosts)?;
    (options.network, options.collector) = (false, false);
    options.coordinator = format!("certificate_life = \"{}s\"", certificate_life.as_secs());
    Lab::start(options)
}

fn is_over(identity: &Identity) -> Result<bool> {
    let validity = identity.validity().context("a certificate that does not read")?;
    Ok(validity.until <= Clock::new().wall())
}

#[test]
fn agents_renew_before_their_certificates_run_out_and_one_that_was_away_is_told_what_to_do()
-> Result<()> {
    let mut lab = lab(2, LIFE)?;
    let first = Identity::load(&lab.hosts[0].identity())?;
    for host in &mut lab.hosts {
        let agent = host.agent.as_mut().context("it runs")?;
        agent.wait_for_log_times("this agent's certificate is renewed", 2, PATIENCE)?;
    }
    assert!(is_over(&first)?, "two thirds of it twice are more than all of it");
    lab.wait_for_idle(2)?;
    let job = lab.submit(&["--count", "2", "--", "true"])?;
    assert_eq!(lab.wait_for_job(job)?["summary"]["state"], "succeeded");
    let host = &mut lab.hosts[0];
    host.agent.as_mut().context("it runs")?.stop()?;
    let last = Identity::load(&host.identity())?;
    until("its certificate runs out", PATIENCE, || Ok(is_over(&last)?.then_some(())))?;
    host.start_agent()?;
    let agent = host.agent.as_mut().context("it runs")?;
    agent.wait_for_log_times("this identity's certificate has run out", 1, PATIENCE)?;
    agent.wait_for_log_times("`glean token create`", 1, PATIENCE)
}

#[test]
fn a_user_is_renewed_by_whatever_they_ask_next() -> Result<()> {
    let lab = lab(2, LIFE)?;
    let dir = lab.dir().join("ada");
    let dir = dir.to_str().context("a path in UTF-8")?;
    let token = lab.text(&["token", "create", "--role", "user", "--name", "ada"])?;
    let token = token.split_whitespace().find(|word| word.starts_with("glean-"));
    let token = token.context("a token")?.to_owned();
    lab.text(&[
        "enrol",
        "--coordinator",
        lab.address(),
        "--token",
        &token,
        "--name",
        "ada",
        "--identity",
        dir,
    ])?;
    let first = Identity::load(Path::new(dir))?;
    until("the first certificate runs out", PATIENCE, || {
        lab.text(&["jobs", "--identity", dir])?;
        Ok(is_over(&first)?.then_some(()))
    })?;
    lab.text(&["jobs", "--identity", dir]).map(drop)
}

#[test]
fn an_agent_that_was_renewed_since_a_backup_shows_its_former_key_to_the_store_of_then() -> Result<()>
{
    let mut lab = lab(1, LONGER)?;
    let first = Identity::load(&lab.hosts[0].identity())?;
    lab.wait_for_idle(1)?;
    lab.with_backup(&["backup"])?;
    let agent = lab.hosts[0].agent.as_mut().context("it runs")?;
    agent.wait_for_log_times("this agent's certificate is renewed", 1, PATIENCE)?;
    lab.coordinator.as_mut().context("it runs")?.stop()?;
    lab.with_backup(&["restore"])?;
    lab.start_coordinator()?;
    let agent = lab.hosts[0].agent.as_mut().context("it runs")?;
    agent.wait_for_log_times("the key of then is shown", 1, PATIENCE)?;
    agent.wait_for_log_times("this agent's certificate is renewed", 2, PATIENCE)?;
    assert_ne!(Identity::load(&lab.hosts[0].identity())?.spki(), first.spki());
    let job = lab.submit(&["--", "true"])?;
    assert_eq!(lab.wait_for_job(job)?["summary"]["state"], "succeeded");
    Ok(())
}
