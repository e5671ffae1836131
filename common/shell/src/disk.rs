//! A directory of real files as a [`Disk`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gleaner_common::disk::Disk;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::atomic;

/// Opens a file of our own to be read: no pipe, socket or device in its place, which
/// would keep us waiting for ever.
///
/// # Errors
/// It cannot be opened, or is no file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// The same, as these options say.
///
/// # Errors
/// Those of [`open`].
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no file: expected one"))
    }
}

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
            let file = open_with(OpenOptions::new().write(true), &self.path(name))?;
            self.open = Some((name.to_owned(), file));
        }
        let Some((_, file)) = &self.open else { unreachable!("opened a line above") };
        Ok(file)
    }
}

impl Disk for Files {
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let read = |mut file: File| {
            let mut bytes = vec![];
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        there(open(&self.path(name)).and_then(read))
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

    /// Whoever opened a pipe nobody writes to waited for ever.
    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let home = tempfile::tempdir().unwrap();
        let pipe = home.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), home.path()] {
            let said = open(path).unwrap_err().to_string();
            assert_eq!(said, "it is no file: expected one", "{}", path.display());
        }
        let mut files = Files::new(home.path(), atomic::PRIVATE);
        assert!(files.read("pipe").is_err() && files.sync("pipe").is_err());
    }
}
