//! What a catcher said: a test's lines, or the figures of `glean-simulate --json`.

use std::process::Output;

use serde::Deserialize;

/// A sentence of the table.
const SAID_MAX: usize = 120;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passes: bool,
    /// How many tests there were.
    pub(crate) ran: usize,
    /// The tests that failed.
    pub(crate) failed: Vec<String>,
    /// How much it took to notice, where that is counted.
    pub(crate) after: String,
    /// The line that says what was wrong.
    pub(crate) said: String,
}

#[derive(Deserialize)]
struct Figures {
    labs: u64,
    steps: u64,
    failures: Vec<Failed>,
}

#[derive(Deserialize)]
struct Failed {
    kind: String,
    message: String,
}

impl Verdict {
    pub(crate) fn of(output: &Output) -> Self {
        let out = String::from_utf8_lossy(&output.stdout);
        let all = format!("{out}{}", String::from_utf8_lossy(&output.stderr));
        Self::read(output.status.success(), &all, &out)
    }

    fn read(passes: bool, all: &str, out: &str) -> Self {
        let figures = out.lines().find_map(|line| serde_json::from_str::<Figures>(line).ok());
        if let Some(Figures { labs, steps, failures }) = figures {
            let after = format!("{labs} labs, {steps} steps");
            let said = failures.first().map_or(String::new(), Failed::said);
            return Self { passes, after, said, ..Self::default() };
        }
        let tests: Vec<_> = out.lines().filter_map(test).collect();
        let failed = tests.iter().filter(|(_, ended)| *ended == "FAILED");
        let failed = failed.map(|(name, _)| (*name).to_owned()).collect();
        let said = if passes { String::new() } else { last_words(all) };
        Self { passes, ran: tests.len(), failed, after: String::new(), said }
    }
}

impl Failed {
    /// By its promise's name, which the message begins with, or its place.
    fn said(&self) -> String {
        let Self { kind, message } = self;
        let words =
            if message.starts_with(kind) { message.clone() } else { format!("{kind}: {message}") };
        short(&words)
    }
}

/// A test's name and how it ended.
fn test(line: &str) -> Option<(&str, &str)> {
    let (name, ended) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.trim_end_matches(" - should panic"), ended))
}

/// The line that says what was wrong: after a panic's place, or the last error.
fn last_words(said: &str) -> String {
    let mut lines = said.lines();
    let panicked = lines.find(|line| line.contains("panicked at")).and_then(|_| lines.next());
    let error = || said.lines().find(|line| line.starts_with("error"));
    short(panicked.or_else(error).unwrap_or("it hangs"))
}

fn short(words: &str) -> String {
    words.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).take(SAID_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tests_name_and_the_line_after_a_panics_place_say_what_was_wrong() {
        let said = "running 2 tests\ntest a::b ... ok\ntest c - should panic ... FAILED\n\
            thread 'c' panicked at x.rs:1:2:\n7.1 runs twice\nnote: ..";
        let verdict = Verdict::read(false, said, said);
        assert_eq!((verdict.ran, verdict.failed), (2, vec!["c".to_owned()]));
        assert_eq!(verdict.said, "7.1 runs twice");
        assert_eq!(last_words("error: no such test\nmore"), "error: no such test");
        assert_eq!(last_words(""), "it hangs");
    }

    #[test]
    fn labs_say_after_how_many_steps_they_noticed() {
        let failed = r#"{"kind":"one-attempt","message":"one-attempt: 7.1 runs twice\nthere"}"#;
        let out = format!("{{\"labs\":3,\"steps\":4000,\"failures\":[{failed}]}}\n");
        let verdict = Verdict::read(false, &out, &out);
        assert_eq!(verdict.after, "3 labs, 4000 steps");
        assert_eq!(verdict.said, "one-attempt: 7.1 runs twice");
        assert!(Verdict::read(true, &out, &out).passes);
    }
}
