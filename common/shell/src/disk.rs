//! A directory of real files as a [`Disk`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gleaner_common::disk::Disk;
use rustix::fs::{FallocateFlags, fallocate};

use crate::atomic;

/// The files of a directory, with these rights for what is made there.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    mode: u32,
    /// What was written last and not synced yet.
    open: Option<(String, File)>,
}

impl Files {
    pub fn new(directory: &Path, mode: u32) -> Self {
        Self { directory: directory.to_owned(), mode, open: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let file = OpenOptions::new().write(true).open(self.path(name))?;
            self.open = Some((name.to_owned(), file));
        }
        let Some((_, file)) = &self.open else { unreachable!("opened a line above") };
        Ok(file)
    }
}

impl Disk for Files {
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        there(fs::read(self.path(name)))
    }

    fn length(&mut self, name: &str) -> io::Result<Option<u64>> {
        there(fs::metadata(self.path(name)).map(|data| data.len()))
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = vec![];
        for entry in fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let done = self.file(name)?.sync_data();
        // Thousands of logs have thousands of files: none stays open.
        self.open = None;
        done
    }

    fn cut(&mut self, name: &str, length: u64) -> io::Result<()> {
        let file = self.file(name)?;
        let done = file.set_len(length).and_then(|()| file.sync_all());
        self.open = None;
        done
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open = None;
        let path = self.path(name);
        atomic::replace(&path, bytes, self.mode).map_err(|error| error.source)
    }

    fn reserve(&mut self, name: &str, bytes: u64) {
        // Without changing its length: blocks beyond the end, which later writes take.
        let Ok(file) = self.file(name) else { return };
        let Ok(length) = file.metadata().map(|data| data.len()) else { return };
        let _ = fallocate(file, FallocateFlags::KEEP_SIZE, length, bytes);
    }
}

fn there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_do_as_the_simulated_ones() {
        let home = tempfile::tempdir().unwrap();
        let mut files = Files::new(home.path(), atomic::PRIVATE);
        let mut simulated = gleaner_common::disk::simulated::SimulatedDisk::new(1);
        for disk in [&mut files as &mut dyn Disk, &mut simulated] {
            assert_eq!(disk.read("a").unwrap(), None);
            let error = disk.write_at("a", 0, b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            disk.replace("a", b"one").unwrap();
            disk.reserve("a", 4096);
            disk.write_at("a", 3, b"two").unwrap();
            disk.sync("a").unwrap();
            assert_eq!(disk.read("a").unwrap().unwrap(), b"onetwo");
            disk.cut("a", 4).unwrap();
            assert_eq!((disk.length("a").unwrap(), disk.length("b").unwrap()), (Some(4), None));
            assert_eq!(disk.list().unwrap(), ["a"]);
        }
    }
}
