//! Who ran where: bars in lanes over time, with arrows between them.

use std::collections::BTreeSet;

use crate::axis::{Axis, Ruler};
use crate::font::{Weight, width};
use crate::legend::{self, LegendEntry, LegendSample};
use crate::palette::{Colour, GRID, INK, SOFT_INK, WHITE};
use crate::render::{Figure, FigureError, Size};
use crate::scene::{Anchor, Frame, Point, Scene, Stroke, Text};

const TICK_SIZE: f64 = 11.5;
const LABEL_SIZE: f64 = 12.5;
/// A bar's height, as a part of its lane's.
const BAR_PART: f64 = 0.62;
/// More arrows than this are drawn fainter.
const CLEAR_ARROWS: usize = 60;

/// A kind of bar, arrow or shade: its name in the legend and its colour.
#[derive(Clone, Debug, PartialEq)]
pub struct GanttKind {
    pub name: String,
    pub colour: Colour,
}

impl GanttKind {
    pub fn new(name: impl Into<String>, colour: Colour) -> Self {
        Self { name: name.into(), colour }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    pub lane: usize,
    pub start: f64,
    pub end: f64,
    /// The place of its kind in [`Gantt::bar_kinds`].
    pub kind: usize,
    /// Text that is written into the bar where there is room.
    pub label: String,
}

/// From a moment in one lane to a moment in another, or the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrow {
    pub from: (usize, f64),
    pub to: (usize, f64),
    /// The place of its kind in [`Gantt::arrow_kinds`].
    pub kind: usize,
}

/// A stretch of a lane, behind the bars: when an owner was busy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shade {
    pub lane: usize,
    pub start: f64,
    pub end: f64,
    /// The place of its kind in [`Gantt::shade_kinds`].
    pub kind: usize,
}

/// Lanes from top to bottom, time from left to right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gantt {
    pub title: String,
    pub subtitle: String,
    /// The axis of time, whose label names the unit: `time (s)`.
    pub time_axis: Axis,
    pub lanes: Vec<String>,
    pub bar_kinds: Vec<GanttKind>,
    pub bars: Vec<Bar>,
    pub arrow_kinds: Vec<GanttKind>,
    pub arrows: Vec<Arrow>,
    pub shade_kinds: Vec<GanttKind>,
    pub shades: Vec<Shade>,
}

impl Figure for Gantt {
    fn natural_size(&self) -> Size {
        let lanes = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        Size {
            width: 1_000,
            height: lanes.saturating_mul(22).saturating_add(130).clamp(220, 4_000),
        }
    }

    fn scene(&self, size: Size) -> Result<Scene, FigureError> {
        let mut scene = Scene::new(size.check()?, &self.title);
        self.check()?;
        let mut frame = legend::title(&mut scene, &self.title, &self.subtitle);
        frame.top = legend::draw(&mut scene, frame, &self.entries());
        let board = self.board(frame);
        board.draw_lanes(&mut scene);
        board.draw_shades(&mut scene);
        board.draw_time(&mut scene);
        board.draw_arrows(&mut scene, false);
        board.draw_bars(&mut scene);
        board.draw_arrows(&mut scene, true);
        Ok(scene)
    }
}

impl Gantt {
    fn check(&self) -> Result<(), FigureError> {
        if self.lanes.is_empty() {
            return Err(FigureError::Empty { what: self.title.clone() });
        }
        let lanes = self.bars.iter().map(|bar| bar.lane);
        let lanes = lanes.chain(self.shades.iter().map(|shade| shade.lane));
        let lanes = lanes.chain(self.arrows.iter().flat_map(|arrow| [arrow.from.0, arrow.to.0]));
        let bar_kinds = self.bars.iter().map(|bar| bar.kind);
        let shade_kinds = self.shades.iter().map(|shade| shade.kind);
        let arrow_kinds = self.arrows.iter().map(|arrow| arrow.kind);
        within(lanes, self.lanes.len(), "lane")?;
        within(bar_kinds, self.bar_kinds.len(), "kind of bar")?;
        within(shade_kinds, self.shade_kinds.len(), "kind of shade")?;
        within(arrow_kinds, self.arrow_kinds.len(), "kind of arrow")
    }

