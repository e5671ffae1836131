//! How a command ends: its exit code, and what it says when it failed.
//!
//! 0: done. 1: the answer is no, or nothing. 2: it could not be done, with
//! one line that says what, where and what was expected, and a second one
//! with the next step if there is one.

use std::process::ExitCode;

use gleaner_common::plain::cut;

use crate::output::{self, Closed};

/// What a command that could be carried out found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Yes,
    /// The answer is no, or nothing.
    No,
    /// A daemon ended, with an exit code of its own.
    Ended(ExitCode),
}

impl From<bool> for Verdict {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

const NO: u8 = 1;
const COULD_NOT: u8 = 2;

/// What is to be done next, put round an error.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    pub message: String,
    pub hint: String,
}

/// An error with a next step.
pub fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { message: message.into(), hint: hint.into() }.into()
}

/// The coordinator's "no": what was asked for is not there or not allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Ends the program: says what went wrong, if anything did.
pub fn conclude(result: anyhow::Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(NO),
        Ok(Verdict::Ended(code)) => code,
        // Whoever read our answer has read enough of it.
        Err(error) if error.downcast_ref::<Closed>().is_some() => ExitCode::SUCCESS,
        Err(error) => {
            describe(&error).lines().for_each(output::say);
            let refused = error.downcast_ref::<Refusal>().is_some();
            ExitCode::from(if refused { NO } else { COULD_NOT })
        }
    }
}

/// What is said in one line at most, so that its end is still seen.
const LINE_CHARS_MAX: usize = 900;

/// The one or two lines for an error, harmless for a terminal and short,
/// whatever the error quotes.
pub fn describe(error: &anyhow::Error) -> String {
    let line = format!("glean: {}", cut(&one_line(error), LINE_CHARS_MAX));
    match error.downcast_ref::<Hinted>() {
        Some(Hinted { hint, .. }) => format!("{line}\nhint: {}", cut(hint, LINE_CHARS_MAX)),
        None => line,
    }
}

/// An error and its causes on one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            // Some messages carry their source's already.
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Ends the program after a command line that does not read: help and version
/// were asked for, a mistake gets our two lines.
pub fn of_arguments(error: &clap::Error, all: &clap::Command) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nothing can be done for a reader who has gone.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The help says what was missing better than a line could.
        let _ = error.print();
        return ExitCode::from(COULD_NOT);
    }
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let said = describe_arguments(&error.render().to_string(), &command_of(words, all));
    said.lines().for_each(output::say);
    ExitCode::from(COULD_NOT)
}

/// The command that was meant, as far as it reads: `glean agent pause`.
fn command_of(words: impl Iterator<Item = String>, all: &clap::Command) -> String {
    let (mut here, mut name) = (all, all.get_name().to_owned());
    for word in words {
        let Some(inner) = here.find_subcommand(&word) else { break };
        name = format!("{name} {word}");
        here = inner;
    }
    name
}

/// clap's message, in paragraphs, as our two lines.
fn describe_arguments(text: &str, command: &str) -> String {
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let first = joined(paragraphs.next().unwrap_or_default());
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    // The first of its tips: how to pass the same as a value is nobody's question.
    let tip =
        paragraphs.find_map(|part| part.trim_start().strip_prefix("tip: ")?.split("tip: ").next());
    let hint = tip.map_or_else(|| format!("{command} --help shows how"), joined);
    format!("glean: {what}\nhint: {hint}")
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_that_its_error_names_already_is_not_said_twice() {
        let error = Err::<(), _>(anyhow::anyhow!("permission denied"))
            .context("cannot write /x: permission denied")
            .context("cannot install")
            .unwrap_err();
        assert_eq!(describe(&error), "glean: cannot install: cannot write /x: permission denied");
    }

    #[test]
    fn an_error_that_quotes_lines_and_escape_codes_is_one_short_line() {
        let name = "x\nglean: all is well\u{1b}[2K\u{202e}\r".to_owned() + &"y".repeat(1_000_000);
        let said = describe(&hinted(format!("no job `{name}`"), name.as_str()));
        assert_eq!(said.lines().count(), 2);
        assert!(said.chars().count() < 2_000);
        let is_harmful = |c| c != '\n' && gleaner_common::plain::is_harmful(c);
        assert!(!said.contains(is_harmful), "{said:.200}");
    }

    #[test]
    fn the_next_step_is_the_second_line() {
        let error = hinted("no identity in /x", "glean enrol makes one").context("cannot ask");
        assert_eq!(
            describe(&error),
            "glean: cannot ask: no identity in /x\nhint: glean enrol makes one"
        );
    }

    #[test]
    fn a_mistake_on_the_command_line_is_two_lines() {
        let said = |line: &str| {
            let words = line.split(' ');
            let error = <crate::arguments::Cli as clap::Parser>::try_parse_from(words.clone())
                .unwrap_err()
                .render()
                .to_string();
            let all = <crate::arguments::Cli as clap::CommandFactory>::command();
            describe_arguments(&error, &command_of(words.skip(1).map(str::to_owned), &all))
        };
        insta::assert_snapshot!(said("glean jbos"), @r"
        glean: unrecognized subcommand 'jbos'
        hint: some similar subcommands exist: 'job', 'jobs'
        ");
        insta::assert_snapshot!(said("glean submit --count many -- true"), @r"
        glean: invalid value 'many' for '--count <N>': expected a whole number, such as 50
        hint: glean submit --help shows how
        ");
        insta::assert_snapshot!(said("glean submit --output results -- true"), @r"
        glean: unexpected argument '--output' found
        hint: a similar argument exists: '--out'
        ");
        insta::assert_snapshot!(said("glean fetch 7 --to results"), @r"
        glean: unexpected argument '--to <TO>' found
        hint: a similar argument exists: '--until or --out'
        ");
        insta::assert_snapshot!(said("glean usage ls --data logs"), @r"
        glean: unexpected argument '--data <DATA>' found
        hint: a similar argument exists: '--usage'
        ");
        insta::assert_snapshot!(said("glean token create"), @r"
        glean: the following required arguments were not provided: --role <ROLE>
        hint: glean token create --help shows how
        ");
        insta::assert_snapshot!(said("glean agent pause soon"), @r"
        glean: invalid value 'soon' for '[SPAN]': `soon` is not a duration: expected a number with a unit, such as 30s, 5min or 2h
        hint: glean agent pause --help shows how
        ");
    }
}
