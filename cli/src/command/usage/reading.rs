//! How the records of logs are to be read: the options that `glean usage` and
//! `glean replay` share.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use gleaner_collector::timeline::{
    Criterion, Interpretation, ParseInterpretationError, Reading, Readings,
};
use gleaner_common::units::parse_duration;

use crate::values::ParseValueError;

/// How the times of records are understood.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct InterpretArgs {
    /// How times are understood: as-taken, exact, snapshots, snapshots:5min or previous-record; for one log only with its
    /// name in front, such as ada=exact.
    #[arg(long = "interpret", value_name = "[NAME=]HOW", value_parser = interpretation)]
    pub interpretations: Vec<(Option<String>, Interpretation)>,
}

impl InterpretArgs {
    /// For all logs, if that was said, and for those that were named.
    pub fn split(&self) -> (Option<Interpretation>, BTreeMap<String, Interpretation>) {
        let (mut all, mut logs) = (None, BTreeMap::new());
        for (name, how) in &self.interpretations {
            match name {
                Some(name) => drop(logs.insert(name.clone(), *how)),
                None => all = Some(*how),
            }
        }
        (all, logs)
    }
}

/// How records become idle and busy periods.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReadingArgs {
    #[command(flatten)]
    pub interpret: InterpretArgs,
    /// What makes a workstation busy [default: what did when it was recorded].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub criterion: Option<What>,
    /// The one-minute load that makes it busy [default: 0.25].
    #[arg(long, value_name = "LOAD", value_parser = load)]
    pub idle_load: Option<f32>,
    /// How long after input it counts as busy [default: 1min].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub quiet: Option<Duration>,
}

/// What makes a workstation busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Load or input.
    Both,
    /// Input alone.
    Tty,
    /// Load alone.
    Load,
}

fn interpretation(
    text: &str,
) -> Result<(Option<String>, Interpretation), ParseInterpretationError> {
    let (name, how) = match text.split_once('=') {
        Some((name, how)) => (Some(name.to_owned()), how),
        None => (None, text),
    };
    Ok((name, how.parse()?))
}

fn load(text: &str) -> Result<f32, ParseValueError> {
    let load = text.parse().ok().filter(|load: &f32| load.is_finite() && *load > 0.0);
    load.ok_or(ParseValueError::Load)
}

impl ReadingArgs {
    /// # Errors
    /// Options that contradict each other.
    pub fn readings(&self) -> Result<Readings> {
        let (all, logs) = self.interpret.split();
        let all = Reading { interpretation: all.unwrap_or_default(), criterion: self.criterion()? };
        Ok(Readings { all, logs })
    }

    fn criterion(&self) -> Result<Option<Criterion>> {
        let usual = Criterion::default();
        let load_max = self.idle_load.or(usual.load_max);
        let tty = self.quiet.or(usual.tty);
        Ok(match self.criterion {
            None if self.idle_load.is_none() && self.quiet.is_none() => None,
            None | Some(What::Both) => Some(Criterion { load_max, tty }),
            Some(What::Tty) if self.idle_load.is_some() => {
                bail!("--criterion tty looks at no load: leave out --idle-load")
            }
            Some(What::Tty) => Some(Criterion { load_max: None, tty }),
            Some(What::Load) if self.quiet.is_some() => {
                bail!("--criterion load looks at no input: leave out --quiet")
            }
            Some(What::Load) => Some(Criterion { load_max, tty: None }),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reading: ReadingArgs,
    }

    fn readings(words: &[&str]) -> Result<Readings> {
        Line::try_parse_from([&["glean"], words].concat())?.reading.readings()
    }

    #[test]
    fn without_options_a_log_is_read_as_it_was_recorded() {
        assert_eq!(readings(&[]).unwrap(), Readings::default());
    }

    #[test]
    fn a_criterion_is_load_input_or_both() {
        let criterion = |words: &[&str]| readings(words).unwrap().all.criterion;
        let minute = Some(Duration::from_secs(60));
        let of = |load_max, tty| Some(Criterion { load_max, tty });
        assert_eq!(criterion(&["--idle-load", "0.5"]), of(Some(0.5), minute));
        assert_eq!(criterion(&["--criterion", "both"]), of(Some(0.25), minute));
        assert_eq!(criterion(&["--criterion", "load"]), of(Some(0.25), None));
        let five = Some(Duration::from_secs(300));
        assert_eq!(criterion(&["--criterion", "tty", "--quiet", "5min"]), of(None, five));
        for words in [
            ["--criterion", "tty", "--idle-load", "0.5"],
            ["--criterion", "load", "--quiet", "5min"],
        ] {
            assert!(readings(&words).is_err(), "{words:?}");
        }
        assert!(readings(&["--idle-load", "-1"]).is_err());
    }

    #[test]
    fn one_log_can_be_read_otherwise_than_the_others() {
        let readings = readings(&["--interpret", "exact", "--interpret", "ada=snapshots"]).unwrap();
        assert_eq!(readings.of("bob").interpretation, Interpretation::Exact);
        let every = Duration::from_secs(180);
        assert_eq!(readings.of("ada").interpretation, Interpretation::Snapshots { every });
    }
}
