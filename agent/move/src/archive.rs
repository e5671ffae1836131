//! A guest's files on their way: what lies on its ground, as a tar archive.
//!
//! Sockets and devices do not go along: a guest can make no device, and a
//! socket is worth nothing without who listens.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, openat};
use rustix::io::Errno;
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::stream::CHUNK;
use crate::vetting::Reach;

/// How long the names of all that goes along with a guest may be together.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// Writes everything below a directory but what is left out, and what is
/// mounted there: that is the machine's, and there as well.
pub(crate) fn pack(directory: &Path, left_out: &BTreeSet<&str>, out: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(BufWriter::with_capacity(CHUNK, out));
    builder.follow_symlinks(false);
    let device = std::fs::metadata(directory)?.dev();
    for name in below(directory, device)? {
        if name.to_str().is_some_and(|name| left_out.contains(name)) {
            continue;
        }
        let path = directory.join(&name);
        let about = std::fs::symlink_metadata(&path)?;
        if about.file_type().is_fifo() {
            // The crate would write down the name that it has here.
            let mut header = Header::new_gnu();
            header.set_metadata(&about);
            builder.append_data(&mut header, &name, io::empty())?;
        } else {
            builder.append_path_with_name(path, &name)?;
        }
    }
    builder.into_inner()?.flush()
}

/// What there is, directories before what is in them. A guest makes them as deep
/// as it likes: one that no path leads to does not go along, nor its guest.
fn below(directory: &Path, device: u64) -> io::Result<Vec<PathBuf>> {
    let (mut names, mut directories, mut bytes) = (vec![], vec![PathBuf::new()], 0);
    while let Some(inner) = directories.pop() {
        for entry in std::fs::read_dir(directory.join(&inner))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
                continue;
            }
            if entry.metadata()?.dev() != device {
                continue;
            }
            let name = inner.join(entry.file_name());
            bytes += name.as_os_str().len();
            if bytes > NAMES_BYTES_MAX {
                return Err(io::Error::other("it has too many files to go along"));
            }
            if kind.is_dir() {
                directories.push(name.clone());
            }
            names.push(name);
        }
    }
    // A directory's name is shorter than those in it.
    names.sort();
    Ok(names)
}

/// Why an archive is not laid, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("not an archive")]
    Read(#[source] io::Error),
    #[error("{0} is in no guest's archive")]
    Foreign(String),
    #[error("{name} leads to {target}, which a guest does not see")]
    Leads { name: String, target: String },
    #[error("more than {FILES_MAX} files, or than {BYTES_MAX} bytes")]
    TooMuch,
    #[error("cannot lay {name}")]
    Lay { name: String, source: io::Error },
}

/// How much an archive may come to: holes cost it nothing, and us time.
const FILES_MAX: u64 = 1 << 20;
const BYTES_MAX: u64 = 1 << 40;

/// The rights that a file may come with: none that makes its user another.
const PLAIN_MODE: u32 = 0o1_777;

/// What an archive is laid into: nothing of it leads out of there.
struct Target<'a> {
    root: OwnedFd,
    path: &'a Path,
    owner: (Uid, Gid),
    reach: &'a Reach,
}

