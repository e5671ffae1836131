//! Configuration files: TOML, read once at start.
//!
//! A type that is loaded says `#[serde(deny_unknown_fields)]`, on every table,
//! so that a misspelt key is an error and not a default; durations and sizes
//! use `gleaner_common::units`.

use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::plain::cut;
use serde::de::DeserializeOwned;

use crate::text;

/// A complaint is a sentence, whatever it quotes.
const COMPLAINT_CHARS_MAX: usize = 500;

/// Why a file is not a configuration. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Often fine: the defaults hold then.
    #[error("no configuration at {}: expected a TOML file", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read the configuration {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    /// `what` also says what was expected.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Invalid { path: PathBuf, line: usize, column: usize, what: String },
}

/// Reads a configuration file.
///
/// # Errors
/// A file that is missing, unreadable, or does not read as a `T`.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    match text::read(path) {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ConfigError::Missing { path: path.to_owned() })
        }
        Err(why) => Err(ConfigError::Unreadable { path: path.to_owned(), why }),
    }
}

/// Reads a configuration file, or takes the defaults where there is none.
///
/// # Errors
/// A file that is unreadable or does not read as a `T`.
pub fn load_or_default<T: DeserializeOwned + Default>(path: &Path) -> Result<T, ConfigError> {
    match load(path) {
        Err(ConfigError::Missing { .. }) => Ok(T::default()),
        other => other,
    }
}

/// Reads a configuration; `path` is for the error only.
///
/// # Errors
/// A text that does not read as a `T`.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let byte = error.span().map_or(0, |span| span.start);
        invalid(path, text, byte, error.message())
    })
}

/// What is wrong with a text, in one line with the line and the column of a
/// byte, both from 1.
pub fn invalid(path: &Path, text: &str, byte: usize, message: &str) -> ConfigError {
    let before = text.get(..byte).unwrap_or(text);
    let line_at = before.rfind('\n').map_or(0, |at| at + 1);
    let (line, column) = (before.matches('\n').count() + 1, before[line_at..].chars().count() + 1);
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let what = cut(&lines.collect::<Vec<_>>().join(", "), COMPLAINT_CHARS_MAX).into_owned();
    ConfigError::Invalid { path: path.to_owned(), line, column, what }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Example {
        #[serde(with = "gleaner_common::units::duration")]
        quiet: Duration,
        places: u16,
        limits: Limits,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Limits {
        #[serde(with = "gleaner_common::units::size")]
        memory: u64,
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = parse::<Example>(Path::new("agent.toml"), text).unwrap_err().to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn an_unknown_key_is_named_with_those_that_exist() {
        check(
            "quiet = \"1min\"\npalces = 2\n",
            "agent.toml:2:1: unknown field `palces`, expected one of `quiet`, `places`, `limits`",
        );
    }

    #[test]
    fn a_bad_unit_is_named_with_an_example() {
        check(
            "\n[limits]\nmemory = \"3 blocks\"\n",
            "agent.toml:3:10: `3 blocks` is not a size: expected a whole number with a unit, \
             such as 512MiB or 2GiB",
        );
        check(
            "quiet = \"1 fortnight\"",
            "agent.toml:1:9: `1 fortnight` is not a duration: expected a number with a unit, \
             such as 30s, 5min or 2h",
        );
    }

    #[test]
    fn a_wrong_type_or_broken_syntax_is_placed() {
        check("places = \"two\"", "agent.toml:1:10: invalid type: string \"two\", expected u16");
        check("places = 70000", "agent.toml:1:10: invalid value: integer `70000`, expected u16");
        check("places = = 3\n", "agent.toml:1:10: extra `=`, expected nothing");
    }

    #[test]
    fn a_text_without_end_or_of_any_depth_is_refused_in_few_words() {
        let endless = load::<Example>(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.ends_with("more than 2097152 bytes: expected less"), "{endless}");
        let deep = "[".repeat(100_000);
        for text in [format!("quiet = {deep}"), format!("{} = 1", "a".repeat(100_000)), deep] {
            let error = parse::<Example>(Path::new("agent.toml"), &text).unwrap_err().to_string();
            assert!(error.chars().count() < 600, "{} bytes", error.len());
        }
    }

    #[test]
    fn a_missing_file_is_told_from_an_unreadable_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        assert!(matches!(load::<Example>(&path), Err(ConfigError::Missing { .. })));
        assert_eq!(load_or_default::<Example>(&path).unwrap().places, 0);
        let error = load::<Example>(dir.path()).unwrap_err();
        assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    }
}
