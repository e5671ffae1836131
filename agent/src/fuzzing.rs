//! What the targets in `tests/fuzz` call: bytes of a stranger or of a bad disk,
//! and nothing but an answer may come of them.

use std::path::Path;

use gleaner_common::id::BootId;

use crate::owner::Command;
use crate::spool::Spool;

/// A spool as it was found.
///
/// # Panics
/// It cannot be opened twice, or what was put right the first time is not the second.
pub fn spool(bytes: &[u8], directory: &Path) {
    if std::fs::write(directory.join("usage.spool"), bytes).is_err() {
        return;
    }
    for is_first in [true, false] {
        let (_, notes) =
            Spool::open(directory, BootId::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(is_first || notes.is_empty(), "what was put right is good: {notes:?}");
    }
}

/// What somebody says at the owner's socket.
pub fn owner(line: &[u8]) {
    let _ = serde_json::from_slice::<Command>(line);
}
