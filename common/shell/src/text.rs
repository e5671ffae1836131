//! Whole texts from outside: configurations, campaigns, what a directory says of
//! itself.
//!
//! The promise: whatever a path leads to, no more of it is kept than a text may
//! have.

use std::fs::File;
use std::io;
use std::path::Path;

use gleaner_common::lines::{LineError, whole_text};

use crate::disk;

/// A campaign that names every workstation of a large site has a tenth; what a
/// parser makes of a text may take fifty times as much.
const TEXT_BYTES_MAX: usize = 2 << 20;

/// Reads a text without its byte-order mark.
///
/// # Errors
/// A file that cannot be read, is no text, or is larger than any of these.
pub fn read(path: &Path) -> io::Result<String> {
    read_up_to(path, TEXT_BYTES_MAX)
}

/// The same of a file of our own, in whose place nothing else is read.
///
/// # Errors
/// Those of [`read`], and what is no file.
pub fn read_own(path: &Path) -> io::Result<String> {
    whole_text(disk::open(path)?, TEXT_BYTES_MAX).map_err(LineError::into_io)
}

/// The same for what may be longer, or must be shorter.
///
/// # Errors
/// Those of [`read`].
pub fn read_up_to(path: &Path, bytes_max: usize) -> io::Result<String> {
    whole_text(File::open(path)?, bytes_max).map_err(LineError::into_io)
}
