//! A collector that is killed at any moment has everything that it confirmed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use gleaner_collector::store::Store;

use crate::records::{batch, kept};

const DIRECTORY: &str = "GLEANER_TEST_CRASH_DIRECTORY";

/// Not a test of its own: the process that the test below kills.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Ok(data) = std::env::var(DIRECTORY) else { return };
    let mut store = Store::open(data.as_ref()).unwrap();
    let mut out = std::io::stdout().lock();
    for round in 0.. {
        let (first, last) = (round * 7 + 1, round * 7 + 7);
        let batches = [batch("ada", first..=last), batch("bob", first..=last)];
        for answer in store.append(&batches) {
            answer.unwrap();
        }
        writeln!(out, "confirmed {last}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_collector_killed_at_any_moment_has_all_that_it_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    for confirmations in [1, 2, 3, 20, 50, 120] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_appends_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.map_while(Result::ok).filter_map(|line| {
            // The harness's own words may stand before the first.
            line.rsplit_once("confirmed ").map(|(_, last)| last.parse::<u64>().unwrap())
        });
        let confirmed = told.take(confirmations).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        for workstation in ["ada", "bob"] {
            let sequences: Vec<_> =
                kept(dir.path(), workstation).iter().map(|r| r.sequence).collect();
            assert!(sequences.len() as u64 >= confirmed, "{workstation}: {confirmed} confirmed");
            assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
        }
        // The next collector takes over at once and finds nothing to complain of.
        Store::open(dir.path()).unwrap().append(&[batch("ada", 1..=1)])[0].as_ref().unwrap();
    }
}
