//! From a chart to bytes, and what can go wrong.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::scene::Scene;
use crate::{pdf, png, svg};

/// The widest and highest page. A PNG of that size has 64 million pixels.
const SIDE_MAX: u32 = 4_000;

/// The smallest page on which axes and their labels still fit.
const SIDE_MIN: u32 = 160;

/// A page, in CSS pixels (1/96 inch). A PNG has two of its own for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Svg,
    Png,
    Pdf,
}

impl Format {
    /// By the file's ending.
    ///
    /// # Errors
    /// Any other ending than `.svg`, `.png` and `.pdf`.
    pub fn of(path: &Path) -> Result<Self, FigureError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ending.parse().map_err(|_| FigureError::Ending { path: path.to_owned() })
    }
}

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "svg" => Ok(Self::Svg),
            "png" => Ok(Self::Png),
            "pdf" => Ok(Self::Pdf),
            _ => Err(ParseFormatError { text: text.to_owned() }),
        }
    }
}

/// Why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a format of figures: expected svg, png or pdf")]
pub struct ParseFormatError {
    text: String,
}

/// Why a chart was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    #[error("{}: expected a file that ends in .svg, .png or .pdf", path.display())]
    Ending { path: PathBuf },
    #[error("a figure of {width} x {height}: expected {SIDE_MIN} to {SIDE_MAX} each way")]
    Size { width: u32, height: u32 },
    #[error("`{what}` has nothing to draw")]
    Empty { what: String },
    #[error("`{what}` has {value}, which a logarithmic axis cannot show")]
    NotPositive { what: String, value: f64 },
    #[error("`{what}` has {found} values: expected {expected}, one for each label")]
    Shape { what: String, found: usize, expected: usize },
    #[error("there is no {what} {number}: expected 0 to less than {many}")]
    NoSuch { what: String, number: usize, many: usize },
}

/// A chart that can be laid out and painted.
pub trait Figure {
    /// The size at which it looks best.
    fn natural_size(&self) -> Size;

    /// Lays the chart out.
    ///
    /// # Errors
    /// Data that cannot be drawn, or a page too small or too large.
    fn scene(&self, size: Size) -> Result<Scene, FigureError>;

    /// Draws it, as the bytes of a file.
    ///
    /// # Errors
    /// Those of [`Figure::scene`].
    fn draw(&self, format: Format, size: Size) -> Result<Vec<u8>, FigureError> {
        Ok(self.scene(size)?.to_bytes(format))
    }
}

impl Size {
    pub(crate) fn check(self) -> Result<Self, FigureError> {
        let Self { width, height } = self;
        let fits = |side| (SIDE_MIN..=SIDE_MAX).contains(&side);
        if fits(width) && fits(height) {
            Ok(self)
        } else {
            Err(FigureError::Size { width, height })
        }
    }
}

impl Scene {
    pub fn to_bytes(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Svg => svg::paint(self).into_bytes(),
            Format::Png => png::paint(self),
            Format::Pdf => pdf::paint(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_names_the_format() {
        assert_eq!(Format::of(Path::new("a/b.svg")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("b.PNG")).unwrap(), Format::Png);
        assert_eq!(Format::of(Path::new("b.pdf")).unwrap(), Format::Pdf);
        let said = Format::of(Path::new("b.gif")).unwrap_err().to_string();
        assert_eq!(said, "b.gif: expected a file that ends in .svg, .png or .pdf");
        assert!(Format::of(Path::new("png")).is_err());
    }

    #[test]
    fn a_page_has_bounds() {
        assert!(Size { width: 800, height: 10 }.check().is_err());
        assert!(Size { width: 5_000, height: 500 }.check().is_err());
        assert!(Size { width: 800, height: 500 }.check().is_ok());
    }
}
