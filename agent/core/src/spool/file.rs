//! The entries of a spool's file, and what a file tells of lives and records.

use std::collections::VecDeque;

use gleaner_common::checked::{self, Piece, Scan};
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::usage::{LifeAccount, UsageRecord};
use serde::{Deserialize, Serialize};

use super::{Book, Held, Note};

/// The longest entry: a record with its reason is far below.
const ENTRY_BYTES_MAX: usize = 4 << 10;

/// Only a byte that says which, and two ids.
const ENTRY_BYTES_MIN: usize = 1 + 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Entry {
    Record(UsageRecord),
    /// What was given out and confirmed of a life whose records are not all here.
    Account(LifeAccount),
}

pub(super) fn write(entry: &Entry, out: &mut Vec<u8>) {
    checked::write(out, |out| {
        *out = postcard::to_extend(entry, std::mem::take(out))
            .unwrap_or_else(|error| unreachable!("postcard writes anything into a Vec: {error}"));
    });
}

/// The entry at the front, and its length.
fn first(bytes: &[u8]) -> Option<(Found, usize)> {
    let Some((payload, length)) = checked::first(bytes, ENTRY_BYTES_MIN..=ENTRY_BYTES_MAX) else {
        return first_version::first(bytes);
    };
    let (entry, left) = postcard::take_from_bytes(payload).ok()?;
    let found = match entry {
        Entry::Record(record) => Found::Record(record),
        Entry::Account(account) => Found::Account(account),
    };
    left.is_empty().then_some((found, length))
}

enum Found {
    Record(UsageRecord),
    Account(LifeAccount),
    Confirmed { life: SpoolLife, sequence: u64 },
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// In the order in which lives began.
    pub(super) books: Vec<Book>,
    pub(super) held: VecDeque<Held>,
    pub(super) notes: Vec<Note>,
    /// The life in which the last entry lies, if all since was damaged.
    suspect: Option<SpoolLife>,
    last: Option<SpoolLife>,
}

impl Contents {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut contents = Self::default();
        for piece in Scan::new(bytes, 0, first) {
            match piece {
                Piece::Entry(Found::Record(record)) => contents.record(record),
                Piece::Entry(Found::Account(account)) => contents.account(&account),
                Piece::Entry(Found::Confirmed { life, sequence }) => {
                    contents.confirmed(life, sequence);
                }
                Piece::Corrupt { offset, bytes } | Piece::Torn { offset, bytes } => {
                    contents.notes.push(Note::Damaged { offset, bytes });
                    contents.suspect = contents.last;
                }
            }
        }
        contents.settle(None);
        contents
    }

    fn record(&mut self, record: UsageRecord) {
        // A life that is new and begins later than with its first number: what was damaged
        // is what it began with, and its own gap shows.
        if record.sequence > 1 && self.books.iter().all(|book| book.life != record.life) {
            self.suspect = None;
        }
        self.settle(Some(record.life));
        self.last = Some(record.life);
        let book = self.book(record.life, record.boot);
        if record.sequence <= book.seen {
            return;
        }
        book.seen = record.sequence;
        book.saved = book.saved.max(record.sequence);
        if book.given <= record.sequence {
            book.given = record.sequence;
            (book.at, book.since_boot) = (record.at, record.since_boot);
        }
        self.held.push_back(Held { record, confirmed: false });
    }

    fn account(&mut self, account: &LifeAccount) {
        let book = self.book(account.life, account.boot);
        book.saved = book.saved.max(account.saved);
        book.forgotten = account.confirmed;
        if book.given <= account.given {
            book.given = account.given;
            (book.at, book.since_boot) = (account.at, account.since_boot);
        }
    }

    fn confirmed(&mut self, life: SpoolLife, sequence: u64) {
        for held in &mut self.held {
            held.confirmed |= held.record.life == life && held.record.sequence <= sequence;
        }
    }

    /// What was damaged behind a life's last record was a record of it, nearly always:
    /// its number was given out. Where the life goes on, the gap shows by itself.
    fn settle(&mut self, next: Option<SpoolLife>) {
        let Some(life) = self.suspect.take() else { return };
        if next != Some(life)
            && let Some(book) = self.books.iter_mut().find(|book| book.life == life)
        {
            book.given = book.given.max(book.seen + 1);
        }
    }

    fn book(&mut self, life: SpoolLife, boot: BootId) -> &mut Book {
        let known = self.books.iter().rposition(|book| book.life == life);
        let at = known.unwrap_or_else(|| {
            self.books.push(Book::new(life, boot));
            self.books.len() - 1
        });
        &mut self.books[at]
    }
}

/// As it was before lives had ids: the checksum was the payload's only.
mod first_version {
    use std::time::Duration;

    use gleaner_common::id::BootId;
    use gleaner_common::time::WallTime;
    use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
    use serde::Deserialize;

    use super::{ENTRY_BYTES_MAX, ENTRY_BYTES_MIN, Found};

    #[derive(Deserialize)]
    enum Entry {
        Record(Numbered),
        Confirmed { boot: BootId, sequence: u64 },
    }

    #[derive(Deserialize)]
    struct Numbered {
        boot: BootId,
        sequence: u64,
        at: WallTime,
        since_boot: Duration,
        cause: Cause,
        load: LoadAverages,
        users: u32,
        input_idle: Option<Duration>,
        slots: u16,
        reason: String,
    }

    pub(super) fn first(bytes: &[u8]) -> Option<(Found, usize)> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        if !(ENTRY_BYTES_MIN..=ENTRY_BYTES_MAX).contains(&length) {
            return None;
        }
        let payload = rest.get(..length)?;
        if crc32c::crc32c(payload) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let found = match postcard::from_bytes(payload).ok()? {
            Entry::Record(record) => Found::Record(of_its_boot(record)),
            Entry::Confirmed { boot, sequence } => Found::Confirmed { life: boot.into(), sequence },
        };
        Some((found, 8 + length))
    }

    fn of_its_boot(record: Numbered) -> UsageRecord {
        UsageRecord {
            life: record.boot.into(),
            boot: record.boot,
            sequence: record.sequence,
            at: record.at,
            since_boot: record.since_boot,
            cause: record.cause,
            load: record.load,
            users: record.users,
            input_idle: record.input_idle,
            slots: record.slots,
            reason: record.reason,
        }
    }
}
