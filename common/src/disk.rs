//! What the spool and the usage logs ask of a disk: the files of one directory.
//!
//! The promise, by which whoever keeps something on a [`Disk`] is to be judged:
//!
//! | after | a death of the process leaves | a crash of the machine leaves |
//! | --- | --- | --- |
//! | `write_at` | all of it | of each write since the last `sync` nothing, all, or a torn part; zeros where a file grew and its bytes did not come; in any order |
//! | `write_at` that failed | any part of it | the same |
//! | `sync` | all before it | all before it |
//! | `sync` that failed | all before it, perhaps | as if it had not been asked; another `sync` does not mend it: write anew |
//! | `cut` | the shorter file | the shorter file |
//! | `replace` | the new file | the new file |
//! | `cut` or `replace` that failed | the old file or the new | the old file or the new |
//!
//! A file's name appears by `replace` only, so that no name is ever half there.
//! Whoever opens a file that another process may have written syncs it before
//! it vouches for what it has read.

#[cfg(feature = "simulated")]
pub mod simulated;

use std::io;

/// The files of one directory, under plain names.
pub trait Disk {
    /// A file's bytes; `None` if there is no such file.
    ///
    /// # Errors
    /// It is there and cannot be read.
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// A file's length; `None` if there is no such file.
    ///
    /// # Errors
    /// It is there and cannot be looked at.
    fn length(&mut self, name: &str) -> io::Result<Option<u64>>;

    /// The names of all files, in order.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Writes at an offset that is no further than the file's end.
    ///
    /// # Errors
    /// No room, no such file, or the disk's own reasons.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was written to the file would outlast a crash.
    ///
    /// # Errors
    /// The disk's reasons: nothing is known then of what was written.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Makes a file shorter, durably.
    ///
    /// # Errors
    /// The disk's reasons.
    fn cut(&mut self, name: &str, length: u64) -> io::Result<()>;

    /// Puts a file in place, all of it or none, durably.
    ///
    /// # Errors
    /// No room, or the disk's own reasons.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Sets room aside for a file to grow by, so that a disk that fills up later does
    /// not matter; a disk that cannot is no error. `cut` and `replace` end it.
    fn reserve(&mut self, name: &str, bytes: u64);
}
