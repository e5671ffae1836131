//! Paints a scene as a PDF of one page. Text stays text, in the bundled font, so
//! that it can be searched and copied. The same scene gives the same bytes.
//!
//! Source: ISO 32000-1:2008, §8 (graphics) and §9.7 (composite fonts).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use ab_glyph::Font;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{CidFontType, FontFlags, LineJoinStyle, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};

use crate::font::{self, HALF_CAPITAL, Weight};
use crate::scene::{Anchor, Ink, Point, Scene, Shape, Stroke, Text};

/// Points of 1/72 inch for each CSS pixel of 1/96.
const POINTS: f32 = 0.75;

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const INFO: Ref = Ref::new(5);
/// Each font has five objects from its own on.
const FONTS: [(Weight, i32, Name<'static>, &str); 2] = [
    (Weight::Regular, 10, Name(b"F0"), "GLEANR+DejaVuSans"),
    (Weight::Bold, 20, Name(b"F1"), "GLEANR+DejaVuSans-Bold"),
];
/// States of opacity, one object each.
const STATES: i32 = 30;

/// How much of a circle's radius its Bézier handles are long.
const CIRCLE: f64 = 0.552_284_75;

pub(crate) fn paint(scene: &Scene) -> Vec<u8> {
    let mut painter =
        Painter { content: Content::new(), alphas: BTreeSet::new(), letters: BTreeMap::new() };
    let (width, height) = (points(scene.size.width), points(scene.size.height));
    painter.content.transform([POINTS, 0.0, 0.0, -POINTS, 0.0, height]);
    scene.shapes.iter().for_each(|shape| painter.shape(shape));
    let Painter { content, alphas, letters } = painter;
    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES).lang(TextStr("en"));
    pdf.document_info(INFO).title(TextStr(&scene.title)).producer(TextStr("gleaner"));
    pdf.pages(PAGES).kids([PAGE]).count(1);
    let mut page = pdf.page(PAGE);
    page.media_box(Rect::new(0.0, 0.0, width, height)).parent(PAGES).contents(CONTENT);
    let mut resources = page.resources();
    let mut fonts = resources.fonts();
    for (_, first, name, _) in FONTS {
        fonts.pair(name, Ref::new(first));
    }
    fonts.finish();
    let mut states = resources.ext_g_states();
    for (place, alpha) in (0..).zip(&alphas) {
        states.pair(Name(state(*alpha).as_bytes()), Ref::new(STATES + place));
    }
    states.finish();
    resources.finish();
    page.finish();
    for (place, alpha) in (0..).zip(&alphas) {
        let part = f32::from(*alpha) / 255.0;
        pdf.ext_graphics(Ref::new(STATES + place)).non_stroking_alpha(part).stroking_alpha(part);
    }
    for (weight, first, _, name) in FONTS {
        let none = BTreeMap::new();
        let used = letters.get(&u8::from(weight == Weight::Bold)).unwrap_or(&none);
        put_font(&mut pdf, weight, (first, name), used);
    }
    let content = packed(&content.finish());
    pdf.stream(CONTENT, &content).filter(Filter::FlateDecode);
    pdf.finish()
}

fn points(pixels: u32) -> f32 {
    single(f64::from(pixels)) * POINTS
}

/// What a state of this opacity is called.
fn state(alpha: u8) -> String {
    format!("A{alpha}")
}

struct Painter {
    content: Content,
    alphas: BTreeSet<u8>,
    /// By weight, the letters that are used, by their numbers in the font.
    letters: BTreeMap<u8, BTreeMap<u16, char>>,
}

