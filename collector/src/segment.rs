//! The bytes of a segment file, and what can be read from them.
//!
//! ```text
//! header   "gleanlog"  version u16  name length u16  name  crc32c u32 of all before
//! record   length u32  crc32c u32 of length and payload  payload: a UsageRecord in postcard
//! record   ..
//! ```
//!
//! Integers lie little end first. The promise: a scan gives every whole
//! record and nothing else, names every byte that it passed over, and does
//! not panic whatever the bytes are. Knows nothing of files.

use std::marker::PhantomData;
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, REASON_BYTES_MAX, UsageRecord};
use serde::Deserialize;

use crate::name::WorkstationName;
use crate::timeline::Observed;

pub(crate) const MAGIC: [u8; 8] = *b"gleanlog";

/// The format's version. Postcard writes by position: a record that changes
/// otherwise than by appending raises it.
pub(crate) const VERSION: u16 = 1;

/// The longest payload. A record takes at most about 290 bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 512;

/// The shortest payload: a boot id, three load averages, and one byte for
/// each of nine small values. Bounds from below keep runs of zeros from
/// looking like records.
const PAYLOAD_BYTES_MIN: usize = 16 + 12 + 9;

/// Length and checksum before a payload.
const FRAME_BYTES: usize = 8;

/// Why bytes are not the beginning of one of our segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("not a gleaner usage log: it does not begin with \"gleanlog\"")]
    NotOurs,
    #[error("written in version {theirs} of the format: this program reads version {ours}")]
    Version { theirs: u16, ours: u16 },
    #[error("the header is damaged: its checksum does not fit")]
    Damaged,
}

/// The header of a workstation's segments.
pub(crate) fn encode_header(name: &WorkstationName) -> Vec<u8> {
    let name = name.as_str().as_bytes();
    let length = u16::try_from(name.len()).unwrap_or_else(|_| unreachable!("a name has a bound"));
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(name);
    let checksum = crc32c::crc32c(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// Whose segment this is, and where its records begin.
///
/// # Errors
/// Another kind of file, another version of ours, or damage.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<(WorkstationName, usize), HeaderError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(HeaderError::NotOurs)?;
    let (version, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let theirs = u16::from_le_bytes(*version);
    if theirs != VERSION {
        return Err(HeaderError::Version { theirs, ours: VERSION });
    }
    let (length, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (name, rest) = rest.split_at_checked(length).ok_or(HeaderError::Damaged)?;
    let (checksum, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let covered = bytes.len() - rest.len() - checksum.len();
    if crc32c::crc32c(&bytes[..covered]) != u32::from_le_bytes(*checksum) {
        return Err(HeaderError::Damaged);
    }
    let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    Ok((name.ok_or(HeaderError::Damaged)?, bytes.len() - rest.len()))
}

/// Why a record cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record {sequence} has a reason of {bytes} bytes: expected at most {REASON_BYTES_MAX}")]
    ReasonTooLong { sequence: u64, bytes: usize },
    #[error("a record with sequence 0: expected 1, 2, .. within a boot")]
    NoSequence,
}

/// Checks that a record is within its bounds.
///
/// # Errors
/// The bound it breaks.
pub(crate) fn check_record(record: &UsageRecord) -> Result<(), RecordError> {
    let UsageRecord { sequence, ref reason, .. } = *record;
    if sequence == 0 {
        return Err(RecordError::NoSequence);
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(RecordError::ReasonTooLong { sequence, bytes: reason.len() });
    }
    Ok(())
}

/// Appends a record as it lies in a segment.
///
/// # Errors
/// A record out of its bounds; `out` is then as it was.
pub(crate) fn encode_record(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), RecordError> {
    check_record(record)?;
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    *out = postcard::to_extend(record, std::mem::take(out))
        .unwrap_or_else(|error| unreachable!("postcard writes any record into a Vec: {error}"));
    let length = u32::try_from(out.len() - start - FRAME_BYTES)
        .unwrap_or_else(|_| unreachable!("a record within its bounds is short"));
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&out[start..start + 4], &out[start + FRAME_BYTES..]);
    out[start + 4..start + FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length), payload)
}

/// What a record's payload can be read as.
pub(crate) trait Payload: Sized {
    /// The payload as that, with nothing left over; `None` if it is none.
    fn decode(payload: &[u8]) -> Option<Self>;
}

impl Payload for UsageRecord {
    fn decode(payload: &[u8]) -> Option<Self> {
        let (record, left) = postcard::take_from_bytes(payload).ok()?;
        left.is_empty().then_some(record)
    }
}

/// A record without its reason and the rest that only people read: nothing is
/// allocated for a record of millions.
impl Payload for Observed {
    fn decode(payload: &[u8]) -> Option<Self> {
        let (record, left) = postcard::take_from_bytes::<BorrowedRecord>(payload).ok()?;
        left.is_empty().then_some(Self {
            boot: record.boot,
            sequence: record.sequence,
            at: record.at,
            since_boot: record.since_boot,
            cause: record.cause,
            load_1m: record.load.one,
            input_idle: record.input_idle,
            slots: record.slots,
        })
    }
}

/// A [`UsageRecord`] whose reason lies in the segment, field by field.
#[derive(Deserialize)]
struct BorrowedRecord<'a> {
    boot: BootId,
    sequence: u64,
    at: WallTime,
    since_boot: Duration,
    cause: Cause,
    load: LoadAverages,
    #[expect(dead_code, reason = "postcard reads by position")]
    users: u32,
    input_idle: Option<Duration>,
    slots: u16,
    #[expect(dead_code, reason = "postcard reads by position, and checks that it is UTF-8")]
    reason: &'a str,
}

