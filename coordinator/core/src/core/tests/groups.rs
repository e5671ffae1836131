//! Which groups of workstations the parts of a job go to.

use gleaner_common::job::StagedFile;
use gleaner_common::program::ProgramSpec;
use gleaner_common::requirement::{Attributes, Value};

use super::shares::one_place;
use super::*;
use crate::scheduler::spread::Spread;

/// Workstations of one core each, which became idle one after the other: the
/// first on the first floor, the next on the second, and so on.
fn floors(spread: Option<Spread>, of: &[&str]) -> Site {
    let mut config = Config::default();
    config.scheduler.spread = spread;
    let mut site = Site::new(config);
    for (id, floor) in (1..).zip(of) {
        site.enrol(id);
        let attributes = Attributes::from([("group".to_owned(), Value::Text((*floor).to_owned()))]);
        site.connect_with(id, Facts { attributes, ..one_place(8 << 30) });
    }
    site
}

fn program(ranks: u32, file: Option<u8>) -> JobSpec {
    let mut spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(ranks).unwrap());
    spec.program = Some(ProgramSpec { ranks_max: ranks, ..ProgramSpec::default() });
    spec.inputs = file.into_iter().map(input).collect();
    spec
}

fn input(byte: u8) -> StagedFile {
    let hash = gleaner_common::id::ContentHash([byte; 32]);
    StagedFile { path: "in".into(), hash, size_bytes: 1 << 30, executable: false }
}

#[track_caller]
fn check(spread: Option<Spread>, of: &[&str], ranks: u32, expected: &[&str]) {
    let mut site = floors(spread, of);
    let offered = site.submit_spec(program(ranks, None)).1;
    let mut at: Vec<&str> = offered.iter().map(|(id, ..)| of[*id as usize - 1]).collect();
    at.sort_unstable();
    assert_eq!(at, expected, "{spread:?}");
}

#[test]
fn parts_are_kept_together_or_levelled_over_groups() {
    let mixed = ["a", "b", "a", "b", "a", "b", "a"];
    check(Some(Spread::ClusterMinimisation), &mixed, 3, &["a", "a", "a"]);
    check(Some(Spread::WorstFit), &mixed, 3, &["a", "a", "b"]);
    check(Some(Spread::FlexibleClusterMinimisation), &mixed, 3, &["b", "b", "b"]);
    check(Some(Spread::ClusterMinimisation), &mixed, 7, &["a", "a", "a", "a", "b", "b", "b"]);
}

#[test]
fn without_a_wish_placement_alone_says_where() {
    check(None, &["a", "b", "a", "b"], 2, &["a", "b"]);
}

#[test]
fn close_to_files_goes_where_they_were_sent_before() {
    let groups = ["a", "b", "b", "a", "b", "a"];
    let mut site = floors(Some(Spread::CloseToFiles), &groups);
    let at = |offered: &[Offered]| -> Vec<&str> {
        offered.iter().map(|(id, ..)| groups[*id as usize - 1]).collect()
    };
    // Placement takes the one that became idle last.
    let first = site.submit_spec(program(1, Some(7))).1;
    assert_eq!(at(&first), ["a"]);
    assert_eq!(at(&site.submit_spec(program(2, Some(7))).1), ["a", "a"]);
    assert_eq!(at(&site.submit_spec(program(2, Some(8))).1), ["b", "b"], "none is left there");
}
