//! The bundled font: how wide words are, and the outlines of their letters.
//!
//! SVG names the font and leaves the drawing to the viewer, PNG draws it; both are
//! laid out by the same widths.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, OutlineCurve};

static REGULAR: &[u8] = include_bytes!("../fonts/DejaVuSans.ttf");
static BOLD: &[u8] = include_bytes!("../fonts/DejaVuSans-Bold.ttf");

/// Half the height of a capital as a part of the font's size.
pub(crate) const HALF_CAPITAL: f64 = 0.3645;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Regular,
    Bold,
}

/// The font's file.
pub(crate) fn bytes(weight: Weight) -> &'static [u8] {
    if weight == Weight::Bold { BOLD } else { REGULAR }
}

impl Weight {
    pub(crate) fn font(self) -> &'static FontRef<'static> {
        static FONTS: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
            [REGULAR, BOLD].map(|bytes| {
                FontRef::try_from_slice(bytes)
                    .unwrap_or_else(|_| unreachable!("the bundled fonts are whole"))
            })
        });
        &FONTS[usize::from(self == Self::Bold)]
    }
}

/// The width of some words on one line.
pub(crate) fn width(words: &str, size: f64, weight: Weight) -> f64 {
    let font = weight.font();
    let units: f32 = words.chars().map(|c| font.h_advance_unscaled(font.glyph_id(c))).sum();
    f64::from(units) * scale(weight, size)
}

/// Pixels for one unit of the font.
pub(crate) fn scale(weight: Weight, size: f64) -> f64 {
    size / f64::from(weight.font().units_per_em().unwrap_or(1.0))
}

/// The letters' outlines, in the font's units, each with its distance from the start.
pub(crate) fn outlines(words: &str, weight: Weight) -> Vec<(f32, Vec<OutlineCurve>)> {
    let font = weight.font();
    let mut across = 0.0;
    let mut letters = vec![];
    for letter in words.chars() {
        let glyph = font.glyph_id(letter);
        letters.extend(font.outline(glyph).map(|outline| (across, outline.curves)));
        across += font.h_advance_unscaled(glyph);
    }
    letters
}

/// Breaks a text into lines that fit a width, at spaces.
pub(crate) fn wrap(text: &str, size: f64, weight: Weight, width_max: f64) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size, weight) <= width_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_and_longer_words_are_wider() {
        assert!(width("idle", 12.0, Weight::Bold) > width("idle", 12.0, Weight::Regular));
        assert!(width("idle idle", 12.0, Weight::Bold) > 2.0 * width("idle", 12.0, Weight::Bold));
        assert!(
            (width("idle", 24.0, Weight::Bold) - 2.0 * width("idle", 12.0, Weight::Bold)).abs()
                < 1e-6
        );
    }

    #[test]
    fn the_bundled_font_has_the_letters_of_our_charts() {
        for letter in "Az09 %°µΔσ–—−×·≤≥→⁰¹²³⁴⁵⁶⁷⁸⁹⁻…“”".chars()
        {
            for weight in [Weight::Regular, Weight::Bold] {
                assert_ne!(weight.font().glyph_id(letter).0, 0, "{letter} {weight:?}");
            }
        }
    }

    #[test]
    fn a_long_title_is_broken_at_spaces() {
        let lines = wrap("one two three four", 12.0, Weight::Regular, 60.0);
        assert_eq!(lines, ["one two", "three four"]);
        assert_eq!(wrap("unbreakable", 12.0, Weight::Regular, 5.0), ["unbreakable"]);
    }
}
