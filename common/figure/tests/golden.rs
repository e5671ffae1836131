//! The bytes of small charts, so that no change of their looks passes unseen.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use gleaner_figure::{
    Arrow, Axis, Bar, Figure, Format, Gantt, GanttKind, HeatMap, LineChart, Look, OKABE_ITO,
    Panels, Series, Shade, Size,
};

const SMALL: Size = Size { width: 320, height: 220 };

fn svg(figure: &dyn Figure) -> String {
    let bytes = || figure.scene(SMALL).unwrap().to_bytes(Format::Svg);
    assert_eq!(bytes(), bytes());
    String::from_utf8(bytes()).unwrap()
}

fn lines() -> LineChart {
    LineChart {
        title: "Slowdown & cost".into(),
        subtitle: "mean".into(),
        x_axis: Axis::linear("cost (s)"),
        y_axis: Axis::log("slowdown (%)"),
        series: vec![
            Series {
                references: vec![(50.0, 60.0)],
                ..Series::new("30", vec![(1.0, 0.41), (50.0, 69.36), (99.0, 343.85)])
                    .with_band(vec![(1.0, 0.3, 0.5), (99.0, 300.0, 400.0)])
            },
            Series::new("50", vec![(1.0, 0.4), (50.0, 50.68), (99.0, 145.89)]).looking(Look::Steps),
        ],
        reference_name: "printed".into(),
    }
}

#[test]
fn lines_look_as_they_did() {
    insta::assert_snapshot!(svg(&lines()));
}

#[test]
fn a_heat_map_looks_as_it_did() {
    insta::assert_snapshot!(svg(&HeatMap {
        title: "Idle".into(),
        rows: vec!["Mon".into(), "Tue".into()],
        columns: vec!["0".into(), "12".into()],
        values: vec![vec![Some(0.0), Some(55.0)], vec![None, Some(100.0)]],
        value_label: "idle (%)".into(),
        print: Some(0),
        missing_name: "unknown".into(),
        ..HeatMap::default()
    }));
}

#[test]
fn a_gantt_chart_looks_as_it_did() {
    insta::assert_snapshot!(svg(&Gantt {
        title: "Who ran where".into(),
        time_axis: Axis::linear("time (s)"),
        lanes: vec!["ada".into(), "bob".into()],
        bar_kinds: vec![GanttKind::new("computing", OKABE_ITO[0])],
        bars: vec![Bar { lane: 0, start: 0.0, end: 30.0, kind: 0, label: "rank 0".into() }],
        arrow_kinds: vec![GanttKind::new("move", OKABE_ITO[1])],
        arrows: vec![Arrow { from: (0, 30.0), to: (1, 40.0), kind: 0 }],
        shade_kinds: vec![GanttKind::new("owner", OKABE_ITO[7])],
        shades: vec![Shade { lane: 0, start: 30.0, end: 60.0, kind: 0 }],
        ..Gantt::default()
    }));
}

#[test]
fn a_file_is_what_its_ending_says() {
    let panels = Panels { columns: 2, charts: vec![lines(), lines()], ..Panels::default() };
    for (name, start) in [("a.png", b"\x89PNG".as_slice()), ("a.svg", b"<svg"), ("a.pdf", b"%PDF")]
    {
        let format = Format::of(Path::new(name)).unwrap();
        let drawn = panels.draw(format, panels.natural_size()).unwrap();
        assert!(drawn.starts_with(start), "{name}");
    }
    let said = Format::of(Path::new("a.gif")).unwrap_err().to_string();
    assert!(said.ends_with("a.gif: expected a file that ends in .svg, .png or .pdf"), "{said}");
}
