//! Images that are kept for a rank to go back to: files without a name in the
//! agent's data directory, gone with whoever holds them last.
//!
//! ```text
//! event loop ── Keep ─► a thread: dump ─► file ─► Imaged
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use gleaner_common::id::Fence;
use gleaner_common::units::spoken_size;
use gleaner_move::{DumpError, GuestProcess, Outlet};
use tokio::sync::mpsc;

use super::Mover;
use crate::failure::one_line;
use crate::link::{LinkEvent, ToEventLoop};

/// What is read at once.
const PIECE_BYTES: usize = 256 << 10;

/// An image as it travels, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct KeptImage {
    file: Arc<File>,
    pub(crate) bytes: u64,
}

impl KeptImage {
    /// Hands all of it on, as long as somebody takes it. Who gets less than all
    /// of it knows by its end.
    pub(super) fn hand_on(&self, pieces: &mpsc::Sender<Bytes>) {
        let mut at = 0;
        while at < self.bytes {
            let mut piece = vec![0; PIECE_BYTES];
            match self.file.read_at(&mut piece, at) {
                Ok(0) => return,
                Ok(length) => {
                    piece.truncate(length);
                    at += length as u64;
                    if pieces.blocking_send(piece.into()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return tracing::warn!(%error, "cannot read a kept image"),
            }
        }
    }

    /// All of it, after those bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn after(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = bytes.to_vec();
        let begin = all.len();
        all.resize(begin + usize::try_from(self.bytes).unwrap_or(0), 0);
        self.file.read_exact_at(&mut all[begin..], 0)?;
        Ok(all)
    }

    /// An image with these bytes in it.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut keeping = Keeping::new(home.path(), Fence::of(0), u64::MAX).unwrap();
        keeping.write_all(bytes).unwrap();
        keeping.finish()
    }
}

/// An image that is being kept.
#[derive(Debug)]
pub(super) struct Keeping {
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl Keeping {
    /// # Errors
    /// The directory cannot be written to.
    pub(super) fn new(directory: &Path, fence: Fence, bytes_max: u64) -> io::Result<Self> {
        let path = directory.join(format!("image-{}", fence.packed()));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self { file, bytes: 0, bytes_max })
    }

    pub(super) fn finish(self) -> KeptImage {
        KeptImage { file: Arc::new(self.file), bytes: self.bytes }
    }
}

impl Write for Keeping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.bytes_max {
            let most = spoken_size(self.bytes_max);
            return Err(io::Error::other(format!("it is too big to be kept: at most {most}")));
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Outlet for Keeping {}

/// A guest that stands still, to be written down.
#[derive(Debug)]
pub(crate) struct ToKeep {
    pub(crate) fence: Fence,
    pub(crate) process: GuestProcess,
    pub(crate) mover: Arc<Mover>,
    pub(crate) directory: PathBuf,
    pub(crate) bytes_max: u64,
}

/// Writes it down, on a thread of its own.
pub(crate) fn keep(what: ToKeep, event_loop: ToEventLoop) {
    let (fence, told) = (what.fence, event_loop.clone());
    let keeping = std::thread::Builder::new().name("image".into()).spawn(move || {
        event_loop.tell(LinkEvent::Imaged { fence, done: write_down(&what) });
    });
    if let Err(error) = keeping {
        let done = Err(format!("no thread to write it down: {error}"));
        told.tell(LinkEvent::Imaged { fence, done });
    }
}

fn write_down(what: &ToKeep) -> Result<KeptImage, String> {
    let ToKeep { fence, process, mover, directory, bytes_max, .. } = what;
    let mut keeping = Keeping::new(directory, *fence, *bytes_max)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    gleaner_move::keep(&mover.engine, &mover.fingerprint, process, &mut keeping).map_err(cause)?;
    Ok(keeping.finish())
}

fn cause(error: DumpError) -> String {
    if let DumpError::Send(source) = error { source.to_string() } else { one_line(&error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_handed_on_as_it_was() {
        let bytes: Vec<u8> = (0..PIECE_BYTES * 2 + 7).map(|at| at.to_le_bytes()[0]).collect();
        let (pieces, mut coming) = mpsc::channel(8);
        KeptImage::of(&bytes).hand_on(&pieces);
        drop(pieces);
        assert!(
            KeptImage::of(&bytes).after(b"before").unwrap() == [b"before", &bytes[..]].concat()
        );
        let mut got = vec![];
        while let Some(piece) = coming.blocking_recv() {
            got.extend(piece);
        }
        assert!(got == bytes);
    }

    #[test]
    fn an_image_leaves_no_file_behind_and_is_no_bigger_than_it_may_be() {
        let home = tempfile::tempdir().unwrap();
        let mut keeping = Keeping::new(home.path(), Fence::of(7), 3 << 20).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        keeping.write_all(&vec![0; 3 << 20]).unwrap();
        let error = keeping.write_all(b"x").unwrap_err();
        assert_eq!(error.to_string(), "it is too big to be kept: at most 3.0 MiB");
    }
}
