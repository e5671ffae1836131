//! A small file system for one daemon's files: it can be full without anything else
//! being so.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::FallocateFlags;

/// Takes what is left.
const FILLER: &str = ".filler";

/// Mounted in the lab's own namespace, as long as this lives.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn mount(at: &Path, bytes: u64) -> Result<Self> {
        fs::create_dir_all(at)?;
        let options = std::ffi::CString::new(format!("size={bytes},mode=0755"))?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", at, "tmpfs", flags, Some(options.as_c_str()))
            .with_context(|| format!("cannot mount a small disk at {}", at.display()))?;
        Ok(Self(at.to_owned()))
    }

    pub fn is_full(&self) -> bool {
        self.0.join(FILLER).exists()
    }

    /// Takes all that is left; what is deleted afterwards is free again.
    ///
    /// # Errors
    /// The disk is gone.
    pub fn fill(&self) -> io::Result<()> {
        let file = File::create(self.0.join(FILLER))?;
        let mut length = 0;
        loop {
            let about = rustix::fs::statvfs(&self.0)?;
            let free = about.f_bavail * about.f_frsize;
            if free == 0 {
                return Ok(());
            }
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), length, free) {
                Ok(()) => length += free,
                // Somebody else was faster.
                Err(rustix::io::Errno::NOSPC) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// # Errors
    /// The disk is gone.
    pub fn free(&self) -> io::Result<()> {
        fs::remove_file(self.0.join(FILLER))
    }
}

/// The lab's directory cannot be removed while something is mounted in it.
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_is_full_until_it_is_freed() {
        if crate::lab::own_mounts().is_err() {
            return gleaner_skip::without_lab("mounts need root");
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = SmallDisk::mount(&dir.path().join("data"), 1 << 20).unwrap();
        let file = dir.path().join("data/file");
        disk.fill().unwrap();
        assert!(disk.is_full());
        assert_eq!(fs::write(&file, [7; 4_096]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        disk.free().unwrap();
        fs::write(&file, [7; 4_096]).unwrap();
    }
}
