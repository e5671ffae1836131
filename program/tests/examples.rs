//! The examples' own tests, and each of them live: its ranks are processes, as
//! on workstations, and their agent is the one of `support`.

#![allow(clippy::duplicate_mod, reason = "each example has the same support")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the examples' answers")]

#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/circuit.rs"]
mod circuit;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/determinant.rs"]
mod determinant;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/fft.rs"]
mod fft;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/heat.rs"]
mod heat;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/mandelbrot.rs"]
mod mandelbrot;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/mesh.rs"]
mod mesh;
#[expect(dead_code, reason = "its `main`")]
#[path = "../examples/quadrature.rs"]
mod quadrature;
mod support;

use std::fs::File;

use gleaner_common::trace::{self, Lines, Trace};
use gleaner_program::{Change, Obligation};
use support::agent::Setup;
use support::example;

/// The thesis's four programs (Phalen 1994, Table 8), small.
#[test]
fn the_four_programs_find_their_answers_as_processes() {
    for (name, size, told) in [
        ("fft", "10", "fft: answer ok: 10 transforms of 1024 points"),
        ("circuit", "3", "test: answer ok: "),
        ("mesh", "16", "msh: answer ok: 16 x 16 points"),
        ("determinant", "64", "det: answer ok: det of 64 x 64"),
    ] {
        let ran = support::run(17, example(name).args(["--size", size]));
        assert_eq!(ran.complaints, [""; 0], "{name}");
        for (rank, process) in &ran.ranks {
            assert!(process.status.success(), "{name}, rank {rank}: {}", process.error);
            assert_eq!(process.output.starts_with(told), *rank == 16, "{}", process.output);
        }
    }
}

#[test]
fn a_program_of_too_few_ranks_says_how_many_it_needs() {
    let ran = support::run(2, &mut example("mesh"));
    let told = "msh: rank 0 failed: 2 ranks: expected 17, sixteen nodes and a host";
    assert!(ran.ranks[&0].error.contains(told), "{}", ran.ranks[&0].error);
    assert_eq!(ran.ranks[&0].status.code(), Some(2));
}

#[test]
fn what_the_ranks_record_makes_the_trace_that_one_process_records() {
    let kept = tempfile::tempdir().unwrap();
    let mut command = example("mesh");
    command.args(["--size", "16"]);
    let record = Some(kept.path().to_owned());
    let ran = support::run_with(Setup { ranks: 17, record, ..Setup::default() }, &mut command);
    assert!(ran.ranks.values().all(|process| process.status.success()));
    let read = |name: &str| trace::read(File::open(kept.path().join(name)).unwrap()).unwrap().trace;
    let parts = (0..17).map(|rank| read(&format!("trace.{rank}"))).collect();
    let joined = Trace::join("msh".to_owned(), parts).unwrap();
    assert_eq!(trace::check(&joined, &Lines::default()), []);
    command.arg("--record").arg(kept.path().join("alone"));
    assert!(command.status().unwrap().success());
    assert_eq!(joined.messages(), read("alone").messages());
}

/// All that `ran` prints, if every rank has ended well.
#[track_caller]
fn told(ran: &support::Ran) -> String {
    assert_eq!(ran.complaints, [""; 0]);
    let failed = ran.ranks.iter().find(|(_, process)| !process.status.success());
    assert!(failed.is_none(), "{failed:?}");
    ran.ranks.values().map(|process| process.output.as_str()).collect()
}

/// Model 1: two owners return while their ranks have a task in hand.
#[test]
fn a_bag_is_worked_off_though_workers_retreat() {
    let mut command = example("mandelbrot");
    command.args(["--size", "128"]);
    let retreats = vec![(1, 1), (3, 2)];
    let ran = support::run_with(Setup { ranks: 4, retreats, ..Setup::default() }, &mut command);
    let told = told(&ran);
    assert!(told.starts_with("mandelbrot: answer ok: 128 x 128 points"), "{told}");
    assert!(told.contains(" 18 tasks by 3 ranks"), "two more than there were: {told}");
}

/// Models 3 and 4: the program asks what it could have, and spawns so many.
#[test]
fn a_program_spawns_as_many_workers_as_there_are_processors() {
    for more in [&["--spawn", "9"][..], &["--spawn", "9", "--again"]] {
        let mut command = example("mandelbrot");
        command.args(["--size", "128"]).args(more);
        let ran = support::run_with(Setup { processors: 3, ..Setup::default() }, &mut command);
        assert!(told(&ran).contains("128 x 128 points"));
        assert_eq!(ran.ranks.len(), 4);
    }
}

/// It takes four of six, in whole pairs, and gives two for the one that must be
/// had; asks for one more and is told that it has it.
#[test]
fn a_mesh_divides_its_rows_anew_among_as_many_processes_as_were_agreed() {
    let mut command = example("heat");
    command.args(["--size", "24", "--multiple", "2"]);
    let offers = vec![
        (Change::Grow { by: 5 }, Obligation::Voluntary),
        (Change::Shrink { by: 1 }, Obligation::Mandatory),
    ];
    let setup = Setup { ranks: 2, processors: 5, offers, ..Setup::default() };
    let ran = support::run_with(setup, &mut command);
    assert_eq!(told(&ran), "heat: answer ok: 24 x 24 points by 2, then 6, then 4 ranks\n");
    assert_eq!(ran.ranks.len(), 6);
    let mut command = example("heat");
    command.args(["--size", "24", "--request", "9", "--release", "4"]);
    let setup = Setup { ranks: 2, processors: 5, ..Setup::default() };
    let ran = support::run_with(setup, &mut command);
    assert_eq!(told(&ran), "heat: answer ok: 24 x 24 points by 2, then 7, then 3 ranks\n");
}

/// Models 7 and 8.
#[test]
fn an_integral_is_halved_among_spawned_ranks() {
    let mut command = example("quadrature");
    command.args(["--points", "20000"]);
    let ran = support::run_with(Setup { processors: 4, ..Setup::default() }, &mut command);
    let told = told(&ran);
    assert!(told.starts_with("quadrature: answer ok: "), "{told}");
    assert!(ran.ranks.len() >= 5, "{} ranks", ran.ranks.len());
    assert!(told.contains(&format!("of 8 parts by {} ranks", ran.ranks.len())), "{told}");
}