impl Painter {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Path { points, stroke } => {
                self.pen(stroke);
                self.along(points);
                self.content.stroke();
            }
            Shape::Area { points, ink } => {
                self.fill(*ink);
                self.along(points);
                self.content.close_path().fill_nonzero();
            }
            Shape::Rect { frame, ink } => {
                self.fill(*ink);
                let [left, top] = [frame.left, frame.top].map(single);
                self.content.rect(left, top, single(frame.width()), single(frame.height()));
                self.content.fill_nonzero();
            }
            Shape::Circle { centre, radius, ink, outline } => {
                self.fill(*ink);
                self.around(*centre, *radius);
                self.content.fill_nonzero();
                if let Some(stroke) = outline {
                    self.pen(stroke);
                    self.around(*centre, *radius);
                    self.content.stroke();
                }
            }
            Shape::Text(text) => self.text(text),
        }
    }

    fn fill(&mut self, ink: Ink) {
        self.opacity(ink);
        let [red, green, blue] = colour(ink);
        self.content.set_fill_rgb(red, green, blue);
    }

    fn pen(&mut self, stroke: &Stroke) {
        self.opacity(stroke.ink);
        let [red, green, blue] = colour(stroke.ink);
        self.content.set_stroke_rgb(red, green, blue);
        self.content.set_line_width(single(stroke.width.max(0.0)));
        self.content.set_line_join(LineJoinStyle::RoundJoin);
        self.content.set_dash_pattern(stroke.dash.iter().copied(), 0.0);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what a byte holds"
    )]
    fn opacity(&mut self, ink: Ink) {
        let alpha = (ink.alpha.clamp(0.0, 1.0) * 255.0).round() as u8;
        self.alphas.insert(alpha);
        self.content.set_parameters(Name(state(alpha).as_bytes()));
    }

    fn along(&mut self, points: &[Point]) {
        for (number, (x, y)) in points.iter().enumerate() {
            if number == 0 {
                self.content.move_to(single(*x), single(*y));
            } else {
                self.content.line_to(single(*x), single(*y));
            }
        }
    }

    fn around(&mut self, (x, y): Point, radius: f64) {
        let handle = CIRCLE * radius;
        let at = |across: f64, down: f64| [single(x + across), single(y + down)];
        let [right, top] = at(radius, 0.0);
        self.content.move_to(right, top);
        for (a, b, to) in [
            (at(radius, handle), at(handle, radius), at(0.0, radius)),
            (at(-handle, radius), at(-radius, handle), at(-radius, 0.0)),
            (at(-radius, -handle), at(-handle, -radius), at(0.0, -radius)),
            (at(handle, -radius), at(radius, -handle), at(radius, 0.0)),
        ] {
            self.content.cubic_to(a[0], a[1], b[0], b[1], to[0], to[1]);
        }
        self.content.close_path();
    }

    fn text(&mut self, text: &Text) {
        let width = font::width(&text.words, text.size, text.weight);
        let start = match text.anchor {
            Anchor::Left => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::Right => -width,
        };
        let (below, (x, y)) = (HALF_CAPITAL * text.size, text.at);
        // The page counts downwards, letters upwards.
        let matrix = if text.turned {
            [0.0, -1.0, -1.0, 0.0, single(x + below), single(y - start)]
        } else {
            [1.0, 0.0, 0.0, -1.0, single(x + start), single(y + below)]
        };
        let used = self.letters.entry(u8::from(text.weight == Weight::Bold)).or_default();
        let mut glyphs = vec![];
        for letter in text.words.chars() {
            let glyph = text.weight.font().glyph_id(letter).0;
            used.entry(glyph).or_insert(letter);
            glyphs.extend(glyph.to_be_bytes());
        }
        self.fill(text.ink);
        let name = FONTS[usize::from(text.weight == Weight::Bold)].2;
        self.content.begin_text().set_font(name, single(text.size)).set_text_matrix(matrix);
        self.content.show(Str(&glyphs)).end_text();
    }
}

