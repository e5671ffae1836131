//! The recorded traces in `data/` are what `data/README.md` says.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use gleaner_common::trace;

#[test]
fn the_recorded_traces_replay_and_last_as_long_as_the_thesiss() {
    let lasting = [("fft", 304_032), ("test", 148_000), ("msh", 195_663), ("det", 375_507)];
    for (name, millis) in lasting {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../data/traces/{name}.trace"));
        let lined = trace::read(File::open(&path).unwrap()).unwrap();
        assert_eq!(lined.check(), [], "{name}");
        let trace = lined.trace;
        assert_eq!((trace.name.as_str(), trace.ranks.len()), (name, 17));
        assert_eq!(trace.critical_path(), Ok(Duration::from_millis(millis)), "{name}");
        assert!(path.metadata().unwrap().len() < 150_000, "{name}");
    }
}