/// Lays it all below a directory, as `owner`'s, who has that `reach`. A file that
/// lies there under the same name is replaced; a directory is used. The archive is
/// a stranger's: its hard links would give away whatever they name.
pub(crate) fn unpack(
    packed: impl Read,
    into: &Path,
    (uid, gid): (u32, u32),
    reach: &Reach,
) -> Result<(), UnpackError> {
    let opened = rustix::fs::open(into, DIRECTORY, Mode::empty());
    let root = opened.map_err(|error| UnpackError::Read(error.into()))?;
    let owner = (Uid::from_raw(uid), Gid::from_raw(gid));
    let target = Target { root, path: into, owner, reach };
    let mut archive = Archive::new(BufReader::with_capacity(CHUNK, packed));
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for entry in archive.entries().map_err(UnpackError::Read)? {
        let mut entry = entry.map_err(UnpackError::Read)?;
        (files, bytes) = (files + 1, bytes.saturating_add(entry.size()));
        if files > FILES_MAX || bytes > BYTES_MAX {
            return Err(UnpackError::TooMuch);
        }
        target.lay(&mut entry)?;
    }
    Ok(())
}

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl Target<'_> {
    fn lay(&self, entry: &mut Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let name = entry.path().map_err(UnpackError::Read)?.into_owned();
        let said = || name.display().to_string().escape_default().to_string();
        let is_plain = name.components().all(|step| matches!(step, Component::Normal(_)));
        let kind = entry.header().entry_type();
        let (Some(last), true) = (name.file_name(), is_plain) else {
            return Err(UnpackError::Foreign(said()));
        };
        let lead = (kind == EntryType::Symlink).then(|| lead_of(entry)).transpose()?;
        if let Some(lead) = &lead
            && !self.reach.permits_link(&self.path.join(&name), lead)
        {
            let target = lead.display().to_string().escape_default().to_string();
            return Err(UnpackError::Leads { name: said(), target });
        }
        let laid = self.parent(&name).and_then(|parent| match (kind, &lead) {
            (EntryType::Directory, _) => self.directory(&parent, last, entry),
            (EntryType::Regular | EntryType::GNUSparse, _) => self.regular(&parent, last, entry),
            (EntryType::Fifo, _) => self.pipe(&parent, last, entry),
            (EntryType::Symlink, Some(lead)) => self.link(&parent, last, lead),
            _ => Ok(false),
        });
        match laid {
            Ok(true) => Ok(()),
            Ok(false) => Err(UnpackError::Foreign(said())),
            Err(source) => Err(UnpackError::Lay { name: said(), source }),
        }
    }

    /// The directory that a file is in, which came before it or was here.
    fn parent(&self, name: &Path) -> io::Result<OwnedFd> {
        let mut directory = self.root.try_clone()?;
        for step in name.parent().into_iter().flat_map(Path::iter) {
            directory = openat(&directory, step, DIRECTORY, Mode::empty())?;
        }
        Ok(directory)
    }

    /// One of the place's own stays as it is.
    fn directory(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        entry: &Entry<'_, impl Read>,
    ) -> io::Result<bool> {
        let made = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let directory = openat(parent, name, DIRECTORY, Mode::empty())?;
        if made || rustix::fs::fstat(&directory)?.st_uid == self.owner.0.as_raw() {
            self.give(&directory, entry)?;
        }
        Ok(true)
    }

    fn regular(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        entry: &mut Entry<'_, impl Read>,
    ) -> io::Result<bool> {
        make_room(parent, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(openat(parent, name, flags | OFlags::NOFOLLOW, Mode::RUSR)?);
        copy_sparsely(entry, &file)?;
        self.give(&file, entry)?;
        Ok(true)
    }

    fn pipe(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        entry: &Entry<'_, impl Read>,
    ) -> io::Result<bool> {
        make_room(parent, name)?;
        rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::RUSR, 0)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.give(&openat(parent, name, flags, Mode::empty())?, entry)?;
        Ok(true)
    }

    fn link(&self, parent: &OwnedFd, name: &OsStr, lead: &Path) -> io::Result<bool> {
        make_room(parent, name)?;
        rustix::fs::symlinkat(lead, parent, name)?;
        let (uid, gid) = self.owner;
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(true)
    }

    /// Its owner, its rights and its time.
    fn give(&self, file: impl AsFd, entry: &Entry<'_, impl Read>) -> io::Result<()> {
        let (uid, gid) = self.owner;
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        let mode = entry.header().mode()? & PLAIN_MODE;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        let seconds = i64::try_from(entry.header().mtime()?).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::futimens(&file, &times)?)
    }
}

fn lead_of(entry: &Entry<'_, impl Read>) -> Result<PathBuf, UnpackError> {
    let lead = entry.link_name().map_err(UnpackError::Read)?;
    Ok(lead.map(std::borrow::Cow::into_owned).unwrap_or_default())
}

fn make_room(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Leaves holes where there is nothing but zeroes.
fn copy_sparsely(from: &mut impl Read, mut to: &File) -> io::Result<()> {
    let mut buffer = vec![0; COPIED_AT_ONCE];
    let mut length = 0_u64;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return to.set_len(length),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        length += read as u64;
        if buffer[..read].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(&buffer[..read])?;
        }
    }
}

