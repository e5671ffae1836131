//! Axes: from values to places, and which values get a label.

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    #[default]
    Linear,
    /// Decades at equal distances; positive values only.
    Log,
}

/// An axis. Its label says what it shows and in which unit: `migration cost (s)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
    /// The ends; `None` takes in all data. What lies outside is cut off.
    pub range: Option<(f64, f64)>,
    /// Which values get which label; round values if empty.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, ..Self::default() }
    }

    #[must_use]
    pub fn from_to(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }

    #[must_use]
    pub fn with_ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks, ..self }
    }

    /// Lays the axis over data. A roomy axis ends at round values and shows
    /// the zero if it is near; others end where the data do.
    pub(crate) fn over(&self, data: Option<(f64, f64)>, ticks_max: usize, roomy: bool) -> Ruler {
        let (mut low, mut high) = self.range.or(data).unwrap_or((0.0, 1.0));
        let free = roomy && self.range.is_none();
        if self.scale == Scale::Log {
            (low, high) = (low.max(f64::MIN_POSITIVE).log10(), high.max(f64::MIN_POSITIVE).log10());
            if free {
                (low, high) = ((low + 1e-9).floor(), (high - 1e-9).ceil());
            }
        } else if free && low > 0.0 && low < 0.5 * high {
            low = 0.0;
        }
        if high - low <= f64::EPSILON * high.abs().max(low.abs()) {
            (low, high) = if self.scale == Scale::Linear && low == 0.0 {
                (0.0, 1.0)
            } else {
                let part = low.abs().max(1.0) * 0.1;
                (low - part, high + part)
            };
        }
        if free && self.scale == Scale::Linear {
            let step = round_step(high - low, ticks_max);
            low = (low / step + 1e-9).floor() * step;
            high = (high / step - 1e-9).ceil() * step;
        }
        let mut ruler = Ruler { scale: self.scale, low, high, ticks: vec![], faint: vec![] };
        if self.ticks.is_empty() {
            ruler.choose_ticks(ticks_max);
        } else {
            let placed = self.ticks.iter().map(|(at, label)| (ruler.place(*at), label.clone()));
            ruler.ticks = placed.filter(|(at, _)| within(*at)).collect();
        }
        ruler
    }
}

/// An axis laid over data. Places are parts of its length, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ruler {
    scale: Scale,
    /// For a logarithmic axis, the logarithms.
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<(f64, String)>,
    /// Places between the ticks that get a line and no label.
    pub(crate) faint: Vec<f64>,
}

impl Ruler {
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        };
        (value - self.low) / (self.high - self.low)
    }

    fn choose_ticks(&mut self, ticks_max: usize) {
        match self.scale {
            Scale::Linear => self.choose_linear(ticks_max),
            Scale::Log => self.choose_decades(ticks_max),
        }
    }

    fn choose_linear(&mut self, ticks_max: usize) {
        let step = round_step(self.high - self.low, ticks_max);
        let digits = (0..9).find(|digits| is_whole(step * 10_f64.powi(*digits))).unwrap_or(9);
        let first = (self.low / step - 1e-9).ceil();
        for number in 0..=2 * ticks_max {
            let value = (first + number as f64) * step;
            let at = self.place(value);
            if within(at) {
                self.ticks.push((at, spoken(value, digits.unsigned_abs() as usize)));
            }
        }
    }

    fn choose_decades(&mut self, ticks_max: usize) {
        let (first, last) = ((self.low - 1e-9).ceil(), (self.high + 1e-9).floor());
        let decades = (last - first).max(0.0);
        let every = (decades / ticks_max.max(1) as f64).ceil().max(1.0);
        for number in -1..=400 {
            let power = first + f64::from(number);
            if power > last {
                break;
            }
            let is_labelled = is_whole((power - first) / every);
            for times in 1..10 {
                let at = self.place(f64::from(times) * 10_f64.powf(power));
                // Few decades have room for labels between them.
                let in_between = decades < 2.0 && matches!(times, 2 | 5);
                if !within(at) {
                } else if is_labelled && times == 1 || in_between {
                    self.ticks.push((at, spoken_power(times, power)));
                } else if every <= 1.0 {
                    self.faint.push(at);
                }
            }
        }
    }
}

