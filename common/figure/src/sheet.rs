//! One page of words, figures and tables, for people: as HTML that needs nothing
//! else and prints well, and laid out as a page to be painted.

use std::fmt::Write;

use crate::font::{Weight, width, wrap};
use crate::palette::{Colour, GRID, INK, SOFT_INK};
use crate::render::{Format, Size};
use crate::scene::{Anchor, Frame, Scene, Shape, Stroke, Text};
use crate::svg::{self, escaped};

/// A4, in CSS pixels.
const PAGE: Size = Size { width: 794, height: 1_123 };
const MARGIN: f64 = 52.0;
/// Smaller letters than this part of the usual ones nobody reads: what does not
/// fit then is cut off.
const SHRUNK_MIN: f64 = 0.5;

/// Between the facts, and around their words.
const GAP: f64 = 10.0;

const ACCENT: Colour = Colour(0, 94, 145);
const PANEL: Colour = Colour(238, 243, 247);

/// A page's content, from top to bottom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    pub title: String,
    pub subtitle: String,
    /// What is to be seen at once: a figure and what it means.
    pub facts: Vec<(String, String)>,
    pub parts: Vec<SheetPart>,
    /// In small print, at the end.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SheetPart {
    Heading(String),
    Paragraph(String),
    /// A chart, across the page.
    Chart(Scene),
    /// Titles, and rows of as many cells; numbers, but for the first column.
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
}

impl Sheet {
    /// Lays the page out, in letters as large as fit.
    pub fn scene(&self) -> Scene {
        let mut scale = 1.0;
        loop {
            let mut typesetter = Typesetter::new(&self.title, scale);
            typesetter.sheet(self);
            scale -= 0.04;
            if typesetter.fits() || scale < SHRUNK_MIN {
                return typesetter.scene;
            }
        }
    }

    pub fn pdf(&self) -> Vec<u8> {
        self.scene().to_bytes(Format::Pdf)
    }

    /// HTML without scripts, fonts, or anything from elsewhere.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
            escaped(&self.title)
        );
        // A string never fails.
        let _ = write!(
            out,
            "<h1>{}</h1>\n<p class=\"sub\">{}</p>\n",
            escaped(&self.title),
            escaped(&self.subtitle)
        );
        out.push_str("<dl class=\"facts\">\n");
        for (figure, meaning) in &self.facts {
            let _ = writeln!(
                out,
                "<div><dt>{}</dt><dd>{}</dd></div>",
                escaped(figure),
                escaped(meaning)
            );
        }
        out.push_str("</dl>\n");
        for part in &self.parts {
            out.push_str(&part.html());
        }
        out.push_str("<footer>\n");
        for note in &self.notes {
            let _ = writeln!(out, "<p>{}</p>", escaped(note));
        }
        out.push_str("</footer>\n</body>\n</html>\n");
        out
    }
}

impl SheetPart {
    fn html(&self) -> String {
        match self {
            Self::Heading(text) => format!("<h2>{}</h2>\n", escaped(text)),
            Self::Paragraph(text) => format!("<p>{}</p>\n", escaped(text)),
            Self::Chart(scene) => format!("<figure>\n{}</figure>\n", svg::paint(scene)),
            Self::Table { header, rows } => {
                let line = |cell: &str, cells: &[String]| {
                    let cells = cells.iter().map(|it| format!("<{cell}>{}</{cell}>", escaped(it)));
                    format!("<tr>{}</tr>\n", cells.collect::<String>())
                };
                let rows: String = rows.iter().map(|row| line("td", row)).collect();
                format!(
                    "<table>\n<thead>{}</thead>\n<tbody>{rows}</tbody>\n</table>\n",
                    line("th", header)
                )
            }
        }
    }
}

