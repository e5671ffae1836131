//! A file that one process at a time holds.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// A locked file; free again when this is dropped, or with the process.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks the file, if nobody else has.
    ///
    /// # Errors
    /// The file's file system has no locks, or none left.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    /// Closing it is not enough: a process that another thread is starting
    /// has it open as well, until its program runs.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_although_somebody_else_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let take = || Lock::take(File::create(&path).unwrap()).unwrap();
        let first = take().unwrap();
        let inherited = first.try_clone().unwrap();
        assert!(take().is_none());
        drop(first);
        assert!(take().is_some());
        drop(inherited);
    }
}
