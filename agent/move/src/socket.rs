//! The socket over which CRIU asks for its image files, one by one, each time
//! with a pipe for its bytes: `--stream`, made for criu-image-streamer, whose
//! part we play.
//!
//! Source: CRIU 4.1, `criu/img-streamer.c`, `images/img-streamer.proto`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::stream::{CHUNK, is_image_name};
use crate::wire::{Value, fields, put};

/// The longest request: a file's name.
const REQUEST_BYTES_MAX: usize = 256;

/// The file that it asks for next; `None` if it needs no more.
///
/// # Errors
/// The other end is not CRIU, or is gone.
pub(crate) fn next_request(mut control: &UnixStream) -> io::Result<Option<String>> {
    let mut size = [0; 4];
    match control.read_exact(&mut size) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let size = u32::from_le_bytes(size) as usize;
    let mut message = vec![0; size.min(REQUEST_BYTES_MAX)];
    control.read_exact(&mut message)?;
    let confused = || io::Error::other("criu asks for what is no image file");
    let name = fields(&message)
        .map_err(|_| confused())?
        .into_iter()
        .find_map(|field| match field {
            (1, Value::Bytes(name)) => std::str::from_utf8(name).ok(),
            _ => None,
        })
        .filter(|name| is_image_name(name) && size <= REQUEST_BYTES_MAX)
        .ok_or_else(confused)?;
    Ok(Some(name.to_owned()))
}

/// Says whether there is such a file. Asked for when it restores only.
///
/// # Errors
/// CRIU is gone.
pub(crate) fn reply(mut control: &UnixStream, exists: bool) -> io::Result<()> {
    let mut message = vec![];
    put(&mut message, 1, Value::Varint(exists.into()));
    let size = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
    control.write_all(&[&size, &message[..]].concat())
}

/// The file's pipe, which comes with one byte that means nothing.
///
/// # Errors
/// There is none.
pub(crate) fn receive_pipe(control: &UnixStream) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        control,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let pipe = ancillary
        .drain()
        .find_map(|message| {
            let RecvAncillaryMessage::ScmRights(mut fds) = message else { return None };
            fds.next()
        })
        .ok_or_else(|| io::Error::other("criu sends no pipe with its request"))?;
    // Fewer turns for the big ones; what the kernel refuses is no loss.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe, CHUNK);
    Ok(pipe.into())
}
