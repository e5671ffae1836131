//! A workstation's name where it becomes a name on disk.
//!
//! The promise: a [`WorkstationName`] is one safe path component, whoever
//! chose it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The longest name. Leaves room for endings within the 255 bytes that file
/// systems allow.
pub const NAME_BYTES_MAX: usize = 200;

/// 1 to [`NAME_BYTES_MAX`] letters, digits, `.`, `_` and `-`, not beginning
/// with `.` or `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct WorkstationName(String);

/// Why a text is not a workstation's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` cannot name a workstation's log: expected at most {NAME_BYTES_MAX} letters, digits, \
     `.`, `_` or `-`, beginning with a letter or digit"
)]
pub struct NameError {
    /// What was offered, made printable and cut short.
    pub text: String,
}

impl WorkstationName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkstationName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError { text: text.chars().take(60).flat_map(char::escape_debug).collect() })
        }
    }
}

impl fmt::Display for WorkstationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_directory() {
        for text in
            ["", ".", "..", ".lock", "a/b", "/etc", "-rf", "a b", "a\0", "ä", &"x".repeat(201)]
        {
            assert!(text.parse::<WorkstationName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn host_names_are_accepted() {
        for text in ["ada", "ws-01.lab.example.org", "7", "A_b", &"x".repeat(200)] {
            assert_eq!(text.parse::<WorkstationName>().unwrap().as_str(), text);
        }
    }
}