    /// The kinds that are there, in the order of what is drawn first.
    fn entries(&self) -> Vec<LegendEntry> {
        let boxes = used(&self.bar_kinds, self.bars.iter().map(|bar| bar.kind))
            .chain(used(&self.shade_kinds, self.shades.iter().map(|shade| shade.kind)))
            .map(|kind| (kind, LegendSample::Box(kind.colour.into())));
        let arrows = used(&self.arrow_kinds, self.arrows.iter().map(|arrow| arrow.kind))
            .map(|kind| (kind, LegendSample::Arrow(Stroke::new(kind.colour, 1.2))));
        let named = boxes.chain(arrows).filter(|(kind, _)| !kind.name.is_empty());
        named.map(|(kind, sample)| LegendEntry { name: kind.name.clone(), sample }).collect()
    }

    fn board(&self, frame: Frame) -> Board<'_> {
        let moments = self.bars.iter().flat_map(|bar| [bar.start, bar.end]);
        let moments =
            moments.chain(self.arrows.iter().flat_map(|arrow| [arrow.from.1, arrow.to.1]));
        let moments = moments.chain(self.shades.iter().flat_map(|shade| [shade.start, shade.end]));
        let extent = moments
            .filter(|at| at.is_finite())
            .map(|at| (at, at))
            .reduce(|all, at| (all.0.min(at.0), all.1.max(at.1)));
        let widths = self.lanes.iter().map(|lane| width(lane, TICK_SIZE, Weight::Regular));
        let plot = Frame {
            left: frame.left + widths.fold(0.0, f64::max) + 8.0,
            top: frame.top + 4.0,
            right: frame.right - 14.0,
            bottom: frame.bottom - TICK_SIZE - 12.0 - LABEL_SIZE - 8.0,
        };
        Board { chart: self, time: self.time_axis.over(extent, 10, false), plot }
    }
}

/// The kinds of which something is drawn.
fn used(
    kinds: &[GanttKind],
    numbers: impl Iterator<Item = usize>,
) -> impl Iterator<Item = &GanttKind> {
    let there: BTreeSet<usize> = numbers.collect();
    (0..).zip(kinds).filter(move |(number, _)| there.contains(number)).map(|(_, kind)| kind)
}

fn within(
    mut numbers: impl Iterator<Item = usize>,
    many: usize,
    what: &str,
) -> Result<(), FigureError> {
    match numbers.find(|number| *number >= many) {
        None => Ok(()),
        Some(number) => Err(FigureError::NoSuch { what: what.to_owned(), number, many }),
    }
}

struct Board<'a> {
    chart: &'a Gantt,
    time: Ruler,
    plot: Frame,
}

