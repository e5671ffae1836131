//! Small things the sensors share: file names, and files of `/proc` that are
//! read again and again.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;

/// Files by name: a directory, and which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) directory: PathBuf,
    name: String,
}

impl Pattern {
    /// `/dev/pts` stands for `/dev/pts/#`; in the last part `*` is any
    /// characters and `#` one digit or more.
    pub(super) fn new(text: &str) -> Self {
        let path = Path::new(text);
        let name = path.file_name().map_or("", |name| name.to_str().unwrap_or(""));
        if name.contains(['*', '#']) {
            let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
            Self { directory, name: name.to_owned() }
        } else if path.is_dir() || text.ends_with('/') {
            Self { directory: path.to_owned(), name: "#".to_owned() }
        } else {
            let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
            Self { directory, name: name.to_owned() }
        }
    }

    pub(super) fn matches(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| fits(&self.name, name))
    }

    /// The files there are.
    pub(super) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.directory)?.flatten();
        let mut files: Vec<_> =
            entries.filter(|entry| self.matches(&entry.file_name())).map(|e| e.path()).collect();
        files.sort_unstable();
        Ok(files)
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => (0..=name.len())
            .filter(|at| name.is_char_boundary(*at))
            .any(|at| fits(rest, &name[at..])),
        '#' => {
            let digits = name.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && fits(rest, &name[digits..])
        }
        first => name.strip_prefix(first).is_some_and(|name| fits(rest, name)),
    }
}

/// A file of `/proc` or of a control group, kept open: reading it again from
/// its start makes the kernel fill it anew.
#[derive(Debug)]
pub(crate) struct Reread {
    file: OwnedFd,
    buffer: Vec<u8>,
}

impl Reread {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?.into(), buffer: vec![0; 256] })
    }

    /// The whole text, up to 256 KiB.
    pub(crate) fn text(&mut self) -> io::Result<&str> {
        let mut length = 0;
        loop {
            let read = rustix::io::pread(&self.file, &mut self.buffer[length..], length as u64)?;
            length += read;
            if read == 0 || length >= 256 << 10 {
                break;
            }
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
        }
        std::str::from_utf8(&self.buffer[..length])
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a text"))
    }
}

/// What inotify has to say, until it has no more to say.
pub(crate) fn read_notices(
    inotify: impl AsFd,
    mut each: impl FnMut(i32, ReadFlags, Option<&OsStr>),
) {
    use std::os::unix::ffi::OsStrExt;
    // Room for at least seven names of the longest kind.
    let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
    let mut reader = inotify::Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                each(event.wd(), event.events(), name);
            }
            Err(Errno::INTR) => {}
            // `AGAIN`: that was all.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_by_name() {
        let names = ["tty", "tty1", "tty63", "ttyS0", "tty1x", "ptmx", "7"];
        let chosen = |pattern: &str| {
            let pattern = Pattern::new(pattern);
            names.into_iter().filter(|name| pattern.matches(OsStr::new(name))).collect::<Vec<_>>()
        };
        assert_eq!(chosen("/dev/tty#"), ["tty1", "tty63"]);
        assert_eq!(chosen("/dev/tty*"), ["tty", "tty1", "tty63", "ttyS0", "tty1x"]);
        assert_eq!(chosen("/dev/"), ["7"]);
        assert_eq!(chosen("/dev/ttyS0"), ["ttyS0"]);
    }

    #[test]
    fn a_file_of_the_kernels_is_read_anew() {
        let mut uptime = Reread::open(Path::new("/proc/uptime")).unwrap();
        let first = uptime.text().unwrap().to_owned();
        while uptime.text().unwrap() == first {
            std::thread::yield_now();
        }
    }
}
