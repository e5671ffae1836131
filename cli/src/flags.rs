//! The flags that several commands take, each spelt and defined once.
//!
//! | flag | what it names |
//! |---|---|
//! | `--from`, `--until` | a stretch of time |
//! | `--out` | what is written: a file, or a directory |
//! | `--usage` | a usage archive |
//! | `--data` | the coordinator's own directory (`command::daemon`) |
//!
//! Where `--out` means something of a command's own, that command defines it; a
//! test of `arguments` sees to the spelling.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::UnknownArgumentValueParser;
use gleaner_collector::CollectorConfig;
use gleaner_collector::archive;
use gleaner_collector::wall::{read_time, spoken_time};
use gleaner_common::time::WallTime;

use crate::command::daemon::{self, COLLECTOR_CONFIG};
use crate::values::ParseValueError;

/// A stretch of time.
#[derive(Debug, Args)]
pub struct Span {
    /// Nothing before this time, such as 2026-11-20T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<WallTime>,
    /// Nothing from this time on.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<WallTime>,
}

impl Span {
    /// # Errors
    /// It ends before it begins.
    pub(crate) fn span(&self) -> Result<archive::Span> {
        if let (Some(from), Some(until)) = (self.from, self.until)
            && until < from
        {
            let (from, until) = (spoken_time(from), spoken_time(until));
            bail!("--until {until} is before --from {from}: expected a later time");
        }
        Ok(archive::Span { from: self.from, to: self.until })
    }
}

/// The file that a command makes.
#[derive(Debug, Args)]
pub struct OutFile {
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// The directory that a command fills.
#[derive(Debug, Args)]
pub struct OutDir {
    /// The directory to write to; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Where the usage records are.
#[derive(Debug, Args)]
pub struct UsageArchive {
    /// The usage archive, a collector's data directory
    /// [default: that of the configuration: the collector's, or the campaign's].
    #[arg(long, value_name = "DIR")]
    pub usage: Option<PathBuf>,
    /// Nothing: --usage names an archive.
    #[arg(long, hide = true, value_parser = suggest("--usage"))]
    data: Option<()>,
}

impl UsageArchive {
    /// The one that was named, or that of this machine's collector.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        match &self.usage {
            Some(dir) => Ok(dir.clone()),
            None => Ok(daemon::load::<CollectorConfig>(None, COLLECTOR_CONFIG)?.data_dir),
        }
    }
}

/// What other programs spell so, and similarity does not lead to ours.
#[derive(Debug, Args)]
pub struct Misspelt {
    /// Nothing: a span ends with --until, and --out is where to write.
    #[arg(long, global = true, hide = true, value_parser = suggest("--until or --out"))]
    to: Option<()>,
    /// Nothing: --out is where to write.
    #[arg(long, global = true, hide = true, value_parser = suggest("--out"))]
    dir: Option<()>,
}

fn suggest(flag: &'static str) -> UnknownArgumentValueParser {
    UnknownArgumentValueParser::suggest_arg(flag)
}

pub(crate) fn time(text: &str) -> Result<WallTime, ParseValueError> {
    read_time(text).ok_or(ParseValueError::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_ends_before_it_begins_is_refused() {
        let span = |from: &str, until: &str| {
            let (from, until) = (time(from).ok(), time(until).ok());
            Span { from, until }.span().map_err(|error| error.to_string())
        };
        let said = span("2026-11-20T08:00:00Z", "2026-11-20T07:00:00Z").unwrap_err();
        assert_eq!(
            said,
            "--until 2026-11-20T07:00:00Z is before --from 2026-11-20T08:00:00Z: expected a later \
             time"
        );
        assert!(span("2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z").is_ok());
        assert!(time("2026-11-20T08:00:00+25:00").is_err());
    }
}
