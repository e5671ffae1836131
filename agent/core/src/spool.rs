//! The spool: usage records on disk until the collector has them on its own.
//!
//! ```text
//! append ─► unsaved ─ synced ─► waiting ─ sent, confirmed ─► confirmed ─ in time ─► forgotten
//!              │                   ▲ the collector lacks it after all ┘
//!              └ the disk says no: told, tried again; never sent
//! ```
//!
//! A record is known by the spool's *life* and a number in it. A life is drawn anew
//! whenever the spool is opened, and whenever the collector has more of it than was
//! ever sent: so nothing that a disk forgot, or that came back from an older copy, can
//! make a new record look like an old one, and no number is given out twice.
//!
//! The promise: what [`Spool::append`] has saved is sent until the collector has it, and
//! again if the collector's disk went back in time; nothing unsaved is sent; a damaged
//! record leaves a gap in its life's numbers and costs no other; what is lost is counted,
//! where it can be known, and told to the collector. Knows no socket, clock or random
//! source, and of files only what [`Disk`] says.

mod exchange;
mod file;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::time::Duration;

use gleaner_common::disk::Disk;
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::usage::{LifeAccount, LifeKept, REASON_BYTES_MAX, UsageRecord};
use gleaner_common::wire::{LIVES_MAX, RANGES_MAX};

use crate::occupancy::Transition;
use file::{Contents, Entry};

pub use exchange::{Deferred, Exchange};

/// The file's name.
pub const FILE: &str = "usage.spool";

/// At most so many records wait: months of an ordinary owner. Then the oldest
/// are kept, and of the newer ones their numbers only.
pub const RECORDS_WAITING_MAX: usize = 20_000;

/// How much stays of what is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A file with confirmed entries is written anew when so many bytes have come to it.
    pub compact_bytes: u64,
    /// So many confirmed records stay, in case the collector goes back in time.
    pub confirmed_kept: usize,
}

impl Default for Bounds {
    /// Days of an ordinary owner.
    fn default() -> Self {
        Self { compact_bytes: 128 << 10, confirmed_kept: 256 }
    }
}

/// Room that is set aside while there is some: hundreds of records on a full disk.
const RESERVE_BYTES: u64 = 64 << 10;

/// Why there is no spool.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the usage spool {FILE}: {0}")]
pub struct OpenError(#[source] pub io::Error);

/// A transition, and when it was.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub transition: Transition,
    pub wall: WallTime,
    pub since_boot: Duration,
}

/// What somebody should hear of.
#[derive(Debug)]
pub enum Note {
    /// The disk says no, for the first time: records are in memory only.
    Unsaved { records: usize, error: io::Error },
    /// The disk takes records again; so many are lost in between: none.
    SavedAgain,
    /// Too many wait, and so many newer ones were lost.
    Full { waiting: usize, lost: u64 },
    /// Bytes of the file are no entry.
    Damaged { offset: usize, bytes: usize },
    /// Confirmed records could not be cleared away: the file only grows.
    NotCompacted { error: io::Error },
    /// The collector lacks records that it had confirmed; these are sent again.
    SentAgain { records: u64 },
    /// The collector lacks records that it had confirmed, and so do we.
    Gone { life: SpoolLife, records: u64 },
    /// The collector has more of this life than was sent: another has our past. New
    /// records are of a new life.
    Forked { had: u64, sent: u64 },
    /// The collector confirms what was not sent: ignored.
    Nonsense { life: SpoolLife, sequence: u64 },
}

