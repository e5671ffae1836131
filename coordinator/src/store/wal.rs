//! Looking at the write-ahead log before `SQLite` does, which takes what it cannot
//! read of it for the log's end: one flipped bit would drop all commits behind it,
//! and say nothing.
//!
//! ```text
//! header: magic, version, page size, .., salts, sum │ frame │ frame │ .. │ old frames
//! frame: page number, size of the database if it commits, salts, sum │ the page
//! ```
//!
//! A frame's sum goes on from the one before it, so a frame tells by itself whether
//! it follows what stands there. The promise: what was committed and does not read is
//! told. What a crash leaves is not damage: frames of one transaction, half of them
//! written, which nobody was told of. Source: the format, `SQLite`'s "WAL-mode File
//! Format".

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The last bit says that sums are over big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// A power of two, by the format.
const PAGE_BYTES_MAX: usize = 1 << 16;

/// Two sums over 32-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum(u32, u32);

/// What is wrong with the log beside a database, if anything is.
///
/// # Errors
/// It cannot be read.
pub(super) fn damage(database: &Path) -> io::Result<Option<String>> {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => damage_in(BufReader::new(opened?)),
    }
}

fn damage_in(mut log: impl Read) -> io::Result<Option<String>> {
    let mut header = [0; HEADER];
    if !fills(&mut log, &mut header)? || header == [0; HEADER] {
        return Ok(None);
    }
    let big = word(&header, 0, true) & 1 == 1;
    let mut before = Sum::default().with(&header[..24], big);
    let page = word(&header, 8, true) as usize;
    let is_header = word(&header, 0, true) & !1 == MAGIC && page <= PAGE_BYTES_MAX;
    if !is_header || before != stored(&header, 24) {
        return Ok(Some("the header of its log is not as it was written".to_owned()));
    }
    let mut frame = vec![0; FRAME_HEADER + page];
    // The first frame that does not read, and the commits behind it that would.
    let (mut number, mut broken, mut commits) = (0_u32, None, 0_u32);
    while fills(&mut log, &mut frame)? {
        number += 1;
        let has_salts = frame[8..16] == header[16..24];
        let said = stored(&frame, 16);
        let sum = before.with(&frame[..8], big).with(&frame[FRAME_HEADER..], big);
        let follows = sum == said;
        let is_flipped = has_salts && !follows && sum.is_a_bit_from(said, page / 4 + 2);
        if broken.is_none() && (is_flipped || follows && !has_salts) {
            return Ok(Some(format!("frame {number} of its log is not as it was written")));
        }
        if !has_salts || !follows {
            broken = broken.or(Some(number));
        } else if broken.is_some() && word(&frame, 4, true) != 0 {
            commits += 1;
        }
        before = said;
    }
    // The last transaction of all may have been cut off by a loss of power.
    Ok(broken.filter(|_| commits > 1).map(|number| {
        format!("frame {number} of its log is not as it was written, {commits} commits are behind")
    }))
}

impl Sum {
    fn with(self, bytes: &[u8], big: bool) -> Self {
        let pairs = bytes.chunks_exact(8);
        pairs.fold(self, |Self(a, b), pair| {
            let a = a.wrapping_add(word(pair, 0, big)).wrapping_add(b);
            Self(a, b.wrapping_add(word(pair, 4, big)).wrapping_add(a))
        })
    }

    /// Would one flipped bit among so many words explain the difference, or one in what
    /// is said? What a word adds to the two sums is a number of Fibonacci for each word
    /// behind it.
    fn is_a_bit_from(self, said: Self, words: usize) -> bool {
        let Self(a, b) = Self(said.0.wrapping_sub(self.0), said.1.wrapping_sub(self.1));
        let in_said = (said.0 ^ self.0).count_ones() + (said.1 ^ self.1).count_ones() == 1;
        // Of the last word, which is the second of a pair, and of each one before it.
        let (mut of_a, mut of_b) = (0_u32, 1_u32);
        let mut is_in_word = || {
            let both = (0..32).map(|bit| 1_u32 << bit).flat_map(|it| [it, it.wrapping_neg()]);
            let is =
                both.into_iter().any(|by| a == of_a.wrapping_mul(by) && b == of_b.wrapping_mul(by));
            (of_a, of_b) = (of_b, of_a.wrapping_add(of_b));
            is
        };
        in_said || (0..words).any(|_| is_in_word())
    }
}

fn stored(bytes: &[u8], at: usize) -> Sum {
    Sum(word(bytes, at, true), word(bytes, at + 4, true))
}

fn word(bytes: &[u8], at: usize, big: bool) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}

/// Reads as much as there is room for; `false` if there is less.
fn fills(log: &mut impl Read, room: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(room) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    const PAGE: usize = 512;
    const FRAME: usize = FRAME_HEADER + PAGE;

    /// The log of a database whose log began anew, as it is and as it was before that,
    /// and where the live part of it ends.
    fn log(commits: u32) -> (Vec<u8>, Vec<u8>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let connection = Connection::open(&path).unwrap();
        let run = |sql: &str| connection.execute_batch(sql).unwrap();
        run("PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE t (x BLOB)");
        let commit = || run("INSERT INTO t VALUES (randomblob(700))");
        let read = || std::fs::read(dir.path().join("db-wal")).unwrap();
        (0..commits + 5).for_each(|_| commit());
        let before = read();
        run("PRAGMA wal_checkpoint(RESTART)");
        (0..commits).for_each(|_| commit());
        let log = read();
        let frames = log[HEADER..].chunks(FRAME);
        let live = frames.take_while(|frame| frame[8..16] == log[16..24]).count();
        (log, before, HEADER + live * FRAME)
    }

    fn told(log: &[u8]) -> bool {
        damage_in(log).unwrap().is_some()
    }

    #[test]
    fn every_flipped_bit_of_what_was_committed_is_told() {
        let (mut log, _, live) = log(3);
        assert!(!told(&log) && log.len() > live, "old frames lie behind");
        for bit in (0..live * 8).step_by(7) {
            log[bit / 8] ^= 1 << (bit % 8);
            assert!(told(&log), "bit {} of byte {} of {live}", bit % 8, bit / 8);
            log[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn larger_damage_is_told_where_more_than_one_commit_is_behind() {
        let (log, _, live) = log(4);
        let first = HEADER + FRAME_HEADER;
        for (from, told_of) in [(first, true), (live - PAGE, false)] {
            let mut log = log.clone();
            log[from..from + 100].fill(7);
            assert_eq!(told(&log), told_of);
        }
    }

    #[test]
    fn what_a_crash_leaves_is_no_damage() {
        let (log, before, live) = log(3);
        for end in HEADER..=live {
            assert!(!told(&log[..end]), "cut off at {end} of {live}");
        }
        // Between two writes, or in the middle of one.
        let frames = (HEADER..live).step_by(FRAME);
        for end in frames.flat_map(|at| [at, at + FRAME_HEADER, at + FRAME / 2]) {
            let killed = [&log[..end], &before[end..]].concat();
            assert!(!told(&killed), "killed as it wrote byte {end} of {live}");
        }
        let mut powerless = log;
        powerless[live - 2 * FRAME..live - FRAME].fill(0);
        assert!(!told(&powerless), "half of the last commit was on the disk");
        assert!(!told(&[0; 4096]), "made longer, and not written");
    }
}
