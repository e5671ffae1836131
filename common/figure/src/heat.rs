//! Values by row and column, as colours.

use crate::axis::{Axis, spoken};
use crate::font::{Weight, width};
use crate::legend;
use crate::palette::{INK, MISSING, SOFT_INK, WHITE, viridis};
use crate::render::{Figure, FigureError, Size};
use crate::scene::{Anchor, Frame, Scene, Stroke, Text};

const TICK_SIZE: f64 = 11.5;
const LABEL_SIZE: f64 = 12.5;
const BAR: f64 = 16.0;

/// A table of values, dark for low and bright for high.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatMap {
    pub title: String,
    pub subtitle: String,
    /// From top to bottom.
    pub rows: Vec<String>,
    /// From left to right. Labels that have no room are left out.
    pub columns: Vec<String>,
    pub row_label: String,
    pub column_label: String,
    /// One for each row, with one value for each column; `None` is grey.
    pub values: Vec<Vec<Option<f64>>>,
    /// What the colours mean, with the unit.
    pub value_label: String,
    /// The values of the darkest and the brightest colour; `None` takes in all.
    pub range: Option<(f64, f64)>,
    /// Print each value in its cell with that many digits after the point.
    pub print: Option<usize>,
    /// What grey means; not explained if empty.
    pub missing_name: String,
}

impl HeatMap {
    fn check(&self) -> Result<(), FigureError> {
        let shape = |what: &str, found, expected| {
            let what = format!("{}: {what}", self.title);
            if found == expected {
                Ok(())
            } else {
                Err(FigureError::Shape { what, found, expected })
            }
        };
        shape("rows", self.values.len(), self.rows.len())?;
        for (row, label) in self.values.iter().zip(&self.rows) {
            shape(label, row.len(), self.columns.len())?;
        }
        if self.rows.is_empty() || self.columns.is_empty() {
            return Err(FigureError::Empty { what: self.title.clone() });
        }
        Ok(())
    }

    fn range(&self) -> (f64, f64) {
        let known = || self.values.iter().flatten().flatten().copied().filter(|v| v.is_finite());
        let all =
            (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
        let (low, high) = self.range.unwrap_or(all);
        match () {
            () if !low.is_finite() || !high.is_finite() => (0.0, 1.0),
            () if low < high => (low, high),
            () => (low, low + 1.0),
        }
    }
}

impl Figure for HeatMap {
    fn natural_size(&self) -> Size {
        let side = |many: usize, each: u32, rest: u32| {
            u32::try_from(many).unwrap_or(u32::MAX).saturating_mul(each).saturating_add(rest)
        };
        Size {
            width: side(self.columns.len(), 26, 220).clamp(480, 1_600),
            height: side(self.rows.len(), 26, 150).clamp(240, 1_600),
        }
    }

    fn scene(&self, size: Size) -> Result<Scene, FigureError> {
        let mut scene = Scene::new(size.check()?, &self.title);
        self.check()?;
        let mut frame = legend::title(&mut scene, &self.title, &self.subtitle);
        frame.top += 4.0;
        let cells = self.cells_frame(frame);
        self.draw_cells(&mut scene, cells);
        self.draw_labels(&mut scene, cells, frame);
        self.draw_scale(&mut scene, cells, frame);
        Ok(scene)
    }
}

fn widest(labels: &[String]) -> f64 {
    labels.iter().map(|label| width(label, TICK_SIZE, Weight::Regular)).fold(0.0, f64::max)
}

fn room(label: &str) -> f64 {
    if label.is_empty() { 0.0 } else { LABEL_SIZE + 8.0 }
}

impl HeatMap {
    fn ruler(&self, high: f64) -> crate::axis::Ruler {
        let (from, to) = self.range();
        let many = if high > 200.0 { 6 } else { 4 };
        Axis::linear("").from_to(from, to).over(None, many, false)
    }

    fn cells_frame(&self, frame: Frame) -> Frame {
        let ticks: Vec<_> =
            self.ruler(frame.height()).ticks.into_iter().map(|(_, label)| label).collect();
        let scale = 24.0 + BAR + 8.0 + widest(&ticks) + room(&self.value_label);
        Frame {
            left: frame.left + room(&self.row_label) + widest(&self.rows) + 8.0,
            top: frame.top,
            right: frame.right - scale,
            bottom: frame.bottom - TICK_SIZE - 8.0 - room(&self.column_label),
        }
    }

    fn cell(&self, cells: Frame, row: usize, column: usize) -> Frame {
        let across =
            |column: usize| cells.left + cells.width() * column as f64 / self.columns.len() as f64;
        let down = |row: usize| cells.top + cells.height() * row as f64 / self.rows.len() as f64;
        Frame {
            left: across(column),
            top: down(row),
            right: across(column + 1),
            bottom: down(row + 1),
        }
    }

