//! One page about a site's workstations for whoever pays for them: how much
//! stands idle, what that is worth, when, and what using it would disturb.
//!
//! Everything is from the site's own logs but the price, which is an option and
//! says where it is from. What the logs do not tell is said.

use std::path::Path;

use gleaner_common::plain::plain;
use gleaner_common::time::WallTime;
use gleaner_figure::{Figure, FigureError, HeatMap, Sheet, SheetPart, Size, counted};
use serde::Serialize;

use super::{PlotError, PlotOptions, Scope, known, week};
use crate::load::{LoadOptions, timelines};
use crate::progress::Progress;
use crate::timeline::{PeriodState, Timeline};
use crate::wall::system_zone;
use crate::week::{Calendar, HOUR_NS};

/// Idle stretches that are shorter are not counted as of use: work that is begun
/// there has hardly begun when the owner is back. A guess; the page says it.
const USEFUL_MIN: i64 = 10;

/// Stretches that the page tells apart, in minutes.
const STRETCHES_MIN: [i64; 4] = [USEFUL_MIN, 60, 240, 720];

const DAYS_A_YEAR: f64 = 365.0;

/// What a machine-hour is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    pub amount: f64,
    pub currency: String,
    pub source: String,
}

impl Default for Price {
    /// A small virtual machine of the largest provider, for want of the site's
    /// own figure: an assumption, and the page calls it one. As quoted, with the
    /// price of the next size (0.0832), by hacecuentas.com (reviewed 2026-04-17)
    /// and go-cloud.io/?p=10607 (2026); the provider's own list was not read.
    fn default() -> Self {
        Self {
            amount: 0.0416,
            currency: "USD".to_owned(),
            source: "an assumption of this program, not of the site: Amazon EC2's t3.medium (2 virtual processors, 4 GiB), \
                     Linux, on demand, us-east-1, as hacecuentas.com quoted it on 17 April 2026; machines that may be taken \
                     back at any time, as these may, are let for up to 90 % less. `--price` says the site's own figure"
                .to_owned(),
        }
    }
}

impl Price {
    /// As it may stand on a page: its words are whatever somebody typed.
    fn harmless(&self) -> Self {
        let harmless = |words: &str| plain(words).into_owned();
        let (currency, source) = (harmless(&self.currency), harmless(&self.source));
        Self { amount: self.amount, currency, source }
    }
}

/// What the page says, in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageFigures {
    pub workstations: usize,
    pub days: f64,
    /// Of the time that the logs know.
    pub idle_fraction: Option<f64>,
    /// Of all time, how much the logs do not know.
    pub unknown_fraction: Option<f64>,
    pub idle_h: f64,
    /// In stretches long enough to be of use.
    pub useful_h: f64,
    pub useful_h_a_day: f64,
    pub worth_a_year: f64,
    pub price_an_hour: f64,
    pub currency: String,
    /// How often an owner comes back to a workstation that had stood idle for
    /// long enough that a guest may have been there.
    pub returns: u64,
    pub returns_a_workstation_day: f64,
}

/// The page, and what was strange about the logs.
pub struct Page {
    pub sheet: Sheet,
    pub figures: PageFigures,
    pub notes: Vec<String>,
}

