//! `glean trace`, on small files and on what was recorded.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the coordinator is for other tests")]
mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::{glean, succeeds};

const PING: &str = "gleaner-trace 1
program ping
ranks 2
rank 0
send 1 8 7
receive 1 7
rank 1
receive 0 7
compute 1
send 0 8 7
";

fn run(home: &Path, arguments: &[&str]) -> Output {
    glean(home).args(arguments).output().unwrap()
}

#[track_caller]
fn refused(output: &Output, code: i32, expected: &str) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(expected), "`{said}` lacks `{expected}`");
}

#[test]
fn a_bad_trace_is_named_with_file_and_line() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    let claims = [
        ("receive 0 7", "receive 0 9", "bad.trace:5: rank 0 sends message 1 of tag 7 to rank 1"),
        ("send 0 8 7", "send 5 8 7", "bad.trace:10: rank 5 of 2: expected 0 to 1"),
        ("compute 1", "compute x", "bad.trace:9: `x` is not seconds"),
        (
            "send 1 8 7\nreceive 1 7",
            "receive 1 7\nsend 1 8 7",
            "bad.trace:5: deadlock: rank 0 waits",
        ),
    ];
    for (from, to, expected) in claims {
        fs::write(at.join("bad.trace"), PING.replace(from, to)).unwrap();
        refused(&run(at, &["trace", "check", "bad.trace"]), 1, expected);
        refused(&run(at, &["trace", "show", "bad.trace"]), 2, expected);
    }
    refused(
        &run(at, &["trace", "check", "no.trace"]),
        2,
        "glean: cannot read no.trace: No such file",
    );
}

#[test]
fn a_trace_is_stretched_shown_and_checked() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    fs::write(at.join("ping.trace"), PING).unwrap();
    succeeds(&run(at, &["trace", "scale", "ping.trace", "2.5s", "--out", "long.trace"]));
    let row = succeeds(&run(at, &["trace", "check", "long.trace", "--json"]));
    let row: serde_json::Value = serde_json::from_str(&row).unwrap();
    assert_eq!((row["ok"].as_bool(), row["critical_path_s"].as_f64()), (Some(true), Some(2.5)));
    let shown = succeeds(&run(at, &["trace", "show", "long.trace"]));
    assert!(shown.starts_with("ping: 2 ranks, 5 operations, 2 messages of 16 B"), "{shown}");
    succeeds(&run(at, &["trace", "ring", "--out", "ring.trace"]));
    let shown = succeeds(&run(at, &["trace", "info", "ring.trace", "--json"]));
    assert_eq!(shown.lines().count(), 17);
}

#[test]
fn a_recording_of_others_becomes_a_trace() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    fs::write(at.join("two.ti"), "0 compute 5e9\n0 barrier\n1 init\n1 barrier\n").unwrap();
    let import = ["trace", "import", "two.ti", "--out", "two.trace", "--flops-per-s", "1e10"];
    let said = succeeds(&run(at, &import));
    assert!(said.starts_with("two.trace: 2 ranks, 5 operations, critical path 0.500 s"), "{said}");
    fs::write(at.join("two.ti"), "0 init\n0 sleep 5\n").unwrap();
    refused(&run(at, &import), 2, "glean: two.ti:2: `sleep` is not an operation");
}

#[test]
fn a_program_is_recorded_where_it_is_told_to_write() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    fs::write(at.join("ping.trace"), PING).unwrap();
    let record = |command: &str| {
        let arguments =
            ["trace", "record", "--out", "r.trace", "--duration", "3s", "--", "sh", "-c"];
        run(at, &[&arguments[..], &[command]].concat())
    };
    succeeds(&record("cp ping.trace $GLEAN_RECORD"));
    assert!(fs::read_to_string(at.join("r.trace")).unwrap().contains("compute 3\n"));
    refused(
        &record("true"),
        2,
        "glean: sh recorded nothing\nhint: it has to write its trace where",
    );
    refused(&record("exit 3"), 2, "glean: sh failed (exit status: 3), so nothing was recorded");
}
