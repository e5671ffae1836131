//! Paints a scene as PNG, with two pixels for each of the page's.

use ab_glyph::OutlineCurve;
use tiny_skia::{
    FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, StrokeDash, Transform,
};

use crate::font::{self, HALF_CAPITAL};
use crate::scene::{Anchor, Ink, Point, Scene, Shape, Stroke, Text};

const PIXELS: u16 = 2;

pub(crate) fn paint(scene: &Scene) -> Vec<u8> {
    let side = |length: u32| length * u32::from(PIXELS);
    let mut canvas = Pixmap::new(side(scene.size.width), side(scene.size.height))
        .unwrap_or_else(|| unreachable!("a page has been checked to have a size"));
    for shape in &scene.shapes {
        draw(&mut canvas, shape);
    }
    canvas.encode_png().unwrap_or_else(|error| unreachable!("encoding in memory: {error}"))
}

fn page() -> Transform {
    Transform::from_scale(f32::from(PIXELS), f32::from(PIXELS))
}

fn draw(canvas: &mut Pixmap, shape: &Shape) {
    match shape {
        Shape::Path { points, stroke } => {
            if let Some(path) = joined(points, false) {
                draw_stroke(canvas, &path, stroke);
            }
        }
        Shape::Area { points, ink } => {
            if let Some(path) = joined(points, true) {
                canvas.fill_path(&path, &paint_of(*ink), FillRule::Winding, page(), None);
            }
        }
        Shape::Rect { frame, ink } => {
            let sides = [frame.left, frame.top, frame.right, frame.bottom].map(single);
            if let Some(rect) = Rect::from_ltrb(sides[0], sides[1], sides[2], sides[3]) {
                canvas.fill_rect(rect, &paint_of(*ink), page(), None);
            }
        }
        Shape::Circle { centre, radius, ink, outline } => {
            let circle =
                PathBuilder::from_circle(single(centre.0), single(centre.1), single(*radius));
            if let Some(path) = circle {
                canvas.fill_path(&path, &paint_of(*ink), FillRule::Winding, page(), None);
                if let Some(stroke) = outline {
                    draw_stroke(canvas, &path, stroke);
                }
            }
        }
        Shape::Text(text) => draw_text(canvas, text),
    }
}

fn draw_stroke(canvas: &mut Pixmap, path: &Path, stroke: &Stroke) {
    let pen = tiny_skia::Stroke {
        width: single(stroke.width),
        line_join: LineJoin::Round,
        dash: StrokeDash::new(stroke.dash.to_vec(), 0.0),
        ..tiny_skia::Stroke::default()
    };
    canvas.stroke_path(path, &paint_of(stroke.ink), &pen, page(), None);
}

fn draw_text(canvas: &mut Pixmap, text: &Text) {
    let scale = font::scale(text.weight, text.size);
    let width = font::width(&text.words, text.size, text.weight);
    let start = match text.anchor {
        Anchor::Left => 0.0,
        Anchor::Middle => -width / 2.0,
        Anchor::Right => -width,
    };
    let mut path = PathBuilder::new();
    for (across, curves) in font::outlines(&text.words, text.weight) {
        trace(&mut path, across, &curves);
    }
    let Some(path) = path.finish() else { return };
    // The font counts upwards, the page downwards.
    let letters = Transform::from_scale(single(scale), -single(scale))
        .post_translate(single(start), single(HALF_CAPITAL * text.size))
        .post_rotate(if text.turned { -90.0 } else { 0.0 })
        .post_translate(single(text.at.0), single(text.at.1))
        .post_concat(page());
    canvas.fill_path(&path, &paint_of(text.ink), FillRule::Winding, letters, None);
}

fn trace(path: &mut PathBuilder, across: f32, curves: &[OutlineCurve]) {
    let mut pen = None;
    for curve in curves {
        let (from, to) = match curve {
            OutlineCurve::Line(from, to)
            | OutlineCurve::Quad(from, _, to)
            | OutlineCurve::Cubic(from, _, _, to) => (from, to),
        };
        if pen != Some((from.x, from.y)) {
            path.move_to(across + from.x, from.y);
        }
        pen = Some((to.x, to.y));
        match curve {
            OutlineCurve::Line(_, to) => path.line_to(across + to.x, to.y),
            OutlineCurve::Quad(_, by, to) => path.quad_to(across + by.x, by.y, across + to.x, to.y),
            OutlineCurve::Cubic(_, a, b, to) => {
                path.cubic_to(across + a.x, a.y, across + b.x, b.y, across + to.x, to.y);
            }
        }
    }
}

fn joined(points: &[Point], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (number, (x, y)) in points.iter().enumerate() {
        if number == 0 {
            path.move_to(single(*x), single(*y));
        } else {
            path.line_to(single(*x), single(*y));
        }
    }
    if closed {
        path.close();
    }
    path.finish()
}

fn paint_of(ink: Ink) -> Paint<'static> {
    let mut paint = Paint::default();
    let alpha = byte(ink.alpha);
    paint.set_color_rgba8(ink.colour.0, ink.colour.1, ink.colour.2, alpha);
    paint
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a byte holds"
)]
fn byte(part: f64) -> u8 {
    (part.clamp(0.0, 1.0) * 255.0).round() as u8
}

#[expect(clippy::cast_possible_truncation, reason = "pixels, which f32 holds finely enough")]
fn single(value: f64) -> f32 {
    value as f32
}
