//! The spool: usage records on disk until the collector has them on its own.
//!
//! One append-only file of checksummed entries, brought to the disk before a
//! record counts as kept. It begins with what was confirmed last, so that a
//! sequence goes on after a restart even when nothing waits.
//!
//! ```text
//! length u32 LE | CRC-32C u32 LE | postcard Entry     .. repeated
//! ```
//!
//! The promise: what was appended is sent until it is confirmed; a torn tail
//! is cut and said; a full disk loses nothing as long as the agent lives.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gleaner_common::id::BootId;
use gleaner_common::usage::{REASON_BYTES_MAX, UsageRecord};
use serde::{Deserialize, Serialize};

use crate::link::Recorded;

/// At most so many records wait: months of an ordinary owner. Then the oldest
/// are kept and new ones are lost, loudly.
const RECORDS_WAITING_MAX: usize = 20_000;

/// The longest entry: a record with its reason is far below.
const ENTRY_BYTES_MAX: usize = 4 << 10;

/// A file of confirmed entries is written anew from this size on.
const COMPACT_BYTES: u64 = 64 << 10;

const HEAD_BYTES: usize = 8;

/// Why there is no spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("cannot open the usage spool {path}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write the usage spool {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Record(UsageRecord),
    /// Everything of this boot up to here is with the collector.
    Confirmed {
        boot: BootId,
        sequence: u64,
    },
}

/// Records that wait for the collector.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    file: File,
    /// The length of what is known to be good.
    length: u64,
    waiting: VecDeque<UsageRecord>,
    /// So many at the back of `waiting` are not on the disk yet.
    unsaved: usize,
    /// The last sequence given out, and in which boot.
    last: Option<(BootId, u64)>,
    lost: u64,
    in_trouble: bool,
}