/// Makes the page of the logs of a data directory.
///
/// # Errors
/// Logs that cannot be read, or that know nothing of that time.
pub fn page(
    data: &Path,
    options: &PlotOptions,
    price: &Price,
    progress: &mut dyn FnMut(Progress),
) -> Result<Page, PageError> {
    let wanted = LoadOptions {
        names: options.names.clone(),
        span: options.span,
        readings: options.readings.clone(),
    };
    let loaded = timelines(data, &wanted, progress).map_err(PlotError::from)?;
    let zone = options.zone.clone().unwrap_or_else(system_zone);
    let timelines: Vec<&Timeline> = loaded.timelines.iter().map(|(_, timeline)| timeline).collect();
    let scope = Scope::of(&timelines, options.span, &zone).ok_or(PlotError::Nothing)?;
    let (sheet, figures) = lay_out(&timelines, &scope, price)?;
    Ok(Page { sheet, figures, notes: loaded.notes() })
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(transparent)]
    Plot(#[from] PlotError),
    #[error(transparent)]
    Figure(#[from] FigureError),
}

fn lay_out(
    timelines: &[&Timeline],
    scope: &Scope,
    price: &Price,
) -> Result<(Sheet, PageFigures), FigureError> {
    let sums = Sums::of(timelines, scope);
    let price = &price.harmless();
    let figures = sums.figures(scope, price);
    let map = week::chart(timelines, scope);
    let busiest = sums.busiest_hour();
    let mut parts = vec![
        SheetPart::Heading("How much stands idle".to_owned()),
        SheetPart::Paragraph(how_much(&figures, &sums)),
        sums.stretches(scope),
        SheetPart::Heading("What that is worth".to_owned()),
        SheetPart::Paragraph(worth(&figures, price)),
        SheetPart::Heading("When".to_owned()),
        SheetPart::Paragraph(when(&map)),
    ];
    let plain = HeatMap {
        title: "Part of the known time that is idle, in %".to_owned(),
        subtitle: String::new(),
        ..map
    };
    parts.push(SheetPart::Chart(plain.scene(Size { width: 860, height: 300 })?));
    parts.push(SheetPart::Heading("At what disturbance".to_owned()));
    parts.push(SheetPart::Paragraph(disturbance(&figures, busiest)));
    let sheet = Sheet {
        title: "What our workstations could do while nobody uses them".to_owned(),
        subtitle: scope.spoken(),
        facts: facts(&figures),
        parts,
        notes: notes(&figures),
    };
    Ok((sheet, figures))
}

fn facts(figures: &PageFigures) -> Vec<(String, String)> {
    vec![
        (
            percent(figures.idle_fraction),
            "of the time that is known, nobody uses a workstation".to_owned(),
        ),
        (
            format!("{} h", whole(figures.useful_h_a_day)),
            format!("machine-hours a day in idle stretches of {USEFUL_MIN} minutes or more"),
        ),
        (
            format!("{} {}", whole(figures.worth_a_year), figures.currency),
            format!("a year, at {} {} a machine-hour", figures.price_an_hour, figures.currency),
        ),
        (
            format!("{:.1}", figures.returns_a_workstation_day),
            "times a day an owner comes back to a workstation that could have had a guest"
                .to_owned(),
        ),
    ]
}

fn how_much(figures: &PageFigures, sums: &Sums) -> String {
    format!(
        "{} workstations stood idle for {} machine-hours in {} days. {} of that lay in stretches of {USEFUL_MIN} minutes or \
         more, which other people's computations can use: as much as {} workstations that do nothing else, day and night. \
         The logs know nothing of {} of the time (machines that were off, or told nothing); it is counted neither as idle \
         nor as used. On average a stretch of idle time lasts {}.",
        figures.workstations,
        whole(figures.idle_h),
        whole(figures.days),
        percent(part(figures.useful_h, figures.idle_h)),
        whole(figures.useful_h_a_day / 24.0),
        percent(figures.unknown_fraction),
        spoken_minutes(sums.mean_idle_min())
    )
}

fn worth(figures: &PageFigures, price: &Price) -> String {
    format!(
        "To rent as many machine-hours would cost {} {} for the {} days that were looked at, or {} {} a year, at {} {} an \
         hour. Price: {}. It is what one would have to pay elsewhere if all of it were used, and no income. Not deducted is \
         the current that a computing machine draws beyond an idle one.",
        whole(figures.useful_h * price.amount),
        price.currency,
        whole(figures.days),
        whole(figures.worth_a_year),
        price.currency,
        price.amount,
        price.currency,
        price.source
    )
}

/// The hours with the most and the least idle time.
fn when(map: &HeatMap) -> String {
    let cells = map.values.iter().enumerate().flat_map(|(day, values)| {
        values.iter().enumerate().filter_map(move |(hour, value)| Some(((day, hour), (*value)?)))
    });
    let cells: Vec<((usize, usize), f64)> = cells.collect();
    let name = |(day, hour): (usize, usize)| {
        let day = map.rows.get(day).map_or("", String::as_str);
        format!("{day} from {hour:02}:00 to {:02}:00", (hour + 1) % 24)
    };
    let mean = |hours: &dyn Fn(usize, usize) -> bool| {
        let those: Vec<f64> =
            cells.iter().filter(|((d, h), _)| hours(*d, *h)).map(|(_, value)| *value).collect();
        part(those.iter().sum::<f64>() / 100.0, those.len() as f64)
    };
    let most = cells.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let least = cells.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(most), Some(least)) = (most, least) else { return String::new() };
    format!(
        "Working hours (Monday to Friday, 9:00 to 18:00): {} idle. Nights (0:00 to 6:00): {}. Weekends: {}. The most are idle on \
         {} ({:.0} %), the fewest on {} ({:.0} %).",
        percent(mean(&|day, hour| day < 5 && (9..18).contains(&hour))),
        percent(mean(&|_, hour| hour < 6)),
        percent(mean(&|day, _| day >= 5)),
        name(most.0),
        most.1,
        name(least.0),
        least.1
    )
}

