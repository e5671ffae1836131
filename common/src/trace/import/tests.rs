use std::fs::File;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::input::ReadTraceError;
use super::super::{Lined, Op, Problem, tags};
use super::*;

fn imported(text: &str) -> Result<Lined, ReadTraceError> {
    time_independent(text.as_bytes(), &ImportOptions::new("x"))
}

#[track_caller]
fn refused(text: &str) -> String {
    imported(text).unwrap_err().in_file(Path::new("x.ti"))
}

fn send(to: u32, bytes: u64, tag: u32) -> Op {
    Op::Send { to, bytes, tag }
}

fn receive(from: u32, tag: u32) -> Op {
    Op::Receive { from, tag }
}

#[test]
fn both_spellings_say_the_same_of_messages() {
    let newer = imported(
        "0 init\n0 compute 1.5e+03\n0 compute 500\n0 send 1 7 100 1\n0 finalize
1 init\n1 irecv 0 7 100 1\n1 compute 10\n1 wait 0 1 7\n1 finalize\n",
    )
    .unwrap();
    assert_eq!(newer.trace.ranks[0], [Op::Compute { nanos: 2_000 }, send(1, 400, 7)]);
    assert_eq!(newer.trace.ranks[1], [Op::Compute { nanos: 10 }, receive(0, 7)]);
    assert_eq!(newer.lines.numbers, [[2, 4], [8, 9]]);
    let older = imported("p0 send p1 400\np1 Irecv p0\np1 compute 10\np1 wait\np1 comm_size 2\n");
    let older = older.unwrap();
    assert_eq!(older.trace.ranks[0], [send(1, 400, 0)]);
    assert_eq!(older.trace.ranks[1], [Op::Compute { nanos: 10 }, receive(0, 0)]);
}

#[test]
fn computation_takes_the_time_that_the_speed_gives_it() {
    let options = ImportOptions { name: "x".to_owned(), flops_per_s: 2e6 };
    let lined = time_independent(&b"0 compute 3"[..], &options).unwrap();
    assert_eq!(lined.trace.ranks[0], [Op::Compute { nanos: 1_500 }]);
}

#[test]
fn all_that_was_begun_is_waited_for() {
    let lined =
        imported("0 irecv 1 5 1 6\n0 irecv 1 4 1 6\n0 isend 1 3 1 6\n0 waitall 3\n1 init\n");
    let ops = &lined.unwrap().trace.ranks[0];
    assert_eq!(ops, &[send(1, 1, 3), receive(1, 5), receive(1, 4)]);
}

#[test]
fn what_cannot_be_taken_is_named_with_its_line() {
    let claims = [
        ("0 init\n0 sleep 5", "x.ti:2: `sleep` is not an operation: expected compute, send,"),
        ("0 send 1 0", "x.ti:1: 2 fields after `send`: expected a number of values"),
        ("0 send -1 0 5", "x.ti:1: `-1` is not a rank, such as 3 or p3"),
        ("0 send 1 -5 5", "x.ti:1: `-5` is not a tag"),
        ("0 send 1 0 5 99", "x.ti:1: `99` is not the code of a type, 0 to 44"),
        ("0 compute nan", "x.ti:1: `nan` is not a number of operations"),
        ("0 compute -5", "x.ti:1: `-5` is not a number of operations"),
        ("0 compute 1e300", "x.ti:1: 1e300 ns of computation"),
        ("0 wait 0 1 5", "x.ti:1: a wait for what was not begun"),
        ("0 init\n0 comm_size 4", "x.ti:2: a group of 4 ranks: expected 1, all that the trace has"),
        ("0 bcast 5 7", "x.ti:1: root 7: expected 0 to 0"),
        ("0 bcast 0.3", "x.ti:1: `0.3` is not a number of values"),
        ("0 allreduce 5", "x.ti:1: 1 arguments of AllReduce: expected 2 or more"),
        ("", "x.ti: nothing to read: expected lines such as `0 compute 1000`"),
        ("x init", "x.ti:1: `x` is not a rank"),
    ];
    for (text, expected) in claims {
        let said = refused(text);
        assert!(said.starts_with(expected), "{said}");
    }
}

fn every_rank(ranks: u32, action: &str) -> Lined {
    let lines: Vec<String> = (0..ranks).map(|rank| format!("{rank} {action}")).collect();
    imported(&lines.join("\n")).unwrap()
}

