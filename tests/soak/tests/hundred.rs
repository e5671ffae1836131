//! A hundred real faults on a lab of real daemons, other ones at each run.

use std::process::Command;

/// Nothing is lost, doubled, wrong or stuck. What was is printed with the seed and a table.
#[test]
fn a_hundred_faults_cost_nothing() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_glean-soak"));
    let done = soak.args(["--faults", "100"]).output().expect("it can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    if let Some((_, why)) = said.split_once("no lab can be had here: ") {
        return gleaner_skip::without_lab(why.trim());
    }
    let table = String::from_utf8_lossy(&done.stdout);
    println!("{said}{table}");
    assert!(done.status.success(), "{}: {said}{table}", done.status);
}
