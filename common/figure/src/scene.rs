//! A laid-out chart: plain shapes on a page, in CSS pixels from the top left.

use crate::font::Weight;
use crate::palette::{Colour, INK, WHITE};
use crate::render::Size;

pub(crate) type Point = (f64, f64);

/// A laid-out chart. Made by a [`Figure`](crate::Figure), painted by its methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub(crate) size: Size,
    pub(crate) title: String,
    pub(crate) shapes: Vec<Shape>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ink {
    pub(crate) colour: Colour,
    pub(crate) alpha: f64,
}

impl From<Colour> for Ink {
    fn from(colour: Colour) -> Self {
        Self { colour, alpha: 1.0 }
    }
}

impl Colour {
    pub(crate) fn faint(self, alpha: f64) -> Ink {
        Ink { colour: self, alpha }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) ink: Ink,
    pub(crate) width: f64,
    /// Drawn and left out, in turn; empty for a solid line.
    pub(crate) dash: &'static [f32],
}

impl Stroke {
    pub(crate) fn new(ink: impl Into<Ink>, width: f64) -> Self {
        Self { ink: ink.into(), width, dash: &[] }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Anchor {
    Left,
    Middle,
    Right,
}

/// Text, its capitals centred on a point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) at: Point,
    pub(crate) words: String,
    pub(crate) size: f64,
    pub(crate) weight: Weight,
    pub(crate) anchor: Anchor,
    /// Reads upwards.
    pub(crate) turned: bool,
    pub(crate) ink: Ink,
}

impl Text {
    pub(crate) fn new(at: Point, words: impl Into<String>, size: f64, anchor: Anchor) -> Self {
        let weight = Weight::Regular;
        Self { at, words: words.into(), size, weight, anchor, turned: false, ink: INK.into() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Path { points: Vec<Point>, stroke: Stroke },
    Area { points: Vec<Point>, ink: Ink },
    Rect { frame: Frame, ink: Ink },
    Circle { centre: Point, radius: f64, ink: Ink, outline: Option<Stroke> },
    Text(Text),
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Frame {
    pub(crate) fn width(self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn middle(self) -> Point {
        (f64::midpoint(self.left, self.right), f64::midpoint(self.top, self.bottom))
    }

    /// Where parts of the width and height lie, the height counted upwards.
    pub(crate) fn at(self, across: f64, up: f64) -> Point {
        (self.left + across * self.width(), self.bottom - up * self.height())
    }
}

impl Scene {
    pub(crate) fn new(size: Size, title: &str) -> Self {
        let mut scene = Self { size, title: title.to_owned(), shapes: vec![] };
        scene.rect(scene.page(), WHITE);
        scene
    }

    pub(crate) fn page(&self) -> Frame {
        let (right, bottom) = (f64::from(self.size.width), f64::from(self.size.height));
        Frame { left: 0.0, top: 0.0, right, bottom }
    }

    pub(crate) fn rect(&mut self, frame: Frame, ink: impl Into<Ink>) {
        self.shapes.push(Shape::Rect { frame, ink: ink.into() });
    }

    pub(crate) fn line(&mut self, from: Point, to: Point, stroke: Stroke) {
        self.path(vec![from, to], stroke);
    }

    pub(crate) fn path(&mut self, points: Vec<Point>, stroke: Stroke) {
        if points.len() >= 2 {
            self.shapes.push(Shape::Path { points, stroke });
        }
    }

    pub(crate) fn area(&mut self, points: Vec<Point>, ink: Ink) {
        if points.len() >= 3 {
            self.shapes.push(Shape::Area { points, ink });
        }
    }

    pub(crate) fn dot(&mut self, centre: Point, radius: f64, ink: impl Into<Ink>) {
        self.shapes.push(Shape::Circle { centre, radius, ink: ink.into(), outline: None });
    }

    /// A circle that shows the page within.
    pub(crate) fn ring(&mut self, centre: Point, radius: f64, outline: Stroke) {
        let outline = Some(outline);
        self.shapes.push(Shape::Circle { centre, radius, ink: WHITE.into(), outline });
    }

    pub(crate) fn text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }
}
