//! Files of others: the owner's, the system's, another guest's.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use crate::{Arguments, bits, call, tell, text};

fn each(paths: Arguments<'_>, verb: &str, attempt: impl Fn(&str) -> io::Result<()>) {
    for path in paths {
        tell(&format!("{verb} {path}"), attempt(path));
    }
}

pub(crate) fn read(paths: Arguments<'_>) -> io::Result<()> {
    each(paths, "read", |path| File::open(path)?.read(&mut [0; 1]).map(drop));
    Ok(())
}

pub(crate) fn stat(paths: Arguments<'_>) -> io::Result<()> {
    each(paths, "stat", |path| fs::symlink_metadata(path).map(drop));
    Ok(())
}

/// What a directory shows, if it does.
pub(crate) fn list(paths: Arguments<'_>) -> io::Result<()> {
    each(paths, "list", |path| {
        for entry in fs::read_dir(path)?.flatten() {
            tell(&format!("in {path}"), Err::<(), _>(entry.file_name().display()));
        }
        Ok(())
    });
    Ok(())
}

/// Into a file that is there, or a new one in a directory.
pub(crate) fn write(paths: Arguments<'_>) -> io::Result<()> {
    each(paths, "write", |path| {
        if Path::new(path).is_dir() {
            return File::create_new(Path::new(path).join("hostile")).map(drop);
        }
        OpenOptions::new().write(true).open(path).map(drop)
    });
    Ok(())
}

/// To be told when somebody uses them.
pub(crate) fn watch(paths: Arguments<'_>) -> io::Result<()> {
    let watcher = call(libc::SYS_inotify_init1, &[0])?;
    each(paths, "watch", |path| {
        let path = CString::new(path)?;
        let events = bits(libc::IN_ALL_EVENTS);
        call(libc::SYS_inotify_add_watch, &[bits(watcher), text(&path), events]).map(drop)
    });
    Ok(())
}

/// Sockets in the file system, or abstract ones: `@NAME`.
pub(crate) fn connect(names: Arguments<'_>) -> io::Result<()> {
    each(names, "connect", |name| {
        let address = match name.strip_prefix('@') {
            Some(abstracted) => SocketAddr::from_abstract_name(abstracted)?,
            None => SocketAddr::from_pathname(name)?,
        };
        UnixStream::connect_addr(&address).map(drop)
    });
    Ok(())
}

/// An input file, which others get as well: by every way to its content.
pub(crate) fn spoil(paths: Arguments<'_>) -> io::Result<()> {
    for path in paths {
        let at = Path::new(path);
        let _ = fs::set_permissions(at, fs::Permissions::from_mode(0o777));
        if let Ok(mut file) = OpenOptions::new().write(true).open(at) {
            let _ = file.write_all(b"poison");
        }
        if let Ok(file) = OpenOptions::new().write(true).open(at) {
            let _ = file.set_len(3);
        }
        let moved = at.with_extension("moved");
        let _ = fs::hard_link(at, &moved);
        let _ = fs::write(&moved, "poison");
        let _ = fs::remove_file(at);
        let _ = fs::write(at, "poison");
        tell(&format!("spoil {path}"), Ok::<_, io::Error>(()));
    }
    Ok(())
}

/// Names of ours for files that are not.
pub(crate) fn link(paths: Arguments<'_>) -> io::Result<()> {
    each(paths, "link", |path| {
        let _ = fs::remove_file("linked");
        fs::hard_link(path, "linked")
    });
    Ok(())
}
