//! The bytes of a segment file, and what can be read from them.
//!
//! ```text
//! header   "gleanlog"  version u16  name length u16  name  crc32c u32 of all before
//! entry    as in gleaner_common::checked; the payload is an entry in postcard
//! entry    ..
//! ```
//!
//! Integers lie little end first. An entry of version 2 is a record, or a note that
//! numbers were given out whose records may never come. Version 1 had records only,
//! without a life: their boot numbered them. Knows nothing of files.

use std::time::Duration;

use gleaner_common::checked::{self, Scan};
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LifeAccount, LoadAverages, REASON_BYTES_MAX, UsageRecord};
use serde::{Deserialize, Serialize};

use crate::name::WorkstationName;

const MAGIC: [u8; 8] = *b"gleanlog";

/// The format's version. Postcard writes by position: a record that changes
/// otherwise than by appending raises it.
pub const VERSION: u16 = 2;

/// The longest payload. A record takes at most about 310 bytes.
const PAYLOAD_BYTES_MAX: usize = 512;

/// The shortest payload: a boot id, three load averages, and one byte for
/// each of nine small values.
const PAYLOAD_BYTES_MIN: usize = 16 + 12 + 9;

/// A header with so many wrong bytes is a damaged one, not another file's beginning.
const WRONG_BYTES_MAX: usize = 4;

/// Why bytes are not the beginning of one of our segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("not a gleaner usage log: it does not begin with \"gleanlog\"")]
    NotOurs,
    #[error("written in version {theirs} of the format: this program reads up to {ours}")]
    Version { theirs: u16, ours: u16 },
    #[error("the header is damaged: its checksum does not fit")]
    Damaged,
}

/// The header of a workstation's segments.
pub fn encode_header(name: &WorkstationName) -> Vec<u8> {
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

/// How a segment is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: WorkstationName,
    pub version: u16,
    /// Where its entries begin.
    pub start: usize,
}

/// # Errors
/// Another kind of file, another version of ours, or damage.
pub fn decode_header(bytes: &[u8]) -> Result<Header, HeaderError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(HeaderError::NotOurs)?;
    let (version, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let version = u16::from_le_bytes(*version);
    let (length, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (name, rest) = rest.split_at_checked(length).ok_or(HeaderError::Damaged)?;
    let (checksum, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let covered = bytes.len() - rest.len() - checksum.len();
    if crc32c::crc32c(&bytes[..covered]) != u32::from_le_bytes(*checksum) {
        return Err(HeaderError::Damaged);
    }
    if !(1..=VERSION).contains(&version) {
        return Err(HeaderError::Version { theirs: version, ours: VERSION });
    }
    let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    let name = name.ok_or(HeaderError::Damaged)?;
    Ok(Header { name, version, start: bytes.len() - rest.len() })
}

/// Is this one of a workstation's segments, although its header says otherwise? A
/// flipped bit must not hide what stands behind it.
pub fn is_damaged_segment(bytes: &[u8], name: &WorkstationName) -> bool {
    let header = encode_header(name);
    let wrong = header.iter().zip(bytes).filter(|(expected, byte)| expected != byte).count();
    let is_header = bytes.len() >= header.len() && wrong <= WRONG_BYTES_MAX;
    is_header || entries(bytes, 0, None).any(|piece| matches!(piece, checked::Piece::Entry(_)))
}

/// Why a record cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record {sequence} has a reason of {bytes} bytes: expected at most {REASON_BYTES_MAX}")]
    ReasonTooLong { sequence: u64, bytes: usize },
    #[error("a record with sequence 0: expected 1, 2, .. within a life")]
    NoSequence,
}

/// Checks that a record is within its bounds.
///
/// # Errors
/// The bound it breaks.
pub fn check_record(record: &UsageRecord) -> Result<(), RecordError> {
    let UsageRecord { sequence, ref reason, .. } = *record;
    if sequence == 0 {
        return Err(RecordError::NoSequence);
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(RecordError::ReasonTooLong { sequence, bytes: reason.len() });
    }
    Ok(())
}

/// As an entry is written.
#[derive(Serialize)]
enum Written<'a> {
    Record(&'a UsageRecord),
    Given(&'a LifeAccount),
}

/// As an entry is read: nothing is allocated for a record of millions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum Entry<'a> {
    #[serde(borrow)]
    Record(RecordView<'a>),
    /// Numbers were given out whose records may never come.
    Given(LifeAccount),
}

/// A [`UsageRecord`] whose reason lies in the segment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RecordView<'a> {
    pub life: SpoolLife,
    #[serde(borrow)]
    pub numbered: Numbered<'a>,
}

/// What version 1 had of a record: all but its life, field by field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Numbered<'a> {
    pub boot: BootId,
    pub sequence: u64,
    pub at: WallTime,
    pub since_boot: Duration,
    pub cause: Cause,
    pub load: LoadAverages,
    pub users: u32,
    pub input_idle: Option<Duration>,
    pub slots: u16,
    pub reason: &'a str,
}

