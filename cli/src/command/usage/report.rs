//! `glean usage report`: one page for whoever pays for the workstations.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use gleaner_collector::plot::{PageFigures, PlotOptions, Price, page};
use gleaner_shell::atomic::{self, PUBLIC};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::generate::zone;
use super::{ReadingArgs, during};
use crate::failure::Verdict;
use crate::flags::{OutDir, Span, UsageArchive};
use crate::output;
use crate::values::ParseValueError;

/// The two forms of the page.
const HTML: &str = "usage.html";
const PDF: &str = "usage.pdf";

#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub out: OutDir,
    /// What a machine-hour is worth [default: 0.0416, an assumption: a small virtual machine, quoted in 2026].
    #[arg(long, value_name = "AMOUNT", value_parser = price)]
    pub price: Option<f64>,
    /// In which currency [default: USD].
    #[arg(long, value_name = "NAME", requires = "price")]
    pub currency: Option<String>,
    /// Where that price is from, in words for the page.
    #[arg(long, value_name = "WORDS", requires = "price")]
    pub price_source: Option<String>,
    /// Only these workstations.
    #[arg(value_name = "WORKSTATION")]
    pub workstations: Vec<String>,
    /// Whose hours and days, such as `America/New_York` [default: this machine's].
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    pub zone: Option<TimeZone>,
    /// One record of what the page says.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub span: Span,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub reading: ReadingArgs,
}

fn price(text: &str) -> Result<f64, ParseValueError> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or(ParseValueError::Price)
}

impl ReportArgs {
    fn price(&self) -> Price {
        let usual = Price::default();
        let Some(amount) = self.price else { return usual };
        let source = self.price_source.clone();
        Price {
            amount,
            currency: self.currency.clone().unwrap_or(usual.currency),
            source: source.unwrap_or_else(|| "as given to this command".to_owned()),
        }
    }
}

#[derive(Serialize)]
struct Written {
    html: PathBuf,
    pdf: PathBuf,
    #[serde(flatten)]
    figures: PageFigures,
}

pub(super) fn run(args: ReportArgs) -> Result<Verdict> {
    let price = args.price();
    let options = PlotOptions {
        names: args.workstations,
        span: args.span.span()?,
        readings: args.reading.readings()?,
        zone: args.zone,
    };
    let data = args.usage.directory()?;
    let page = during("reading", |show| page(&data, &options, &price, show))?;
    output::notes(&page.notes);
    let dir = &args.out.out;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let written = Written { html: dir.join(HTML), pdf: dir.join(PDF), figures: page.figures };
    atomic::replace(&written.html, page.sheet.html().as_bytes(), PUBLIC)?;
    atomic::replace(&written.pdf, &page.sheet.pdf(), PUBLIC)?;
    output::told(args.json, &written, || {
        format!("{} and {} are written", written.html.display(), written.pdf.display())
    })?;
    Ok(Verdict::Yes)
}
