//! The command line: every command, an example of each, and who does it.
//!
//! What a command takes is beside what it does, in `command`; here is the
//! tree that help, completions and man pages are made from. Nobody below
//! knows it: who needs the tree is given it.

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use gleaner_lab::guard::{Guarded, guard};

use crate::command::{
    cancel, coordinator_backup, daemon, doctor, enrol, fetch, identity, job, jobs, logs, owner,
    pages, policies, presence, replay, shares, submit, token, trace, usage, users, why,
    workstations,
};
use crate::failure::Verdict;
use crate::flags::Misspelt;
use crate::install::{self, agent, collector, coordinator};
use crate::{demo, validate};

/// Lends idle workstations to parallel programs.
#[derive(Debug, Parser)]
#[command(name = "glean", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  glean demo                                        a lab on this machine, live
  glean submit --count 50 --wait -- ./simulate {i}  run a program on idle workstations
  glean why 7.12                                    why is this subprogram not running?")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub misspelt: Misspelt,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the program many times on idle workstations.
    #[command(after_help = "Examples:
  glean submit --count 50 -- ./simulate --seed {i}
  glean submit --array 1-20 --input model.py --out results --wait -- python3 model.py {i}
  glean submit --replicas 2 --count 50 -- ./simulate --seed {i}   on two workstations each, compared
  glean submit --count 50 --class malleable --min 2 --max 16 --ask -- ./simulate {i}   would it run?
  glean submit --count 50 --cores 2 --memory 512MiB --prefer 'speed > 1000' -- ./simulate {i}

{i} in the command is replaced by the subprogram's index. A program given by a relative path, such
as ./simulate, is staged with the job. Symbolic links to files are followed.
Exit code with --wait: 0 all succeeded, 1 some did not, 2 it could not be done.")]
    Submit(Box<submit::Args>),
    /// List the jobs, newest first.
    #[command(after_help = "Example:\n  glean jobs --json | jq 'select(.summary.failed > 0)'")]
    Jobs(jobs::Args),
    /// Show a job and its subprograms, or a subprogram and its attempts.
    #[command(after_help = "Examples:\n  glean job 7\n  glean job 7.12")]
    Job(job::Args),
    /// Print what subprograms printed.
    #[command(after_help = "Examples:
  glean logs 7.12 > out.txt     one subprogram, as it printed it
  glean logs 7 --stderr         all of a job, each under its number
  glean logs 7.12 --replica 2   one replica of it, whether or not it counts

On a terminal control codes other than colours are spelt out (--raw prints them); in a pipe or a
file every byte is as it was printed.")]
    Logs(logs::Args),
    /// Bring the files that a job left in `$GLEAN_OUTPUT`, checked, to DIR/<index>/.
    #[command(after_help = "Example:\n  glean fetch 7 --out results")]
    Fetch(fetch::Args),
    /// Cancel a job: stop what runs and drop what waits.
    #[command(after_help = "Example:\n  glean cancel 7")]
    Cancel(cancel::Args),
    /// List the workstations: idle or busy, why, and how many guests.
    #[command(
        after_help = "Example:\n  glean workstations --json | jq -r 'select(.state == \"idle\").name'"
    )]
    #[command(args_conflicts_with_subcommands = true)]
    Workstations(workstations::Args),
    /// Show what users have used of the lab, beside their shares: the first comes next.
    #[command(after_help = "Example:\n  glean shares --json | jq 'select(.running > 10).user'")]
    Shares(shares::Args),
    /// List the scheduling policies that a coordinator can be given, and where each is from.
    #[command(after_help = "Example:\n  glean policies --json | jq -r .policy")]
    Policies(policies::Args),
    /// Say why a job or subprogram is not running, or a workstation not used.
    #[command(after_help = "Examples:\n  glean why 7\n  glean why 7.12\n  glean why ws-042")]
    Why(why::Args),
    /// Check this machine's part of the lab, and say how to repair what is wrong.
    #[command(after_help = "Examples:
  glean doctor                may I use the lab, and is it well?
  sudo glean doctor --agent   is this workstation fit for guests?