impl From<RecordView<'_>> for UsageRecord {
    fn from(RecordView { life, numbered }: RecordView<'_>) -> Self {
        Self {
            life,
            boot: numbered.boot,
            sequence: numbered.sequence,
            at: numbered.at,
            since_boot: numbered.since_boot,
            cause: numbered.cause,
            load: numbered.load,
            users: numbered.users,
            input_idle: numbered.input_idle,
            slots: numbered.slots,
            reason: numbered.reason.to_owned(),
        }
    }
}

/// Appends a record as it lies in a segment.
///
/// # Errors
/// A record out of its bounds; `out` is then as it was.
pub fn encode_record(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), RecordError> {
    check_record(record)?;
    encode(&Written::Record(record), out);
    Ok(())
}

/// Appends a note that numbers were given out.
pub fn encode_given(account: &LifeAccount, out: &mut Vec<u8>) {
    encode(&Written::Given(account), out);
}

fn encode(entry: &Written<'_>, out: &mut Vec<u8>) {
    checked::write(out, |out| {
        *out = postcard::to_extend(entry, std::mem::take(out))
            .unwrap_or_else(|error| unreachable!("postcard writes anything into a Vec: {error}"));
    });
}

/// Goes through the entries of a segment, from the end of its header or from wherever
/// one may begin. Where the version is not known, each of ours is tried.
pub fn entries<'a>(
    bytes: &'a [u8],
    start: usize,
    version: Option<u16>,
) -> Scan<'a, impl Fn(&'a [u8]) -> Option<(Entry<'a>, usize)>> {
    Scan::new(bytes, start, move |bytes: &'a [u8]| {
        let (payload, length) = checked::first(bytes, PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX)?;
        let entry = match version {
            Some(1) => first_version(payload),
            Some(_) => whole(payload),
            None => whole(payload).or_else(|| first_version(payload)),
        };
        Some((entry?, length))
    })
}

fn first_version(payload: &[u8]) -> Option<Entry<'_>> {
    let numbered: Numbered<'_> = whole(payload)?;
    Some(Entry::Record(RecordView { life: numbered.boot.into(), numbered }))
}

