//! Lines, steps and points over two axes.

mod plot;

pub(crate) use plot::draw as draw_in;

use crate::axis::Axis;
use crate::legend::{self, LegendEntry, LegendSample};
use crate::palette::{Colour, SOFT_INK, series_colour};
use crate::render::{Figure, FigureError, Size};
use crate::scene::{Scene, Stroke};

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    #[default]
    Line,
    Dashed,
    /// Each value holds until the next one.
    Steps,
    /// A line with a dot at every point: for few points.
    Dotted,
    /// Points only.
    Points,
}

/// One series. Points that are not numbers leave a gap in the line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend; a series without a name is not in it.
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub look: Look,
    /// How uncertain the series is: (x, low, high), shaded. Empty for none.
    pub band: Vec<(f64, f64, f64)>,
    /// Values to compare with, such as those that a thesis prints: rings.
    pub references: Vec<(f64, f64)>,
    /// `None` takes the next colour of the palette.
    pub colour: Option<Colour>,
}

impl Series {
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    #[must_use]
    pub fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }

    #[must_use]
    pub fn with_band(self, band: Vec<(f64, f64, f64)>) -> Self {
        Self { band, ..self }
    }

    #[must_use]
    pub fn coloured(self, colour: Colour) -> Self {
        Self { colour: Some(colour), ..self }
    }

    fn colour(&self, number: usize) -> Colour {
        self.colour.unwrap_or_else(|| series_colour(number))
    }

    fn stroke(&self, number: usize) -> Stroke {
        let dash: &[f32] = if self.look == Look::Dashed { &[6.0, 4.0] } else { &[] };
        Stroke { dash, ..Stroke::new(self.colour(number), 1.8) }
    }

    /// Everything that it shows.
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        let band = self.band.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]);
        let all = self.points.iter().copied().chain(band).chain(self.references.iter().copied());
        all.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

/// A chart of one or more series over the same two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    pub title: String,
    /// A softer line below the title; may be empty.
    pub subtitle: String,
    pub x_axis: Axis,
    pub y_axis: Axis,
    pub series: Vec<Series>,
    /// What the rings of [`Series::references`] are, for the legend.
    pub reference_name: String,
}

impl Figure for LineChart {
    fn natural_size(&self) -> Size {
        Size { width: 760, height: 460 }
    }

    fn scene(&self, size: Size) -> Result<Scene, FigureError> {
        let mut scene = Scene::new(size.check()?, &self.title);
        self.check()?;
        let mut frame = legend::title(&mut scene, &self.title, &self.subtitle);
        frame.top = legend::draw(&mut scene, frame, &self.entries());
        plot::draw(&mut scene, frame, self, self.extent());
        Ok(scene)
    }
}

/// The least and the greatest value along each axis.
pub(crate) type Extent = Option<[(f64, f64); 2]>;

pub(crate) fn wider(extent: Extent, other: Extent) -> Extent {
    match (extent, other) {
        (Some([x, y]), Some([u, v])) => {
            let widest = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
            Some([widest(x, u), widest(y, v)])
        }
        (one, other) => one.or(other),
    }
}

impl LineChart {
    pub(crate) fn check(&self) -> Result<(), FigureError> {
        if self.extent().is_none() {
            return Err(FigureError::Empty { what: self.title.clone() });
        }
        let is_log = |axis: &Axis| axis.scale == crate::axis::Scale::Log;
        for series in &self.series {
            for (x, y) in series.values() {
                for (axis, value) in [(&self.x_axis, x), (&self.y_axis, y)] {
                    if is_log(axis) && value <= 0.0 {
                        let what = series.name.clone();
                        return Err(FigureError::NotPositive { what, value });
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn extent(&self) -> Extent {
        let values = self.series.iter().flat_map(Series::values);
        values.map(|(x, y)| Some([(x, x), (y, y)])).fold(None, wider)
    }

    pub(crate) fn entries(&self) -> Vec<LegendEntry> {
        let mut entries = vec![];
        let named = self.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
        for (number, series) in named {
            let sample = if series.look == Look::Points {
                LegendSample::Dot(series.colour(number))
            } else {
                LegendSample::Line {
                    stroke: series.stroke(number),
                    dots: series.look == Look::Dotted,
                }
            };
            entries.push(LegendEntry { name: series.name.clone(), sample });
        }
        // One series that the title names already needs no legend.
        if entries.len() == 1 {
            entries.clear();
        }
        if !self.reference_name.is_empty() && self.series.iter().any(|s| !s.references.is_empty()) {
            let sample = LegendSample::Ring(Stroke::new(SOFT_INK, 1.6));
            entries.push(LegendEntry { name: self.reference_name.clone(), sample });
        }
        entries
    }
}

#[cfg(test)]
mod tests;