fn within(place: f64) -> bool {
    (-1e-9..=1.0 + 1e-9).contains(&place)
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-6
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that gives no more
/// steps than wanted.
fn round_step(span: f64, steps_max: usize) -> f64 {
    let least = span / steps_max.max(1) as f64;
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 2.5, 5.0].into_iter().find(|times| times * power >= least * 0.999_999);
    times.unwrap_or(10.0) * power
}

fn spoken_power(times: i32, power: f64) -> String {
    if (-3.0..=4.0).contains(&power) {
        let digits = (0..4).find(|digits| *digits as f64 >= -power).unwrap_or(0);
        return spoken(f64::from(times) * 10_f64.powf(power), digits);
    }
    let raised: String = format!("{power:.0}").chars().map(superscript).collect();
    if times == 1 { format!("10{raised}") } else { format!("{times}×10{raised}") }
}

fn superscript(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    }
}

/// A count with its thousands apart.
pub fn counted(count: u64) -> String {
    grouped(&count.to_string())
}

fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its thousands apart and a minus as long as a plus.
pub(crate) fn spoken(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let grouped = grouped(whole);
    let is_zero = text.chars().all(|c| matches!(c, '0' | '.'));
    let sign = if value < 0.0 && !is_zero { "−" } else { "" };
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(axis: &Axis, data: (f64, f64), expected: &[&str]) {
        let ruler = axis.over(Some(data), 6, true);
        let labels: Vec<_> = ruler.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, expected);
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!([7, 1_234, 1_234_567].map(counted), ["7", "1,234", "1,234,567"]);
    }

    #[test]
    fn ticks_are_round_and_the_zero_is_shown_if_near() {
        let axis = Axis::linear("x");
        check(&axis, (3.0, 97.0), &["0", "20", "40", "60", "80", "100"]);
        check(&axis, (90.0, 97.0), &["90", "92", "94", "96", "98"]);
        check(&axis, (-0.3, 0.3), &["−0.3", "−0.2", "−0.1", "0.0", "0.1", "0.2", "0.3"]);
        check(
            &axis,
            (0.0, 12_000.0),
            &["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"],
        );
    }

    #[test]
    fn decades_are_labelled_as_plain_numbers_while_they_are_short() {
        let axis = Axis::log("x");
        check(&axis, (0.02, 70.0), &["0.01", "0.1", "1", "10", "100"]);
        check(&axis, (12.0, 90.0), &["10", "20", "50", "100"]);
        check(&axis, (1e3, 1e6), &["1,000", "10,000", "10⁵", "10⁶"]);
    }

    #[test]
    fn one_value_and_no_value_still_have_an_axis() {
        for data in [Some((5.0, 5.0)), Some((0.0, 0.0)), None, Some((-2.0, -2.0))] {
            let ruler = Axis::linear("x").over(data, 6, true);
            assert!(ruler.ticks.len() >= 2, "{data:?}");
            let ruler = Axis::log("x").over(data, 6, true);
            assert!(ruler.place(5.0).is_finite(), "{data:?}");
        }
    }

    #[test]
    fn a_given_range_is_kept_and_its_labels_too() {
        let axis = Axis::linear("x").from_to(0.0, 7.0).with_ticks(vec![
            (0.0, "Mon".into()),
            (3.5, "Thu".into()),
            (9.0, "never".into()),
        ]);
        let ruler = axis.over(Some((1.0, 2.0)), 6, true);
        assert_eq!(ruler.ticks, [(0.0, "Mon".into()), (0.5, "Thu".into())]);
    }
}
