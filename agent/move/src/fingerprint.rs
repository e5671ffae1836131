//! What this machine is to an image: [`Fingerprint`], read from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub use gleaner_common::fingerprint::{Fingerprint, Unsuitable, Version};

use crate::engine::Engine;

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
const INSTRUCTIONS: &str = "\
    3dnow abm adx aes amx apx avx bmi cldemote clflushopt clwb cx16 erms f16c fma \
    fsgsbase fsrm fxsr gfni hle invpcid lahf_lm mmx movbe movdir ospke pclmulqdq popcnt \
    rdpid rdrand rdseed rdtscp rtm serialize sha sse ssse3 user_shstk vaes vpclmulqdq \
    xsave";

/// This machine's.
pub fn of_this_machine(engine: &Engine) -> Fingerprint {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let (processor, features) =
        read_processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    Fingerprint {
        architecture: text(uname.machine()),
        kernel: text(uname.release()),
        criu: engine.version(),
        processor,
        features,
        system: pretty_name(&release),
        root: root_identity(&release),
    }
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
            .filter(|flag| INSTRUCTIONS.split(' ').any(|known| flag.starts_with(known)))
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

    #[test]
    fn kernel_features_do_not_matter_to_programs() {
        let cpuinfo = "model name\t: A\nflags\t\t: fpu sse2 hypervisor avx2 constant_tsc\n";
        let (name, features) = read_processor(cpuinfo);
        assert_eq!(name, "A");
        assert_eq!(features, ["avx2", "sse2"].map(str::to_owned).into());
    }
}
