//! `glean`: one binary for every daemon and every command.
//!
//! ```text
//! main ─► arguments ─► command ──────┬─► ask ──► the coordinator        users' commands
//!                                    ├─► the rooms' run(config)         daemons
//!                                    ├─► install                        what a machine needs
//!                                    └─► demo, validate ─► gleaner_lab  labs on this machine
//! output (standard output) ◄── answers ──┘└── progress, failures ──► standard error
//! ```
//!
//! Knows how to ask and how to show; decides nothing about jobs or
//! workstations.

pub mod arguments;
pub mod ask;
pub mod command;
pub mod demo;
pub mod failure;
pub mod flags;
pub mod install;
pub mod output;
pub mod staging;
pub mod validate;
pub mod values;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Reads the command line, does what it says, and says how it went.
///
/// Starts no thread before a command does: the agent forks first.
pub fn main() -> ExitCode {
    match arguments::Cli::try_parse() {
        Ok(arguments::Cli { command: arguments::Command::Keeper(_), .. }) => {
            gleaner_agent::keeper_main()
        }
        Ok(cli) => failure::conclude(cli.command.run()),
        Err(error) => failure::of_arguments(&error, &arguments::Cli::command()),
    }
}