impl Note {
    /// Is or may something be lost, or soon? For whoever looks after the machine.
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Unsaved { .. }
            | Self::Full { .. }
            | Self::Damaged { .. }
            | Self::Gone { .. }
            | Self::Forked { .. } => true,
            Self::SavedAgain
            | Self::NotCompacted { .. }
            | Self::SentAgain { .. }
            | Self::Nonsense { .. } => false,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "usage spool: ")?;
        match self {
            Self::Unsaved { records, error } => {
                write!(f, "cannot write: {error}; {records} records are in memory only")
            }
            Self::SavedAgain => write!(f, "it can be written again: nothing was lost"),
            Self::Full { waiting, lost } => {
                write!(f, "{waiting} records wait for the collector; {lost} newer ones are lost")
            }
            Self::Damaged { offset, bytes } => {
                write!(f, "{bytes} bytes at {offset} are no whole record: passed over")
            }
            Self::NotCompacted { error } => {
                write!(f, "cannot clear away what is confirmed: {error}")
            }
            Self::SentAgain { records } => write!(
                f,
                "the collector lacks {records} records that it had confirmed: they are sent again"
            ),
            Self::Gone { life, records } => write!(
                f,
                "the collector has lost {records} records of life {life} that it had confirmed, \
                 and they are not here any more"
            ),
            Self::Forked { had, sent } => write!(
                f,
                "the collector has {had} records of a life of which {sent} were sent: this \
                 machine went back in time, or has a twin; a new life begins"
            ),
            Self::Nonsense { life, sequence } => write!(
                f,
                "the collector confirms record {sequence} of life {life}, which was not sent"
            ),
        }
    }
}

/// A record that is here.
#[derive(Clone, Debug)]
struct Held {
    record: UsageRecord,
    confirmed: bool,
}

/// What is known of a life beside its records.
#[derive(Clone, Debug)]
struct Book {
    life: SpoolLife,
    boot: BootId,
    given: u64,
    saved: u64,
    /// The highest number that was sent, for sure or perhaps.
    sent: u64,
    /// So many records were confirmed and are not here any more.
    forgotten: u64,
    at: WallTime,
    since_boot: Duration,
    /// The highest number read from the file.
    seen: u64,
    /// The collector was asked on this stream what it has of it.
    asked: bool,
}

impl Book {
    fn new(life: SpoolLife, boot: BootId) -> Self {
        Self {
            life,
            boot,
            given: 0,
            saved: 0,
            sent: 0,
            forgotten: 0,
            at: WallTime(0),
            since_boot: Duration::ZERO,
            seen: 0,
            asked: false,
        }
    }

    fn account(&self, confirmed: u64) -> LifeAccount {
        let Self { life, boot, given, saved, at, since_boot, .. } = *self;
        LifeAccount { life, boot, given, saved, confirmed, at, since_boot }
    }
}

/// Records that wait for the collector, and some that do not any more.
#[derive(Debug)]
pub struct Spool {
    /// In the order in which they began; the last is this opening's. Never empty.
    books: Vec<Book>,
    held: VecDeque<Held>,
    /// So many at the back of `held` are not on the disk yet.
    unsaved: usize,
    /// So many of `held` are not confirmed.
    waiting: usize,
    /// The length of what is known to be good.
    length: u64,
    /// The file can only be written as a whole: there is none, or nobody knows what a
    /// failed write or sync left of it.
    rewrite: bool,
    compact_at: u64,
    bounds: Bounds,
    /// So many were lost since the opening because too many waited.
    lost: u64,
    in_trouble: bool,
    /// The collector should hear the lives again.
    untold: bool,
}