    fn draw_cells(&self, scene: &mut Scene, cells: Frame) {
        let (from, to) = self.range();
        // A hair of white between the cells, if they are not tiny themselves.
        let one = self.cell(cells, 0, 0);
        let hair = if one.width().min(one.height()) > 8.0 { 0.5 } else { 0.0 };
        for (row, values) in self.values.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let cell = self.cell(cells, row, column);
                let value = value.filter(|value| value.is_finite());
                let colour = value.map_or(MISSING, |value| viridis((value - from) / (to - from)));
                let inner = Frame {
                    left: cell.left + hair,
                    top: cell.top + hair,
                    right: cell.right - hair,
                    bottom: cell.bottom - hair,
                };
                scene.rect(inner, colour);
                if let (Some(digits), Some(value)) = (self.print, value) {
                    let words = spoken(value, digits);
                    let size = (cell.width() * 0.9 / width(&words, 1.0, Weight::Regular))
                        .min(cell.height() * 0.6)
                        .min(11.0);
                    let ink = if colour.is_light() { INK } else { WHITE }.into();
                    scene.text(Text {
                        ink,
                        ..Text::new(cell.middle(), words, size, Anchor::Middle)
                    });
                }
            }
        }
    }

    fn draw_labels(&self, scene: &mut Scene, cells: Frame, frame: Frame) {
        for (row, label) in self.rows.iter().enumerate() {
            let (_, up) = self.cell(cells, row, 0).middle();
            scene.text(Text::new((cells.left - 6.0, up), label.clone(), TICK_SIZE, Anchor::Right));
        }
        let each = cells.width() / self.columns.len() as f64;
        let every = (1..=self.columns.len())
            .find(|every| *every as f64 * each > widest(&self.columns) + 6.0)
            .unwrap_or(1);
        for (column, label) in self.columns.iter().enumerate().step_by(every) {
            let (across, _) = self.cell(cells, 0, column).middle();
            let at = (across, cells.bottom + 5.0 + TICK_SIZE / 2.0);
            scene.text(Text::new(at, label.clone(), TICK_SIZE, Anchor::Middle));
        }
        let (across, up) = cells.middle();
        let below = (across, frame.bottom - LABEL_SIZE / 2.0);
        scene.text(Text::new(below, self.column_label.clone(), LABEL_SIZE, Anchor::Middle));
        let beside = (frame.left + LABEL_SIZE / 2.0, up);
        let text = Text::new(beside, self.row_label.clone(), LABEL_SIZE, Anchor::Middle);
        scene.text(Text { turned: true, ..text });
    }

    fn draw_scale(&self, scene: &mut Scene, cells: Frame, frame: Frame) {
        let left = cells.right + 24.0;
        let bar = Frame { left, right: left + BAR, ..cells };
        let slices = 64;
        for slice in 0..slices {
            let (from, to) =
                (f64::from(slice) / f64::from(slices), f64::from(slice + 1) / f64::from(slices));
            let (_, bottom) = bar.at(0.0, from);
            let (_, top) = bar.at(0.0, to);
            // Overlapping a little leaves no seams between the slices.
            let top = (top - 0.5).max(bar.top);
            scene.rect(Frame { top, bottom, ..bar }, viridis(f64::midpoint(from, to)));
        }
        for (at, label) in self.ruler(frame.height()).ticks {
            let (right, up) = bar.at(1.0, at);
            scene.line((right, up), (right + 4.0, up), Stroke::new(SOFT_INK, 1.0));
            scene.text(Text::new((right + 7.0, up), label, TICK_SIZE, Anchor::Left));
        }
        let (_, up) = bar.middle();
        let at = (frame.right - LABEL_SIZE / 2.0, up);
        let label = Text::new(at, self.value_label.clone(), LABEL_SIZE, Anchor::Middle);
        scene.text(Text { turned: true, ..label });
        let is_missing = |value: &Option<f64>| value.is_none_or(|value| !value.is_finite());
        if !self.missing_name.is_empty() && self.values.iter().flatten().any(is_missing) {
            let y = frame.bottom - LABEL_SIZE / 2.0;
            scene.rect(
                Frame {
                    top: y - 6.0,
                    bottom: y + 6.0,
                    left: bar.left - 4.0,
                    right: bar.left + 12.0,
                },
                MISSING,
            );
            let at = (bar.left + 17.0, y);
            scene.text(Text::new(at, self.missing_name.clone(), TICK_SIZE, Anchor::Left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_a_row_too_short_is_refused() {
        let map = HeatMap {
            title: "t".into(),
            rows: vec!["a".into()],
            columns: vec!["x".into(), "y".into()],
            values: vec![vec![Some(1.0)]],
            ..HeatMap::default()
        };
        let said = map.scene(map.natural_size()).unwrap_err().to_string();
        assert_eq!(said, "`t: a` has 1 values: expected 2, one for each label");
    }

    #[test]
    fn equal_and_unknown_values_have_a_range() {
        let of = |value| HeatMap { values: vec![vec![value]], ..HeatMap::default() }.range();
        assert_eq!(of(Some(3.0)), (3.0, 4.0));
        assert_eq!(of(None), (0.0, 1.0));
        assert_eq!(of(Some(f64::NAN)), (0.0, 1.0));
    }
}
