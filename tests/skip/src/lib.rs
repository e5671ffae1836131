//! Tests that cannot be run here say so aloud, and are counted.
//!
//! A test that needs what a lab needs (root, namespaces, cgroups, the system's
//! tools) fails where `GLEAN_REQUIRE_LAB=1` says that this machine has it all.

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{Write as _, stderr};

/// Set to 1 where no test that needs a lab may be skipped.
const REQUIRE: &str = "GLEAN_REQUIRE_LAB";

/// Names a file with a line for each test that was skipped, to be counted.
const COUNT: &str = "GLEAN_SKIPPED";

/// This machine does not allow a test what a lab needs.
///
/// # Panics
/// It must.
pub fn without_lab(why: impl Display) {
    let required = env::var_os(REQUIRE).is_some_and(|value| value == "1");
    assert!(!required, "{REQUIRE}=1, and a test cannot be run: {why}");
    without(why);
}

/// A test lacks what no machine has to have, such as the traces of others.
pub fn without(why: impl Display) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    // Past the harness, which keeps the words of tests that pass.
    let _ = stderr().write_all(format!("SKIPPED {line}").as_bytes());
    if let Some(path) = env::var_os(COUNT) {
        let file = File::options().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