impl Spool {
    /// Opens or makes the spool, for a life that was drawn for this. Also returns what
    /// was found wrong with it; it has been put right as far as the disk lets it.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(
        disk: &mut dyn Disk,
        life: SpoolLife,
        boot: BootId,
    ) -> Result<(Self, Vec<Note>), OpenError> {
        Self::open_within(disk, life, boot, Bounds::default())
    }

    /// The same, with bounds that a test is through with sooner.
    ///
    /// # Errors
    /// As [`Spool::open`].
    pub fn open_within(
        disk: &mut dyn Disk,
        life: SpoolLife,
        boot: BootId,
        bounds: Bounds,
    ) -> Result<(Self, Vec<Note>), OpenError> {
        let bytes = disk.read(FILE).map_err(OpenError)?;
        let Contents { mut books, held, mut notes, .. } =
            Contents::of(bytes.as_deref().unwrap_or_default());
        for book in &mut books {
            book.sent = book.given;
        }
        books.push(Book::new(life, boot));
        let waiting = held.iter().filter(|held| !held.confirmed).count();
        let length = bytes.as_ref().map_or(0, Vec::len) as u64;
        let mut spool = Self {
            books,
            unsaved: held.len(),
            held,
            waiting,
            length,
            rewrite: bytes.is_none(),
            compact_at: 0,
            bounds,
            lost: 0,
            in_trouble: false,
            untold: false,
        };
        // What an earlier process wrote need not be on the disk; a file written anew is.
        if let Err(error) = spool.compact(disk) {
            if !spool.rewrite && disk.sync(FILE).is_ok() {
                spool.unsaved = 0;
            } else {
                spool.rewrite = true;
                notes.extend(spool.trouble(error));
            }
        }
        Ok((spool, notes))
    }

    /// Keeps a transition as this life's next record. Without the disk it is kept in
    /// memory, and not sent.
    pub fn append(&mut self, disk: &mut dyn Disk, recorded: &Recorded) -> Option<Note> {
        let is_full = self.waiting >= RECORDS_WAITING_MAX;
        let book = self.current();
        book.given += 1;
        (book.at, book.since_boot) = (recorded.wall, recorded.since_boot);
        if is_full {
            return self.lose(disk);
        }
        let transition = &recorded.transition;
        let record = UsageRecord {
            life: book.life,
            boot: book.boot,
            sequence: book.given,
            at: recorded.wall,
            since_boot: recorded.since_boot,
            cause: transition.cause,
            load: transition.load,
            users: transition.users,
            input_idle: transition.input_idle,
            slots: transition.slots,
            reason: shortened(&transition.reason),
        };
        self.held.push_back(Held { record, confirmed: false });
        self.waiting += 1;
        self.unsaved += 1;
        self.save(disk)
    }

    /// A number without a record: the gap is what tells of it.
    fn lose(&mut self, disk: &mut dyn Disk) -> Option<Note> {
        self.lost += 1;
        self.untold = true;
        let mut bytes = vec![];
        let of = self.books.len() - 1;
        file::write(&Entry::Account(self.books[of].account(self.books[of].forgotten)), &mut bytes);
        // Known to this process and told to the collector, also without the disk.
        if self.unsaved == 0 && !self.rewrite {
            let _ = self.write(disk, &bytes);
        }
        if self.length > self.compact_at {
            let _ = self.compact(disk);
        }
        let is_round = self.lost == 10_u64.pow(self.lost.ilog10());
        is_round.then_some(Note::Full { waiting: self.waiting, lost: self.lost })
    }

    /// Brings to the disk what is not there yet; to be tried again from time to time.
    pub fn save(&mut self, disk: &mut dyn Disk) -> Option<Note> {
        if self.unsaved == 0 {
            return None;
        }
        let saved = if self.rewrite {
            self.compact(disk)
        } else {
            let mut bytes = vec![];
            for held in self.held.iter().skip(self.held.len() - self.unsaved) {
                file::write(&Entry::Record(held.record.clone()), &mut bytes);
            }
            self.write(disk, &bytes)
        };
        match saved {
            Ok(()) => {
                self.all_is_saved();
                disk.reserve(FILE, RESERVE_BYTES);
                std::mem::take(&mut self.in_trouble).then_some(Note::SavedAgain)
            }
            Err(error) => self.trouble(error),
        }
    }

    fn trouble(&mut self, error: io::Error) -> Option<Note> {
        // The collector hears that these numbers exist: if we die now, their gap shows.
        self.untold = true;
        let is_first = !std::mem::replace(&mut self.in_trouble, true);
        is_first.then_some(Note::Unsaved { records: self.unsaved, error })
    }

    fn all_is_saved(&mut self) {
        self.unsaved = 0;
        let Some((life, last)) = self.held.back().map(|h| (h.record.life, h.record.sequence))
        else {
            return;
        };
        // Those of older lives were saved already, or are not known to be.
        if let Some(book) = self.book(life) {
            book.saved = book.saved.max(last);
        }
    }

    /// Writes behind what is good. What a failed write leaves is cut, or else the
    /// whole file must be written anew: nothing is ever put behind half an entry.
    fn write(&mut self, disk: &mut dyn Disk, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = disk.write_at(FILE, self.length, bytes) {
            self.rewrite = disk.cut(FILE, self.length).is_err();
            return Err(error);
        }
        if let Err(error) = disk.sync(FILE) {
            self.rewrite = true;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the file anew, without what has been confirmed for long.
    fn compact(&mut self, disk: &mut dyn Disk) -> io::Result<()> {
        let confirmed = self.held.len() - self.waiting;
        let mut to_forget = confirmed.saturating_sub(self.bounds.confirmed_kept);
        let mut forgotten: BTreeMap<SpoolLife, u64> = BTreeMap::new();
        let mut stays = VecDeque::new();
        for held in &self.held {
            if held.confirmed && to_forget > 0 {
                to_forget -= 1;
                *forgotten.entry(held.record.life).or_default() += 1;
            } else {
                stays.push_back(held.clone());
            }
        }
        let mut bytes = vec![];
        let mut books = self.books_to_keep(&stays);
        for book in &mut books {
            book.forgotten += forgotten.get(&book.life).copied().unwrap_or(0);
            if book.given > 0 {
                file::write(&Entry::Account(book.account(book.forgotten)), &mut bytes);
            }
        }
        for held in &stays {
            file::write(&Entry::Record(held.record.clone()), &mut bytes);
        }
        let length = bytes.len() as u64;
        if let Err(error) = disk.replace(FILE, &bytes) {
            // The old file or the new: only the old one's name is known to last.
            let is_old = length != self.length
                && disk.length(FILE).is_ok_and(|found| found == Some(self.length));
            self.rewrite |= !is_old;
            self.compact_at = self.length + self.bounds.compact_bytes;
            return Err(error);
        }
        (self.books, self.held) = (books, stays);
        self.length = length;
        self.compact_at = self.length + self.bounds.compact_bytes;
        self.rewrite = false;
        self.all_is_saved();
        disk.reserve(FILE, RESERVE_BYTES);
        Ok(())
    }

    /// The newest lives, and all that have records here.
    fn books_to_keep(&self, held: &VecDeque<Held>) -> Vec<Book> {
        let newest = self.books.len().saturating_sub(LIVES_MAX);
        let stays = |(at, book): &(usize, &Book)| {
            *at >= newest || held.iter().any(|held| held.record.life == book.life)
        };
        self.books.iter().enumerate().filter(stays).map(|(_, book)| book.clone()).collect()
    }

    fn current(&mut self) -> &mut Book {
        self.books.last_mut().unwrap_or_else(|| unreachable!("a spool has a life"))
    }

    /// Is there something that is not with the collector?
    pub fn is_empty(&self) -> bool {
        self.waiting == 0 && !self.untold
    }

    /// Are there records that wait for the disk?
    pub fn has_unsaved(&self) -> bool {
        self.unsaved > 0
    }

    /// What the collector should have: this life, and the oldest others that it was not
    /// asked for.
    pub fn lives(&self) -> Vec<LifeAccount> {
        let (current, older) =
            self.books.split_last().unwrap_or_else(|| unreachable!("a spool has a life"));
        let account = |book: &Book| {
            let held = self.held.iter().filter(|held| held.record.life == book.life);
            let confirmed = held.filter(|held| held.confirmed).count() as u64;
            book.account(book.forgotten + confirmed)
        };
        let older = older.iter().filter(|book| !book.asked).take(LIVES_MAX - 1);
        older.chain([current]).map(account).collect()
    }

    /// On a new stream the collector is asked for all lives, as many at once as a frame
    /// takes.
    fn ask_for_all(&mut self) {
        self.books.iter_mut().for_each(|book| book.asked = false);
    }

    fn ask(&mut self) -> Vec<LifeAccount> {
        let lives = self.lives();
        for book in &mut self.books {
            book.asked |= lives.iter().any(|asked| asked.life == book.life);
        }
        self.untold = self.books.iter().any(|book| !book.asked);
        lives
    }

    /// The oldest records that are on the disk, of one life, for one frame.
    fn batch(&mut self, at_most: usize) -> Vec<UsageRecord> {
        let saved = self.held.iter().take(self.held.len() - self.unsaved);
        let mut waiting = saved.filter(|held| !held.confirmed).map(|held| &held.record).peekable();
        let Some(life) = waiting.peek().map(|first| first.life) else { return vec![] };
        let batch: Vec<_> =
            waiting.take(at_most).take_while(|record| record.life == life).cloned().collect();
        let last = batch.last().map_or(0, |record| record.sequence);
        if let Some(book) = self.book(life) {
            book.sent = book.sent.max(last);
        }
        batch
    }

    fn book(&mut self, life: SpoolLife) -> Option<&mut Book> {
        self.books.iter_mut().find(|book| book.life == life)
    }

    /// The collector has all that was sent of this life up to `sequence`.
    fn confirm(&mut self, disk: &mut dyn Disk, life: SpoolLife, sequence: u64) -> Option<Note> {
        if self.book(life).is_none_or(|book| book.sent < sequence) {
            return Some(Note::Nonsense { life, sequence });
        }
        let saved = self.held.len() - self.unsaved;
        for held in self.held.iter_mut().take(saved) {
            let is_meant = held.record.life == life && held.record.sequence <= sequence;
            if is_meant && !std::mem::replace(&mut held.confirmed, true) {
                self.waiting -= 1;
            }
        }
        if self.length <= self.compact_at {
            return None;
        }
        self.compact(disk).err().map(|error| Note::NotCompacted { error })
    }

    /// The collector has told what it has of our lives. `fresh` is drawn for a life that
    /// may have to begin.
    fn agree(&mut self, disk: &mut dyn Disk, kept: &[LifeKept], fresh: SpoolLife) -> Vec<Note> {
        let mut notes = vec![];
        let mut again = 0;
        let current = self.current().life;
        let mut fork = None;
        for kept in kept {
            let Some(book) = self.book(kept.life) else { continue };
            if kept.life == current && kept.last > book.sent {
                fork = Some(Note::Forked { had: kept.last, sent: book.sent });
            }
            let (lacks, gone) = self.compare(kept);
            again += lacks;
            if gone > 0 {
                notes.push(Note::Gone { life: kept.life, records: gone });
            }
        }
        if again > 0 {
            notes.push(Note::SentAgain { records: again });
        }
        if let Some(fork) = fork {
            notes.push(fork);
            notes.extend(self.begin_again(disk, fresh));
        }
        notes
    }

    /// Marks what the collector has of a life and what it has not. Returns how many
    /// confirmed records wait again, and how many are gone for good.
    fn compare(&mut self, kept: &LifeKept) -> (u64, u64) {
        let sent = self.book(kept.life).map_or(0, |book| book.sent);
        // Below the first range that fits into an answer nothing is told.
        let told_from = match kept.ranges.first() {
            Some((first, _)) if kept.ranges.len() >= RANGES_MAX => *first,
            _ => 0,
        };
        let (mut again, mut both) = (0, 0);
        let saved = self.held.len() - self.unsaved;
        for held in self.held.iter_mut().take(saved) {
            let sequence = held.record.sequence;
            if held.record.life != kept.life || sequence > sent {
                continue;
            }
            let has = if sequence < told_from { held.confirmed } else { kept.contains(sequence) };
            both += u64::from(has);
            match (held.confirmed, has) {
                (true, false) => {
                    again += 1;
                    self.waiting += 1;
                }
                (false, true) => self.waiting -= 1,
                (true, true) | (false, false) => {}
            }
            held.confirmed = has;
        }
        let others = kept.records.saturating_sub(both);
        let Some(book) = self.book(kept.life) else { return (again, 0) };
        let gone = book.forgotten.saturating_sub(others);
        book.forgotten -= gone;
        (again, gone)
    }

    /// Another has given out our numbers: what of this life was never sent gets new ones,
    /// in a new life.
    fn begin_again(&mut self, disk: &mut dyn Disk, fresh: SpoolLife) -> Option<Note> {
        let old = self.current();
        let (life, sent) = (old.life, old.sent);
        let mut book =
            Book { life: fresh, given: 0, saved: 0, sent: 0, forgotten: 0, ..old.clone() };
        (old.given, old.saved) = (sent, old.saved.min(sent));
        let mut renumbered = 0;
        for held in &mut self.held {
            let record = &mut held.record;
            if record.life == life && record.sequence > sent {
                book.given += 1;
                (record.life, record.sequence) = (fresh, book.given);
                renumbered += 1;
            }
        }
        self.books.push(book);
        // On the disk they still have their old numbers.
        self.unsaved = self.unsaved.max(renumbered);
        self.rewrite = true;
        self.save(disk)
    }
}

/// At a character's end: the wire's limit is in bytes.
fn shortened(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests;
