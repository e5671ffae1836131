//! `glean usage plot`: charts of the logs.

use std::path::PathBuf;

use anyhow::{Context, Result};
use gleaner_collector::plot::{PlotKind, PlotOptions, plot};
use gleaner_figure::{Format, Size};
use jiff::tz::TimeZone;

use super::generate::zone;
use super::{ReadingArgs, during};
use crate::failure::Verdict;
use crate::flags::{Span, UsageArchive};
use crate::output;
use crate::values::ParseValueError;

#[derive(Debug, clap::Args)]
pub struct PlotArgs {
    /// week, survival or availability.
    #[arg(long, value_name = "KIND")]
    pub kind: PlotKind,
    /// The file to write, .svg, .png or .pdf; without it, SVG goes to the standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Its size in pixels of 1/96 inch, such as 900x500; a PNG has twice as many.
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<Size>,
    /// Only these workstations.
    #[arg(value_name = "WORKSTATION")]
    pub workstations: Vec<String>,
    /// Whose hours and days, such as `America/New_York` [default: this machine's].
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    pub zone: Option<TimeZone>,
    #[command(flatten)]
    pub span: Span,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

fn size(text: &str) -> Result<Size, ParseValueError> {
    let parsed = text.split_once('x').and_then(|(width, height)| {
        Some(Size { width: width.parse().ok()?, height: height.parse().ok()? })
    });
    parsed.ok_or(ParseValueError::Size)
}

pub(super) fn run(args: PlotArgs) -> Result<Verdict> {
    // A wrong ending is said before hours of logs are read.
    args.out.as_deref().map(Format::of).transpose()?;
    let options = PlotOptions {
        names: args.workstations,
        span: args.span.span()?,
        readings: args.reading.readings()?,
        zone: args.zone,
    };
    let data = args.usage.directory()?;
    let drawn = during("reading", |show| plot(&data, args.kind, &options, show))?;
    output::notes(&drawn.notes);
    let size = args.size.unwrap_or_else(|| drawn.figure.natural_size());
    if let Some(path) = &args.out {
        output::figure(path, drawn.figure.as_ref(), size)?;
        output::say(&format!("{} is written", path.display()));
    } else {
        output::bytes(&drawn.figure.draw(Format::Svg, size).context("cannot draw")?)?;
    }
    Ok(Verdict::Yes)
}