/// One page of A4 when printed, colours included.
const STYLE: &str = "
@page { size: A4; margin: 14mm }
body { font: 15px/1.45 'DejaVu Sans', Verdana, sans-serif; color: #262626; max-width: 46em; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em; margin: 0 }
h2 { font-size: 1.1em; margin: 1.1em 0 .3em; color: #005e91; break-after: avoid }
p { margin: .4em 0 }
.sub, footer { color: #5a5a5a; font-size: .85em }
.facts { display: flex; gap: .8em; margin: 1em 0; padding: 0 }
.facts div { flex: 1; background: #eef3f7; padding: .7em .8em; print-color-adjust: exact; -webkit-print-color-adjust: exact }
.facts dt { font-size: 1.5em; font-weight: bold; color: #005e91 }
.facts dd { margin: 0; font-size: .8em }
figure { margin: .6em 0; break-inside: avoid }
figure svg { width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; font-size: .9em; break-inside: avoid }
th, td { text-align: right; padding: .2em .4em; border-bottom: 1px solid #e2e2e2 }
th:first-child, td:first-child { text-align: left }
footer { margin-top: 1em; border-top: 1px solid #e2e2e2 }
@media print { body { font-size: 10.5px; max-width: none; margin: 0; padding: 0 } }
";

/// Sets one part below the other.
struct Typesetter {
    scene: Scene,
    /// Of the usual size of letters.
    scale: f64,
    /// How far down the page is full.
    y: f64,
}

/// How words are set.
#[derive(Clone, Copy)]
struct Face {
    size: f64,
    weight: Weight,
    colour: Colour,
}

const BODY: Face = Face { size: 11.5, weight: Weight::Regular, colour: INK };
const SMALL: Face = Face { size: 9.0, weight: Weight::Regular, colour: SOFT_INK };

impl Typesetter {
    fn new(title: &str, scale: f64) -> Self {
        Self { scene: Scene::new(PAGE, title), scale, y: MARGIN }
    }

    fn fits(&self) -> bool {
        self.y <= f64::from(PAGE.height) - MARGIN
    }

    fn across() -> f64 {
        f64::from(PAGE.width) - 2.0 * MARGIN
    }

    fn sheet(&mut self, sheet: &Sheet) {
        let title = Face { size: 20.0, weight: Weight::Bold, colour: INK };
        self.words(&sheet.title, title, 4.0);
        self.words(&sheet.subtitle, Face { size: 10.5, ..SMALL }, 12.0);
        self.facts(&sheet.facts);
        sheet.parts.iter().for_each(|part| self.part(part));
        self.rule();
        sheet.notes.iter().for_each(|note| self.words(note, SMALL, 3.0));
    }

    fn part(&mut self, part: &SheetPart) {
        match part {
            SheetPart::Heading(text) => {
                self.y += 8.0 * self.scale;
                self.words(text, Face { size: 13.5, weight: Weight::Bold, colour: ACCENT }, 3.0);
            }
            SheetPart::Paragraph(text) => self.words(text, BODY, 5.0),
            SheetPart::Chart(chart) => {
                let page = chart.page();
                let scale = Self::across() / page.width() * self.scale;
                let left = MARGIN + (Self::across() - page.width() * scale) / 2.0;
                self.scene.place(chart, (left, self.y), scale);
                self.y += page.height() * scale + 4.0 * self.scale;
            }
            SheetPart::Table { header, rows } => self.table(header, rows),
        }
    }

    /// Wrapped words, and some room below them.
    fn words(&mut self, text: &str, face: Face, below: f64) {
        self.y = self.column(text, face, (MARGIN, self.y), Self::across()) + below * self.scale;
    }

    /// Wrapped words in a column; gives where they end.
    fn column(&mut self, text: &str, face: Face, (left, top): (f64, f64), wide: f64) -> f64 {
        let size = face.size * self.scale;
        let mut y = top;
        for line in wrap(text, size, face.weight, wide) {
            let text = Text::new((left, y + 0.7 * size), line, size, Anchor::Left);
            self.scene.text(Text { weight: face.weight, ink: face.colour.into(), ..text });
            y += 1.4 * size;
        }
        y
    }

    fn facts(&mut self, facts: &[(String, String)]) {
        if facts.is_empty() {
            return;
        }
        let wide = (Self::across() + GAP) / facts.len() as f64 - GAP;
        let inner = wide - 2.0 * GAP;
        let small = Face { size: 9.5, ..BODY };
        let lines = |text: &str| wrap(text, small.size * self.scale, small.weight, inner).len();
        let most = facts.iter().map(|(_, meaning)| lines(meaning)).max().unwrap_or(0) as f64;
        let high = (2.0 * GAP + 30.0 + most * 1.4 * small.size) * self.scale;
        for (place, (figure, meaning)) in facts.iter().enumerate() {
            let left = MARGIN + place as f64 * (wide + GAP);
            let (top, bottom) = (self.y, self.y + high);
            self.scene.rect(Frame { left, top, right: left + wide, bottom }, PANEL);
            // A long figure is set as small as it takes.
            let natural = 20.0 * self.scale;
            let size = natural.min(natural * inner / width(figure, natural, Weight::Bold).max(1.0));
            let at = (left + GAP, top + (GAP + 12.0) * self.scale);
            let text = Text::new(at, figure.clone(), size, Anchor::Left);
            self.scene.text(Text { weight: Weight::Bold, ink: ACCENT.into(), ..text });
            let below = top + (GAP + 30.0) * self.scale;
            self.column(meaning, small, (left + GAP, below), inner);
        }
        self.y += high + 8.0 * self.scale;
    }

    fn table(&mut self, header: &[String], rows: &[Vec<String>]) {
        let size = 10.0 * self.scale;
        let columns = header.len().max(1) as f64;
        // The first column is as wide as two.
        let right =
            |place: usize| MARGIN + Self::across() * (place as f64 + 2.0) / (columns + 1.0) - 4.0;
        for (number, row) in
            std::iter::once(header).chain(rows.iter().map(Vec::as_slice)).enumerate()
        {
            let weight = if number == 0 { Weight::Bold } else { Weight::Regular };
            let middle = self.y + 0.9 * size;
            for (place, cell) in row.iter().enumerate() {
                let (at, anchor) = if place == 0 {
                    ((MARGIN, middle), Anchor::Left)
                } else {
                    ((right(place), middle), Anchor::Right)
                };
                self.scene.text(Text { weight, ..Text::new(at, cell.clone(), size, anchor) });
            }
            self.y += 1.8 * size;
            self.rule();
        }
        self.y += 6.0 * self.scale;
    }

    fn rule(&mut self) {
        let (from, to) = ((MARGIN, self.y), (MARGIN + Self::across(), self.y));
        self.scene.line(from, to, Stroke::new(GRID, 1.0));
        self.y += 3.0 * self.scale;
    }
}

impl Scene {
    /// Puts another scene onto this one.
    fn place(&mut self, other: &Self, (left, top): (f64, f64), scale: f64) {
        let at = |(x, y): (f64, f64)| (left + x * scale, top + y * scale);
        let along = |points: &[(f64, f64)]| points.iter().map(|point| at(*point)).collect();
        let stroke = |stroke: &Stroke| Stroke { width: stroke.width * scale, ..*stroke };
        let placed = other.shapes.iter().map(|shape| match shape {
            Shape::Path { points, stroke: pen } => {
                Shape::Path { points: along(points), stroke: stroke(pen) }
            }
            Shape::Area { points, ink } => Shape::Area { points: along(points), ink: *ink },
            Shape::Rect { frame, ink } => {
                let ((left, top), (right, bottom)) =
                    (at((frame.left, frame.top)), at((frame.right, frame.bottom)));
                Shape::Rect { frame: Frame { left, top, right, bottom }, ink: *ink }
            }
            Shape::Circle { centre, radius, ink, outline } => Shape::Circle {
                centre: at(*centre),
                radius: radius * scale,
                ink: *ink,
                outline: outline.as_ref().map(stroke),
            },
            Shape::Text(text) => {
                Shape::Text(Text { at: at(text.at), size: text.size * scale, ..text.clone() })
            }
        });
        self.shapes.extend(placed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(paragraphs: usize) -> Sheet {
        let text = "Nobody uses the workstations for most of the day. ".repeat(8);
        let mut chart = Scene::new(Size { width: 400, height: 200 }, "c");
        chart.text(Text::new((10.0, 10.0), "<svg> & \"text\"", 10.0, Anchor::Left));
        let mut parts = vec![SheetPart::Heading("When?".into()), SheetPart::Chart(chart)];
        parts.extend(std::iter::repeat_n(SheetPart::Paragraph(text), paragraphs));
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        parts.push(SheetPart::Table {
            header: row(["stretch", "hours", "part"]),
            rows: vec![row(["<b>over</b> an hour", "3,950", "81 %"])],
        });
        Sheet {
            title: "<script>alert(1)</script>".into(),
            subtitle: "a & b".into(),
            facts: vec![("59,000 USD".into(), "a year".into())],
            parts,
            notes: vec!["\"source\" <i>".into()],
        }
    }

    #[test]
    fn whatever_is_said_stays_text_and_nothing_is_run_or_fetched() {
        let html = sheet(1).html();
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(
            html.contains("&lt;b&gt;over&lt;/b&gt;")
                && html.contains("&quot;source&quot; &lt;i&gt;")
        );
        for never in ["<script", "<b>", "<i>", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(never), "{never}");
        }
        assert_eq!(
            html.matches("http").count(),
            html.matches("http-equiv").count() + html.matches("http://www.w3.org/2000/svg").count()
        );
    }

    #[test]
    fn what_is_long_is_set_smaller_until_it_fits_the_page() {
        let sizes = |scene: &Scene| {
            let texts = scene.shapes.iter().filter_map(|shape| {
                if let Shape::Text(text) = shape { Some((text.at.1, text.size)) } else { None }
            });
            texts.fold((0.0_f64, 0.0_f64), |most, (y, size)| (most.0.max(y), most.1.max(size)))
        };
        let (_, usual) = sizes(&sheet(1).scene());
        let (lowest, shrunk) = sizes(&sheet(20).scene());
        assert!(shrunk < usual, "{shrunk} {usual}");
        assert!(lowest < f64::from(PAGE.height) - MARGIN, "{lowest}");
        assert!(sheet(20).pdf().starts_with(b"%PDF"));
    }
}