fn put_font(pdf: &mut Pdf, weight: Weight, (first, name): (i32, &str), used: &BTreeMap<u16, char>) {
    let [of_glyphs, descriptor, file, unicode] = [1, 2, 3, 4].map(|place| Ref::new(first + place));
    let info = SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };
    let mut font = pdf.type0_font(Ref::new(first));
    font.base_font(Name(name.as_bytes())).encoding_predefined(Name(b"Identity-H"));
    font.descendant_font(of_glyphs).to_unicode(unicode);
    font.finish();
    let outlines = weight.font();
    // A thousandth of the font's size is the unit of widths.
    let unit = single(font::scale(weight, 1_000.0));
    let mut cid = pdf.cid_font(of_glyphs);
    cid.subtype(CidFontType::Type2).base_font(Name(name.as_bytes())).system_info(info);
    cid.font_descriptor(descriptor).cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = cid.widths();
    for glyph in used.keys() {
        let width = outlines.h_advance_unscaled(ab_glyph::GlyphId(*glyph)) * unit;
        widths.consecutive(*glyph, [width]);
    }
    widths.finish();
    cid.finish();
    let (ascent, descent) = (outlines.ascent_unscaled() * unit, outlines.descent_unscaled() * unit);
    pdf.font_descriptor(descriptor)
        .name(Name(name.as_bytes()))
        .flags(FontFlags::NON_SYMBOLIC)
        .bbox(Rect::new(-1_000.0, descent, 2_000.0, ascent))
        .italic_angle(0.0)
        .ascent(ascent)
        .descent(descent)
        .cap_height(single(2_000.0 * HALF_CAPITAL))
        .stem_v(if weight == Weight::Bold { 140.0 } else { 80.0 })
        .font_file2(file);
    let bytes = font::bytes(weight);
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    let packed_font = packed(bytes);
    pdf.stream(file, &packed_font).filter(Filter::FlateDecode).pair(Name(b"Length1"), length);
    let mut cmap = UnicodeCmap::new(Name(b"GleanerUnicode"), info);
    for (glyph, letter) in used {
        cmap.pair(*glyph, *letter);
    }
    pdf.cmap(unicode, &cmap.finish());
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = ZlibEncoder::new(vec![], Compression::default());
    to.write_all(bytes)
        .and_then(|()| to.finish())
        .unwrap_or_else(|error| unreachable!("packing in memory: {error}"))
}

fn colour(ink: Ink) -> [f32; 3] {
    [ink.colour.0, ink.colour.1, ink.colour.2].map(|part| f32::from(part) / 255.0)
}

#[expect(clippy::cast_possible_truncation, reason = "pixels, which f32 holds finely enough")]
fn single(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::INK;
    use crate::render::Size;

    fn page() -> Scene {
        let mut scene = Scene::new(Size { width: 200, height: 300 }, "A title (with brackets)");
        scene.text(Text::new((20.0, 20.0), "machine-hours: 3,950 €", 12.0, Anchor::Left));
        let turned = Text::new((20.0, 90.0), "Ünïcode", 12.0, Anchor::Middle);
        scene.text(Text { turned: true, ..turned });
        scene.ring((90.0, 90.0), 5.0, Stroke::new(INK.faint(0.5), 1.0));
        scene
    }

    fn contains(bytes: &[u8], what: &str) -> bool {
        bytes.windows(what.len()).any(|window| window == what.as_bytes())
    }

    #[test]
    fn a_page_is_one_page_of_its_size_in_points() {
        let bytes = paint(&page());
        assert!(bytes.starts_with(b"%PDF-1."));
        assert!(bytes.ends_with(b"%%EOF"));
        for said in ["/Count 1", "/MediaBox [0 0 150 225]", "A title (with brackets)"] {
            assert!(contains(&bytes, said), "{said}");
        }
        assert_eq!(bytes, paint(&page()), "the same scene gives the same bytes");
    }

    #[test]
    fn letters_can_be_found_again() {
        let bytes = paint(&page());
        // A letter's glyph, and what it means in UTF-16.
        let glyph = Weight::Regular.font().glyph_id('Ü').0;
        assert!(contains(&bytes, &format!("<{glyph:04X}> <00DC>")));
    }
}
