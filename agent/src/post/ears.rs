//! Hears when a rank's pipe is ready: on the link's runtime, so that what comes
//! out of a pipe is on its way to another agent without waking anybody.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use gleaner_common::id::Fence;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, yield_now};

use super::Shared;
use super::seat::Heard;

#[derive(Clone, Debug)]
pub(super) struct Ears {
    runtime: Handle,
    post: Weak<Shared>,
}

/// Hears until it is dropped.
#[derive(Debug)]
pub(super) struct Hearing(AbortHandle);

impl Drop for Hearing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The end of a pipe that is read.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) pipe: Arc<AsyncFd<OwnedFd>>,
    _hearing: Hearing,
}

impl Ears {
    pub(super) fn new(runtime: Handle, post: Weak<Shared>) -> Self {
        Self { runtime, post }
    }

    /// Has this seat read whenever something has come.
    ///
    /// # Errors
    /// No room to watch it.
    pub(super) fn listen(&self, fence: Fence, pipe: OwnedFd) -> io::Result<Source> {
        let _inside = self.runtime.enter();
        let pipe = Arc::new(register(pipe, Interest::READABLE)?);
        let (post, read) = (self.post.clone(), Arc::clone(&pipe));
        let hears = self.runtime.spawn(async move {
            while let Ok(mut ready) = read.readable().await {
                // It tells only what is new, so what is left is not waited for.
                ready.clear_ready();
                drop(ready);
                while let Some(shared) = post.upgrade() {
                    match shared.hear(fence) {
                        Heard::Much => yield_now().await,
                        Heard::Some => break,
                        // Its seat may have got another pipe meanwhile, or none: then
                        // this one is ready for ever, and ends only where it yields.
                        Heard::Nothing => {
                            yield_now().await;
                            break;
                        }
                        Heard::End => return,
                    }
                }
            }
        });
        Ok(Source { pipe, _hearing: Hearing(hears.abort_handle()) })
    }

    /// Has this seat write whenever its full pipe has place again.
    ///
    /// # Errors
    /// No descriptor left, or no room to watch it.
    pub(super) fn wait_for_place(&self, fence: Fence, pipe: impl AsFd) -> io::Result<Hearing> {
        let _inside = self.runtime.enter();
        let pipe = register(pipe.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
        let post = self.post.clone();
        let hears = self.runtime.spawn(async move {
            while let Ok(mut ready) = pipe.writable().await {
                ready.clear_ready();
                drop(ready);
                let Some(shared) = post.upgrade() else { return };
                shared.write(fence);
                // It may have ended this, and a pipe that nobody reads has place for ever.
                yield_now().await;
            }
        });
        Ok(Hearing(hears.abort_handle()))
    }
}

#[expect(unsafe_code, reason = "tokio's safe way to wait for a descriptor is deprecated")]
fn register(pipe: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns its file descriptor, gives out the same one each
    // time, and neither replaces nor closes it before it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(pipe, interest) }?)
}
