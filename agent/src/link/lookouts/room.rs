//! How much room there is for guests' files: looked at now and then, and at once
//! when something could not be written or a guest failed.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::room::Room;
use gleaner_shell::clock::Clock;
use rustix::fs::StatVfsMountFlags;
use tokio::sync::Notify;

use super::super::ToEventLoop;

/// Nothing new fills a disk in less without a guest's failing, which is heard of.
const EVERY: Duration = Duration::from_secs(60);

/// Somebody is making room.
const LACKING_EVERY: Duration = Duration::from_secs(5);

/// Where nobody has said how much must stay free, a twentieth, and so much at
/// most. A guess.
const BYTES_MIN_MAX: u64 = 256 << 20;
const PART_MIN: u64 = 20;

/// And a hundredth of the files that there may be, so many at most. A guess.
const FILES_MIN_MAX: u64 = 1_000;
const FILES_PART_MIN: u64 = 100;

/// What is looked at, and how much of it must be free; 0: as much as is usual.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) directory: PathBuf,
    pub(crate) bytes_min: u64,
}

/// Tells of it when it is another than before.
pub(crate) async fn watch(of: Watched, wanted: Arc<Notify>, event_loop: ToEventLoop) {
    let (mut lacked, mut is_wanted) = (false, true);
    loop {
        let room = look(&of, is_wanted || lacked);
        let lacks = room.lacks(lacked).is_some();
        if lacks || lacked {
            event_loop.core(Event::Room(room));
        }
        lacked = lacks;
        let pause = if lacks { LACKING_EVERY } else { EVERY };
        is_wanted = tokio::select! {
            () = Clock.sleep(pause) => false,
            () = wanted.notified() => true,
        };
    }
}

/// The file system that a directory is on, as it is; perhaps something is written
/// to it.
fn look(of: &Watched, writes: bool) -> Room {
    let at = of.directory.display().to_string();
    let found = match rustix::fs::statvfs(&of.directory) {
        Ok(found) => found,
        Err(error) => {
            let trouble = Some(io::Error::from(error).to_string());
            return Room { at, trouble, ..Room::default() };
        }
    };
    let usual = (found.f_blocks.saturating_mul(found.f_frsize) / PART_MIN).min(BYTES_MIN_MAX);
    let is_read_only = found.f_flag.contains(StatVfsMountFlags::RDONLY);
    let tried = if writes || is_read_only { write_something(&of.directory) } else { Ok(()) };
    // Some file systems do not count their files: they say that there are none.
    let files_free = (found.f_files > 0).then_some(found.f_favail);
    Room {
        at,
        bytes_free: found.f_bavail.saturating_mul(found.f_frsize),
        bytes_min: if of.bytes_min == 0 { usual } else { of.bytes_min },
        files_free,
        files_min: (found.f_files / FILES_PART_MIN).min(FILES_MIN_MAX),
        trouble: tried.err().map(|error| error.to_string()),
    }
}

/// A quota and a failing disk are in no figures.
fn write_something(directory: &Path) -> io::Result<()> {
    let path = directory.join("room");
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&[0; 4_096]));
    let _ = std::fs::remove_file(&path);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_looked_at_and_one_that_cannot_be_written_is_in_trouble() {
        let home = tempfile::tempdir().unwrap();
        let watched = |directory: &Path| Watched { directory: directory.into(), bytes_min: 1 };
        let room = look(&watched(home.path()), true);
        assert_eq!((room.lacks(false), room.bytes_min), (None, 1));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        let told = look(&watched(&home.path().join("gone")), false).lacks(false).unwrap();
        assert!(told.ends_with("gone: No such file or directory (os error 2)"), "{told}");
        let usual = look(&Watched { directory: home.path().into(), bytes_min: 0 }, false);
        assert!(usual.bytes_min <= BYTES_MIN_MAX && usual.files_min <= FILES_MIN_MAX);
    }
}
