//! `glean doctor`: each thing that a lab needs from this machine, checked, with
//! the repair of what is wrong.

mod agent;
mod user;

use std::path::PathBuf;

use anyhow::Result;
use gleaner_agent::doctor::{Check, Health};

use super::owner::SocketArgs;
use crate::ask::Access;
use crate::failure::{Hinted, Verdict, one_line};
use crate::output::{Form, Listing};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check this machine as a workstation: sensors, cgroups, sandbox, identity, service.
    #[arg(long)]
    pub agent: bool,
    /// With --agent, the agent's configuration [default: /etc/gleaner/agent.toml].
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub socket: SocketArgs,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// Standard output is closed or full: everything else is a finding.
pub fn run(args: &Args) -> Result<Verdict> {
    let checks = if args.agent {
        agent::checks(args.config.as_deref(), &args.socket)
    } else {
        user::checks(&args.access)
    };
    args.form.print(&checks, listing)?;
    Ok(Verdict::from(checks.iter().all(|check| check.health != Health::Sick)))
}

fn listing(checks: &[Check]) -> Listing {
    Listing::of(checks)
        .column("check", 9, |check| check.subject.to_owned())
        .column("health", 9, |check| check.health.name().to_owned())
        .wrapped("found", (8, 16), |check| check.found.clone())
        .wrapped("repair", (8, 16), |check| check.repair.clone().unwrap_or_default())
        .listing()
}

/// An error as a finding and, if it has one, its hint as the repair.
fn finding(error: &anyhow::Error) -> (String, Option<String>) {
    (one_line(error), error.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_and_its_repair_are_readable_on_a_narrow_terminal() {
        let checks = [
            Check::well("configuration", "/etc/gleaner/agent.toml"),
            Check::sick(
                "input",
                "cannot read /dev/input: permission denied",
                "run as root, with DeviceAllow=char-input r in the service",
            ),
        ];
        let (text, dropped) = listing(&checks).fitted(Some(60));
        assert!(dropped.is_empty());
        insta::assert_snapshot!(text, @r"
        CHECK          HEALTH  FOUND               REPAIR
        configuration  well    /etc/gleaner/agent
                               .toml
        input          SICK    cannot read         run as root, with
                               /dev/input:         DeviceAllow=char-
                               permission denied   input r in the
                                                   service
        ");
    }
}
