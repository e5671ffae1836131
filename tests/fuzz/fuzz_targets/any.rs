//! One program for all targets, since linking it takes minutes: `GLEAN_FUZZ` says which.

#![no_main]

use std::sync::LazyLock;

use gleaner_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("GLEAN_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("GLEAN_FUZZ={name}: expected a target's name"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
