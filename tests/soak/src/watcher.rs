//! Reads the guests' logs from outside: all files named `witness` in the places of all
//! hosts, found again and again, and held open, so that what is deleted or moved away
//! is still read to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

use crate::witness::Stream;

/// A guest's log lives for many times as long.
const LOOK: Duration = Duration::from_millis(20);

/// A file without a name is read for so long after it grew last: its process may
/// stand still.
const READ_ON: Duration = Duration::from_secs(60);

/// What reads.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Stream>>,
}

impl Watcher {
    /// Watches the data directories of hosts, in their order.
    pub fn start(data: Vec<PathBuf>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut files = Files::default();
            while !stops.load(Ordering::Relaxed) {
                files.look(&data);
                std::thread::sleep(LOOK);
            }
            files.look(&data);
            files.streams
        });
        Self { stop, thread }
    }

    /// All that was read, in the order in which it was found.
    ///
    /// # Errors
    /// The watcher has died.
    pub fn stop(self) -> Result<Vec<Stream>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the watcher died"))
    }
}

#[derive(Debug, Default)]
struct Files {
    streams: Vec<Stream>,
    open: BTreeMap<(u64, u64), Open>,
}

/// A file, open: nobody else gets its number meanwhile.
#[derive(Debug)]
struct Open {
    file: File,
    stream: usize,
    read: u64,
    grew: Moment,
}

impl Files {
    fn look(&mut self, data: &[PathBuf]) {
        for (host, data) in data.iter().enumerate() {
            for path in logs(data) {
                self.found(host, &path);
            }
        }
        let now = Clock.now();
        let streams = &mut self.streams;
        self.open.retain(|_, open| {
            if open.read_on(&mut streams[open.stream]) {
                open.grew = now;
            }
            now.since(open.grew) < READ_ON || open.file.metadata().is_ok_and(|it| it.nlink() > 0)
        });
    }

    fn found(&mut self, host: usize, path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let Ok(about) = file.metadata() else { return };
        let key = (about.dev(), about.ino());
        if self.open.contains_key(&key) {
            return;
        }
        let stream = self.streams.len();
        self.streams.push(Stream::new(host));
        self.open.insert(key, Open { file, stream, read: 0, grew: Clock.now() });
    }
}

impl Open {
    /// Has it more than before?
    fn read_on(&mut self, stream: &mut Stream) -> bool {
        let (before, mut piece) = (self.read, [0; 4_096]);
        while let Ok(count @ 1..) = self.file.read_at(&mut piece, self.read) {
            stream.read(&piece[..count]);
            self.read += count as u64;
        }
        self.read > before
    }
}

/// Where logs are: with guests that run, and with those whose files are taken away.
fn logs(data: &Path) -> BTreeSet<PathBuf> {
    let below = |name: &str| fs::read_dir(data.join(name)).into_iter().flatten().flatten();
    let places = below("places").map(|entry| entry.path().join("guest/work/witness"));
    let left = below("outgoing").map(|entry| entry.path().join("guest/work/witness"));
    places.chain(left).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_is_read_to_its_end_wherever_it_goes() {
        let data = tempfile::tempdir().unwrap();
        let work = data.path().join("places/p0/guest/work");
        fs::create_dir_all(&work).unwrap();
        let mut log = File::create(work.join("witness")).unwrap();
        log.write_all(b"start 1.0 100\n").unwrap();
        let mut files = Files::default();
        let hosts = [data.path().to_owned()];
        files.look(&hosts);
        log.write_all(b"tick 120\n").unwrap();
        fs::create_dir_all(data.path().join("outgoing/7")).unwrap();
        fs::rename(data.path().join("places/p0/guest"), data.path().join("outgoing/7/guest"))
            .unwrap();
        files.look(&hosts);
        fs::remove_dir_all(data.path().join("outgoing")).unwrap();
        log.write_all(b"end 140\n").unwrap();
        files.look(&hosts);
        assert_eq!(files.streams.len(), 1);
        assert_eq!(files.streams[0].stamps, [100, 120, 140]);
    }

    #[test]
    fn the_next_guest_of_a_place_has_a_log_of_its_own() {
        let data = tempfile::tempdir().unwrap();
        let work = data.path().join("places/p0/guest/work");
        fs::create_dir_all(&work).unwrap();
        let (mut files, hosts) = (Files::default(), [data.path().to_owned()]);
        for name in ["1.0", "1.1"] {
            fs::write(work.join("witness"), format!("start {name} 100\n")).unwrap();
            files.look(&hosts);
            fs::remove_file(work.join("witness")).unwrap();
        }
        assert_eq!(files.streams.len(), 2);
    }
}
