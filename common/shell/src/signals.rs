//! Being asked to stop.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// A future that is ready at the first SIGTERM or SIGINT.
///
/// # Errors
/// The system lets no signal be waited for.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    })
}
