//! Helpers inside sessions (`glean presence`), who say how long nobody has used
//! theirs.
//!
//! The kernel says whose a helper is, and its word is taken for that user's own
//! sessions only: whoever lies makes their own session look used, or idle.
//! Nobody keeps many helpers, or makes one speak often.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation, WORD_LASTS, Word};
use gleaner_shell::clock::Clock;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::Teller;
use crate::owner;
use crate::presence::Said;

const HELPERS_MAX: usize = 256;
const HELPERS_OF_ONE_MAX: usize = 8;

/// The longest word, and the longest name of a display in it.
const WORD_BYTES_MAX: u64 = 1 << 10;
const DISPLAY_CHARS_MAX: usize = 40;

/// A helper is not listened to for so long after each word.
const PACE: Duration = Duration::from_millis(200);

pub(super) async fn serve(path: &Path, guests: Range<u32>, mut teller: Teller) {
    let listener = match owner::listen(path) {
        Ok(listener) => listener,
        Err(error) => {
            return teller.health(Health::Absent(format!("{}: {error}", path.display())));
        }
    };
    let mut helpers = JoinSet::new();
    let mut of_uid = BTreeMap::<u32, usize>::new();
    let mut next = 0;
    loop {
        teller.health(if helpers.is_empty() {
            Health::Absent("no session runs `glean presence`".into())
        } else {
            Health::Well
        });
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // No descriptors left: somebody must go first.
                    Clock.sleep(PACE).await;
                    continue;
                };
                let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
                let own = of_uid.entry(uid).or_default();
                let full = helpers.len() >= HELPERS_MAX || *own >= HELPERS_OF_ONE_MAX;
                if full || guests.contains(&uid) {
                    continue;
                }
                *own += 1;
                next += 1;
                helpers.spawn(hear(stream, uid, next, teller.clone()));
            }
            Some(ended) = helpers.join_next() => {
                let Ok((uid, helper)) = ended else { continue };
                if let Some(own) = of_uid.get_mut(&uid) {
                    *own = own.saturating_sub(1);
                }
                of_uid.retain(|_, own| *own > 0);
                teller.see(Observation::WordsEnd { helper });
            }
        }
    }
}

/// Hears a helper until it says no more.
async fn hear(stream: UnixStream, uid: u32, helper: u64, teller: Teller) -> (u32, u64) {
    let login = owner::login_of(uid);
    let mut reader = BufReader::with_capacity(512, stream);
    loop {
        let mut line = vec![];
        let mut limited = (&mut reader).take(WORD_BYTES_MAX);
        let read = tokio::time::timeout(WORD_LASTS, limited.read_until(b'\n', &mut line)).await;
        let whole = matches!(read, Ok(Ok(1..))) && line.last() == Some(&b'\n');
        let said: Option<Said> = serde_json::from_slice(&line).ok().filter(|_| whole);
        let Some(Said { session, display, idle_ms }) = said else { return (uid, helper) };
        let display: String = display.chars().take(DISPLAY_CHARS_MAX).collect();
        teller.see(Observation::Word(Word {
            helper,
            uid,
            session,
            display: format!("{display} of {login}"),
            idle: Duration::from_millis(idle_ms),
        }));
        Clock.sleep(PACE).await;
    }
}