fn disturbance(figures: &PageFigures, busiest: Option<(i64, f64)>) -> String {
    let busiest = busiest.map_or_else(String::new, |(hour, part)| {
        format!(
            " The hour from {hour:02}:00 has the most of these returns ({} of all).",
            percent(Some(part))
        )
    });
    format!(
        "A guest runs only while nobody is there, below everything of the owner's, and is stopped when the owner touches a \
         key: within 3 thousandths of a second in 99 of 100 cases on our test machine (other ways of coming back take up to \
         two seconds: SENSORS.md). Whether a guest would be there when the owner returns is decided by how often that \
         happens: {:.1} times a day for each workstation, {} times in all, counting returns to a workstation that had stood \
         idle for {USEFUL_MIN} minutes or more.{busiest} What stays after that is the memory of a stopped guest, until it has \
         moved away or begun anew elsewhere.",
        figures.returns_a_workstation_day,
        counted(figures.returns)
    )
}

fn notes(figures: &PageFigures) -> Vec<String> {
    vec![
        format!(
            "From this site's own usage logs, by `glean usage report`. A year is {DAYS_A_YEAR} days like the {} that were \
             looked at; terms and holidays beyond them are not in it.",
            whole(figures.days)
        ),
        "--price, --currency and --price-source state a price of your own.".to_owned(),
    ]
}

/// What the logs come to.
#[derive(Default)]
struct Sums {
    idle_ns: f64,
    busy_ns: f64,
    idle_periods: u64,
    /// Idle time in stretches at least as long as each of [`STRETCHES_MIN`].
    in_stretches_ns: [f64; STRETCHES_MIN.len()],
    stretches: [u64; STRETCHES_MIN.len()],
    /// By hour of the day.
    returns: [u64; 24],
}

impl Sums {
    fn of(timelines: &[&Timeline], scope: &Scope) -> Self {
        let (mut sums, calendar) = (Self::default(), Calendar::new(&scope.zone));
        for timeline in timelines {
            let mut before: Option<(WallTime, i64)> = None;
            for period in known(timeline, scope.span) {
                let length = period.end().0.saturating_sub(period.start.0);
                if period.state == PeriodState::Idle {
                    sums.add_idle(length);
                    before = Some((period.end(), length));
                    continue;
                }
                sums.busy_ns += length as f64;
                // Unknown time between the two says that nobody knows who came.
                let came_back = before.take().filter(|(until, _)| *until == period.start);
                if came_back.is_some_and(|(_, stood)| stood >= USEFUL_MIN * MINUTE_NS) {
                    let hour = calendar.hour(period.start).0 % 24;
                    sums.returns[hour] += 1;
                }
            }
        }
        sums
    }

    fn add_idle(&mut self, length: i64) {
        self.idle_ns += length as f64;
        self.idle_periods += 1;
        for (place, least) in STRETCHES_MIN.into_iter().enumerate() {
            if length >= least * MINUTE_NS {
                self.in_stretches_ns[place] += length as f64;
                self.stretches[place] += 1;
            }
        }
    }

    fn mean_idle_min(&self) -> f64 {
        self.idle_ns / self.idle_periods.max(1) as f64 / MINUTE_NS as f64
    }

    /// The hour of the day with the most returns, and its part of them.
    fn busiest_hour(&self) -> Option<(i64, f64)> {
        let all: u64 = self.returns.iter().sum();
        let (hour, most) = (0..).zip(self.returns).max_by_key(|(_, many)| *many)?;
        (all > 0).then(|| (hour, most as f64 / all as f64))
    }

    fn figures(&self, scope: &Scope, price: &Price) -> PageFigures {
        let hours = |nanos: f64| nanos / HOUR_NS as f64;
        let (idle_h, known_h) = (hours(self.idle_ns), hours(self.idle_ns + self.busy_ns));
        let days = hours((scope.to.0.saturating_sub(scope.from.0)) as f64) / 24.0;
        let all_h = days * 24.0 * scope.workstations as f64;
        let useful_h = hours(self.in_stretches_ns[0]);
        let useful_h_a_day = useful_h / days.max(f64::MIN_POSITIVE);
        let returns: u64 = self.returns.iter().sum();
        PageFigures {
            workstations: scope.workstations,
            days,
            idle_fraction: part(idle_h, known_h),
            unknown_fraction: part((all_h - known_h).max(0.0), all_h),
            idle_h,
            useful_h,
            useful_h_a_day,
            worth_a_year: useful_h_a_day * DAYS_A_YEAR * price.amount,
            price_an_hour: price.amount,
            currency: price.currency.clone(),
            returns,
            returns_a_workstation_day: part(returns as f64, known_h / 24.0).unwrap_or(0.0),
        }
    }

