//! The owner's pause on disk, so that it survives a restart of the agent and
//! of the machine. There it ends by the wall clock, as the owner meant it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Pause, PauseEnd};
use gleaner_common::time::{Moment, WallTime};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    by: String,
    /// Seconds since 1970; none: until resumed.
    until: Option<i64>,
}

/// Where and when we are, to translate between the two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) wall: WallTime,
}

fn path_in(data: &Path) -> PathBuf {
    data.join("pause.toml")
}

/// A pause of so long from now on.
pub(crate) fn pause(by: String, span: Option<Duration>, now: Now) -> Pause {
    let until = span.map(|span| PauseEnd { at: now.moment + span, said: said(now.wall, span) });
    Pause { by, until }
}

/// A pause is ended or shortened by whoever began it and by root: what is to
/// take its place is another pause, or none.
///
/// # Errors
/// It is somebody else's: one line for whoever asks.
pub(crate) fn not_shortened(
    present: Option<&Pause>,
    by: &str,
    next: Option<&Pause>,
) -> Result<(), String> {
    let Some(present) = present.filter(|present| present.by != by && by != "root") else {
        return Ok(());
    };
    let lasts = next.is_some_and(|next| match (&present.until, &next.until) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(before), Some(after)) => before.at <= after.at,
    });
    if lasts {
        return Ok(());
    }
    Err(format!("{} has paused this workstation: only they or root end that", present.by))
}

/// Keeps a pause, or that there is none.
pub(crate) fn keep(data: &Path, pause: Option<&Pause>, now: Now) {
    let path = path_in(data);
    let done = match pause {
        None => match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(()),
        },
        Some(pause) => {
            let seconds = |end: &PauseEnd| {
                let left = end.at.since(now.moment);
                #[expect(clippy::cast_possible_truncation, reason = "seconds fit for ages")]
                let at = now.wall.unix_s() as i64;
                at.saturating_add(i64::try_from(left.as_secs()).unwrap_or(i64::MAX))
            };
            let kept = Kept { by: pause.by.clone(), until: pause.until.as_ref().map(seconds) };
            toml::to_string(&kept).map_err(|error| error.to_string()).and_then(|text| {
                gleaner_shell::atomic::replace(
                    &path,
                    text.as_bytes(),
                    gleaner_shell::atomic::PUBLIC,
                )
                .map_err(|error| error.to_string())
            })
        }
    };
    if let Err(error) = done {
        tracing::error!("the pause will not survive a restart: {error}");
    }
}

/// The pause of before, if it has not ended. A file that does not read means
/// a pause without end: unsure leans to busy.
pub(crate) fn kept(data: &Path, now: Now) -> Option<Pause> {
    let path = path_in(data);
    let text = std::fs::read_to_string(&path).ok()?;
    let kept: Kept = match toml::from_str(&text) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::error!(
                "{} does not read, so this workstation stays paused until resumed: {}",
                path.display(),
                error.message()
            );
            return Some(Pause { by: "an unreadable file".into(), until: None });
        }
    };
    let Some(until) = kept.until else { return Some(Pause { by: kept.by, until: None }) };
    let left = WallTime::from_unix_s(until).since(now.wall);
    (!left.is_zero()).then(|| pause(kept.by, Some(left), now))
}

/// "17:40", or with the day if it is not today.
#[expect(unsafe_code, reason = "local time is the C library's")]
fn said(now: WallTime, span: Duration) -> String {
    let local = |seconds: i64| {
        // SAFETY: all zeroes is a valid tm, and both pointers are to locals.
        unsafe {
            let mut tm: libc::tm = std::mem::zeroed();
            libc::localtime_r(&raw const seconds, &raw mut tm);
            tm
        }
    };
    #[expect(clippy::cast_possible_truncation, reason = "seconds fit for ages")]
    let from = now.unix_s() as i64;
    let to = from.saturating_add(i64::try_from(span.as_secs()).unwrap_or(i64::MAX));
    let (from, to) = (local(from), local(to));
    let clock = format!("{:02}:{:02}", to.tm_hour, to.tm_min);
    if (from.tm_yday, from.tm_year) == (to.tm_yday, to.tm_year) {
        clock
    } else {
        format!("{}-{:02}-{:02} {clock}", to.tm_year + 1_900, to.tm_mon + 1, to.tm_mday)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now =
        Now { moment: Moment(5_000_000_000), wall: WallTime(1_800_000_000_000_000_000) };

    #[test]
    fn only_who_paused_and_root_end_a_pause_or_make_it_shorter() {
        let of = |by: &str, span: Option<u64>| pause(by.into(), span.map(Duration::from_secs), NOW);
        let ada = of("ada", Some(600));
        for (by, next, may) in [
            ("ada", None, true),
            ("root", None, true),
            ("eve", None, false),
            ("eve", Some(of("eve", Some(1))), false),
            ("eve", Some(of("eve", Some(900))), true),
            ("eve", Some(of("eve", None)), true),
        ] {
            let answer = not_shortened(Some(&ada), by, next.as_ref());
            assert_eq!(answer.is_ok(), may, "{by}: {next:?}: {answer:?}");
        }
        assert!(not_shortened(Some(&of("ada", None)), "eve", Some(&of("eve", Some(9)))).is_err());
        assert_eq!(not_shortened(None, "eve", None), Ok(()));
    }

    fn later(span: Duration) -> Now {
        // After a restart of the machine: the boot clock has begun anew.
        let wall = WallTime(NOW.wall.0 + i64::try_from(span.as_nanos()).unwrap());
        Now { moment: Moment(1), wall }
    }

    #[test]
    fn a_pause_survives_a_restart_and_ends_when_it_was_to_end() {
        let home = tempfile::tempdir().unwrap();
        let two_hours = Duration::from_secs(7_200);
        let ours = pause("ann".into(), Some(two_hours), NOW);
        keep(home.path(), Some(&ours), NOW);
        let hour_later = later(two_hours / 2);
        let read = kept(home.path(), hour_later).unwrap();
        assert_eq!(read.by, "ann");
        let end = read.until.unwrap();
        assert_eq!(end.at, hour_later.moment + two_hours / 2);
        assert_eq!(end.said, ours.until.unwrap().said);
        assert_eq!(kept(home.path(), later(two_hours)), None);
    }

    #[test]
    fn a_pause_without_end_stays_until_resumed() {
        let home = tempfile::tempdir().unwrap();
        keep(home.path(), Some(&pause("ann".into(), None, NOW)), NOW);
        let read = kept(home.path(), later(Duration::from_secs(1_000_000)));
        assert_eq!(read, Some(Pause { by: "ann".into(), until: None }));
        keep(home.path(), None, NOW);
        assert_eq!(kept(home.path(), NOW), None);
    }

    #[test]
    fn a_damaged_file_means_paused() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(path_in(home.path()), "by = ").unwrap();
        assert_eq!(kept(home.path(), NOW).unwrap().until, None);
    }
}
