//! One plot in a frame: axes, grid, and the series cut to what the axes show.

use super::{Extent, LineChart, Look, Series};
use crate::axis::Ruler;
use crate::font::{Weight, width};
use crate::palette::{GRID, INK, SOFT_INK};
use crate::scene::{Anchor, Frame, Point, Scene, Stroke, Text};

pub(super) const TICK_SIZE: f64 = 11.5;
const LABEL_SIZE: f64 = 12.5;

/// Where the axes of a plot lie.
pub(crate) struct Axes {
    pub(crate) x: Ruler,
    pub(crate) y: Ruler,
    pub(crate) plot: Frame,
}

pub(crate) fn draw(scene: &mut Scene, frame: Frame, chart: &LineChart, extent: Extent) {
    let axes = lay_out(frame, chart, extent);
    draw_grid(scene, &axes, chart);
    for (number, series) in chart.series.iter().enumerate() {
        draw_band(scene, &axes, series, number);
    }
    for (number, series) in chart.series.iter().enumerate() {
        draw_series(scene, &axes, series, number);
    }
    for (number, series) in chart.series.iter().enumerate() {
        for at in series.references.iter().filter_map(|point| axes.inside(*point)) {
            scene.ring(at, 3.8, Stroke::new(series.colour(number), 1.6));
        }
    }
}

fn lay_out(frame: Frame, chart: &LineChart, extent: Extent) -> Axes {
    let [x_data, y_data] = extent.map_or([None, None], |[x, y]| [Some(x), Some(y)]);
    let label_room = if chart.y_axis.label.is_empty() { 0.0 } else { LABEL_SIZE + 10.0 };
    let below =
        TICK_SIZE + 12.0 + if chart.x_axis.label.is_empty() { 0.0 } else { LABEL_SIZE + 8.0 };
    let plot = Frame { top: frame.top + 6.0, bottom: frame.bottom - below, ..frame };
    let y = chart.y_axis.over(y_data, count(plot.height() / 48.0, 2), true);
    let widest = |ruler: &Ruler| {
        let widths = ruler.ticks.iter().map(|(_, label)| width(label, TICK_SIZE, Weight::Regular));
        widths.fold(0.0, f64::max)
    };
    let left = frame.left + label_room + widest(&y) + 10.0;
    let wide = frame.right - left;
    let mut x = chart.x_axis.over(x_data, count(wide / 80.0, 2), false);
    // The last label may stand out by half its width.
    let last = x.ticks.last().map_or(0.0, |(at, label)| {
        (width(label, TICK_SIZE, Weight::Regular) / 2.0 - (1.0 - at) * wide).max(0.0)
    });
    thin_out(&mut x, wide - last);
    Axes { x, y, plot: Frame { left, right: frame.right - last.max(4.0), ..plot } }
}

