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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[ignore = "run by the other one"]
    fn skips() {
        without_lab("it has no lab");
    }

    #[test]
    fn a_skipped_lab_test_is_counted_and_fails_where_a_lab_is_required() {
        let own = env::current_exe().expect("a test is a program");
        let count = env::temp_dir().join(format!("gleaner-skip-{}", std::process::id()));
        let skip = |required: &str| {
            let mut test = Command::new(&own);
            test.args(["tests::skips", "--exact", "--ignored"]);
            test.env(REQUIRE, required).env(COUNT, &count).output().expect("it can be run")
        };
        let skipped = skip("0");
        let said = String::from_utf8_lossy(&skipped.stderr).into_owned();
        assert!(skipped.status.success() && said.contains("it has no lab"), "{said}");
        assert!(!skip("1").status.success());
        let counted = std::fs::read_to_string(&count).expect("it is counted");
        std::fs::remove_file(&count).expect("it is there");
        assert_eq!(counted, "tests::skips: it has no lab\n");
    }
}
