//! Identifiers: every id is its own type, so that a workstation's and a
//! subprogram's number never meet as bare integers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl From<$inner> for $name {
            fn from(number: $inner) -> Self {
                Self(number)
            }
        }

        impl From<$name> for $inner {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A workstation, numbered by the coordinator at enrolment. A machine
    /// that enrols again under its old name keeps its number.
    WorkstationId(u32),
    "w"
);
number!(
    /// One submission of a program.
    JobId(u32),
    ""
);
number!(
    /// The number that orders attempts: grows with every placement of any
    /// subprogram and is never given out twice, not even across restarts of
    /// the coordinator. It names the attempt.
    Fence(u64),
    "#"
);
number!(
    /// One life of an agent process. A new one tells the coordinator that
    /// every guest of the old one is dead (nothing outlives its agent).
    Incarnation(u64),
    ""
);
number!(
    /// A guest place of a workstation: 0, 1, .. below its number of places.
    PlaceId(u16),
    "p"
);

/// The part of a job that runs on one workstation: what we place.
///
/// `index` is the value that replaces `{i}`: 0, 1, .. with `--count`, the
/// values of the array with `--array`. Written `JOB.INDEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubprogramId {
    pub job: JobId,
    pub index: u32,
}

impl fmt::Display for SubprogramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseIdError {
    pub text: String,
    pub expected: &'static str,
}

impl FromStr for JobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| ParseIdError {
            text: text.to_owned(),
            expected: "a job's number, such as 7",
        })
    }
}

impl FromStr for SubprogramId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError {
            text: text.to_owned(),
            expected: "a subprogram's number, such as 7.12",
        };
        let (job, index) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self {
            job: job.parse().map_err(|_| wrong())?,
            index: index.parse().map_err(|_| wrong())?,
        })
    }
}

macro_rules! random {
    ($(#[$doc:meta])* $name:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            /// Reads 32 hexadecimal digits; hyphens and white space are passed over,
            /// as the kernel prints them.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let wrong = || ParseIdError { text: text.to_owned(), expected: $expected };
                let digits: String =
                    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
                if digits.len() != 32 {
                    return Err(wrong());
                }
                u128::from_str_radix(&digits, 16)
                    .map(|n| Self(n.to_be_bytes()))
                    .map_err(|_| wrong())
            }
        }
    };
}

random!(
    /// The kernel's random number for one boot of a machine
    /// (`/proc/sys/kernel/random/boot_id`).
    BootId,
    "a boot id of 32 hexadecimal digits"
);
random!(
    /// One life of a workstation's spool: drawn at random whenever it is opened, and
    /// whenever it finds that another took its numbers. What comes back from an older
    /// copy of a disk can so never be taken for something new, nor the other way round.
    SpoolLife,
    "a spool's life of 32 hexadecimal digits"
);

impl From<BootId> for SpoolLife {
    /// The life of records that were numbered by their boot: all before lives had ids,
    /// and what is imported.
    fn from(boot: BootId) -> Self {
        Self(boot.0)
    }
}

/// The BLAKE3 hash that names a staged file's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subprogram_reads_back_as_it_is_written() {
        let id = SubprogramId { job: JobId(7), index: 12 };
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn what_is_no_subprogram_is_refused_with_the_text() {
        for text in ["", "7", "7.", ".7", "7.-1", "a.b", "7.1.2"] {
            assert_eq!(text.parse::<SubprogramId>().unwrap_err().text, text);
        }
    }

    #[test]
    fn the_kernels_form_of_a_boot_id_is_read() {
        let boot: BootId = "0f9c1a52-7b1c-4d4e-9c3a-000102030405\n".parse().unwrap();
        assert_eq!(boot.to_string(), "0f9c1a527b1c4d4e9c3a000102030405");
    }
}
