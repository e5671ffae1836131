//! Charts side by side under one title and one legend.

use crate::axis::Axis;
use crate::font::Weight;
use crate::legend;
use crate::line::{LineChart, draw_in, wider};
use crate::render::{Figure, FigureError, Size};
use crate::scene::{Anchor, Frame, Scene, Text};

/// Charts with the same series over the same axes, for comparing. The legend is
/// that of the first chart; every chart's own title stands above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panels {
    pub title: String,
    pub subtitle: String,
    /// Panels in a row.
    pub columns: usize,
    /// All charts show the same stretch of both axes.
    pub same_axes: bool,
    pub charts: Vec<LineChart>,
}

const CAPTION: f64 = 24.0;
const GAP: f64 = 18.0;

impl Panels {
    fn rows(&self) -> usize {
        self.charts.len().div_ceil(self.columns.max(1)).max(1)
    }
}

impl Figure for Panels {
    fn natural_size(&self) -> Size {
        let side = |many: usize, each: u32, rest: u32| {
            u32::try_from(many)
                .unwrap_or(u32::MAX)
                .saturating_mul(each)
                .saturating_add(rest)
                .min(4_000)
        };
        Size { width: side(self.columns.max(1), 380, 20), height: side(self.rows(), 300, 80) }
    }

    fn scene(&self, size: Size) -> Result<Scene, FigureError> {
        let mut scene = Scene::new(size.check()?, &self.title);
        let Some(first) = self.charts.first() else {
            return Err(FigureError::Empty { what: self.title.clone() });
        };
        self.charts.iter().try_for_each(LineChart::check)?;
        let mut frame = legend::title(&mut scene, &self.title, &self.subtitle);
        frame.top = legend::draw(&mut scene, frame, &first.entries());
        let all = self.charts.iter().map(LineChart::extent).fold(None, wider);
        let (columns, rows) = (self.columns.max(1), self.rows());
        let wide = (frame.width() - GAP * (columns - 1) as f64) / columns as f64;
        let high = (frame.height() - GAP * (rows - 1) as f64) / rows as f64;
        for (number, chart) in self.charts.iter().enumerate() {
            let (row, column) = (number / columns, number % columns);
            let left = frame.left + column as f64 * (wide + GAP);
            let top = frame.top + row as f64 * (high + GAP);
            let at = (left, top + CAPTION / 2.0);
            let caption = Text::new(at, chart.title.clone(), 12.5, Anchor::Left);
            scene.text(Text { weight: Weight::Bold, ..caption });
            let panel = Frame { left, top: top + CAPTION, right: left + wide, bottom: top + high };
            // What all rows share is said once, below and beside them.
            let unlabelled = |axis: &Axis| Axis { label: String::new(), ..axis.clone() };
            let is_last_row = number + columns >= self.charts.len();
            let shown = LineChart {
                x_axis: if is_last_row { chart.x_axis.clone() } else { unlabelled(&chart.x_axis) },
                y_axis: if column == 0 { chart.y_axis.clone() } else { unlabelled(&chart.y_axis) },
                ..chart.clone()
            };
            let extent = if self.same_axes { all } else { chart.extent() };
            draw_in(&mut scene, panel, &shown, extent);
        }
        Ok(scene)
    }
}