Exit code: 0 all is well, 1 something needs repair.")]
    Doctor(doctor::Args),
    /// Look at the usage records that the collector keeps.
    #[command(after_help = "Example:\n  glean usage stats --from 2026-11-01T00:00:00Z")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Usage(usage::Args),
    /// Execute programs on logged workstations: what would they do, with their owners?
    #[command(after_help = "Example:
  glean replay campaign data/campaigns/phalen1994.toml --out results")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Replay(replay::Args),
    /// Look at traces of message-passing programs, and make them.
    #[command(after_help = "Example:\n  glean trace check data/traces/fft.trace")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Trace(trace::Args),
    /// Enrol yourself, to submit jobs, with a token from an admin.
    #[command(after_help = "Example:
  glean enrol --coordinator coordinator.lab:4433 --token glean-...")]
    Enrol(enrol::Args),
    /// Make, list and revoke enrolment tokens (admins).
    #[command(
        after_help = "Example:\n  glean token create --role agent --lifetime 1h --name ws-042"
    )]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Token(token::Args),
    /// List and remove users (admins).
    #[command(after_help = "Example:\n  glean users rm ada")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Users(users::Args),
    /// Renew your own key.
    #[command(after_help = "Example:\n  glean identity rotate")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Identity(identity::Args),
    /// Run the agent, which lends this workstation; or ask it.
    #[command(after_help = "Examples:
  glean agent status        why is this workstation busy or idle, and who runs what on it?
  glean agent pause 2h      no guests for two hours
  sudo glean agent install --coordinator coordinator.lab:4433 --token glean-...")]
    #[command(args_conflicts_with_subcommands = true)]
    Agent(AgentArgs),
    /// Run the coordinator, which places subprograms on workstations.
    #[command(after_help = "Examples:
  sudo glean coordinator install
  glean coordinator --data ./lab --listen 127.0.0.1:4433")]
    #[command(args_conflicts_with_subcommands = true)]
    Coordinator(CoordinatorArgs),
    /// Run the collector, which keeps the workstations' usage records.
    #[command(after_help = "Example:
  sudo glean collector install --coordinator localhost:4433 --token glean-...")]
    #[command(args_conflicts_with_subcommands = true)]
    Collector(CollectorArgs),
    /// Show a whole lab on this machine: owners come and go, a job runs.
    #[command(after_help = "Example:\n  glean demo --json")]
    Demo(demo::Args),
    /// Compare what replay says with a real run in a lab on this machine.
    #[command(after_help = "Examples:
  glean validate                                  ten runs of a built-in program
  glean validate data/traces/fft.trace --runs 3   a program of your own
  glean validate workload data/campaigns/workloads/ghafoor-5.6.toml   jobs that arrive

Exit code: 0 the distance of end times is small enough, 1 it is not.")]
    #[command(args_conflicts_with_subcommands = true)]
    Validate(validate::Args),
    /// Write the completions of a shell.
    #[command(after_help = "Example:
  glean completions bash > /etc/bash_completion.d/glean")]
    Completions(pages::CompletionsArgs),
    /// Write the manual pages.
    #[command(after_help = "Example:\n  glean man --out /usr/local/share/man/man1")]
    Man(pages::ManArgs),
    /// Tell this machine's agent how long nobody has used this desktop; sessions start it.
    #[command(after_help = "Example:
  glean presence &        # in the start file of a desktop that has no XDG autostart

It has no rights of its own. The agent takes its word for its user's own sessions only.")]
    Presence(presence::Args),
    /// The first process of a guest place; the agent starts it.
    #[command(
        hide = true,
        after_help = "Example:\n  the agent knows how; there is none for people"
    )]
    Keeper(daemon::KeeperArgs),
}

