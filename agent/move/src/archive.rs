//! A guest's files on their way: what lies on its ground, as a tar archive.
//!
//! Sockets and devices do not go along: a guest can make no device, and a
//! socket is worth nothing without who listens.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use tar::{Archive, Builder, EntryType};

use crate::stream::CHUNK;

/// How long the names of all that goes along with a guest may be together.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// Writes everything below a directory but what is left out, and what is
/// mounted there: that is the machine's, and there as well.
pub(crate) fn pack(directory: &Path, left_out: &BTreeSet<&str>, out: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(BufWriter::with_capacity(CHUNK, out));
    builder.follow_symlinks(false);
    let device = std::fs::metadata(directory)?.dev();
    for name in below(directory, device)? {
        if !name.to_str().is_some_and(|name| left_out.contains(name)) {
            builder.append_path_with_name(directory.join(&name), &name)?;
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

/// Lays it all below a directory, as `owner`'s. What lies there under the same
/// name is replaced.
pub(crate) fn unpack(packed: File, into: &Path, owner: (u32, u32)) -> io::Result<()> {
    let mut archive = Archive::new(BufReader::with_capacity(CHUNK, packed));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let known = [EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link];
        if !known.contains(&kind) && !matches!(kind, EntryType::Fifo | EntryType::GNUSparse) {
            continue;
        }
        let name = entry.path()?.into_owned();
        // Refuses what leads out of the directory.
        if entry.unpack_in(into)? {
            lchown(into.join(name), Some(owner.0), Some(owner.1))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_arrive_as_they_were() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("work")).unwrap();
        let file = from.path().join("work/a");
        std::fs::write(&file, "content").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        std::os::unix::net::UnixListener::bind(from.path().join("socket")).unwrap();
        std::fs::create_dir(to.path().join("work")).unwrap();
        std::fs::write(to.path().join("work/a"), "older").unwrap();
        let mut packed = tempfile::tempfile().unwrap();
        std::fs::write(from.path().join("work/b"), "is there as well").unwrap();
        pack(from.path(), &BTreeSet::from(["work/b"]), &mut packed).unwrap();
        io::Seek::rewind(&mut packed).unwrap();
        let own = std::fs::metadata(to.path()).unwrap();
        let owner = own.uid();
        let group = own.gid();
        unpack(packed, to.path(), (owner, group)).unwrap();
        let arrived = to.path().join("work/a");
        assert_eq!(std::fs::read_to_string(&arrived).unwrap(), "content");
        assert_eq!(arrived.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let link = std::fs::read_link(to.path().join("link")).unwrap();
        assert_eq!(link, Path::new("/etc/passwd"));
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
}
