use gleaner_common::id::Fence;
use gleaner_common::wire::OutputFile;
use proptest::prelude::*;

use super::*;

const TRUTH: ContentHash = ContentHash([7; 32]);

/// The votes on the first of three subprograms, of a workstation each, as they
/// come in. Returns what followed from the last.
fn votes(wanted: u8, answers: &[ContentHash]) -> (Verdict, usize) {
    let mut replicas = Replicas::new(wanted, 3);
    replicas.begin_anew(0);
    let mut waiting: Vec<_> = replicas.of(0).collect();
    for (answer, at) in answers.iter().zip(1..) {
        if waiting.is_empty() {
            break;
        }
        let position = waiting.remove(0);
        replicas.touch(position, WorkstationId(at));
        replicas.vote(position, *answer, History::default());
        match replicas.verdict(0) {
            Verdict::Wait => {}
            Verdict::More(count) => waiting.extend(replicas.more(0, count)),
            decided @ (Verdict::Agreed(_) | Verdict::Differ(_)) => {
                return (decided, replicas.of(0).count());
            }
        }
    }
    (Verdict::Wait, replicas.of(0).count())
}

fn lie(number: u8) -> ContentHash {
    ContentHash([number; 32])
}

#[test]
fn a_quorum_decides_as_soon_as_it_agrees() {
    assert_eq!(votes(2, &[TRUTH, TRUTH]).0, Verdict::Agreed(TRUTH));
    assert_eq!(votes(3, &[TRUTH, TRUTH]).0, Verdict::Agreed(TRUTH));
    assert_eq!(votes(2, &[TRUTH]), (Verdict::Wait, 2));
    assert_eq!(votes(5, &[TRUTH, TRUTH]).0, Verdict::Wait);
}

#[test]
fn where_two_disagree_a_third_decides() {
    assert_eq!(votes(2, &[lie(1), TRUTH, TRUTH]), (Verdict::Agreed(TRUTH), 3));
    assert_eq!(votes(2, &[lie(1), TRUTH, lie(1)]), (Verdict::Agreed(lie(1)), 3));
}

#[test]
fn where_all_disagree_it_ends_with_twice_as_many_and_their_names() {
    let answers: Vec<_> = (1..=20).map(lie).collect();
    for wanted in 2..=5 {
        let (verdict, runs) = votes(wanted, &answers);
        let Verdict::Differ(at) = verdict else { panic!("{verdict:?}") };
        assert!(runs <= usize::from(wanted) * 2, "{runs} of {wanted}");
        assert_eq!(at, (1..).take(at.len()).map(WorkstationId).collect::<Vec<_>>());
        assert!(at.len() > usize::from(wanted), "it was tried once more at least");
    }
}

fn finished(stdout: Printed, outputs: Vec<OutputFile>) -> Finished {
    Finished {
        fence: Fence::of(1),
        outcome: Outcome::Succeeded,
        cpu: std::time::Duration::ZERO,
        ran: std::time::Duration::ZERO,
        suspended: std::time::Duration::ZERO,
        suspensions: 0,
        stdout,
        stderr: Printed::default(),
        outputs,
    }
}

fn file(path: &str, byte: u8) -> OutputFile {
    let hash = ContentHash([byte; 32]);
    OutputFile { path: path.into(), hash, size_bytes: 3, executable: false }
}

#[test]
fn the_exit_status_the_output_and_the_files_are_compared_and_nothing_else() {
    let of = |stdout: &[u8], files| answer(&finished(Printed::Inline(stdout.to_vec()), files));
    let same = of(b"42", vec![file("a", 1), file("b", 2)]);
    assert_eq!(same, of(b"42", vec![file("b", 2), file("a", 1)]), "in whatever order");
    let mut errors = finished(Printed::Inline(b"42".to_vec()), vec![file("a", 1), file("b", 2)]);
    (errors.fence, errors.stderr) = (Fence::of(9), Printed::Inline(b"took 3 s".to_vec()));
    assert_eq!(same, answer(&errors));
    let staged = ContentHash(*blake3::hash(b"42").as_bytes());
    let printed = Printed::Staged { hash: staged, size_bytes: 2, truncated: false };
    assert_eq!(same, answer(&finished(printed, vec![file("a", 1), file("b", 2)])));
    errors.outcome = Outcome::ExitCode(1);
    for other in [
        answer(&errors),
        of(b"43", vec![file("a", 1), file("b", 2)]),
        of(b"42", vec![file("a", 1), file("b", 3)]),
        of(b"42", vec![file("a", 1), file("c", 2)]),
        of(b"42", vec![file("a", 1)]),
        // A file cannot be taken for what was printed.
        of(b"42a", vec![file("b", 2)]),
    ] {
        assert_ne!(same, other);
    }
}

proptest! {
    /// Liars who agree among each other are the worst that there can be.
    #[test]
    fn nothing_that_fewer_than_a_quorum_say_counts(
        wanted in 2u8..=5,
        says in proptest::collection::vec(0u8..3, 10),
    ) {
        let quorum = usize::from(wanted) / 2 + 1;
        let answers: Vec<_> = says.iter().map(|it| if *it == 0 { TRUTH } else { lie(*it) }).collect();
        let (verdict, runs) = votes(wanted, &answers);
        let said = |answer| answers[..runs].iter().filter(|it| **it == answer).count();
        match verdict {
            Verdict::Agreed(answer) => prop_assert!(said(answer) >= quorum),
            Verdict::Differ(at) => {
                prop_assert!([TRUTH, lie(1), lie(2)].iter().all(|it| said(*it) < quorum));
                prop_assert!(at.len() <= usize::from(wanted) * 2);
            }
            Verdict::Wait | Verdict::More(_) => prop_assert!(false, "ten votes decide"),
        }
        // While fewer than a quorum lie, the truth is found.
        let liars = says.iter().filter(|it| **it != 0).count();
        if liars < quorum {
            prop_assert_eq!(votes(wanted, &answers).0, Verdict::Agreed(TRUTH));
        }
    }
}
