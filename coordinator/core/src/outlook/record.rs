//! What was learned of owners, as bytes that a store keeps across restarts.
//!
//! ```text
//! version (1) · body · the first 8 bytes of BLAKE3 over all that came before
//! Common   learned i64 · week i64 · rates of two f64: whole, hours, bands, pieces
//! Outlook  learned i64 · week i64 · ratios of two f32: whole, parts, bands
//! ```
//!
//! All numbers are little-endian. Both are as large as they will ever be, however
//! long a lab is watched. What does not read is begun anew: it was statistics.

use gleaner_common::id::WorkstationId;
use gleaner_common::time::WallTime;

use std::collections::BTreeMap;

use super::{BANDS, Common, HOURS, Outlook, PARTS, Rate, Ratio, WEEK};

/// Raise it with the layout, or with what a number means.
const VERSION: u8 = 1;
const CHECK: usize = 8;

/// One row of what was learned: of a workstation's owner, or of what all
/// workstations of the lab have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRecord {
    pub workstation: Option<WorkstationId>,
    pub bytes: Vec<u8>,
}

/// Why something learned before is learned anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadLearnedError {
    #[error("it is of version {theirs}, this program reads {VERSION}")]
    Version { theirs: u8 },
    #[error("it is damaged")]
    Damaged,
    #[error("it was learned in the future: the clock was wrong then, or is now")]
    Future,
    #[error("what it is measured against does not read")]
    WithoutCommon,
}

/// What could not be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    pub workstation: Option<WorkstationId>,
    pub why: ReadLearnedError,
}

/// All that was learned of a lab.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) common: Common,
    pub(crate) outlooks: BTreeMap<WorkstationId, Outlook>,
}

impl Memory {
    /// Reads what a store kept. What is left out is said.
    pub(crate) fn read(rows: &[LearnedRecord], now: WallTime) -> (Self, Vec<Forgotten>) {
        let (mut memory, mut forgotten) = (Self::default(), vec![]);
        let common = rows.iter().find(|row| row.workstation.is_none());
        match common.map(|row| Common::from_bytes(&row.bytes, now)) {
            Some(Ok(common)) => memory.common = common,
            // Before the first round is whole there are workstations only: what
            // they have in common begins anew, and so do they.
            None => {}
            Some(Err(why)) => forgotten.push(Forgotten { workstation: None, why }),
        }
        let has_common = common.is_some() && forgotten.is_empty();
        for row in rows {
            let Some(id) = row.workstation else { continue };
            let read = Outlook::from_bytes(&row.bytes, now);
            let read = read.and_then(|it| {
                if has_common { Ok(it) } else { Err(ReadLearnedError::WithoutCommon) }
            });
            match read {
                Ok(outlook) => {
                    // What the lab learned last, this workstation had its part in.
                    let learned = outlook.learned.max(memory.common.learned);
                    memory.outlooks.insert(id, Outlook { learned, ..outlook });
                }
                Err(why) => forgotten.push(Forgotten { workstation: row.workstation, why }),
            }
        }
        (memory, forgotten)
    }
}

impl Common {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_times(&mut bytes, self.learned, self.week);
        for rate in [&self.whole].into_iter().chain(&self.hours).chain(&self.bands) {
            rate.put(&mut bytes);
        }
        self.pieces.as_flattened().iter().for_each(|rate| rate.put(&mut bytes));
        sealed(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8], now: WallTime) -> Result<Self, ReadLearnedError> {
        let mut from = Numbers(unsealed(bytes)?);
        let (learned, week) = from.times(now)?;
        let mut common = Self { week, learned, ..Self::default() };
        common.whole = from.rate()?;
        for rate in common.hours.iter_mut().chain(&mut common.bands) {
            *rate = from.rate()?;
        }
        for rate in common.pieces.as_flattened_mut() {
            *rate = from.rate()?;
        }
        from.end()?;
        // The mean rate divides by the one and is divided by.
        let whole = common.whole;
        let has_mean = whole.returns > 0.0 && whole.watched_s > 0.0;
        if has_mean { Ok(common) } else { Err(ReadLearnedError::Damaged) }
    }
}

