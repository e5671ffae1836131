//! The frames that wait to be sent to one peer: encoded, and bounded by their
//! bytes.
//!
//! The promise: putting a frame in never waits, a peer that does not read
//! cannot make the coordinator grow, and all frames put in since the last write
//! leave in one write. An empty outbox takes next to no memory, because ten
//! thousand of them are mostly empty.

use std::sync::{Arc, Mutex, PoisonError};

use gleaner_common::frame;
use serde::Serialize;
use tokio::sync::Notify;

/// What waits for one peer at most. The specs of a few large jobs fit.
pub(crate) const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// Above this the buffer is given back once it is empty.
const KEPT_BYTES_MAX: usize = 1 << 10;

/// The outbox of one peer. Clone it freely.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    closed: bool,
    /// Why the connection is to be closed once all is written.
    reason: String,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The peer is gone, or is being closed.
    Closed,
    /// The peer does not read fast enough; from now on it is `Closed`.
    Full,
    /// The frame is longer than any frame may be.
    TooLong,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// Nothing was put in; see [`NotTaken`].
    pub(crate) fn put<T: Serialize>(&self, message: &T) -> Result<(), NotTaken> {
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(NotTaken::Closed);
        }
        frame::encode(message, &mut waiting.bytes).map_err(|_| NotTaken::TooLong)?;
        let is_full = waiting.bytes.len() > OUTBOX_BYTES_MAX;
        if is_full {
            waiting.closed = true;
            waiting.bytes = vec![];
        }
        drop(waiting);
        self.0.changed.notify_one();
        if is_full { Err(NotTaken::Full) } else { Ok(()) }
    }

    /// Puts a frame in if no more than `bytes_max` waits then; otherwise drops
    /// it.
    pub(crate) fn put_if_room<T: Serialize>(&self, message: &T, bytes_max: usize) -> bool {
        let mut waiting = self.waiting();
        let before = waiting.bytes.len();
        if waiting.closed || before >= bytes_max {
            return false;
        }
        let fits =
            frame::encode(message, &mut waiting.bytes).is_ok() && waiting.bytes.len() <= bytes_max;
        if !fits {
            waiting.bytes.truncate(before);
            return false;
        }
        drop(waiting);
        self.0.changed.notify_one();
        true
    }

    /// Takes no more frames. Once those inside have left, the connection is to
    /// be closed for this reason.
    pub(crate) fn close(&self, reason: &str) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        reason.clone_into(&mut waiting.reason);
        drop(waiting);
        self.0.changed.notify_one();
    }

    pub(crate) fn reason(&self) -> String {
        self.waiting().reason.clone()
    }

    /// Waits for bytes to write and takes them all; `None` once closed and
    /// empty. `spare` is an emptied buffer to be used again. Dropping the
    /// future loses nothing.
    pub(crate) async fn take(&self, spare: Vec<u8>) -> Option<Vec<u8>> {
        let mut spare = Some(spare);
        loop {
            {
                let mut waiting = self.waiting();
                if !waiting.bytes.is_empty() {
                    let mut next = spare.take().unwrap_or_default();
                    if next.capacity() > KEPT_BYTES_MAX {
                        next = vec![];
                    }
                    next.clear();
                    return Some(std::mem::replace(&mut waiting.bytes, next));
                }
                if waiting.closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // Nothing under this lock leaves it half done.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn everything_put_in_leaves_in_one_write_and_in_order() {
        let outbox = Outbox::new();
        for number in 0..3u32 {
            outbox.put(&number).unwrap();
        }
        outbox.close("");
        let bytes = block_on(outbox.take(vec![])).unwrap();
        let mut decoder = frame::Decoder::new();
        decoder.push(&bytes);
        for number in 0..3u32 {
            assert_eq!(decoder.next_frame(), Ok(Some(number)));
        }
        assert_eq!(block_on(outbox.take(bytes)), None);
    }

    #[test]
    fn what_may_be_dropped_never_fills_an_outbox() {
        let outbox = Outbox::new();
        let piece = vec![7u8; 400];
        assert!(outbox.put_if_room(&piece, 1_000));
        assert!(outbox.put_if_room(&piece, 1_000));
        assert!(!outbox.put_if_room(&piece, 1_000));
        outbox.put(&piece).unwrap();
        outbox.close("");
        let mut decoder = frame::Decoder::new();
        decoder.push(&block_on(outbox.take(vec![])).unwrap());
        for _ in 0..3 {
            assert_eq!(decoder.next_frame(), Ok(Some(piece.clone())));
        }
        assert_eq!(decoder.next_frame::<Vec<u8>>(), Ok(None));
    }

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let outbox = Outbox::new();
        let large = vec![0u8; 3 << 20];
        assert_eq!(outbox.put(&large), Ok(()));
        assert_eq!(outbox.put(&large), Ok(()));
        assert_eq!(outbox.put(&large), Err(NotTaken::Full));
        assert_eq!(outbox.put(&1u8), Err(NotTaken::Closed));
        assert_eq!(block_on(outbox.take(vec![])), None);
    }
}