/// Everything that has to be the same whatever the algorithm.
#[track_caller]
fn check_collective(action: impl Fn(u32) -> String, bytes: impl Fn(u64) -> u64) {
    for ranks in 1..=17 {
        let lined = every_rank(ranks, &action(ranks));
        assert_eq!(lined.check(), [], "{} on {ranks} ranks", action(ranks));
        assert_eq!(
            lined.trace.messages().1,
            bytes(u64::from(ranks)),
            "{} on {ranks}",
            action(ranks)
        );
    }
}

#[test]
fn collectives_become_messages_that_match_on_any_number_of_ranks() {
    let counts = |n: u32| vec!["3"; n as usize].join(" ");
    check_collective(|_| "barrier".to_owned(), |_| 0);
    check_collective(|n| format!("bcast 10 {} 1", n - 1), |n| 40 * (n - 1));
    check_collective(|n| format!("reduce 10 5 {} 0", n / 2), |n| 80 * (n - 1));
    check_collective(|_| "gather 2 2 0 1 1".to_owned(), |n| 8 * (n - 1));
    check_collective(|n| format!("gatherV 2 {} 0 1 1", counts(n)), |n| 8 * (n - 1));
    check_collective(|_| "scatter 2 2 0 1 1".to_owned(), |n| 8 * (n - 1));
    check_collective(|n| format!("scatterV {} 3 0 1 1", counts(n)), |n| 12 * (n - 1));
    check_collective(|_| "allToAll 2 2 1 1".to_owned(), |n| 8 * n * (n - 1));
    check_collective(|n| format!("allToAllV 9 {0} 9 {0} 1 1", counts(n)), |n| 12 * n * (n - 1));
    check_collective(|_| "allGather 2 2 1 1".to_owned(), |n| 8 * n * (n - 1));
    check_collective(|n| format!("allGatherV 3 {0} {0} 1 1", counts(n)), |n| 12 * n * (n - 1));
    check_collective(|n| format!("allGatherV 3 {} 1 1", counts(n)), |n| 12 * n * (n - 1));
    check_collective(|n| format!("reduceScatter {} 5 1", counts(n)), |n| 12 * n * (n - 1));
    check_collective(|_| "scan 2 5 1".to_owned(), |n| 8 * (n - 1));
}

#[test]
fn an_allreduce_doubles_where_it_can() {
    let doubling = every_rank(4, "allReduce 1 500 0").trace;
    let exchange = |partner| [send(partner, 8, tags::ALLREDUCE), receive(partner, tags::ALLREDUCE)];
    let after = Op::Compute { nanos: 500 };
    assert_eq!(doubling.ranks[1], [&exchange(0)[..], &exchange(3), &[after]].concat());
    assert_eq!(every_rank(3, "allReduce 1 500 0").trace.messages(), (4, 32));
}