    fn stretches(&self, scope: &Scope) -> SheetPart {
        let days = (scope.to.0.saturating_sub(scope.from.0)) as f64 / (24.0 * HOUR_NS as f64);
        let row = |(place, least): (usize, i64)| {
            let hours = self.in_stretches_ns[place] / HOUR_NS as f64;
            vec![
                format!("{} or longer", spoken_minutes(least as f64)),
                counted(self.stretches[place]),
                whole(hours / days.max(f64::MIN_POSITIVE)),
                percent(part(self.in_stretches_ns[place], self.idle_ns)),
            ]
        };
        let header = ["idle for", "stretches", "machine-hours a day", "of all idle time"];
        SheetPart::Table {
            header: header.map(str::to_owned).to_vec(),
            rows: STRETCHES_MIN.into_iter().enumerate().map(row).collect(),
        }
    }
}

const MINUTE_NS: i64 = HOUR_NS / 60;

fn part(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "an unknown part".to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of times are positive, and the cast saturates"
)]
fn whole(value: f64) -> String {
    counted(value.round() as u64)
}

fn spoken_minutes(minutes: f64) -> String {
    if minutes < 60.0 {
        format!("{minutes:.0} minutes")
    } else if (minutes - 60.0).abs() < f64::EPSILON {
        "an hour".to_owned()
    } else {
        format!("{} hours", (minutes / 6.0).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::tz::TimeZone;

    use super::*;
    use crate::archive::Span;
    use crate::timeline::Period;

    /// Starts on Monday, 5 January 2026, 00:00 UTC.
    fn timeline(states: &[(PeriodState, u64)]) -> Timeline {
        let mut at = 1_767_571_200;
        let periods = states.iter().map(|(state, minutes)| {
            let start = WallTime::from_unix_s(at);
            at += i64::try_from(minutes * 60).unwrap();
            let duration = Duration::from_secs(minutes * 60);
            Period {
                state: *state,
                start,
                duration,
                cause: None,
                slots: 1,
                load_1m: 0.0,
                margin: Duration::ZERO,
            }
        });
        Timeline { periods: periods.collect(), ..Timeline::default() }
    }

    fn made(timelines: &[Timeline], price: &Price) -> (Sheet, PageFigures) {
        let timelines: Vec<&Timeline> = timelines.iter().collect();
        let scope = Scope::of(&timelines, Span::default(), &TimeZone::UTC).unwrap();
        lay_out(&timelines, &scope, price).unwrap()
    }

    use PeriodState::{Busy, Idle, Unknown};

    #[test]
    fn idle_hours_their_worth_and_returns_add_up() {
        let price = Price { amount: 0.5, ..Price::default() };
        // A day: 10 h idle, 2 h busy, 5 min idle, 1 h 55 min busy, 10 h unknown.
        let one = timeline(&[(Idle, 600), (Busy, 120), (Idle, 5), (Busy, 115), (Unknown, 600)]);
        let other = timeline(&[(Idle, 1_440)]);
        let (_, figures) = made(&[one, other], &price);
        assert_eq!((figures.workstations, figures.days), (2, 1.0));
        assert_eq!((figures.useful_h, figures.useful_h_a_day), (34.0, 34.0));
        assert!((figures.idle_fraction.unwrap() - (34.0 + 5.0 / 60.0) / 38.0).abs() < 1e-9);
        assert!((figures.unknown_fraction.unwrap() - 10.0 / 48.0).abs() < 1e-9);
        assert!((figures.worth_a_year - 34.0 * 365.0 * 0.5).abs() < 1e-6);
        assert_eq!(figures.returns, 1, "five minutes are too short for a guest");
        assert!((figures.returns_a_workstation_day - 24.0 / 38.0).abs() < 1e-9);
    }

    #[test]
    fn the_words_of_a_price_reorder_nothing() {
        let price = Price { currency: "\u{202e}RUE".into(), ..Price::default() };
        let (sheet, figures) = made(&[timeline(&[(Idle, 600)])], &price);
        assert_eq!(figures.currency, "\\u202eRUE");
        assert!(!sheet.html().contains('\u{202e}'));
    }

    #[test]
    fn nobody_is_said_to_have_come_back_out_of_unknown_time() {
        let (_, figures) =
            made(&[timeline(&[(Idle, 600), (Unknown, 60), (Busy, 60)])], &Price::default());
        assert_eq!(figures.returns, 0);
    }

    #[test]
    fn the_page_says_its_price_where_it_is_from_and_when_workstations_are_idle() {
        let price =
            Price { amount: 0.03, currency: "EUR".into(), source: "our <own> accounts".into() };
        let (sheet, _) = made(&[timeline(&[(Idle, 540), (Busy, 540), (Idle, 360)])], &price);
        let html = sheet.html();
        for said in [
            "0.03 EUR an hour",
            "our &lt;own&gt; accounts",
            "Working hours (Monday to Friday, 9:00 to 18:00): 0 % idle",
            "Nights (0:00 to 6:00): 100 %",
            "1 workstation, 5 January 2026, UTC",
        ] {
            assert!(html.contains(said), "`{said}` is not in {html}");
        }
        assert!(sheet.pdf().starts_with(b"%PDF"));
    }
}
