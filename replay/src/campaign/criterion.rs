//! The idle criterion in words: `as-recorded`, `load:0.5`, `tty:5min`,
//! `load:any tty:1min`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gleaner_collector::timeline::Criterion;
use gleaner_common::units::{parse_duration, written_duration};

const AS_RECORDED: &str = "as-recorded";
const ANY: &str = "any";

/// What makes a workstation busy (Phalen 1994, §5 and §8, "Definition of idle
/// system state").
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CriterionChoice {
    /// `None`: what made it busy when the records were written.
    pub criterion: Option<Criterion>,
}

/// Why a text is not a criterion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an idle criterion: expected as-recorded, or load:0.5 (busy from that load on), \
     tty:5min (busy for so long after input), or both; `any` allows any load or input"
)]
pub struct ParseCriterionError(String);

impl FromStr for CriterionChoice {
    type Err = ParseCriterionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == AS_RECORDED {
            return Ok(Self::default());
        }
        let wrong = || ParseCriterionError(text.to_owned());
        let mut criterion = Criterion::default();
        let (mut load, mut tty) = (false, false);
        for word in text.split_whitespace() {
            match word.split_once(':') {
                Some(("load", value)) if !load => {
                    load = true;
                    criterion.load_max = parse_load(value).ok_or_else(wrong)?;
                }
                Some(("tty", value)) if !tty => {
                    tty = true;
                    criterion.tty = parse_quiet(value).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        if load || tty { Ok(Self { criterion: Some(criterion) }) } else { Err(wrong()) }
    }
}

#[expect(clippy::option_option, reason = "the outer one is a mistake, the inner one `any`")]
fn parse_load(text: &str) -> Option<Option<f32>> {
    if text == ANY {
        return Some(None);
    }
    text.parse::<f32>().ok().filter(|load| load.is_finite() && *load > 0.0).map(Some)
}

#[expect(clippy::option_option, reason = "the outer one is a mistake, the inner one `any`")]
fn parse_quiet(text: &str) -> Option<Option<Duration>> {
    if text == ANY { Some(None) } else { parse_duration(text).ok().map(Some) }
}

impl fmt::Display for CriterionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(criterion) = self.criterion else { return f.write_str(AS_RECORDED) };
        match criterion.load_max {
            Some(load) => write!(f, "load:{load} ")?,
            None => write!(f, "load:{ANY} ")?,
        }
        match criterion.tty {
            Some(quiet) => write!(f, "tty:{}", written_duration(quiet)),
            None => write!(f, "tty:{ANY}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_criterion_says_what_it_leaves_to_the_recorded_one() {
        for (text, name) in [
            ("as-recorded", "as-recorded"),
            ("load:0.5", "load:0.5 tty:1m"),
            ("tty:5min", "load:0.25 tty:5m"),
            ("load:any", "load:any tty:1m"),
            ("tty:any load:1", "load:1 tty:any"),
        ] {
            let choice: CriterionChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), name);
            assert_eq!(name.parse(), Ok(choice));
        }
    }

    #[test]
    fn what_is_no_criterion_is_refused() {
        for text in
            ["", "recorded", "load", "load:", "load:-1", "load:nan", "tty:5", "load:1 load:2"]
        {
            assert!(text.parse::<CriterionChoice>().is_err(), "{text}");
        }
    }
}
