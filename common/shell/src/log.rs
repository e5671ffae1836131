//! Logging: one line per event on standard error.

use std::io::{self, IsTerminal, Write};

use gleaner_common::plain::line_with_colours;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Says what to log: `debug`, or `info,gleaner_agent=trace`.
pub const VARIABLE: &str = "GLEAN_LOG";

/// What the libraries under us say is for those who ask for it.
const QUIETER: &str = "quinn=warn,quinn_proto=warn,quinn_udp=error,rustls=warn,zbus=warn";

/// Why a filter is not one.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{text}` does not say what to log: expected a level (error, warn, info, debug, trace, off), \
     such as debug, or parts, such as info,gleaner_agent=trace"
)]
pub struct FilterError {
    pub text: String,
}

/// Starts logging to standard error: compact, without colour unless that is a
/// terminal. Without a level, [`VARIABLE`] says it, and without that `info`
/// holds. A second call changes nothing.
///
/// # Errors
/// A level that does not read; nothing has been started then.
pub fn init(level: Option<&str>) -> Result<(), FilterError> {
    let asked = level.map(str::to_owned).or_else(|| std::env::var(VARIABLE).ok());
    let filter = parse(asked.as_deref().unwrap_or("info"))?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_ansi(colour)
        .with_target(false)
        .with_writer(|| HarmlessLines(std::io::stderr()));
    // Somebody was first: tests of several daemons in one process.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    Ok(())
}

/// Each write is a whole event: it stays one line, whatever names and reasons
/// of others stand in it. The colours are the subscriber's; it lets none of
/// others through.
#[derive(Debug)]
struct HarmlessLines<W>(W);

impl<W: Write> Write for HarmlessLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(&line_with_colours(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn parse(text: &str) -> Result<Targets, FilterError> {
    let wrong = || FilterError { text: text.to_owned() };
    // A bare word that is no level would read as a module's name and log
    // nothing: a misspelt level must not go unseen.
    for part in text.split(',').map(str::trim).filter(|part| !part.contains('=')) {
        if part.is_empty() {
            return Err(wrong());
        }
        part.parse::<tracing_subscriber::filter::LevelFilter>().map_err(|_| wrong())?;
    }
    // The later of two directives for one target holds.
    format!("{QUIETER},{text}").parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_are_quieter_unless_asked_for() {
        let filter = parse("debug").unwrap();
        assert!(filter.would_enable("gleaner_agent", &Level::DEBUG));
        assert!(!filter.would_enable("quinn", &Level::INFO));
        assert!(parse("info,quinn=trace").unwrap().would_enable("quinn", &Level::TRACE));
    }

    #[test]
    fn a_name_in_an_event_forges_no_line_and_moves_no_cursor() {
        let written = Arc::new(Mutex::new(vec![]));
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .compact()
            .with_ansi(true)
            .without_time()
            .with_writer(move || HarmlessLines(Shared(writer.clone())));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let name = "x\n2026-01-01 WARN all is lost\u{1b}[2J\r\u{202e}";
            tracing::warn!(name, "job {name} has ended");
        });
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.contains(['\r', '\u{202e}']), "{text:?}");
        assert!(!text.contains("\u{1b}[2J"), "{text:?}");
    }

    #[derive(Clone)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_misspelt_level_is_refused_by_name() {
        for text in ["loud", "", "info,gleaner=loud"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` does not say what to log")), "{error}");
        }
    }
}