impl Command {
    /// Does what the command line says.
    ///
    /// # Errors
    /// Whatever kept the command from being carried out.
    pub fn run(self) -> Result<Verdict> {
        let all = Cli::command;
        match self {
            Self::Submit(args) => submit::run(&args),
            Self::Jobs(args) => jobs::run(&args),
            Self::Job(args) => job::run(&args),
            Self::Logs(args) => logs::run(&args),
            Self::Fetch(args) => fetch::run(&args),
            Self::Cancel(args) => cancel::run(&args),
            Self::Workstations(args) => workstations::run(&args),
            Self::Shares(args) => shares::run(&args),
            Self::Policies(args) => policies::run(&args),
            Self::Why(args) => why::run(&args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Usage(args) => usage::run(args.command),
            Self::Replay(args) => replay::run(&args.command),
            Self::Trace(args) => trace::run(args.command),
            Self::Enrol(args) => enrol::run(&args),
            Self::Token(args) => token::run(args.command),
            Self::Users(args) => users::run(args.command),
            Self::Identity(args) => identity::run(&args.command),
            Self::Agent(args) => match args.command {
                None => daemon::agent(&args.run),
                Some(AgentCommand::Status(args)) => owner::status(&args),
                Some(AgentCommand::Pause(args)) => owner::pause(&args),
                Some(AgentCommand::Resume(args)) => owner::resume(&args),
                Some(AgentCommand::Install(args)) => agent::install(&args, &all()),
                Some(AgentCommand::Uninstall(args)) => agent::uninstall(&args, &all()),
            },
            Self::Coordinator(args) => match args.command {
                None => daemon::coordinator(&args.run),
                Some(CoordinatorCommand::Install(args)) => coordinator::install(&args, &all()),
                Some(CoordinatorCommand::Uninstall(args)) => coordinator::uninstall(&args, &all()),
                Some(CoordinatorCommand::Backup(args)) => coordinator_backup::backup(&args),
                Some(CoordinatorCommand::Restore(args)) => coordinator_backup::restore(&args),
            },
            Self::Collector(args) => match args.command {
                None => daemon::collector(&args.run),
                Some(CollectorCommand::Install(args)) => collector::install(&args, &all()),
                Some(CollectorCommand::Uninstall(args)) => collector::uninstall(&args, &all()),
            },
            Self::Demo(args) => guarded(|| demo::run(&args)),
            Self::Validate(args) => guarded(|| validate::run(&args)),
            Self::Completions(args) => pages::completions(&args, &mut all()),
            Self::Man(args) => pages::man(&args, all()),
            Self::Presence(args) => presence::run(&args),
            Self::Keeper(_) => {
                unreachable!("a keeper has its own exit codes and does not come here")
            }
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    #[command(flatten)]
    pub run: daemon::RunAgent,
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Say why this workstation is busy or idle, and who runs what on it.
    #[command(after_help = "Example:\n  glean agent status --json")]
    Status(owner::StatusArgs),
    /// Send the guests away and let none come, for a while or until resumed.
    #[command(after_help = "Examples:\n  glean agent pause 2h\n  glean agent pause")]
    Pause(owner::PauseArgs),
    /// Let guests come again.
    #[command(after_help = "Example:\n  glean agent resume")]
    Resume(owner::ResumeArgs),
    /// Set up this workstation: files, enrolment and service. Safe to repeat.
    #[command(after_help = "Example:
  sudo glean agent install --coordinator coordinator.lab:4433 --token glean-...")]
    Install(install::MemberArgs),
    /// Take away what install set up; --purge takes data and identity too.
    #[command(after_help = "Example:\n  sudo glean agent uninstall --purge")]
    Uninstall(install::UninstallArgs),
}

#[derive(Debug, clap::Args)]
pub struct CoordinatorArgs {
    #[command(flatten)]
    pub run: daemon::RunCoordinator,
    #[command(subcommand)]
    pub command: Option<CoordinatorCommand>,
}

#[derive(Debug, Subcommand)]
pub enum CoordinatorCommand {
    /// Set up a coordinator on this machine: user, files and service. Safe to repeat.
    #[command(after_help = "Example:\n  sudo glean coordinator install")]
    Install(install::CoordinatorArgs),
    /// Take away what install set up; --purge takes the jobs and the authority too.
    #[command(after_help = "Example:\n  sudo glean coordinator uninstall")]
    Uninstall(install::UninstallArgs),
    /// Save jobs, results, identities and the authority in one file, while the coordinator runs.
    ///
    /// Whoever has the file can be anybody in this lab: keep it as you keep keys. Staged files
    /// (inputs, and what guests printed and left) are not in it. They are in `blobs` of the data
    /// directory, never change, and any tool can copy them, after this.
    #[command(after_help = "Example:\n  sudo glean coordinator backup lab.backup")]
    Backup(coordinator_backup::BackupArgs),
    /// Bring a backup back, while the coordinator does not run.
    ///
    /// What it takes the place of is kept in the data directory, as `replaced-` and the time. Agents
    /// tell the coordinator again what has ended since the backup, as far as they remember; what
    /// it does not know any more, `glean workstations` and its log name. Programs of ranks begin again.
    #[command(after_help = "Example:\n  sudo glean coordinator restore lab.backup")]
    Restore(coordinator_backup::RestoreArgs),
}

#[derive(Debug, clap::Args)]
pub struct CollectorArgs {
    #[command(flatten)]
    pub run: daemon::RunCollector,
    #[command(subcommand)]
    pub command: Option<CollectorCommand>,
}

#[derive(Debug, Subcommand)]
pub enum CollectorCommand {
    /// Set up a collector on this machine: user, files, enrolment and service. Safe to repeat.
    #[command(after_help = "Example:
  sudo glean collector install --coordinator localhost:4433 --token glean-...")]
    Install(install::MemberArgs),
    /// Take away what install set up; --purge takes the usage records too.
    #[command(after_help = "Example:\n  sudo glean collector uninstall")]
    Uninstall(install::UninstallArgs),
}

/// A lab of which nothing is left, whatever ends it.
fn guarded(work: impl FnOnce() -> Result<bool>) -> Result<Verdict> {
    match guard()? {
        Guarded::Below => work().map(Verdict::from),
        Guarded::Ended(code) => Ok(Verdict::Ended(u8::try_from(code)?.into())),
        Guarded::Interrupted => bail!("interrupted; nothing of the lab is left"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Command as Clap;

    use super::*;

    fn each(command: &Clap, path: &str, check: &mut impl FnMut(&Clap, &str)) {
        let path = format!("{path} {}", command.get_name());
        check(command, path.trim());
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            each(inner, &path, check);
        }
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        let mut seen = 0;
        each(&Cli::command(), "", &mut |command, path| {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{path} has no example");
            assert!(command.get_about().is_some(), "{path} does not say what it does");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
            }
            seen += 1;
        });
        assert!(seen > 30, "only {seen} commands were walked");
    }

    /// What answers with nothing that a program could read: all else is a listing
    /// or a report. The documents' test sees which of them print a table.
    const NOT_LISTINGS: [&str; 33] = [
        "glean logs",
        "glean fetch",
        "glean cancel",
        "glean workstations drain",
        "glean workstations undrain",
        "glean workstations rm",
        "glean usage plot",
        "glean trace scale",
        "glean trace record",
        "glean trace play",
        "glean trace join",
        "glean trace ring",
        "glean enrol",
        "glean token revoke",
        "glean users rm",
        "glean identity rotate",
        "glean agent",
        "glean agent pause",
        "glean agent resume",
        "glean agent install",
        "glean agent uninstall",
        "glean coordinator",
        "glean coordinator install",
        "glean coordinator uninstall",
        "glean coordinator backup",
        "glean coordinator restore",
        "glean collector",
        "glean collector install",
        "glean collector uninstall",
        "glean completions",
        "glean man",
        "glean presence",
        "glean keeper",
    ];

    #[test]
    fn a_spans_end_an_output_and_an_archive_have_one_spelling_each() {
        each(&Cli::command(), "", &mut |command, path| {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let long = argument.get_long().unwrap_or_default();
                let drifts = ["to", "dir", "output", "archive", "end"].contains(&long);
                assert!(!drifts, "{path} --{long}: expected --until, --out or --usage");
                let has_data = path.starts_with("glean coordinator");
                assert!(long != "data" || has_data, "{path} --data");
            }
        });
    }

    #[test]
    fn every_listing_has_json() {
        let mut without = vec![];
        each(&Cli::command(), "", &mut |command, path| {
            let has = |name| command.get_arguments().any(|argument| argument.get_id() == name);
            if !has("json") && !command.is_subcommand_required_set() {
                without.push(path.to_owned());
            }
            assert!(!has("long") || has("json"), "{path} shows all, but not in records");
        });
        assert_eq!(without, NOT_LISTINGS);
    }
}
