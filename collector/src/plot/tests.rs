use gleaner_figure::{Format, Size};

use super::*;
use crate::generate::{Form, GeneratorPlan, OwnerModel, generate};
use crate::timeline::{Interpretation, interpret};

fn lab(days: i64) -> Vec<Timeline> {
    let from = 749_692_800;
    let plan = GeneratorPlan {
        workstations: 20,
        from: WallTime::from_unix_s(from),
        to: WallTime::from_unix_s(from + days * 86_400),
        seed: 1,
        form: Form::Exact,
        zone: TimeZone::UTC,
    };
    let model = OwnerModel::phalen1994();
    generate(&model, &plan).map(|(_, records)| interpret(records, Interpretation::Exact)).collect()
}

#[track_caller]
fn svg(kind: PlotKind, timelines: &[Timeline], span: Span) -> String {
    let timelines: Vec<_> = timelines.iter().collect();
    let figure = chart(kind, &timelines, span, &TimeZone::UTC).unwrap();
    let scene = figure.scene(Size { width: 800, height: 450 }).unwrap();
    String::from_utf8(scene.to_bytes(Format::Svg)).unwrap()
}

#[test]
fn every_kind_says_what_it_is_of() {
    for days in [5, 40, 200] {
        let timelines = lab(days);
        for kind in [PlotKind::Week, PlotKind::Survival, PlotKind::Availability] {
            let svg = svg(kind, &timelines, Span::default());
            assert!(svg.contains("20 workstations, 4 October 1993 to"), "{kind:?} {days}");
        }
    }
}

#[test]
fn a_span_cuts_what_is_drawn() {
    let from = WallTime::from_unix_s(749_692_800 + 2 * 86_400);
    let to = WallTime::from_unix_s(749_692_800 + 3 * 86_400);
    let span = Span { from: Some(from), to: Some(to) };
    let svg = svg(PlotKind::Availability, &lab(10), span);
    assert!(svg.contains("20 workstations, 6 October 1993"), "{svg}");
    assert!(!svg.contains("7 October"), "{svg}");
}

#[test]
fn nothing_known_is_nothing_to_draw() {
    let nothing = [&Timeline::default()];
    assert!(chart(PlotKind::Week, &nothing, Span::default(), &TimeZone::UTC).is_none());
}
