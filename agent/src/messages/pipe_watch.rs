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

use super::{PipeRead, Shared};

#[derive(Clone, Debug)]
pub(super) struct PipeWatch {
    runtime: Handle,
    handle: Weak<Shared>,
}

/// Hears until it is dropped.
#[derive(Debug)]
pub(super) struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The end of a pipe that is read.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) pipe: Arc<AsyncFd<OwnedFd>>,
    _hearing: Watching,
}

impl PipeWatch {
    pub(super) fn new(runtime: Handle, handle: Weak<Shared>) -> Self {
        Self { runtime, handle }
    }

    /// Has this rank read whenever something has come.
    ///
    /// # Errors
    /// No room to watch it.
    pub(super) fn listen(&self, fence: Fence, pipe: OwnedFd) -> io::Result<Source> {
        let _inside = self.runtime.enter();
        let pipe = Arc::new(register(pipe, Interest::READABLE)?);
        let (handle, read) = (self.handle.clone(), Arc::clone(&pipe));
        let hears = self.runtime.spawn(async move {
            while let Ok(mut ready) = read.readable().await {
                // The kernel tells only what is new, so what is left is not waited for.
                ready.clear_ready();
                drop(ready);
                while let Some(shared) = handle.upgrade() {
                    match shared.hear(fence) {
                        PipeRead::Much => yield_now().await,
                        PipeRead::Some => break,
                        // The rank may have got another pipe meanwhile, or none: then
                        // this one is ready for ever, and ends only where it yields.
                        PipeRead::Nothing => {
                            yield_now().await;
                            break;
                        }
                        PipeRead::End => return,
                    }
                }
            }
        });
        Ok(Source { pipe, _hearing: Watching(hears.abort_handle()) })
    }

    /// Has this rank write whenever its full pipe has place again.
    ///
    /// # Errors
    /// No descriptor left, or no room to watch it.
    pub(super) fn wait_for_place(&self, fence: Fence, pipe: impl AsFd) -> io::Result<Watching> {
        let _inside = self.runtime.enter();
        let pipe = register(pipe.as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
        let handle = self.handle.clone();
        let hears = self.runtime.spawn(async move {
            while let Ok(mut ready) = pipe.writable().await {
                ready.clear_ready();
                drop(ready);
                let Some(shared) = handle.upgrade() else { return };
                shared.write(fence);
                // The rank may have ended this watch, and a pipe that nobody reads has place for ever.
                yield_now().await;
            }
        });
        Ok(Watching(hears.abort_handle()))
    }
}

#[expect(unsafe_code, reason = "tokio's safe way to wait for a descriptor is deprecated")]
pub(crate) fn register(pipe: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns its file descriptor, gives out the same one each
    // time, and neither replaces nor closes it before it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(pipe, interest) }?)
}
