//! What an image needs of the machine that it is restored on.
//!
//! A restored process finds itself in the middle of its program: with the
//! library functions that were chosen for the first machine's processor,
//! mapped from the first machine's files, and with kernel objects as the first
//! kernel wrote them down. So all of that must be there too.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of the checkpoint engine, CRIU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
    pub patch: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// What a machine is to an image. Compared by [`Self::suits`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `x86_64`.
    pub architecture: String,
    /// `6.18.44-amd64`.
    pub kernel: String,
    pub criu: Version,
    /// The processor's name, for people.
    pub processor: String,
    /// What programs may have found that it can do.
    pub features: BTreeSet<String>,
    /// The distribution's name and version, for people.
    pub system: String,
    /// A hash of the distribution's name, the loader and the C library.
    pub root: [u8; 16],
}

/// Why an image from here cannot be restored there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {here} here, {there} there")]
pub struct Unsuitable {
    pub what: String,
    pub here: String,
    pub there: String,
}

impl Fingerprint {
    /// Can an image made here (`self`) be restored there (`other`)?
    ///
    /// A newer kernel and a newer CRIU are good for older images, and a
    /// processor that can more for programs that know less.
    ///
    /// # Errors
    /// The first thing that does not fit, for people.
    pub fn suits(&self, other: &Self) -> Result<(), Unsuitable> {
        let no = |what: &str, here: String, there: String| {
            Err(Unsuitable { what: what.to_owned(), here, there })
        };
        if self.architecture != other.architecture {
            return no("architecture", self.architecture.clone(), other.architecture.clone());
        }
        if kernel_version(&other.kernel) < kernel_version(&self.kernel) {
            return no("older kernel", self.kernel.clone(), other.kernel.clone());
        }
        if (other.criu.major, other.criu.minor) < (self.criu.major, self.criu.minor) {
            return no("older criu", self.criu.to_string(), other.criu.to_string());
        }
        let lacking: Vec<&str> =
            self.features.difference(&other.features).map(String::as_str).collect();
        if !lacking.is_empty() {
            let what = format!("processor lacks {}", spoken_few(&lacking));
            return no(&what, self.processor.clone(), other.processor.clone());
        }
        if self.root != other.root {
            let alike = self.system == other.system;
            let what = if alike { "another C library" } else { "another system" };
            return no(what, self.system.clone(), other.system.clone());
        }
        Ok(())
    }
}

fn spoken_few(names: &[&str]) -> String {
    match names {
        [few @ .., _, _] if few.len() > 3 => {
            format!("{} and {} more", names[..4].join(", "), names.len() - 4)
        }
        all => all.join(", "),
    }
}

/// `(6, 18)` of `6.18.44-amd64`: minor releases keep what programs see.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Fingerprint {
        Fingerprint {
            architecture: "x86_64".into(),
            kernel: "6.12.4-amd64".into(),
            criu: Version { major: 4, minor: 1, patch: 1 },
            processor: "Xeon 1".into(),
            features: ["avx", "avx2", "sse4_2"].map(str::to_owned).into(),
            system: "Debian 13".into(),
            root: [1; 16],
        }
    }

    #[track_caller]
    fn check(there: &Fingerprint, why: Option<&str>) {
        let said = machine().suits(there).err().map(|no| no.to_string());
        assert_eq!(said.as_deref(), why);
    }

    #[test]
    fn the_same_and_a_better_machine_suit() {
        check(&machine(), None);
        let mut better = machine();
        better.features.insert("avx512f".into());
        better.kernel = "6.18.1".into();
        better.criu = Version { major: 4, minor: 2, patch: 0 };
        check(&better, None);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let older = Fingerprint { kernel: "6.1.0-31".into(), ..machine() };
        check(&older, Some("older kernel: 6.12.4-amd64 here, 6.1.0-31 there"));
        let arm = Fingerprint { architecture: "aarch64".into(), ..machine() };
        check(&arm, Some("architecture: x86_64 here, aarch64 there"));
        let weak = Fingerprint {
            features: ["sse4_2".to_owned()].into(),
            processor: "Atom".into(),
            ..machine()
        };
        check(&weak, Some("processor lacks avx, avx2: Xeon 1 here, Atom there"));
        let other = Fingerprint { root: [2; 16], ..machine() };
        check(&other, Some("another C library: Debian 13 here, Debian 13 there"));
        let criu = Version { major: 4, minor: 0, patch: 9 };
        check(&Fingerprint { criu, ..machine() }, Some("older criu: 4.1.1 here, 4.0.9 there"));
    }

    #[test]
    fn many_lacking_features_are_counted() {
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(spoken_few(&names), "a, b, c, d and 2 more");
        assert_eq!(spoken_few(&names[..2]), "a, b");
    }
}
