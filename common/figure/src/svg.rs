//! Paints a scene as SVG. Text stays text, so that it can be searched and edited.

use std::fmt::Write;

use crate::font::{HALF_CAPITAL, Weight};
use crate::palette::Colour;
use crate::scene::{Anchor, Ink, Point, Scene, Shape, Stroke, Text};

/// The bundled font first; Verdana and Bitstream Vera have nearly its widths.
const FAMILY: &str = "DejaVu Sans, Bitstream Vera Sans, Verdana, sans-serif";

pub(crate) fn paint(scene: &Scene) -> String {
    let (width, height) = (scene.size.width, scene.size.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILY}\" role=\"img\">\n<title>{}</title>\n",
        escaped(&scene.title)
    );
    for shape in &scene.shapes {
        out.push_str(&element(shape));
        out.push('\n');
    }
    out.push_str("</svg>\n");
    out
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Path { points, stroke } => {
            format!(
                "<polyline points=\"{}\" fill=\"none\" {}/>",
                listed(points),
                stroke_attributes(stroke)
            )
        }
        Shape::Area { points, ink } => {
            format!("<polygon points=\"{}\" {}/>", listed(points), fill(*ink))
        }
        Shape::Rect { frame, ink } => format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>",
            number(frame.left),
            number(frame.top),
            number(frame.width()),
            number(frame.height()),
            fill(*ink)
        ),
        Shape::Circle { centre, radius, ink, outline } => {
            let outline = outline.map(|stroke| stroke_attributes(&stroke)).unwrap_or_default();
            format!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {} {outline}/>",
                number(centre.0),
                number(centre.1),
                number(*radius),
                fill(*ink)
            )
        }
        Shape::Text(text) => words(text),
    }
}

fn words(text: &Text) -> String {
    let (x, y) = (number(text.at.0), number(text.at.1));
    let anchor = match text.anchor {
        Anchor::Left => "start",
        Anchor::Middle => "middle",
        Anchor::Right => "end",
    };
    let weight = if text.weight == Weight::Bold { " font-weight=\"bold\"" } else { "" };
    let (dy, size) = (number(HALF_CAPITAL * text.size), number(text.size));
    let turn =
        if text.turned { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
    format!(
        "<text x=\"{x}\" y=\"{y}\" dy=\"{dy}\" font-size=\"{size}\"{weight} text-anchor=\"{anchor}\" {}{turn}>{}</text>",
        fill(text.ink),
        escaped(&text.words)
    )
}

fn fill(ink: Ink) -> String {
    let alpha = opacity("fill-opacity", ink.alpha);
    format!("fill=\"{}\"{alpha}", hex(ink.colour))
}

fn stroke_attributes(stroke: &Stroke) -> String {
    let mut text = format!(
        "stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}",
        hex(stroke.ink.colour),
        number(stroke.width),
        opacity("stroke-opacity", stroke.ink.alpha)
    );
    if !stroke.dash.is_empty() {
        let dash: Vec<_> = stroke.dash.iter().map(|length| number(f64::from(*length))).collect();
        let _ = write!(text, " stroke-dasharray=\"{}\"", dash.join(" "));
    }
    text
}

fn opacity(name: &str, alpha: f64) -> String {
    if alpha >= 1.0 { String::new() } else { format!(" {name}=\"{}\"", number(alpha)) }
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn listed(points: &[Point]) -> String {
    let pairs: Vec<_> =
        points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
    pairs.join(" ")
}

/// A hundredth of a pixel is finer than any eye.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".into() } else { short.into() }
}

/// As text in XML and HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // Control characters are not allowed in XML at all.
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_label_says_it_stays_text() {
        assert_eq!(escaped("a<b & \"c\"\u{1}"), "a&lt;b &amp; &quot;c&quot; ");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, 0.5, -0.001, 12.345].map(number), ["1", "0.5", "0", "12.35"]);
    }
}
