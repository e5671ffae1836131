//! Colours that people with any kind of colour vision can tell apart.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

/// Okabe and Ito 2008, "Color Universal Design": blue, vermilion, bluish green,
/// reddish purple, orange, sky blue, black, yellow. Ordered so that the first few,
/// as thin lines on white, differ most.
pub const OKABE_ITO: [Colour; 8] = [
    Colour(0, 114, 178),
    Colour(213, 94, 0),
    Colour(0, 158, 115),
    Colour(204, 121, 167),
    Colour(230, 159, 0),
    Colour(86, 180, 233),
    Colour(0, 0, 0),
    Colour(240, 228, 66),
];

pub(crate) const INK: Colour = Colour(38, 38, 38);
pub(crate) const SOFT_INK: Colour = Colour(90, 90, 90);
pub(crate) const GRID: Colour = Colour(226, 226, 226);
pub(crate) const MISSING: Colour = Colour(205, 205, 205);
pub(crate) const WHITE: Colour = Colour(255, 255, 255);

/// The colour of the n-th series.
pub fn series_colour(number: usize) -> Colour {
    OKABE_ITO[number % OKABE_ITO.len()]
}

/// Seventeen points of viridis, evenly spaced.
///
/// Source: van der Walt and Smith 2015, matplotlib's viridis (CC0).
const VIRIDIS: [Colour; 17] = [
    Colour(68, 1, 84),
    Colour(72, 24, 106),
    Colour(71, 45, 123),
    Colour(66, 64, 134),
    Colour(59, 82, 139),
    Colour(51, 99, 141),
    Colour(44, 114, 142),
    Colour(38, 130, 142),
    Colour(33, 145, 140),
    Colour(31, 160, 136),
    Colour(40, 174, 128),
    Colour(63, 188, 115),
    Colour(94, 201, 98),
    Colour(132, 212, 75),
    Colour(173, 220, 48),
    Colour(216, 226, 25),
    Colour(253, 231, 37),
];

/// A perceptually uniform scale from dark blue (0) to bright yellow (1).
pub(crate) fn viridis(part: f64) -> Colour {
    let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
    let place = part * (VIRIDIS.len() - 1) as f64;
    let left = (0..VIRIDIS.len() - 1).rev().find(|&left| left as f64 <= place).unwrap_or(0);
    let (from, to, way) = (VIRIDIS[left], VIRIDIS[left + 1], place - left as f64);
    Colour(mix(from.0, to.0, way), mix(from.1, to.1, way), mix(from.2, to.2, way))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between two bytes, so a byte"
)]
fn mix(from: u8, to: u8, way: f64) -> u8 {
    (f64::from(from) + (f64::from(to) - f64::from(from)) * way).round() as u8
}

impl Colour {
    /// Is black text on it easier to read than white?
    ///
    /// Source: relative luminance, WCAG 2.1, without its linearisation.
    pub(crate) fn is_light(self) -> bool {
        let Self(red, green, blue) = self;
        0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue) > 130.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viridis_begins_dark_and_ends_bright() {
        assert_eq!(viridis(0.0), Colour(68, 1, 84));
        assert_eq!(viridis(1.0), Colour(253, 231, 37));
        assert_eq!(viridis(-3.0), viridis(0.0));
        assert_eq!(viridis(f64::NAN), viridis(0.0));
        assert!(!viridis(0.0).is_light() && viridis(1.0).is_light());
    }
}
