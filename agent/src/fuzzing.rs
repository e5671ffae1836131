//! What the targets in `tests/fuzz` call: bytes of a stranger or of a bad disk,
//! and nothing but an answer may come of them.

use std::path::Path;

use crate::owner::Command;
use crate::spool::Spool;

/// A spool as it was found.
///
/// # Panics
/// It cannot be opened twice, or what was kept the first time is not the second.
pub fn spool(bytes: &[u8], directory: &Path) {
    if std::fs::write(directory.join("usage.spool"), bytes).is_err() {
        return;
    }
    let mut kept = [(); 2].map(|()| {
        let (spool, _) = Spool::open(directory).unwrap_or_else(|error| panic!("{error}"));
        spool.batch(usize::MAX)
    });
    let [first, second] = &mut kept;
    assert_eq!(first, second, "a spool that was put right is read as it was");
}

/// What somebody says at the owner's socket.
pub fn owner(line: &[u8]) {
    let _ = serde_json::from_slice::<Command>(line);
}