impl Outlook {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_times(&mut bytes, self.learned, self.week);
        for ratio in [&self.whole].into_iter().chain(&self.parts).chain(&self.bands) {
            bytes.extend(ratio.seen.to_le_bytes());
            bytes.extend(ratio.expected.to_le_bytes());
        }
        sealed(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8], now: WallTime) -> Result<Self, ReadLearnedError> {
        let mut from = Numbers(unsealed(bytes)?);
        let (learned, week) = from.times(now)?;
        let mut outlook = Self { learned, week, ..Self::default() };
        outlook.whole = from.ratio()?;
        for ratio in outlook.parts.iter_mut().chain(&mut outlook.bands) {
            *ratio = from.ratio()?;
        }
        from.end()?;
        Ok(outlook)
    }
}

fn put_times(bytes: &mut Vec<u8>, learned: i64, week: i64) {
    bytes.extend(learned.to_le_bytes());
    bytes.extend(week.to_le_bytes());
}

impl Rate {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.returns.to_le_bytes());
        bytes.extend(self.watched_s.to_le_bytes());
    }
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(&check.as_bytes()[..CHECK]);
    bytes
}

/// The body of what was sealed. The version comes first: a later one may be
/// sealed otherwise.
fn unsealed(bytes: &[u8]) -> Result<&[u8], ReadLearnedError> {
    let version = *bytes.first().ok_or(ReadLearnedError::Damaged)?;
    if version != VERSION {
        return Err(ReadLearnedError::Version { theirs: version });
    }
    let (body, check) = bytes.split_last_chunk::<CHECK>().ok_or(ReadLearnedError::Damaged)?;
    let is_whole = blake3::hash(body).as_bytes().starts_with(check);
    if is_whole { Ok(body.get(1..).unwrap_or_default()) } else { Err(ReadLearnedError::Damaged) }
}

/// What is left to be read.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ReadLearnedError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(ReadLearnedError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Until when something was learned, and the week of the last fading.
    fn times(&mut self, now: WallTime) -> Result<(i64, i64), ReadLearnedError> {
        let (learned, week) = (i64::from_le_bytes(self.take()?), i64::from_le_bytes(self.take()?));
        // Nothing would fade until then. A clock may be set back by a little.
        if week > now.0.div_euclid(WEEK).saturating_add(1) {
            return Err(ReadLearnedError::Future);
        }
        Ok((learned, week))
    }

    fn rate(&mut self) -> Result<Rate, ReadLearnedError> {
        let mut number = || {
            let number = f64::from_le_bytes(self.take()?);
            let is_count = number.is_finite() && number >= 0.0;
            if is_count { Ok(number) } else { Err(ReadLearnedError::Damaged) }
        };
        Ok(Rate { returns: number()?, watched_s: number()? })
    }

    fn ratio(&mut self) -> Result<Ratio, ReadLearnedError> {
        let mut number = || {
            let number = f32::from_le_bytes(self.take()?);
            let is_count = number.is_finite() && number >= 0.0;
            if is_count { Ok(number) } else { Err(ReadLearnedError::Damaged) }
        };
        Ok(Ratio { seen: number()?, expected: number()? })
    }

    fn end(&self) -> Result<(), ReadLearnedError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadLearnedError::Damaged) }
    }
}

