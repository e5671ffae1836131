//! Every attack that anybody could think of, on a lab of real daemons: each is a
//! claim of what does not work. `SECURITY.md` says who could try it and why not.
//!
//! No harness: all of them share one lab, which belongs to the thread that starts it.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::needless_pass_by_value,
    reason = "all of this is tests, without the attribute that tells clippy so"
)]

mod agents;
mod disks;
mod document;
mod guests;
mod images;
mod leftovers;
mod logins;
mod peers;
mod strangers;
mod terminals;
mod tokens;
mod users;

use std::process::ExitCode;

use gleaner_hostile::attacks::{self, Claim};

fn main() -> ExitCode {
    attacks::run(&claims())
}

/// All of them, in the order of `SECURITY.md`.
fn claims() -> Vec<Claim> {
    let files = [
        document::CLAIMS,
        guests::CLAIMS,
        leftovers::CLAIMS,
        disks::CLAIMS,
        users::CLAIMS,
        users::ALONE,
        tokens::CLAIMS,
        terminals::CLAIMS,
        logins::CLAIMS,
        logins::ALONE,
        strangers::CLAIMS,
        peers::CLAIMS,
        agents::CLAIMS,
        images::CLAIMS,
    ];
    files.concat()
}
