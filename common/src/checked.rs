//! Entries in a file that show their own damage.
//!
//! ```text
//! length u32 LE | CRC-32C u32 LE of length and payload | payload     .. repeated
//! ```
//!
//! The promise: a [`Scan`] gives every whole entry and nothing else, names every byte
//! that it passed over, and does not panic whatever the bytes are. Knows nothing of
//! files, nor of what a payload means.

use std::ops::RangeInclusive;

/// Length and checksum before a payload.
const FRAME_BYTES: usize = 8;

/// Appends an entry whose payload `fill` appends.
pub fn write(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    fill(out);
    let length = u32::try_from(out.len() - start - FRAME_BYTES)
        .unwrap_or_else(|_| unreachable!("an entry of 4 GiB"));
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&out[start..start + 4], &out[start + FRAME_BYTES..]);
    out[start + 4..start + FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length), payload)
}

/// The payload of the whole entry at the front, and the entry's length. Bounds from
/// below keep runs of zeros from looking like entries.
pub fn first(bytes: &[u8], payload_bytes: RangeInclusive<usize>) -> Option<(&[u8], usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let long = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if !payload_bytes.contains(&long) {
        return None;
    }
    let (expected, rest) = rest.split_first_chunk()?;
    let payload = rest.get(..long)?;
    let fits = checksum(length, payload) == u32::from_le_bytes(*expected);
    fits.then_some((payload, FRAME_BYTES + long))
}

/// One thing found in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece<R> {
    Entry(R),
    /// Bytes that are no entry, with whole ones behind them.
    Corrupt {
        offset: usize,
        bytes: usize,
    },
    /// Bytes that are no entry up to the end: a torn tail, nearly always.
    Torn {
        offset: usize,
        bytes: usize,
    },
}

/// Goes through the entries of a file.
#[derive(Clone, Debug)]
pub struct Scan<'a, F> {
    bytes: &'a [u8],
    at: usize,
    read: F,
}

impl<'a, R, F: Fn(&'a [u8]) -> Option<(R, usize)>> Scan<'a, F> {
    /// From wherever an entry may begin. `read` gives the entry at the front of what
    /// it is given, and its length.
    pub fn new(bytes: &'a [u8], start: usize, read: F) -> Self {
        Self { bytes, at: start.min(bytes.len()), read }
    }

    /// The place behind the last piece given.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a, R, F: Fn(&'a [u8]) -> Option<(R, usize)>> Iterator for Scan<'a, F> {
    type Item = Piece<R>;

    fn next(&mut self) -> Option<Piece<R>> {
        let offset = self.at;
        if offset >= self.bytes.len() {
            return None;
        }
        if let Some((entry, length)) = (self.read)(&self.bytes[offset..]) {
            self.at += length;
            return Some(Piece::Entry(entry));
        }
        // The length may be what was damaged, so every byte may begin the next.
        let next =
            (offset + 1..self.bytes.len()).find(|at| (self.read)(&self.bytes[*at..]).is_some());
        self.at = next.unwrap_or(self.bytes.len());
        let bytes = self.at - offset;
        Some(match next {
            Some(_) => Piece::Corrupt { offset, bytes },
            None => Piece::Torn { offset, bytes },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![];
        for payload in payloads {
            write(&mut bytes, |out| out.extend_from_slice(payload));
        }
        bytes
    }

    fn scan(bytes: &[u8]) -> Vec<Piece<&[u8]>> {
        Scan::new(bytes, 0, |bytes| first(bytes, 1..=100)).collect()
    }

    proptest! {
        #[test]
        fn a_flipped_bit_costs_one_entry_and_shows(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..6),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = file(&payloads);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let pieces = scan(&bytes);
            let is_entry = |piece: &&Piece<_>| matches!(piece, Piece::Entry(_));
            prop_assert_eq!(pieces.iter().filter(is_entry).count(), payloads.len() - 1);
            prop_assert_eq!(pieces.len(), payloads.len());
        }

        #[test]
        fn a_cut_anywhere_leaves_what_was_whole(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = file(&payloads);
            let cut = cut.index(bytes.len());
            let mut whole = 0;
            let fits = |payload: &&Vec<u8>| { whole += payload.len() + FRAME_BYTES; whole <= cut };
            let expected: Vec<&[u8]> = payloads.iter().take_while(fits).map(Vec::as_slice).collect();
            let found: Vec<_> = scan(&bytes[..cut]).into_iter().filter_map(|piece| match piece {
                Piece::Entry(payload) => Some(payload),
                Piece::Corrupt { .. } | Piece::Torn { .. } => None,
            }).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