const COPIED_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    #[test]
    fn files_arrive_as_they_were() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("work")).unwrap();
        let file = from.path().join("work/a");
        std::fs::write(&file, "content").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        std::os::unix::net::UnixListener::bind(from.path().join("socket")).unwrap();
        let mode = Mode::from_raw_mode(0o640);
        let fifo = from.path().join("work/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        std::fs::create_dir(to.path().join("work")).unwrap();
        std::fs::write(to.path().join("work/a"), "older").unwrap();
        let mut packed = tempfile::tempfile().unwrap();
        std::fs::write(from.path().join("work/b"), "is there as well").unwrap();
        pack(from.path(), &BTreeSet::from(["work/b"]), &mut packed).unwrap();
        io::Seek::rewind(&mut packed).unwrap();
        unpack(packed, to.path(), own(to.path()), &reach(&to)).unwrap();
        let arrived = to.path().join("work/a");
        assert_eq!(std::fs::read_to_string(&arrived).unwrap(), "content");
        assert_eq!(arrived.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let link = std::fs::read_link(to.path().join("link")).unwrap();
        assert_eq!(link, Path::new("/etc/passwd"));
        let fifo = to.path().join("work/fifo").symlink_metadata().unwrap();
        assert!(fifo.file_type().is_fifo() && fifo.permissions().mode() & 0o777 == 0o640);
        assert!(!to.path().join("socket").exists());
        assert!(!to.path().join("work/b").exists());
    }

    #[test]
    fn a_tree_deeper_than_a_stack_goes_along() {
        let from = tempfile::tempdir().unwrap();
        let deep = from.path().join("d/".repeat(1_500));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "at the bottom").unwrap();
        let mut packed = vec![];
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            let packing = || pack(from.path(), &BTreeSet::new(), &mut packed);
            thread.spawn_scoped(scope, packing).unwrap().join().unwrap().unwrap();
        });
        let mut archive = Archive::new(&packed[..]);
        let last = archive.entries().unwrap().last().unwrap().unwrap();
        assert_eq!(last.path().unwrap().components().count(), 1_501);
    }

    fn own(path: &Path) -> (u32, u32) {
        let about = std::fs::metadata(path).unwrap();
        (about.uid(), about.gid())
    }

    fn reach(to: &tempfile::TempDir) -> Reach {
        Reach { readable: vec!["/etc".into()], writable: vec![to.path().into()] }
    }

    /// One entry of a stranger's archive, whose name is not looked at.
    fn entry(kind: EntryType, name: &str, lead: &str, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..lead.len()].copy_from_slice(lead.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o4_755);
        header.set_mtime(1);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
        [header.as_bytes().as_slice(), content, &padding].concat()
    }

    #[test]
    fn a_strangers_archive_gives_nothing_away() {
        use EntryType::{Block, Char, Directory, Link, Regular, Symlink};
        let to = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let kept = outside.path().join("kept");
        std::fs::write(&kept, "kept").unwrap();
        // As an input file that is laid from the cache of contents.
        std::fs::hard_link(&kept, to.path().join("input")).unwrap();
        std::os::unix::fs::symlink(outside.path(), to.path().join("out")).unwrap();
        let said = |entries: &[Vec<u8>]| {
            let packed = entries.concat();
            match unpack(&packed[..], to.path(), own(to.path()), &reach(&to)) {
                Ok(()) => "laid".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        let foreign = |name: &str| format!("{name} is in no guest's archive");
        assert_eq!(said(&[entry(Link, "x", "input", b"")]), foreign("x"));
        assert_eq!(said(&[entry(Char, "null", "", b"")]), foreign("null"));
        assert_eq!(said(&[entry(Block, "sda", "", b"")]), foreign("sda"));
        assert_eq!(said(&[entry(Regular, "../x", "", b"x")]), foreign("../x"));
        assert_eq!(said(&[entry(Regular, "/etc/x", "", b"x")]), foreign("/etc/x"));
        let mem = said(&[entry(Symlink, "mem", "/proc/1/mem", b"")]);
        assert_eq!(mem, "mem leads to /proc/1/mem, which a guest does not see");
        for name in ["out/x", "out/kept"] {
            let through = said(&[entry(Regular, name, "", b"x")]);
            assert!(through.starts_with(&format!("cannot lay {name}")), "{through}");
        }
        let through = said(&[entry(Directory, "out", "", b"")]);
        assert!(through.starts_with("cannot lay out"), "{through}");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        // What lies there is replaced, and not written to.
        assert_eq!(said(&[entry(Regular, "input", "", b"other")]), "laid");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
        let laid = to.path().join("input").metadata().unwrap();
        assert_eq!((laid.permissions().mode() & 0o7_777, laid.len()), (0o755, 5));
    }

    proptest! {
        #[test]
        fn changed_archives_have_an_answer(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
        ) {
            let to = tempfile::tempdir().unwrap();
            let mut packed = [
                entry(EntryType::Directory, "d", "", b""),
                entry(EntryType::Regular, "d/a", "", b"content"),
                entry(EntryType::Symlink, "d/l", "a", b""),
                entry(EntryType::GNULongName, "././@LongLink", "", b"d/long"),
                entry(EntryType::Regular, "short", "", b"x"),
            ]
            .concat();
            for (at, byte) in changes {
                let at = at.index(packed.len());
                packed[at] = byte;
                // As a stranger does, who knows how to add up.
                let head = at / 512 * 512;
                let mut header = Header::from_byte_slice(&packed[head..head + 512]).clone();
                header.set_cksum();
                packed[head..head + 512].copy_from_slice(header.as_bytes());
            }
            let _ = unpack(&packed[..], to.path(), own(to.path()), &reach(&to));
        }
    }

    #[test]
    fn holes_cost_no_room() {
        let to = tempfile::tempdir().unwrap();
        let content = [vec![7; 100_000], vec![0; 4 << 20], vec![8; 10]].concat();
        let packed = entry(EntryType::Regular, "sparse", "", &content);
        unpack(&packed[..], to.path(), own(to.path()), &reach(&to)).unwrap();
        let laid = to.path().join("sparse");
        assert!(std::fs::read(&laid).unwrap() == content);
        assert!(laid.metadata().unwrap().blocks() * 512 < 1 << 20);
    }
}
