//! Frames: how a message lies on a stream.
//!
//! A length in four bytes, little end first, then that many bytes of
//! postcard. The length is checked against [`FRAME_BYTES_MAX`] before
//! anything is allocated.

use serde::{Serialize, de::DeserializeOwned};

/// The longest frame anybody accepts. Files travel outside frames.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

const LENGTH_BYTES: usize = 4;

/// What a decoder's buffer keeps when all was read: a connection that was busy
/// once does not hold memory for ever.
const KEPT_BYTES: usize = 4 << 10;

/// Why bytes are not a frame: also of those between programs and agents, whose
/// payloads travel apart (`gleaner_program_core::framing`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes: expected at most {bytes_max}")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("a frame that does not read as {expected}: {detail}")]
    Malformed { expected: &'static str, detail: String },
    #[error("the stream ended {missing} bytes before the end of a frame")]
    Truncated { missing: usize },
}

/// Appends a message as a frame.
///
/// # Errors
/// A message longer than [`FRAME_BYTES_MAX`]; `out` is then as it was.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let written = postcard::to_extend(message, std::mem::take(out));
    *out = written.map_err(|error| FrameError::Malformed {
        expected: std::any::type_name::<T>(),
        detail: error.to_string(),
    })?;
    let length = out.len() - start - LENGTH_BYTES;
    match u32::try_from(length) {
        Ok(prefix) if length <= FRAME_BYTES_MAX => {
            out[start..start + LENGTH_BYTES].copy_from_slice(&prefix.to_le_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(too_long(length))
        }
    }
}

fn too_long(bytes: usize) -> FrameError {
    FrameError::TooLong { bytes, bytes_max: FRAME_BYTES_MAX }
}

/// Reads the payload of one frame.
///
/// # Errors
/// Bytes that are not a `T`, or more bytes than a `T`.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    let malformed = |detail: String| FrameError::Malformed {
        expected: std::any::type_name::<T>().rsplit("::").next().unwrap_or("a message"),
        detail,
    };
    let (message, rest) =
        postcard::take_from_bytes(payload).map_err(|error| malformed(error.to_string()))?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(malformed(format!("{} bytes too many", rest.len())))
    }
}

/// Collects bytes as they arrive and gives frames as they are whole.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    read: usize,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 && self.read == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_BYTES);
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, `None` if more bytes are needed.
    ///
    /// # Errors
    /// A length over the limit or a payload that is not a `T`. The stream is
    /// lost then: close it.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(payload) = self.whole_payload()? else { return Ok(None) };
        let message = decode_payload(payload)?;
        let length = payload.len();
        self.advance(length);
        Ok(Some(message))
    }

    /// The payload of the next whole frame, unread; `None` if more bytes are
    /// needed.
    ///
    /// # Errors
    /// A length over the limit.
    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some(payload) = self.whole_payload()? else { return Ok(None) };
        let payload = payload.to_vec();
        self.advance(payload.len());
        Ok(Some(payload))
    }

    /// Takes the bytes after the last frame that was given: where frames end
    /// and something else follows.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        rest.drain(..std::mem::take(&mut self.read));
        rest
    }

    fn whole_payload(&self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.buffer[self.read..];
        let Some((prefix, payload)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(too_long(length));
        }
        Ok(payload.get(..length))
    }

    fn advance(&mut self, payload_bytes: usize) {
        self.read += LENGTH_BYTES + payload_bytes;
        if self.read > 64 << 10 {
            self.buffer.drain(..self.read);
            self.read = 0;
        }
    }

    /// Call at the end of the stream.
    ///
    /// # Errors
    /// A frame had begun and was not whole.
    pub fn finish(&self) -> Result<(), FrameError> {
        let rest = &self.buffer[self.read..];
        if rest.is_empty() {
            return Ok(());
        }
        let missing = match rest.split_first_chunk::<LENGTH_BYTES>() {
            None => LENGTH_BYTES - rest.len(),
            Some((prefix, payload)) => {
                (u32::from_le_bytes(*prefix) as usize).saturating_sub(payload.len())
            }
        };
        Err(FrameError::Truncated { missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_arrive_whole_however_the_stream_is_cut(
            messages in proptest::collection::vec(".{0,300}", 0..20),
            cut in 1usize..70,
        ) {
            let mut bytes = vec![];
            for message in &messages {
                encode(message, &mut bytes).unwrap();
            }
            let (mut decoder, mut got) = (Decoder::new(), vec![]);
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.next_frame::<String>().unwrap() {
                    got.push(message);
                }
            }
            prop_assert_eq!(decoder.finish(), Ok(()));
            prop_assert_eq!(got, messages);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame::<(u64, String, Option<Vec<u32>>)>() {}
            let _ = decoder.finish();
        }
    }

    #[test]
    fn an_oversized_length_is_refused_before_its_bytes_arrive() {
        let mut decoder = Decoder::new();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame::<u8>(), Err(too_long(u32::MAX as usize)));
    }

    #[test]
    fn a_torn_frame_says_how_much_is_missing() {
        let mut bytes = vec![];
        encode(&"hello", &mut bytes).unwrap();
        let mut decoder = Decoder::new();
        decoder.push(&bytes[..bytes.len() - 2]);
        assert_eq!(decoder.next_frame::<String>(), Ok(None));
        assert_eq!(decoder.finish(), Err(FrameError::Truncated { missing: 2 }));
    }

    #[test]
    fn a_message_too_long_leaves_the_buffer_as_it_was() {
        let mut out = vec![1, 2, 3];
        assert!(matches!(
            encode(&vec![0u8; FRAME_BYTES_MAX], &mut out),
            Err(FrameError::TooLong { .. })
        ));
        assert_eq!(out, [1, 2, 3]);
    }
}
