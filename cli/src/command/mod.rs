//! The commands: what each takes and does.

pub mod cancel;
pub mod daemon;
pub mod doctor;
pub mod enrol;
pub mod fetch;
pub mod job;
pub mod jobs;
pub mod logs;
pub mod owner;
pub mod pages;
pub mod replay;
mod show;
pub mod submit;
pub mod token;
pub mod trace;
pub mod usage;
mod watch;
mod whereabouts;
pub mod why;
pub mod workstations;

use anyhow::{Result, bail};
use gleaner_lab::guard::{Guarded, guard};

use crate::arguments::{AgentCommand, CollectorCommand, Command, CoordinatorCommand};
use crate::failure::Verdict;
use crate::{bench, demo, install, validate};

/// Does what the command line says.
///
/// # Errors
/// Whatever kept the command from being carried out.
pub fn run(command: Command) -> Result<Verdict> {
    match command {
        Command::Submit(args) => submit::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Job(args) => job::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Cancel(args) => cancel::run(&args),
        Command::Workstations(args) => workstations::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Usage(args) => usage::run(args.command),
        Command::Replay(args) => replay::run(&args.command),
        Command::Trace(args) => trace::run(args.command),
        Command::Enrol(args) => enrol::run(&args),
        Command::Token(args) => token::run(args.command),
        Command::Agent(args) => match args.command {
            None => daemon::agent(&args.run),
            Some(AgentCommand::Status(args)) => owner::status(&args),
            Some(AgentCommand::Pause(args)) => owner::pause(&args),
            Some(AgentCommand::Resume(args)) => owner::resume(&args),
            Some(AgentCommand::Install(args)) => install::agent::install(&args),
            Some(AgentCommand::Uninstall(args)) => install::agent::uninstall(&args),
        },
        Command::Coordinator(args) => match args.command {
            None => daemon::coordinator(&args.run),
            Some(CoordinatorCommand::Install(args)) => install::coordinator::install(&args),
            Some(CoordinatorCommand::Uninstall(args)) => install::coordinator::uninstall(&args),
        },
        Command::Collector(args) => match args.command {
            None => daemon::collector(&args.run),
            Some(CollectorCommand::Install(args)) => install::collector::install(&args),
            Some(CollectorCommand::Uninstall(args)) => install::collector::uninstall(&args),
        },
        Command::Demo(args) => guarded(|| demo::run(&args)),
        Command::Validate(args) => guarded(|| validate::run(&args)),
        Command::Bench(args) => bench::run(&args).map(|()| Verdict::Yes),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
        Command::Hold(args) => bench::migrate::guest::hold(&args).map(|()| Verdict::Yes),
        Command::Ping(args) => bench::messages::rank::run(args).map(|()| Verdict::Yes),
        Command::Keeper(_) => {
            unreachable!("a keeper has its own exit codes and does not come here")
        }
    }
}

/// A lab of which nothing is left, whatever ends it.
fn guarded(work: impl FnOnce() -> Result<bool>) -> Result<Verdict> {
    match guard()? {
        Guarded::Below => work().map(Verdict::from),
        Guarded::Ended(code) => Ok(Verdict::Ended(u8::try_from(code)?.into())),
        Guarded::Interrupted => bail!("interrupted; nothing of the lab is left"),
    }
}