/// How large the two rows are, for whoever bounds a store.
pub const COMMON_BYTES: usize = 1 + 16 + 16 * (1 + HOURS + BANDS + HOURS * BANDS) + CHECK;
pub const OUTLOOK_BYTES: usize = 1 + 16 + 8 * (1 + PARTS + BANDS) + CHECK;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: WallTime = WallTime(1_700_000_000_000_000_000);

    fn ids(rows: &[LearnedRecord]) -> usize {
        Memory::read(rows, NOW).0.outlooks.len()
    }

    /// A lab of two, watched for a day.
    fn learned() -> (Common, Outlook) {
        let (mut common, mut outlook) = (Common::default(), Outlook::default());
        for hour in 0..24 {
            let at =
                |s: i64| WallTime(NOW.0 - 86_400_000_000_000 + (hour * 3_600 + s) * 1_000_000_000);
            outlook.turned_idle(at(0));
            outlook.turned_busy(&mut common, at(1_800 + 60 * hour));
        }
        (common, outlook)
    }

    fn rows() -> Vec<LearnedRecord> {
        let (common, outlook) = learned();
        vec![
            LearnedRecord { workstation: None, bytes: common.to_bytes() },
            LearnedRecord { workstation: Some(WorkstationId(7)), bytes: outlook.to_bytes() },
        ]
    }

    #[test]
    fn what_was_learned_comes_back_to_the_bit() {
        let (common, outlook) = learned();
        let (memory, forgotten) = Memory::read(&rows(), NOW);
        assert_eq!(forgotten, []);
        assert_eq!(memory.common, common);
        let expected = Outlook { idle_since: None, ..outlook };
        assert_eq!(memory.outlooks[&WorkstationId(7)], expected);
    }

    #[test]
    fn the_rows_are_as_large_as_they_are_said_to_be() {
        let lengths: Vec<usize> = rows().iter().map(|row| row.bytes.len()).collect();
        assert_eq!(lengths, [COMMON_BYTES, OUTLOOK_BYTES]);
    }

    /// The bytes of version 1. If this fails, raise the version.
    #[test]
    fn the_bytes_are_those_of_their_version() {
        let never = i64::MIN.to_le_bytes();
        let head = [&[1][..], &never, &never, &[0; 8]].concat();
        assert_eq!(Outlook::default().to_bytes()[..25], head);
        let (common, outlook) = learned();
        let check = |bytes: Vec<u8>| blake3::hash(&bytes).to_hex()[..16].to_owned();
        assert_eq!(
            (check(outlook.to_bytes()), check(common.to_bytes())),
            ("c06308d07bcc5088".into(), "eac2e0ee3d40d83a".into())
        );
    }

    #[test]
    fn an_old_damaged_or_future_row_is_told_and_begun_anew() {
        let mut old = rows();
        old[1].bytes[0] = 0;
        let mut torn = rows();
        torn[1].bytes.truncate(100);
        let mut flipped = rows();
        flipped[1].bytes[300] ^= 1;
        for (rows, why) in [
            (&old, ReadLearnedError::Version { theirs: 0 }),
            (&torn, ReadLearnedError::Damaged),
            (&flipped, ReadLearnedError::Damaged),
        ] {
            let (memory, forgotten) = Memory::read(rows, NOW);
            let workstation = Some(WorkstationId(7));
            assert_eq!(forgotten, [Forgotten { workstation, why }]);
            assert_eq!((memory.outlooks.len(), &memory.common), (0, &learned().0));
        }
        let years_ago = WallTime(NOW.0 / 2);
        let (memory, forgotten) = Memory::read(&rows(), years_ago);
        assert_eq!(memory, Memory::default());
        assert_eq!(forgotten[0].why, ReadLearnedError::Future);
    }

    #[test]
    fn without_what_they_have_in_common_all_begin_anew() {
        let mut rows = rows();
        rows[0].bytes[40] ^= 1;
        let (memory, forgotten) = Memory::read(&rows, NOW);
        assert_eq!(memory, Memory::default());
        assert_eq!(forgotten.len(), 2);
        assert_eq!(forgotten[1].why, ReadLearnedError::WithoutCommon);
        assert_eq!(Memory::read(&rows[1..], NOW).0, Memory::default());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let row = |workstation| LearnedRecord { workstation, bytes: bytes.clone() };
            prop_assert_eq!(ids(&[row(None), row(Some(WorkstationId(1)))]), 0);
        }
    }
}