impl Board<'_> {
    fn lane_height(&self) -> f64 {
        self.plot.height() / self.chart.lanes.len() as f64
    }

    fn lane_middle(&self, lane: usize) -> f64 {
        self.plot.top + (lane as f64 + 0.5) * self.lane_height()
    }

    fn at(&self, moment: f64) -> f64 {
        let part = self.time.place(moment);
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.plot.left + part * self.plot.width()
    }

    /// A stretch of a lane; `None` if none of it is shown.
    fn stretch(&self, lane: usize, start: f64, end: f64, part: f64) -> Option<Frame> {
        let (left, right) = (self.at(start), self.at(end));
        let half = self.lane_height() * part / 2.0;
        let middle = self.lane_middle(lane);
        (right > left).then_some(Frame { left, right, top: middle - half, bottom: middle + half })
    }

    fn draw_lanes(&self, scene: &mut Scene) {
        // Labels that would touch are left out, evenly.
        let every = (1..=self.chart.lanes.len())
            .find(|every| *every as f64 * self.lane_height() >= TICK_SIZE)
            .unwrap_or(1);
        for (lane, name) in self.chart.lanes.iter().enumerate() {
            let middle = self.lane_middle(lane);
            let line = Stroke::new(GRID, 1.0);
            scene.line((self.plot.left, middle), (self.plot.right, middle), line);
            if lane.is_multiple_of(every) {
                let at = (self.plot.left - 6.0, middle);
                scene.text(Text::new(at, name.clone(), TICK_SIZE, Anchor::Right));
            }
        }
    }

    fn draw_shades(&self, scene: &mut Scene) {
        for shade in &self.chart.shades {
            if let Some(frame) = self.stretch(shade.lane, shade.start, shade.end, 0.92) {
                scene.rect(frame, self.chart.shade_kinds[shade.kind].colour);
            }
        }
    }

    fn draw_time(&self, scene: &mut Scene) {
        let plot = self.plot;
        let edge = Stroke::new(SOFT_INK, 1.0);
        for (at, label) in &self.time.ticks {
            let (across, _) = plot.at(*at, 0.0);
            scene.line(
                (across, plot.top),
                (across, plot.bottom),
                Stroke::new(SOFT_INK.faint(0.15), 1.0),
            );
            scene.line((across, plot.bottom), (across, plot.bottom + 4.0), edge);
            let at = (across, plot.bottom + 6.0 + TICK_SIZE / 2.0);
            scene.text(Text::new(at, label.clone(), TICK_SIZE, Anchor::Middle));
        }
        scene.line((plot.left, plot.bottom), (plot.right, plot.bottom), edge);
        let at = (plot.middle().0, plot.bottom + TICK_SIZE + 14.0 + LABEL_SIZE / 2.0);
        scene.text(Text::new(at, self.chart.time_axis.label.clone(), LABEL_SIZE, Anchor::Middle));
    }

    fn draw_bars(&self, scene: &mut Scene) {
        for bar in &self.chart.bars {
            let Some(frame) = self.stretch(bar.lane, bar.start, bar.end, BAR_PART) else {
                continue;
            };
            let colour = self.chart.bar_kinds[bar.kind].colour;
            scene.rect(frame, colour);
            let size = (frame.height() * 0.8).min(10.5);
            if size >= 6.0 && width(&bar.label, size, Weight::Regular) + 4.0 < frame.width() {
                let ink = if colour.is_light() { INK } else { WHITE }.into();
                let text = Text::new(frame.middle(), bar.label.clone(), size, Anchor::Middle);
                scene.text(Text { ink, ..text });
            }
        }
    }

    /// Many arrows lie behind the bars and are faint; few lie on top.
    fn draw_arrows(&self, scene: &mut Scene, on_top: bool) {
        for (number, kind) in self.chart.arrow_kinds.iter().enumerate() {
            let arrows = || self.chart.arrows.iter().filter(|arrow| arrow.kind == number);
            let many = arrows().count();
            if (many <= CLEAR_ARROWS) != on_top {
                continue;
            }
            let alpha = if on_top { 1.0 } else { (40.0 / (many as f64).sqrt()).clamp(0.12, 0.6) };
            let stroke = Stroke::new(kind.colour.faint(alpha), if on_top { 1.2 } else { 0.7 });
            for arrow in arrows() {
                let place = |(lane, moment): (usize, f64)| -> Point {
                    (self.at(moment), self.lane_middle(lane))
                };
                legend::arrow(scene, place(arrow.from), place(arrow.to), stroke);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_no_lane_is_refused() {
        let chart = Gantt {
            lanes: vec!["ada".into()],
            bar_kinds: vec![GanttKind::new("computing", INK)],
            bars: vec![Bar { lane: 1, end: 1.0, ..Bar::default() }],
            ..Gantt::default()
        };
        let said = chart.scene(chart.natural_size()).unwrap_err().to_string();
        assert_eq!(said, "there is no lane 1: expected 0 to less than 1");
    }

    #[test]
    fn only_kinds_that_are_there_are_in_the_legend() {
        let chart = Gantt {
            lanes: vec!["ada".into()],
            bar_kinds: vec![GanttKind::new("computing", INK), GanttKind::new("moving", WHITE)],
            bars: vec![Bar { end: 1.0, ..Bar::default() }],
            ..Gantt::default()
        };
        let names: Vec<_> = chart.entries().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["computing"]);
    }
}
