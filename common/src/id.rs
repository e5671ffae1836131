//! Identifiers: every id is its own type, so that a workstation's and a
//! subprogram's number never meet as bare integers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// One life of a coordinator's store: drawn anew at every start, so that a
    /// store which went back in time is not taken for its later self.
    Generation(u32),
    "g"
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

/// What orders attempts: grows with every placement of any subprogram and is
/// never given out twice, not even across restarts of the coordinator or from
/// a restored copy of its store. It names the attempt.
///
/// The generation comes first in the order. People see the number, which goes
/// on from one generation to the next.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    pub generation: Generation,
    pub number: u32,
}

impl Fence {
    /// Of the generation before all others.
    pub const fn of(number: u32) -> Self {
        Self { generation: Generation(0), number }
    }

    /// One number, ordered as fences are: how they are kept and sent.
    pub fn packed(self) -> u64 {
        u64::from(self.generation.0) << 32 | u64::from(self.number)
    }

    pub fn unpacked(packed: u64) -> Self {
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { generation: Generation(low(packed >> 32)), number: low(packed) }
    }

    /// The one after it. Past the last number comes the next generation.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// That many after it.
    #[must_use]
    pub fn plus(self, many: u64) -> Self {
        Self::unpacked(self.packed().saturating_add(many))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.generation {
            Generation(0) => Ok(()),
            generation => write!(f, "/{generation}"),
        }
    }
}

/// Rows that people and programs read have the number alone.
impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            self.number.serialize(serializer)
        } else {
            self.packed().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            u32::deserialize(deserializer).map(Self::of)
        } else {
            u64::deserialize(deserializer).map(Self::unpacked)
        }
    }
}

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

macro_rules! sixteen_bytes {
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

sixteen_bytes!(
    /// The kernel's random number for one boot of a machine
    /// (`/proc/sys/kernel/random/boot_id`).
    BootId,
    "a boot id of 32 hexadecimal digits"
);
sixteen_bytes!(
    /// One life of a workstation's spool: drawn at random whenever it is opened, and
    /// whenever it finds that another took its numbers. What comes back from an older
    /// copy of a disk can so never be taken for something new, nor the other way round.
    SpoolLife,
    "a spool's life of 32 hexadecimal digits"
);
sixteen_bytes!(
    /// What a machine calls itself, as a hash: the same at every boot, and another
    /// one on a machine that a disk was copied to.
    MachineId,
    "a machine's id of 32 hexadecimal digits"
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
    fn a_later_generation_orders_before_any_number_also_packed() {
        let late = |generation, number| Fence { generation: Generation(generation), number };
        let rising = [Fence::of(7), Fence::of(u32::MAX), late(1, 0), late(1, 9), late(2, 3)];
        assert!(rising.is_sorted());
        assert!(rising.is_sorted_by_key(|fence| fence.packed()));
        assert_eq!(rising.map(|fence| Fence::unpacked(fence.packed())), rising);
        assert_eq!(Fence::of(u32::MAX).next(), late(1, 0));
    }

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