/// The payload as something, with nothing left over; `None` if it is none.
fn whole<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Option<T> {
    let (value, left) = postcard::take_from_bytes(payload).ok()?;
    left.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use gleaner_common::checked::Piece;
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{name, record};

    /// A record as version 1 wrote it, behind its header.
    const FIRST_VERSION: &str = "676c65616e6c6f67010003006164619f8a3abf\
        3f0000000dd44cc3\
        07070707070707070707070707070707018090afa391c0ce972f0a0001\
        0000003f0000803e0000003e01013c0002107074732f332c20302e3020732061676f";

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

    fn pieces(bytes: &[u8], start: usize) -> Vec<Piece<Entry<'_>>> {
        entries(bytes, start, Some(VERSION)).collect()
    }

    fn sequences(pieces: &[Piece<Entry<'_>>]) -> Vec<u64> {
        let sequence = |piece: &Piece<Entry<'_>>| match piece {
            Piece::Entry(Entry::Record(record)) => Some(record.numbered.sequence),
            Piece::Entry(Entry::Given(_)) | Piece::Corrupt { .. } | Piece::Torn { .. } => None,
        };
        pieces.iter().filter_map(sequence).collect()
    }

    #[test]
    fn the_format_on_disk_is_this_one() {
        assert_eq!(hex(&encode_header(&name("ada"))), "676c65616e6c6f6702000300616461c7ff3f07");
        let mut bytes = vec![];
        encode_record(&record(1, 10, Cause::Tty), &mut bytes).unwrap();
        assert_eq!(
            hex(&bytes),
            "500000002d5c9050000808080808080808080808080808080807070707070707070707070707070707018090afa391c0ce972f0a00010000003f0000803e0000003e01013c0002107074732f332c20302e3020732061676f"
        );
        let mut bytes = vec![];
        let UsageRecord { life, boot, at, since_boot, .. } = record(1, 10, Cause::Tty);
        let account =
            LifeAccount { life, boot, given: 300, saved: 4, confirmed: 3, at, since_boot };
        encode_given(&account, &mut bytes);
        assert_eq!(
            hex(&bytes),
            "30000000436f9b69010808080808080808080808080808080807070707070707070707070707070707ac0204038090afa391c0ce972f0a00"
        );
        let pieces = pieces(&bytes, 0);
        assert_eq!(pieces, [Piece::Entry(Entry::Given(account))]);
    }

    #[test]
    fn what_version_1_wrote_is_numbered_by_its_boot() {
        let digits = FIRST_VERSION.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        let bytes: Vec<u8> = digits.map(|pair| byte(pair).unwrap()).collect();
        let header = decode_header(&bytes).unwrap();
        assert_eq!((header.version, header.name), (1, name("ada")));
        let expected = record(1, 10, Cause::Tty);
        for version in [Some(1), None] {
            let found: Vec<_> = entries(&bytes, header.start, version).collect();
            let [Piece::Entry(Entry::Record(view))] = &found[..] else { panic!("{found:?}") };
            let life = expected.boot.into();
            assert_eq!(UsageRecord::from(view.clone()), UsageRecord { life, ..expected.clone() });
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    #[test]
    fn a_flipped_bit_anywhere_costs_one_record_and_is_reported() {
        let whole = segment(4);
        for bit in start() * 8..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let pieces = pieces(&bytes, start());
            assert_eq!(sequences(&pieces).len(), 3, "bit {bit}");
            assert_eq!(pieces.len(), 4, "bit {bit}: the damage is one piece");
        }
    }

    #[test]
    fn a_header_that_is_not_this_version_of_ours_is_refused() {
        assert_eq!(decode_header(b"PAR1...."), Err(HeaderError::NotOurs));
        assert_eq!(decode_header(b""), Err(HeaderError::NotOurs));
        let mut newer = encode_header(&name("ada"));
        newer[8] = 3;
        let covered = newer.len() - 4;
        let checksum = crc32c::crc32c(&newer[..covered]);
        newer[covered..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode_header(&newer), Err(HeaderError::Version { theirs: 3, ours: 2 }));
        assert_eq!(decode_header(&segment(1)[..13]), Err(HeaderError::Damaged));
    }

    #[test]
    fn a_flipped_bit_in_the_header_hides_nothing() {
        for count in [0, 2] {
            let whole = segment(count);
            for bit in 0..start() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_header(&bytes).is_err(), "bit {bit}");
                assert!(is_damaged_segment(&bytes, &name("ada")), "bit {bit}");
                assert_eq!(sequences(&pieces(&bytes, 0)).len() as u64, count, "bit {bit}");
            }
        }
        assert!(!is_damaged_segment(b"no log at all", &name("ada")));
    }

    #[test]
    fn a_run_of_zeros_is_a_torn_tail() {
        let mut bytes = segment(2);
        let offset = bytes.len();
        bytes.extend_from_slice(&[0; 4096]);
        let last = pieces(&bytes, start()).pop();
        assert_eq!(last, Some(Piece::Torn { offset, bytes: 4096 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_scan_panic_or_lose_count(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode_header(&bytes);
            let mut covered = 0;
            for piece in entries(&bytes, 0, None) {
                if let Piece::Corrupt { bytes, .. } | Piece::Torn { bytes, .. } = piece {
                    covered += bytes;
                }
            }
            prop_assert!(covered <= bytes.len());
        }
    }
}
