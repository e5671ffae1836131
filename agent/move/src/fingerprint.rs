//! What an image needs of the machine that it is restored on.
//!
//! A restored process finds itself in the middle of its program: with the
//! library functions that were chosen for the first machine's processor,
//! mapped from the first machine's files, and with kernel objects as the first
//! kernel wrote them down. So all of that must be there too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Version};

/// Where programs' loaders and C libraries lie, by distribution.
const LIBRARIES: [&str; 6] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/lib/libc.so.6",
];

/// Processor features that programs use once they have seen them: beginnings
/// of their names in `/proc/cpuinfo`. Those for kernels only are no matter.
const INSTRUCTIONS: [&str; 41] = [
    "3dnow",
    "abm",
    "adx",
    "aes",
    "amx",
    "apx",
    "avx",
    "bmi",
    "cldemote",
    "clflushopt",
    "clwb",
    "cx16",
    "erms",
    "f16c",
    "fma",
    "fsgsbase",
    "fsrm",
    "fxsr",
    "gfni",
    "hle",
    "invpcid",
    "lahf_lm",
    "mmx",
    "movbe",
    "movdir",
    "ospke",
    "pclmulqdq",
    "popcnt",
    "rdpid",
    "rdrand",
    "rdseed",
    "rdtscp",
    "rtm",
    "serialize",
    "sha",
    "sse",
    "ssse3",
    "user_shstk",
    "vaes",
    "vpclmulqdq",
    "xsave",
];

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
    /// Of the distribution's name, the loader and the C library.
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
    /// This machine's.
    pub fn of_this_machine(engine: &Engine) -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let (processor, features) =
            read_processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        Self {
            architecture: text(uname.machine()),
            kernel: text(uname.release()),
            criu: engine.version(),
            processor,
            features,
            system: pretty_name(&release),
            root: root_identity(&release),
        }
    }

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

fn read_processor(cpuinfo: &str) -> (String, BTreeSet<String>) {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let name = field("model name").or_else(|| field("CPU part")).unwrap_or_default();
    let features = match (field("flags"), field("Features")) {
        (Some(flags), _) => flags
            .split_whitespace()
            .filter(|flag| INSTRUCTIONS.iter().any(|known| flag.starts_with(known)))
            .map(str::to_owned)
            .collect(),
        // On ARM the list holds nothing but what programs use.
        (None, Some(all)) => all.split_whitespace().map(str::to_owned).collect(),
        (None, None) => BTreeSet::new(),
    };
    (name, features)
}

fn pretty_name(release: &str) -> String {
    release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn root_identity(release: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(release.as_bytes());
    for path in LIBRARIES.iter().map(Path::new) {
        if let Ok(bytes) = fs::read(path) {
            hasher.update(path.as_os_str().as_encoded_bytes());
            hasher.update(&bytes);
        }
    }
    let mut identity = [0; 16];
    identity.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    identity
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

    #[test]
    fn kernel_features_do_not_matter_to_programs() {
        let cpuinfo = "model name\t: A\nflags\t\t: fpu sse2 hypervisor avx2 constant_tsc\n";
        let (name, features) = read_processor(cpuinfo);
        assert_eq!(name, "A");
        assert_eq!(features, ["avx2", "sse2"].map(str::to_owned).into());
    }
}