#[test]
fn a_problem_of_a_recording_has_its_line() {
    let lined = imported("0 init\n0 recv 1 3 8 6\n1 init\n").unwrap();
    let problem = &lined.check()[0];
    assert!(matches!(problem, Problem::UnmatchedReceive { .. }));
    let said = problem.in_file(Path::new("x.ti"), &lined.lines);
    assert!(said.starts_with("x.ti:2: rank 0 receives message 1 of tag 3 from rank 1"), "{said}");
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(vec![]);
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

const RANK_0: &str = "# collprof
MPI_Init:-:1:2:1000.000000
MPI_Send:1002.500000:99:10:11,8,8:1:7:0,0,2:1003.000000
MPI_Barrier:1003.000000:0,0,2:1009.000000
MPI_Finalize:1010.000000:1010.000000
";
const RANK_1: &str = "MPI_Init:-:1:2:2000.000000
MPI_Recv:2001.000000:99:10:11,8,8:0:7:0,1,2:98:2005.000000
MPI_Barrier:2005.000000:0,1,2:2009.000000
MPI_Finalize:2009.000000:-
";

#[test]
fn liballprofs_calls_become_messages_and_the_time_between_them_computation() {
    let files = [("a/pmpi-trace-rank-1.txt", RANK_1), ("a/pmpi-trace-rank-0.txt", RANK_0)];
    let lined = liballprof(&*archive(&files), &ImportOptions::new("sweep")).unwrap();
    let barrier = |other| [send(other, 0, tags::BARRIER), receive(other, tags::BARRIER)];
    let compute = |nanos| Op::Compute { nanos };
    let first = [compute(2_500), send(1, 80, 7)];
    assert_eq!(lined.trace.ranks[0], [&first[..], &barrier(1), &[compute(1_000)]].concat());
    assert_eq!(lined.trace.ranks[1], [&[compute(1_000), receive(0, 7)][..], &barrier(0)].concat());
    assert_eq!(lined.lines.numbers[0], [3, 3, 4, 4, 5]);
    assert_eq!(lined.check(), []);
}

#[test]
fn a_bad_archive_is_named_with_its_file_and_line() {
    let said = |files: &[(&str, &str)]| {
        let error = liballprof(&*archive(files), &ImportOptions::new("x")).unwrap_err();
        error.in_file(Path::new("x.tar"))
    };
    let spoiled = |from: &str, to: &str| {
        said(&[("rank-0.txt", &RANK_0.replace(from, to)), ("rank-1.txt", RANK_1)])
    };
    assert!(said(&[]).starts_with("x.tar: nothing to read: expected an archive"));
    assert!(said(&[("rank-1.txt", RANK_1)]).starts_with("x.tar: no file of rank 0"));
    assert!(said(&[("README", "")]).starts_with("x.tar: `README` is of no rank"));
    let claims = [
        (spoiled("MPI_Send", "MPI_Isend"), "x.tar: rank-0.txt:3: `MPI_Isend` is not an operation"),
        (spoiled("1002.5", "later"), "x.tar: rank-0.txt:3: `later00000` is not a time in micro"),
        (
            spoiled("0,0,2:1009", "0,0,3:1009"),
            "x.tar: rank-0.txt:4: a group of 3 ranks: expected 2",
        ),
        (spoiled("0,0,2:1009", "0,1,2:1009"), "x.tar: rank-0.txt:4: rank 1 of a group: expected 0"),
    ];
    for (said, expected) in claims {
        assert!(said.starts_with(expected), "{said}");
    }
    let error = liballprof(&b"not an archive"[..], &ImportOptions::new("x")).unwrap_err();
    assert!(error.in_file(Path::new("x.tar")).starts_with("x.tar: "));
}

proptest! {
    #[test]
    fn no_bytes_make_an_importer_panic(
        text in "([0-3p]{1,2} (send|recv|irecv|wait|bcast|allToAllV|reduceScatter)( [0-9.e-]{1,3}){0,6}\n){0,6}",
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let _ = imported(&text).map(|lined| lined.check());
        let options = ImportOptions::new("x");
        let _ = time_independent(&*bytes, &options);
        let _ = liballprof(&*bytes, &options);
    }
}

/// The traces of others, which are not part of this project.
fn others() -> Option<PathBuf> {
    let named = std::env::var_os("GLEAN_MPTRACE").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/mptrace");
    named.or(Some(beside)).filter(|path| path.is_dir())
}

#[test]
fn every_trace_of_others_is_imported_and_replays() {
    let Some(others) = others() else {
        gleaner_skip::without("no ../shared/data/mptrace, and GLEAN_MPTRACE names no directory");
        return;
    };
    // Messages between two ranks that the recordings themselves count.
    let counted = [
        ("npb-bt.S.16.ti.gz", 23_520),
        ("npb-lu.W.16.ti.gz", 462_516),
        ("npb-mg.W.32.ti.gz", 18_848),
        ("npb-ft.A.16.ti.gz", 0),
        ("simgrid-nas-lu-s4.actions.gz", 4_408),
        ("simgrid-ti32-full.ti.gz", 0),
        ("sweep3d-2x2.liballprof.tar.gz", 5_760),
    ];
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(others).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let options = ImportOptions::new(name);
        let file = File::open(&path).unwrap();
        let read = if name.contains("liballprof") {
            liballprof(file, &options)
        } else {
            time_independent(file, &options)
        };
        let lined = read.unwrap_or_else(|error| panic!("{}", error.in_file(&path)));
        let problems = lined.check();
        let said = problems.first().map(|problem| problem.in_file(&path, &lined.lines));
        assert_eq!(said, None);
        let own = lined.trace.ranks.iter().flatten().filter(
            |op| matches!(op, Op::Send { tag, .. } if *tag < super::super::COLLECTIVE_TAGS),
        );
        let own = own.count();
        let counted = counted.iter().find(|(counted, _)| *counted == name);
        assert!(counted.is_none_or(|(_, messages)| *messages == own), "{name}: {own} messages");
    }
}