/// Leaves out labels that would touch the one before.
fn thin_out(ruler: &mut Ruler, wide: f64) {
    let mut free = f64::NEG_INFINITY;
    for (at, label) in &mut ruler.ticks {
        let half = width(label, TICK_SIZE, Weight::Regular) / 2.0;
        if *at * wide - half < free {
            label.clear();
        } else {
            free = *at * wide + half + 5.0;
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few ticks")]
fn count(many: f64, least: usize) -> usize {
    (many.floor().max(0.0) as usize).max(least)
}

fn draw_grid(scene: &mut Scene, axes: &Axes, chart: &LineChart) {
    let Axes { x, y, plot } = axes;
    let (grid, faint) = (Stroke::new(GRID, 1.0), Stroke::new(GRID.faint(0.55), 0.7));
    for (ruler, is_x) in [(x, true), (y, false)] {
        let places = ruler.faint.iter().map(|at| (*at, faint));
        for (at, stroke) in places.chain(ruler.ticks.iter().map(|(at, _)| (*at, grid))) {
            let ends = if is_x { [(at, 0.0), (at, 1.0)] } else { [(0.0, at), (1.0, at)] };
            scene.line(plot.at(ends[0].0, ends[0].1), plot.at(ends[1].0, ends[1].1), stroke);
        }
    }
    let edge = Stroke::new(SOFT_INK, 1.0);
    scene.path(vec![plot.at(0.0, 1.0), plot.at(0.0, 0.0), plot.at(1.0, 0.0)], edge);
    for (at, label) in &x.ticks {
        let (across, bottom) = plot.at(*at, 0.0);
        scene.line((across, bottom), (across, bottom + 4.0), edge);
        let at = (across, bottom + 6.0 + TICK_SIZE / 2.0);
        scene.text(Text::new(at, label.clone(), TICK_SIZE, Anchor::Middle));
    }
    for (at, label) in &y.ticks {
        let (left, up) = plot.at(0.0, *at);
        scene.line((left - 4.0, up), (left, up), edge);
        scene.text(Text::new((left - 7.0, up), label.clone(), TICK_SIZE, Anchor::Right));
    }
    let ink = INK.into();
    let (across, up) = plot.middle();
    let low = plot.bottom + TICK_SIZE + 14.0 + LABEL_SIZE / 2.0;
    let x_label = Text::new((across, low), chart.x_axis.label.clone(), LABEL_SIZE, Anchor::Middle);
    let widest = y.ticks.iter().map(|(_, label)| width(label, TICK_SIZE, Weight::Regular));
    let left = plot.left - 10.0 - widest.fold(0.0, f64::max) - 4.0 - LABEL_SIZE / 2.0;
    let y_label = Text::new((left, up), chart.y_axis.label.clone(), LABEL_SIZE, Anchor::Middle);
    for text in [x_label, Text { turned: true, ..y_label }] {
        if !text.words.is_empty() {
            scene.text(Text { ink, ..text });
        }
    }
}

fn draw_band(scene: &mut Scene, axes: &Axes, series: &Series, number: usize) {
    let known = |&&(x, low, high): &&(f64, f64, f64)| {
        x.is_finite() && low.is_finite() && high.is_finite() && axes.covers(x)
    };
    let band: Vec<_> = series.band.iter().filter(known).collect();
    let is_steps = series.look == Look::Steps;
    let edge = |pick: fn(&(f64, f64, f64)) -> f64| {
        let points: Vec<_> = band.iter().map(|at| (at.0, pick(at))).collect();
        let points = if is_steps { stepped(&points) } else { points };
        points.into_iter().map(|point| axes.clamped(point)).collect::<Vec<_>>()
    };
    let mut outline = edge(|at| at.2);
    let lower = edge(|at| at.1);
    outline.extend(lower.into_iter().rev());
    scene.area(outline, series.colour(number).faint(0.18));
}

fn draw_series(scene: &mut Scene, axes: &Axes, series: &Series, number: usize) {
    let (colour, stroke) = (series.colour(number), series.stroke(number));
    let dots = match series.look {
        Look::Dotted => 2.8,
        Look::Points => 3.2,
        Look::Line | Look::Dashed | Look::Steps => 0.0,
    };
    if series.look != Look::Points {
        for run in series.points.split(|(x, y)| !x.is_finite() || !y.is_finite()) {
            let run = if series.look == Look::Steps { stepped(run) } else { run.to_vec() };
            for piece in axes.cut(&run) {
                scene.path(piece, stroke);
            }
        }
    }
    if dots > 0.0 {
        for at in series.points.iter().filter_map(|point| axes.inside(*point)) {
            scene.dot(at, dots, colour);
        }
    }
}

fn stepped(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut stepped: Vec<(f64, f64)> = vec![];
    for &(x, y) in points {
        stepped.extend(stepped.last().map(|before| (x, before.1)));
        stepped.push((x, y));
    }
    stepped
}

impl Axes {
    fn part(&self, (x, y): (f64, f64)) -> Point {
        // A sum that is off in its last digit is still on the edge.
        let snapped = |part: f64| {
            if part.abs() < 1e-9 {
                0.0
            } else if (part - 1.0).abs() < 1e-9 {
                1.0
            } else {
                part
            }
        };
        (snapped(self.x.place(x)), snapped(self.y.place(y)))
    }

    fn covers(&self, x: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.x.place(x))
    }

    fn clamped(&self, point: (f64, f64)) -> Point {
        let (across, up) = self.part(point);
        self.plot.at(across.clamp(0.0, 1.0), up.clamp(0.0, 1.0))
    }

    fn inside(&self, point: (f64, f64)) -> Option<Point> {
        let (across, up) = self.part(point);
        let within = |part: f64| (-1e-9..=1.0 + 1e-9).contains(&part);
        (within(across) && within(up)).then(|| self.plot.at(across, up))
    }

    /// The pieces of a line that lie inside the plot.
    fn cut(&self, points: &[(f64, f64)]) -> Vec<Vec<Point>> {
        let mut pieces: Vec<Vec<Point>> = vec![];
        let mut going_on = false;
        for pair in points.windows(2) {
            let Some((from, to)) = inside_unit(self.part(pair[0]), self.part(pair[1])) else {
                going_on = false;
                continue;
            };
            if !going_on {
                pieces.push(vec![self.plot.at(from.0, from.1)]);
            }
            let ended = self.plot.at(to.0, to.1);
            pieces.last_mut().unwrap_or_else(|| unreachable!("begun above")).push(ended);
            going_on = to == self.part(pair[1]);
        }
        pieces
    }
}

/// The part of a line from one point to another that lies in the unit square.
///
/// Source: Liang and Barsky 1984.
fn inside_unit(from: Point, to: Point) -> Option<(Point, Point)> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enters, mut leaves) = (0.0_f64, 1.0_f64);
    let sides = [(-dx, from.0), (dx, 1.0 - from.0), (-dy, from.1), (dy, 1.0 - from.1)];
    for (towards, room) in sides {
        if towards == 0.0 {
            if room < -1e-9 {
                return None;
            }
        } else if towards < 0.0 {
            enters = enters.max(room / towards);
        } else {
            leaves = leaves.min(room / towards);
        }
    }
    let at = |part: f64| (from.0 + part * dx, from.1 + part * dy);
    let ends = (at(enters), if leaves >= 1.0 { to } else { at(leaves) });
    (enters <= leaves + 1e-12).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_it_leaves_the_plot() {
        assert_eq!(inside_unit((0.5, 0.5), (0.5, 1.5)), Some(((0.5, 0.5), (0.5, 1.0))));
        assert_eq!(inside_unit((-1.0, 0.5), (2.0, 0.5)), Some(((0.0, 0.5), (1.0, 0.5))));
        assert_eq!(inside_unit((-1.0, 2.0), (2.0, 2.0)), None);
        assert_eq!(inside_unit((0.2, 0.2), (0.4, 0.4)), Some(((0.2, 0.2), (0.4, 0.4))));
    }

    #[test]
    fn a_value_a_hair_above_the_axis_is_drawn() {
        let shown = crate::Axis::linear("").from_to(0.0, 60.0);
        let ruler = || shown.over(None, 6, false);
        let plot = Frame { left: 0.0, top: 0.0, right: 100.0, bottom: 100.0 };
        let axes = Axes { x: ruler(), y: ruler(), plot };
        let nearly = 60.0 + 1e-12;
        assert_eq!(axes.cut(&[(0.0, nearly), (30.0, nearly), (60.0, 60.0)]).len(), 1);
    }

    #[test]
    fn a_step_holds_until_the_next() {
        assert_eq!(stepped(&[(0.0, 1.0), (2.0, 0.5)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 0.5)]);
    }
}
