//! Values on the command line, each with its units and its own mistake.

use std::path::PathBuf;
use std::time::Duration;

use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::{IndexRange, OnBusy, SUBPROGRAMS_MAX};
use gleaner_common::reaction::ParseOnBusyError;
use gleaner_common::units;

/// Why a text on the command line is not the value it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseValueError {
    #[error("expected a whole number, such as 50")]
    Number,
    #[error("expected an array FIRST-LAST or FIRST-LAST:STEP, such as 1-1000 or 0-90:10")]
    Array,
    #[error("the array is empty: expected FIRST up to LAST and a STEP of at least 1")]
    EmptyArray,
    #[error("{0} subprograms are too many: expected at most {SUBPROGRAMS_MAX}")]
    TooMany(u64),
    #[error("expected NAME=VALUE, such as SEED=7")]
    Variable,
    #[error("expected PATH or PATH=DEST, where DEST stays inside the working directory")]
    Input,
    #[error("expected HOST:PORT, such as coordinator.lab:4433")]
    Address,
    #[error("expected a job's number, such as 7, or a subprogram's, such as 7.12")]
    JobOrSubprogram,
    #[error("expected a time such as 2026-11-20T08:00:00Z")]
    Time,
    #[error("not a time zone of this machine's tz database: expected one such as America/New_York")]
    Zone,
    #[error("expected a load above 0, such as 0.5")]
    Load,
    #[error("expected an amount that is not below 0, such as 0.05")]
    Price,
    #[error("expected a size above 0, such as 512MiB")]
    NoSize,
    #[error(transparent)]
    Unit(#[from] units::ParseUnitError),
    #[error("expected a width and a height, such as 900x500")]
    Size,
    #[error("expected operations in a second, such as 1e9")]
    Speed,
}

/// `50`.
///
/// # Errors
/// Not a whole number, or one that is too large.
pub fn number(text: &str) -> Result<u32, ParseValueError> {
    text.parse().map_err(|_| ParseValueError::Number)
}

/// `512MiB`.
///
/// # Errors
/// Not a size, or one of nothing.
pub fn some_size(text: &str) -> Result<u64, ParseValueError> {
    let bytes = units::parse_size(text)?;
    if bytes == 0 { Err(ParseValueError::NoSize) } else { Ok(bytes) }
}

/// `1-1000` or `0-90:10`.
///
/// # Errors
/// Not an array, an empty one, or one with too many values.
pub fn array(text: &str) -> Result<IndexRange, ParseValueError> {
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').ok_or(ParseValueError::Array)?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| ParseValueError::Array);
    let range = IndexRange { first: number(first)?, last: number(last)?, step: number(step)? };
    if range.is_empty() {
        return Err(ParseValueError::EmptyArray);
    }
    let many = u64::from((range.last - range.first) / range.step) + 1;
    if many > u64::from(SUBPROGRAMS_MAX) { Err(ParseValueError::TooMany(many)) } else { Ok(range) }
}

/// `SEED=7`.
///
/// # Errors
/// No `=`, or nothing before it.
pub fn variable(text: &str) -> Result<(String, String), ParseValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ParseValueError::Variable),
    }
}

/// A file or directory to stage, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub path: PathBuf,
    /// Inside the subprogram's directory; the path's last part by default.
    pub to: Option<String>,
}

/// `data/model.bin` or `data/model.bin=model`.
///
/// # Errors
/// Nothing before the `=`, or a destination outside the working directory.
pub fn input(text: &str) -> Result<Input, ParseValueError> {
    let (path, to) = match text.rsplit_once('=') {
        // A path may hold `=` itself; then it exists as written.
        Some(_) if std::path::Path::new(text).exists() => (text, None),
        Some((path, to)) => (path, Some(to)),
        None => (text, None),
    };
    let outside = to.is_some_and(|to| !gleaner_common::job::is_inside(to));
    if path.is_empty() || outside {
        return Err(ParseValueError::Input);
    }
    Ok(Input { path: PathBuf::from(path), to: to.map(str::to_owned) })
}

/// `coordinator.lab:4433`, `10.1.4.2:4433`, `[::1]:4433`.
///
/// # Errors
/// No host, or no port from 1 to 65535.
pub fn address(text: &str) -> Result<String, ParseValueError> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(ParseValueError::Address),
    }
}

/// How long a suspended guest waits; `forever` never gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

/// `10min` or `forever`.
///
/// # Errors
/// Not a duration.
pub fn patience(text: &str) -> Result<Patience, units::ParseUnitError> {
    match text {
        "forever" => Ok(Patience(None)),
        span => units::parse_duration(span).map(|span| Patience(Some(span))),
    }
}

/// `migrate` or `suspend 10min then migrate`.
///
/// # Errors
/// Not a reaction.
pub fn on_busy(text: &str) -> Result<OnBusy, ParseOnBusyError> {
    text.parse()
}

/// What `glean logs` and `glean why` are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrSubprogram {
    Job(JobId),
    Subprogram(SubprogramId),
}

/// `7` or `7.12`.
///
/// # Errors
/// Neither.
pub fn job_or_subprogram(text: &str) -> Result<JobOrSubprogram, ParseValueError> {
    let job = text.parse().map(JobOrSubprogram::Job);
    job.or_else(|_| text.parse().map(JobOrSubprogram::Subprogram))
        .map_err(|_| ParseValueError::JobOrSubprogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_with_and_without_a_step() {
        assert_eq!(array("1-1000"), Ok(IndexRange { first: 1, last: 1_000, step: 1 }));
        assert_eq!(array("0-90:10"), Ok(IndexRange { first: 0, last: 90, step: 10 }));
        assert_eq!(array("5-5").unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in ["", "5", "1..9", "a-b", "-1-4", "1-4:", "1-4:x", "1-99999999999"] {
            assert_eq!(array(text), Err(ParseValueError::Array), "{text}");
        }
        for text in ["4-1", "1-4:0"] {
            assert_eq!(array(text), Err(ParseValueError::EmptyArray), "{text}");
        }
        assert_eq!(array("0-4294967295"), Err(ParseValueError::TooMany(1 << 32)));
    }

    #[test]
    fn an_input_stays_inside_the_working_directory() {
        assert_eq!(input("/a/b").unwrap().to, None);
        assert_eq!(input("../model=m/x").unwrap().to.as_deref(), Some("m/x"));
        for text in ["", "=x", "a=", "a=/etc/passwd", "a=../x"] {
            assert_eq!(input(text), Err(ParseValueError::Input), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in ["lab:4433", "10.0.0.1:1", "[::1]:65535"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        for text in ["", "lab", "lab:", ":4433", "lab:0", "lab:70000"] {
            assert_eq!(address(text), Err(ParseValueError::Address), "{text}");
        }
    }

    #[test]
    fn patience_may_be_endless() {
        assert_eq!(patience("forever"), Ok(Patience(None)));
        assert_eq!(patience("10min"), Ok(Patience(Some(Duration::from_secs(600)))));
        assert!(patience("10").is_err());
    }

    #[test]
    fn a_subprogram_is_told_from_a_job() {
        assert_eq!(job_or_subprogram("7"), Ok(JobOrSubprogram::Job(JobId(7))));
        let subprogram = SubprogramId { job: JobId(7), index: 12 };
        assert_eq!(job_or_subprogram("7.12"), Ok(JobOrSubprogram::Subprogram(subprogram)));
        assert_eq!(job_or_subprogram("seven"), Err(ParseValueError::JobOrSubprogram));
    }
}
