//! A file system of its own, which fills up.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// A small file system, unmounted at the end.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// One of so many KiB; `None` where we may not mount, which is said.
    ///
    /// # Errors
    /// There is no directory to mount it on.
    pub fn mount(kib: u32) -> std::io::Result<Option<Self>> {
        let disk = Self(tempfile::tempdir()?);
        if disk.mounts(&format!("size={kib}k")) {
            return Ok(Some(disk));
        }
        gleaner_skip::without_lab("a small file system cannot be mounted here");
        Ok(None)
    }

    fn mounts(&self, options: &str) -> bool {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "gleaner-test"])
            .arg(self.path())
            .output();
        mount.is_ok_and(|output| output.status.success())
    }

    /// Makes it so large, and so makes room.
    #[must_use]
    pub fn resize(&self, kib: u32) -> bool {
        self.mounts(&format!("remount,size={kib}k"))
    }

    /// Leaves no byte free, until the file that takes them all is removed.
    ///
    /// # Errors
    /// That file cannot be made.
    pub fn fill(&self) -> std::io::Result<std::path::PathBuf> {
        let filler = self.path().join("filler");
        let mut file = std::fs::File::create(&filler)?;
        while file.write_all(&[0; 4_096]).is_ok() {}
        Ok(filler)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still has a file open there keeps it alive.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
