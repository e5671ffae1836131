use super::*;
use crate::Axis;
use crate::scene::{Frame, Shape};

fn chart() -> LineChart {
    LineChart {
        title: "Slowdown".into(),
        x_axis: Axis::linear("migration cost (s)"),
        y_axis: Axis::linear("slowdown (%)"),
        series: vec![
            Series {
                references: vec![(50.0, 69.36)],
                ..Series::new("30 workstations", vec![(0.0, 0.0), (50.0, 69.0), (100.0, 344.0)])
            },
            Series::new("50 workstations", vec![(0.0, 0.0), (50.0, 51.0), (100.0, 146.0)])
                .looking(Look::Dashed),
        ],
        reference_name: "printed".into(),
        ..LineChart::default()
    }
}

fn said(scene: &Scene) -> Vec<&str> {
    scene
        .shapes
        .iter()
        .filter_map(
            |shape| if let Shape::Text(text) = shape { Some(text.words.as_str()) } else { None },
        )
        .collect()
}

#[test]
fn everything_has_its_label() {
    let size = chart().natural_size();
    let scene = chart().scene(size).unwrap();
    let said = said(&scene);
    for words in
        ["Slowdown", "migration cost (s)", "slowdown (%)", "30 workstations", "printed", "400"]
    {
        assert!(said.contains(&words), "{words} in {said:?}");
    }
}

#[test]
fn nothing_leaves_the_page_and_no_text_lies_on_another() {
    let scene = chart().scene(Size { width: 420, height: 300 }).unwrap();
    let page = scene.page();
    let mut boxes: Vec<Frame> = vec![];
    for shape in &scene.shapes {
        match shape {
            Shape::Path { points, .. } | Shape::Area { points, .. } => {
                assert!(points.iter().all(
                    |(x, y)| (0.0..=page.right).contains(x) && (0.0..=page.bottom).contains(y)
                ));
            }
            Shape::Text(text) if !text.turned => {
                let wide = crate::font::width(&text.words, text.size, text.weight);
                let left = match text.anchor {
                    crate::scene::Anchor::Left => text.at.0,
                    crate::scene::Anchor::Middle => text.at.0 - wide / 2.0,
                    crate::scene::Anchor::Right => text.at.0 - wide,
                };
                let half = text.size * 0.4;
                let this = Frame {
                    left,
                    right: left + wide,
                    top: text.at.1 - half,
                    bottom: text.at.1 + half,
                };
                assert!(
                    left >= 0.0 && this.right <= page.right && this.bottom <= page.bottom,
                    "{}",
                    text.words
                );
                let apart = |that: &Frame| {
                    this.left >= that.right
                        || that.left >= this.right
                        || this.top >= that.bottom
                        || that.top >= this.bottom
                };
                assert!(
                    wide == 0.0 || boxes.iter().all(apart),
                    "{} lies on another text",
                    text.words
                );
                boxes.push(this);
            }
            Shape::Text(_) | Shape::Rect { .. } | Shape::Circle { .. } => {}
        }
    }
}

#[test]
fn a_chart_of_nothing_is_refused() {
    let nothing = LineChart {
        title: "x".into(),
        series: vec![Series::new("a", vec![(f64::NAN, 1.0)])],
        ..LineChart::default()
    };
    assert_eq!(
        nothing.scene(nothing.natural_size()).unwrap_err().to_string(),
        "`x` has nothing to draw"
    );
}

#[test]
fn a_logarithmic_axis_refuses_what_it_cannot_show() {
    let log = LineChart { y_axis: Axis::log("y"), ..chart() };
    let said = log.scene(log.natural_size()).unwrap_err().to_string();
    assert_eq!(said, "`30 workstations` has 0, which a logarithmic axis cannot show");
}

#[test]
fn a_gap_breaks_the_line() {
    let lines = |points| {
        let chart = LineChart { series: vec![Series::new("a", points)], ..chart() };
        let scene = chart.scene(chart.natural_size()).unwrap();
        let colour = series_colour(0);
        scene
            .shapes
            .iter()
            .filter(|s| matches!(s, Shape::Path { stroke, .. } if stroke.ink.colour == colour))
            .count()
    };
    assert_eq!(lines(vec![(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 1.0)]), 1);
    assert_eq!(lines(vec![(0.0, 1.0), (1.0, 1.0), (1.5, f64::NAN), (2.0, 2.0), (3.0, 1.0)]), 2);
}