/// One thing found in a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece<R = UsageRecord> {
    Record(R),
    /// Bytes that are no record, with whole records behind them.
    Corrupt {
        offset: usize,
        bytes: usize,
    },
    /// Bytes that are no record up to the end: a torn tail, nearly always.
    Torn {
        offset: usize,
        bytes: usize,
    },
}

/// Goes through the records of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'a, R = UsageRecord> {
    bytes: &'a [u8],
    at: usize,
    records: PhantomData<R>,
}

impl<'a, R: Payload> Scan<'a, R> {
    /// From the end of the header, or from wherever a record may begin.
    pub(crate) fn new(bytes: &'a [u8], start: usize) -> Self {
        Self { bytes, at: start.min(bytes.len()), records: PhantomData }
    }

    /// The place behind the last piece given.
    #[cfg(test)]
    pub(crate) fn position(&self) -> usize {
        self.at
    }
}

impl<R: Payload> Iterator for Scan<'_, R> {
    type Item = Piece<R>;

    fn next(&mut self) -> Option<Piece<R>> {
        let offset = self.at;
        if offset >= self.bytes.len() {
            return None;
        }
        if let Some((payload, length)) = payload_at(self.bytes, offset)
            && let Some(record) = R::decode(payload)
        {
            self.at += length;
            return Some(Piece::Record(record));
        }
        // The length may be what was damaged, so every byte may begin the next.
        let next = (offset + 1..self.bytes.len()).find(|at| {
            payload_at(self.bytes, *at).and_then(|(payload, _)| R::decode(payload)).is_some()
        });
        self.at = next.unwrap_or(self.bytes.len());
        let bytes = self.at - offset;
        Some(match next {
            Some(_) => Piece::Corrupt { offset, bytes },
            None => Piece::Torn { offset, bytes },
        })
    }
}

