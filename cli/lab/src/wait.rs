//! Waiting for facts: a condition is asked again until it holds.

use std::time::Duration;

use anyhow::{Result, bail};
use gleaner_shell::clock::Clock;

/// Far longer than anything takes on a loaded machine; only a hang meets it.
/// Guests come after everybody else: theirs may be a hundredth of a core.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Asks until the answer is `Some`.
///
/// # Errors
/// The fact did not come true within `patience`; the message names it.
pub fn until<T>(
    fact: &str,
    patience: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Clock.now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Clock.now() > end {
            bail!("waited {} s in vain for this: {fact}", patience.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// How often [`spin_until`] asks. It must not keep a core to itself: guests
/// are of the idle class, and a thread that never gets a core never stops.
const NAP: Duration = Duration::from_micros(20);

/// Asks with next to no pause: for latencies.
///
/// # Errors
/// The fact did not come true within `patience`; the message names it.
pub fn spin_until(
    fact: &str,
    patience: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<Duration> {
    let start = Clock.now();
    while !holds() {
        if Clock.now().since(start) > patience {
            bail!("waited {} s in vain for this: {fact}", patience.as_secs());
        }
        std::thread::sleep(NAP);
    }
    Ok(Clock.now().since(start))
}
