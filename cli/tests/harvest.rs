//! One workstation harvests, and its user gets everything back: logs, files,
//! reasons, records.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gleaner_lab::{Lab, Options};
use serde_json::Value;

/// Reads a staged directory, prints, fails for index 3, and leaves two files.
const PROGRAM: &str = "#!/bin/sh
cat given/deep/word
echo \"$1 $MOOD\"
echo complaint >&2
mkdir \"$GLEAN_OUTPUT/sub\"
echo \"$1\" > \"$GLEAN_OUTPUT/sub/index\"
head -c 300000 /dev/zero > \"$GLEAN_OUTPUT/large\"
[ \"$1\" != 3 ]
";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_harvest_comes_home_with_its_logs_files_and_reasons() {
    let lab = Lab::start(Options::new(env!("CARGO_BIN_EXE_glean").into(), 1)).unwrap();
    lab.wait_for_idle(1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (given, program) = (dir.path().join("given"), dir.path().join("run.sh"));
    fs::create_dir_all(given.join("deep")).unwrap();
    fs::write(given.join("deep/word"), "word\n").unwrap();
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let out = dir.path().join("out");
    let arguments = [
        "submit",
        "--array",
        "1-5:2",
        "--retries",
        "0",
        "--env",
        "MOOD=glad",
        "--input",
        text(&given),
        "--input",
        text(&program),
        "--out",
        text(&out),
        "--wait",
        "--",
        "./run.sh",
        "{i}",
    ];
    let submitted = lab.run(&arguments).unwrap();
    let said = String::from_utf8(submitted.stdout).unwrap();
    assert_eq!(submitted.status.code(), Some(1), "one of three fails: {said}");
    assert!(said.starts_with("job 1 failed: subprograms 3: 2 succeeded, 1 failed; "), "{said}");

    for index in ["1", "3", "5"] {
        let left = fs::read_to_string(out.join(index).join("sub/index")).unwrap();
        assert_eq!(left.trim(), index);
        assert_eq!(fs::metadata(out.join(index).join("large")).unwrap().len(), 300_000);
    }
    assert_eq!(lab.text(&["logs", "1.5"]).unwrap(), "word\n5 glad\n");
    let all = lab.text(&["logs", "1", "--stderr"]).unwrap();
    assert_eq!(
        all,
        "==> 1.1 succeeded <==\ncomplaint\n==> 1.3 failed <==\ncomplaint\n==> 1.5 succeeded <==\ncomplaint\n"
    );
    let rows = lab.rows::<Value>(&["job", "1", "--json"]).unwrap();
    assert_eq!((rows.len(), &rows[0]["summary"]["state"]), (4, &"failed".into()));
    assert_eq!(rows[2]["outcome"], "exit code 1");
    assert!(lab.text(&["why", "1.3"]).unwrap().contains("exit code 1"));
    assert!(lab.text(&["job", "1.3"]).unwrap().contains("ATTEMPT"));

    // A file that was changed here is fetched again, the others are not.
    let (changed, kept) = (out.join("1/sub/index"), out.join("5/sub/index"));
    fs::write(&changed, "spoilt").unwrap();
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    lab.text(&["fetch", "1", "--out", text(&out)]).unwrap();
    assert_eq!(fs::read_to_string(&changed).unwrap(), "1\n");
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);

    let host = &lab.hosts[0].name;
    assert!(lab.text(&["why", host]).unwrap().contains("idle"));
    assert_eq!(lab.rows::<Value>(&["workstations", "--json"]).unwrap()[0]["name"], host.as_str());
}
