//! The binary `glean`: every daemon and every command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gleaner_cli::main()
}