impl Spool {
    /// Opens or makes the spool. Also returns what was found wrong with it,
    /// one line each; it has been put right.
    ///
    /// # Errors
    /// The file cannot be opened, read or cut.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Vec<String>), SpoolError> {
        let path = directory.join("usage.spool");
        let failed = |source| SpoolError::Open { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (mut waiting, mut last, mut at) = (VecDeque::new(), None, 0);
        while let Some((entry, length)) = read_entry(&bytes[at..]) {
            at += length;
            match entry {
                Entry::Record(record) => {
                    last = Some((record.boot, record.sequence));
                    waiting.push_back(record);
                }
                Entry::Confirmed { boot, sequence } => {
                    forget(&mut waiting, boot, sequence);
                    if last.is_none_or(|(of, _)| of != boot) {
                        last = Some((boot, sequence));
                    }
                }
            }
        }
        let mut notes = vec![];
        let cut = bytes.len() - at;
        if cut > 0 {
            notes.push(format!(
                "{}: cut {cut} bytes after byte {at} that are no whole record; {} records wait",
                path.display(),
                waiting.len()
            ));
            file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        let length = at as u64;
        let spool =
            Self { path, file, length, waiting, unsaved: 0, last, lost: 0, in_trouble: false };
        Ok((spool, notes))
    }

    /// Keeps a transition as the next record of this boot. A trouble is
    /// returned once, when it begins: the record is then in memory only.
    pub(crate) fn append(&mut self, boot: BootId, recorded: &Recorded) -> Option<String> {
        if self.waiting.len() >= RECORDS_WAITING_MAX {
            self.lost += 1;
            let line = format!(
                "usage spool: {} records wait for the collector; {} newer ones are lost",
                self.waiting.len(),
                self.lost
            );
            tracing::error!("{line}");
            return (self.lost == 1).then_some(line);
        }
        let sequence = match self.last {
            Some((of, last)) if of == boot => last + 1,
            _ => 1,
        };
        self.last = Some((boot, sequence));
        let transition = &recorded.transition;
        self.waiting.push_back(UsageRecord {
            boot,
            sequence,
            at: recorded.wall,
            since_boot: recorded.since_boot,
            cause: transition.cause,
            load: transition.load,
            users: transition.users,
            input_idle: transition.input_idle,
            slots: transition.slots,
            reason: shortened(&transition.reason),
        });
        self.unsaved += 1;
        let trouble = self.save().err()?;
        tracing::error!("{trouble}; {} records are in memory only", self.unsaved);
        let first = !std::mem::replace(&mut self.in_trouble, true);
        first.then(|| trouble.to_string())
    }

    /// Brings to the disk what is not there yet.
    fn save(&mut self) -> Result<(), SpoolError> {
        let mut bytes = vec![];
        for record in self.waiting.iter().skip(self.waiting.len() - self.unsaved) {
            write_entry(&Entry::Record(record.clone()), &mut bytes);
        }
        self.write(&bytes, true)?;
        self.unsaved = 0;
        if std::mem::replace(&mut self.in_trouble, false) {
            tracing::info!("the usage spool can be written again: nothing was lost");
        }
        Ok(())
    }

    /// Writes after what is good; a failed write leaves no half behind it.
    fn write(&mut self, bytes: &[u8], sync: bool) -> Result<(), SpoolError> {
        let done = self
            .file
            .seek(SeekFrom::Start(self.length))
            .and_then(|_| self.file.write_all(bytes))
            .and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        match done {
            Ok(()) => {
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                let _ = self.file.set_len(self.length);
                Err(SpoolError::Write { path: self.path.clone(), source })
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The oldest records, of one boot, for one frame.
    pub(crate) fn batch(&self, at_most: usize) -> Vec<UsageRecord> {
        let Some(first) = self.waiting.front() else { return vec![] };
        self.waiting
            .iter()
            .take(at_most)
            .take_while(|record| record.boot == first.boot)
            .cloned()
            .collect()
    }

    /// The collector has everything of this boot up to `sequence`.
    pub(crate) fn confirm(&mut self, boot: BootId, sequence: u64) {
        forget(&mut self.waiting, boot, sequence);
        self.unsaved = self.unsaved.min(self.waiting.len());
        let mut bytes = vec![];
        write_entry(&Entry::Confirmed { boot, sequence }, &mut bytes);
        // Lost in a crash, it only means that records are sent twice.
        let done =
            if self.length > COMPACT_BYTES { self.compact() } else { self.write(&bytes, false) };
        if let Err(error) = done {
            tracing::warn!("{error}; confirmed records will be sent again");
        }
    }

    fn compact(&mut self) -> Result<(), SpoolError> {
        let mut bytes = vec![];
        let first = self.waiting.front().map(|record| (record.boot, record.sequence - 1));
        if let Some((boot, sequence)) = first.or(self.last) {
            write_entry(&Entry::Confirmed { boot, sequence }, &mut bytes);
        }
        for record in &self.waiting {
            write_entry(&Entry::Record(record.clone()), &mut bytes);
        }
        let failed = |source| SpoolError::Write { path: self.path.clone(), source };
        gleaner_shell::atomic::replace(&self.path, &bytes, gleaner_shell::atomic::PRIVATE)
            .map_err(|error| failed(error.source))?;
        self.file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        self.length = bytes.len() as u64;
        self.unsaved = 0;
        Ok(())
    }
}

fn forget(waiting: &mut VecDeque<UsageRecord>, boot: BootId, sequence: u64) {
    waiting.retain(|record| record.boot != boot || record.sequence > sequence);
}

/// At a character's end: the wire's limit is in bytes.
fn shortened(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}

fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    let payload = postcard::to_stdvec(entry)
        .unwrap_or_else(|error| unreachable!("a record is always writable: {error}"));
    let length = u32::try_from(payload.len())
        .unwrap_or_else(|_| unreachable!("a record's reason is bounded"));
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
}

/// The first entry and its length; `None` if there is none that is whole.
fn read_entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > ENTRY_BYTES_MAX {
        return None;
    }
    let payload = rest.get(..length)?;
    if crc32c::crc32c(payload) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((postcard::from_bytes(payload).ok()?, HEAD_BYTES + length))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_agent_core::occupancy::Transition;
    use gleaner_common::time::WallTime;
    use gleaner_common::usage::{Cause, LoadAverages};

    use super::*;

    const BOOT: BootId = BootId([1; 16]);

    fn recorded(reason: &str) -> Recorded {
        Recorded {
            transition: Transition {
                cause: Cause::Tty,
                load: LoadAverages::default(),
                users: 1,
                input_idle: None,
                slots: 0,
                reason: reason.to_owned(),
                by_load: false,
            },
            wall: WallTime(0),
            since_boot: Duration::from_secs(1),
        }
    }

    fn spool_of(directory: &Path, count: usize) -> Spool {
        let (mut spool, notes) = Spool::open(directory).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        for n in 0..count {
            assert_eq!(spool.append(BOOT, &recorded(&n.to_string())), None);
        }
        spool
    }

    fn sequences(spool: &Spool) -> Vec<u64> {
        spool.batch(100).iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn records_survive_a_restart_and_the_sequence_goes_on() {
        let home = tempfile::tempdir().unwrap();
        spool_of(home.path(), 3);
        let mut spool = spool_of(home.path(), 1);
        assert_eq!(sequences(&spool), [1, 2, 3, 4]);
        spool.confirm(BOOT, 3);
        drop(spool);
        let mut spool = spool_of(home.path(), 1);
        assert_eq!(sequences(&spool), [4, 5]);
        spool.confirm(BOOT, 5);
        assert!(spool.is_empty());
        drop(spool);
        assert_eq!(sequences(&spool_of(home.path(), 1)), [6]);
    }

    #[test]
    fn another_boot_counts_from_one() {
        let home = tempfile::tempdir().unwrap();
        let mut spool = spool_of(home.path(), 2);
        spool.append(BootId([2; 16]), &recorded(""));
        assert_eq!(sequences(&spool), [1, 2], "one boot at a time");
        spool.confirm(BOOT, 2);
        assert_eq!(sequences(&spool), [1]);
    }

    #[test]
    fn a_torn_tail_is_cut_and_said_wherever_it_was_torn() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("usage.spool");
        spool_of(home.path(), 2);
        let good = std::fs::read(&path).unwrap();
        spool_of(home.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        for length in good.len() + 1..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (spool, notes) = Spool::open(home.path()).unwrap();
            assert_eq!(spool.waiting.len(), 2);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].contains(&format!("cut {} bytes", length - good.len())));
            assert_eq!(std::fs::read(&path).unwrap(), good);
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(Spool::open(home.path()).unwrap().0.waiting.len(), 2);
    }

    #[test]
    fn what_is_confirmed_takes_no_room_for_ever() {
        let home = tempfile::tempdir().unwrap();
        let mut spool = spool_of(home.path(), 0);
        for n in 1..=2_000 {
            spool.append(BOOT, &recorded(&"x".repeat(REASON_BYTES_MAX)));
            spool.confirm(BOOT, n - 1);
        }
        assert!(spool.length < 2 * COMPACT_BYTES, "{}", spool.length);
        drop(spool);
        let spool = spool_of(home.path(), 1);
        assert_eq!(sequences(&spool), [2_000, 2_001]);
    }

    #[test]
    fn a_full_disk_loses_nothing_and_is_said_once() {
        let home = tempfile::tempdir().unwrap();
        let mut spool = spool_of(home.path(), 1);
        let good = std::mem::replace(&mut spool.file, File::open("/dev/null").unwrap());
        assert!(spool.append(BOOT, &recorded("a")).unwrap().contains("cannot write"));
        assert_eq!(spool.append(BOOT, &recorded("b")), None);
        spool.file = good;
        assert_eq!(spool.append(BOOT, &recorded("c")), None);
        assert_eq!(sequences(&spool), [1, 2, 3, 4]);
        drop(spool);
        assert_eq!(sequences(&spool_of(home.path(), 0)), [1, 2, 3, 4]);
    }

    fn hex_of(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    #[test]
    fn the_format_is_this() {
        let mut bytes = vec![];
        write_entry(&Entry::Confirmed { boot: BOOT, sequence: 300 }, &mut bytes);
        let hex = hex_of(&bytes);
        assert_eq!(
            hex,
            concat!("13000000", "fa48ed0c", "01", "01010101010101010101010101010101", "ac02")
        );
    }
}
