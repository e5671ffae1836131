//! `glean agent status | pause | resume`: the owner's own controls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use gleaner_agent::config::AgentConfig;
use gleaner_agent::owner::{self, Answer, AskError, Command, Status};
use gleaner_common::time::Spoken;
use gleaner_common::units;

use super::daemon::AGENT_CONFIG;
use crate::failure::{Refusal, Verdict, hinted};
use crate::output::{self, Form, Listing, seconds};

/// Which agent.
#[derive(Clone, Debug, clap::Args)]
pub struct SocketArgs {
    /// The agent's socket [default: that of its configuration, /run/gleaner/agent.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// How long, such as 2h; until `glean agent resume` if left out.
    #[arg(value_name = "SPAN", value_parser = units::parse_duration)]
    pub span: Option<Duration>,
    #[command(flatten)]
    pub socket: SocketArgs,
}

#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Exit code 0 either way: busy is no failure.
///
/// # Errors
/// No agent answers.
pub fn status(args: &StatusArgs) -> Result<Verdict> {
    let status = status_of(&args.socket)?;
    if args.form.json {
        output::record(&status)?;
    } else {
        for line in describe(&status) {
            output::line(&line)?;
        }
        if !status.guests.is_empty() {
            args.form.show(&guests(&status))?;
        }
    }
    Ok(Verdict::Yes)
}

/// # Errors
/// No agent answers, or not to guests.
pub fn pause(args: &PauseArgs) -> Result<Verdict> {
    // Anything but nothing lasts a second at least.
    let seconds = args.span.map(|span| span.as_secs().max(1));
    done(ask(&args.socket, &Command::Pause { seconds })?)?;
    match args.span {
        Some(span) => {
            output::say(&format!("no guests for {}; glean agent resume ends it", Spoken(span)));
        }
        None => output::say("no guests until glean agent resume"),
    }
    Ok(Verdict::Yes)
}

/// # Errors
/// No agent answers, or not to guests.
pub fn resume(args: &ResumeArgs) -> Result<Verdict> {
    done(ask(&args.socket, &Command::Resume)?)?;
    output::say("guests may come again when this workstation is idle");
    Ok(Verdict::Yes)
}

/// What the agent says of itself.
pub(crate) fn status_of(socket: &SocketArgs) -> Result<Status> {
    match ask(socket, &Command::Status)? {
        Answer::Status(status) => Ok(*status),
        Answer::No { reason } => Err(Refusal(reason).into()),
        Answer::Done => {
            anyhow::bail!("the agent gave no status: expected the same release of glean")
        }
    }
}

fn ask(socket: &SocketArgs, command: &Command) -> Result<Answer> {
    let path = socket.socket.clone().unwrap_or_else(usual_socket);
    owner::ask(&path, command).map_err(|error| {
        if !matches!(error, AskError::NoAgent { .. }) {
            return error.into();
        }
        let hint =
            "systemctl status gleaner-agent tells of the service; --socket asks another agent";
        hinted(error.to_string(), hint)
    })
}

/// A configuration that cannot be read is the agent's business, not its owner's.
fn usual_socket() -> PathBuf {
    gleaner_shell::config::load_or_default::<AgentConfig>(Path::new(AGENT_CONFIG))
        .unwrap_or_default()
        .owner_socket()
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        Answer::No { reason } => Err(Refusal(reason).into()),
        Answer::Status(_) => {
            anyhow::bail!("the agent gave its status: expected the same release of glean")
        }
    }
}

fn guests(status: &Status) -> Listing {
    Listing::of(&status.guests)
        .column("subprogram", 9, |guest| guest.subprogram.to_string())
        .shortened("job", (8, 12), |guest| guest.name.clone())
        .column("state", 9, |guest| guest.state.clone())
        .column("for", 7, |guest| seconds(guest.lasted_s))
        .column("attempt", 5, |guest| guest.fence.to_string())
        .listing()
}

fn describe(status: &Status) -> Vec<String> {
    let mut lines = vec![if status.busy {
        format!("{}; busy for {}", status.verdict, seconds(status.lasted_s))
    } else {
        status.verdict.clone()
    }];
    if let Some(pause) = &status.pause {
        let until =
            pause.until.as_deref().map_or("until resumed".into(), |at| format!("until {at}"));
        lines.push(format!("paused by {} {until}", pause.by));
    }
    let link = match (&status.refused, status.connected) {
        (Some(reason), _) => format!("refused: {reason}"),
        (None, true) => "connected".to_owned(),
        (None, false) => "not connected; trying".to_owned(),
    };
    lines.push(format!("{} at {}: {link}", status.name, status.coordinator));
    lines.push(format!(
        "owner's load {:.2} {:.2} {:.2}, {} users, {} cores free of the owner",
        status.load_1m, status.load_5m, status.load_15m, status.users, status.slots
    ));
    lines.extend(status.unready.iter().map(|why| format!("not ready for guests: {why}")));
    for sensor in &status.sensors {
        let detail = sensor.detail.as_deref().map(|detail| format!(": {detail}"));
        lines.push(format!(
            "sensor {} {}{}",
            sensor.sensor,
            sensor.health,
            detail.unwrap_or_default()
        ));
    }
    lines.extend(status.missing.iter().map(|line| format!("missing: {line}")));
    if status.results_waiting > 0 {
        lines.push(format!("{} results wait for the coordinator", status.results_waiting));
    }
    lines.push(match status.guests.len() {
        0 => "no guests".to_owned(),
        1 => "1 guest:".to_owned(),
        many => format!("{many} guests:"),
    });
    lines
}

#[cfg(test)]
mod tests {
    use gleaner_agent::owner::{GuestStatus, PauseStatus, SensorStatus};
    use gleaner_common::id::{Fence, JobId, SubprogramId};

    use super::*;

    #[test]
    fn the_owner_reads_why_and_who() {
        let status = Status {
            name: "ws-042".into(),
            coordinator: "lab:4433".into(),
            busy: true,
            verdict: "busy: pts/3, 2.0 s ago".into(),
            lasted_s: 75.0,
            slots: 6,
            load_1m: 0.12,
            users: 2,
            sensors: vec![SensorStatus {
                sensor: "sessions".into(),
                health: "absent".into(),
                detail: Some("no system bus".into()),
            }],
            pause: Some(PauseStatus { by: "ada".into(), until: Some("17:40".into()) }),
            connected: true,
            guests: vec![GuestStatus {
                fence: Fence::of(99),
                subprogram: SubprogramId { job: JobId(7), index: 12 },
                name: "primes".into(),
                place: Some(0),
                state: "suspended".into(),
                lasted_s: 2.0,
            }],
            missing: vec!["cgroup controller memory: not available".into()],
            ..Status::default()
        };
        insta::assert_snapshot!(describe(&status).join("\n"), @r"
        busy: pts/3, 2.0 s ago; busy for 75 s
        paused by ada until 17:40
        ws-042 at lab:4433: connected
        owner's load 0.12 0.00 0.00, 2 users, 6 cores free of the owner
        sensor sessions absent: no system bus
        missing: cgroup controller memory: not available
        1 guest:
        ");
        insta::assert_snapshot!(guests(&status).fitted(None).0, @r"
        SUBPROGRAM  JOB     STATE      FOR    ATTEMPT
              7.12  primes  suspended  2.0 s  #99
        ");
    }
}