/// The payload of the whole record that begins here, and its length with its
/// frame.
fn payload_at(bytes: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let (length, rest) = bytes.get(offset..)?.split_first_chunk::<4>()?;
    let payload_bytes = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if !(PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&payload_bytes) {
        return None;
    }
    let (expected, rest) = rest.split_first_chunk()?;
    let payload = rest.get(..payload_bytes)?;
    let fits = checksum(length, payload) == u32::from_le_bytes(*expected);
    fits.then_some((payload, FRAME_BYTES + payload_bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn name(text: &str) -> WorkstationName {
        text.parse().unwrap()
    }

    /// The record of a boot that began at second 1,700,000,000.
    pub(crate) fn record(sequence: u64, second: u64, cause: Cause) -> UsageRecord {
        UsageRecord {
            boot: BootId([7; 16]),
            sequence,
            at: WallTime::from_unix_s(1_700_000_000 + i64::try_from(second).unwrap()),
            since_boot: Duration::from_secs(second),
            cause,
            load: LoadAverages { one: 0.5, five: 0.25, fifteen: 0.125 },
            users: 1,
            input_idle: Some(Duration::from_secs(60)),
            slots: 2,
            reason: "pts/3, 0.0 s ago".into(),
        }
    }

    fn segment(count: u64) -> Vec<u8> {
        let mut bytes = encode_header(&name("ada"));
        for sequence in 1..=count {
            encode_record(&record(sequence, sequence * 10, Cause::Tty), &mut bytes).unwrap();
        }
        bytes
    }

    fn start() -> usize {
        encode_header(&name("ada")).len()
    }

    fn sequences(pieces: &[Piece]) -> Vec<u64> {
        let sequence = |piece: &Piece| match piece {
            Piece::Record(record) => Some(record.sequence),
            Piece::Corrupt { .. } | Piece::Torn { .. } => None,
        };
        pieces.iter().filter_map(sequence).collect()
    }

    #[test]
    fn the_format_on_disk_is_this_one() {
        assert_eq!(hex(&encode_header(&name("ada"))), "676c65616e6c6f67010003006164619f8a3abf");
        let mut bytes = vec![];
        encode_record(&record(1, 10, Cause::Tty), &mut bytes).unwrap();
        assert_eq!(
            hex(&bytes),
            "3f0000000dd44cc3\
             07070707070707070707070707070707018090afa391c0ce972f0a0001\
             0000003f0000803e0000003e01013c0002107074732f332c20302e3020732061676f"
        );
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    #[test]
    fn a_cut_at_any_byte_keeps_every_whole_record_and_invents_none() {
        let whole = segment(5);
        let ends: Vec<usize> = {
            let mut scan: Scan = Scan::new(&whole, start());
            std::iter::from_fn(|| scan.next().map(|_| scan.position())).collect()
        };
        for cut in start()..whole.len() {
            let pieces: Vec<Piece> = Scan::new(&whole[..cut], start()).collect();
            let kept = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(sequences(&pieces), (1..=kept as u64).collect::<Vec<_>>(), "cut at {cut}");
            let good = ends[..kept].last().copied().unwrap_or(start());
            let torn = (cut > good).then_some(Piece::Torn { offset: good, bytes: cut - good });
            assert_eq!(pieces.get(kept), torn.as_ref(), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_costs_one_record_and_is_reported() {
        let whole = segment(4);
        for bit in start() * 8..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let pieces: Vec<Piece> = Scan::new(&bytes, start()).collect();
            assert_eq!(sequences(&pieces).len(), 3, "bit {bit}");
            assert_eq!(pieces.len(), 4, "bit {bit}: the damage is one piece");
        }
    }

    #[test]
    fn a_record_read_without_its_reason_is_the_same_record() {
        let bytes = segment(3);
        let whole = Scan::<UsageRecord>::new(&bytes, start());
        let brief: Vec<Piece<Observed>> = Scan::new(&bytes, start()).collect();
        let expected: Vec<_> = whole
            .map(|piece| match piece {
                Piece::Record(record) => Piece::Record(Observed::from(record)),
                Piece::Corrupt { .. } | Piece::Torn { .. } => panic!("whole"),
            })
            .collect();
        assert_eq!(brief, expected);
    }

    #[test]
    fn a_header_that_is_not_this_version_of_ours_is_refused() {
        assert_eq!(decode_header(b"PAR1...."), Err(HeaderError::NotOurs));
        assert_eq!(decode_header(b""), Err(HeaderError::NotOurs));
        let mut newer = segment(1);
        newer[8] = 2;
        assert_eq!(decode_header(&newer), Err(HeaderError::Version { theirs: 2, ours: 1 }));
        let mut damaged = segment(1);
        damaged[12] ^= 1;
        assert_eq!(decode_header(&damaged), Err(HeaderError::Damaged));
        assert_eq!(decode_header(&segment(1)[..13]), Err(HeaderError::Damaged));
    }

    #[test]
    fn a_run_of_zeros_is_a_torn_tail() {
        let mut bytes = segment(2);
        let offset = bytes.len();
        bytes.extend_from_slice(&[0; 4096]);
        let last = Scan::<UsageRecord>::new(&bytes, start()).last();
        assert_eq!(last, Some(Piece::Torn { offset, bytes: 4096 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_scan_panic_or_lose_count(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode_header(&bytes);
            let mut covered = 0;
            for piece in Scan::<UsageRecord>::new(&bytes, 0) {
                if let Piece::Corrupt { bytes, .. } | Piece::Torn { bytes, .. } = piece {
                    covered += bytes;
                }
            }
            prop_assert!(covered <= bytes.len());
        }

        #[test]
        fn whole_records_survive_garbage_between_them(
            garbage in proptest::collection::vec(any::<u8>(), 1..200),
            before in 0u64..4,
            after in 1u64..4,
        ) {
            let mut bytes = segment(before);
            bytes.extend_from_slice(&garbage);
            for sequence in before + 1..=before + after {
                encode_record(&record(sequence, sequence, Cause::Idle), &mut bytes).unwrap();
            }
            let pieces: Vec<Piece> = Scan::new(&bytes, start()).collect();
            prop_assert_eq!(sequences(&pieces), (1..=before + after).collect::<Vec<_>>());
            prop_assert_eq!(pieces.len() as u64, before + after + 1);
        }
    }
}
