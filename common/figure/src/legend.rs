//! The legend: a row of samples with their names, above what they explain, so
//! that it never lies over data.

use crate::font::{Weight, width};
use crate::palette::{Colour, INK, SOFT_INK};
use crate::scene::{Anchor, Frame, Ink, Point, Scene, Stroke, Text};

const SIZE: f64 = 12.0;
const ROW: f64 = 20.0;
const SAMPLE: f64 = 24.0;
const GAP: f64 = 6.0;
const BETWEEN: f64 = 20.0;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LegendEntry {
    pub(crate) name: String,
    pub(crate) sample: LegendSample,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LegendSample {
    Line { stroke: Stroke, dots: bool },
    Dot(Colour),
    Ring(Stroke),
    Box(Ink),
    Arrow(Stroke),
}

/// Draws the legend in rows from the top of a frame; returns where it ends.
pub(crate) fn draw(scene: &mut Scene, frame: Frame, entries: &[LegendEntry]) -> f64 {
    if entries.is_empty() {
        return frame.top;
    }
    let (mut x, mut y) = (frame.left, frame.top + ROW / 2.0);
    for entry in entries {
        let wide = SAMPLE + GAP + width(&entry.name, SIZE, Weight::Regular);
        if x > frame.left && x + wide > frame.right {
            (x, y) = (frame.left, y + ROW);
        }
        sample(scene, (x, y), entry.sample);
        let at = (x + SAMPLE + GAP, y);
        scene.text(Text::new(at, entry.name.clone(), SIZE, Anchor::Left));
        x += wide + BETWEEN;
    }
    y + ROW / 2.0 + 6.0
}

fn sample(scene: &mut Scene, (x, y): Point, sample: LegendSample) {
    let middle = (x + SAMPLE / 2.0, y);
    match sample {
        LegendSample::Line { stroke, dots } => {
            scene.line((x, y), (x + SAMPLE, y), stroke);
            if dots {
                scene.dot(middle, 3.0, stroke.ink);
            }
        }
        LegendSample::Dot(colour) => scene.dot(middle, 3.5, colour),
        LegendSample::Ring(stroke) => scene.ring(middle, 3.5, stroke),
        LegendSample::Box(ink) => {
            scene.rect(
                Frame { left: x + 4.0, top: y - 6.0, right: x + SAMPLE, bottom: y + 6.0 },
                ink,
            );
        }
        LegendSample::Arrow(stroke) => arrow(scene, (x, y), (x + SAMPLE, y), stroke),
    }
}

/// A line with a head at its end.
pub(crate) fn arrow(scene: &mut Scene, from: Point, to: Point, stroke: Stroke) {
    scene.line(from, to, stroke);
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy);
    let head = 2.5 + 1.5 * stroke.width;
    if length < head {
        return;
    }
    let (dx, dy) = (dx / length * head, dy / length * head);
    let side = |way: f64| (to.0 - dx + way * dy * 0.5, to.1 - dy - way * dx * 0.5);
    scene.area(vec![to, side(1.0), side(-1.0)], stroke.ink);
}

/// Writes the title, bold, and a softer line below it onto a page; returns what
/// is left of the page within its margins.
pub(crate) fn title(scene: &mut Scene, title: &str, subtitle: &str) -> Frame {
    let page = scene.page();
    let frame =
        Frame { left: 16.0, top: 14.0, right: page.right - 16.0, bottom: page.bottom - 12.0 };
    let mut y = frame.top;
    for (words, size, weight, ink) in
        [(title, 15.0, Weight::Bold, INK), (subtitle, 12.0, Weight::Regular, SOFT_INK)]
    {
        for line in crate::font::wrap(words, size, weight, frame.width()) {
            let height = size * 1.35;
            let at = (frame.left, y + height / 2.0);
            let ink = ink.into();
            scene.text(Text { weight, ink, ..Text::new(at, line, size, Anchor::Left) });
            y += height;
        }
    }
    Frame { top: if y > frame.top { y + 6.0 } else { y }, ..frame }
}
