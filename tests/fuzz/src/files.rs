//! Files: of a bad disk, of another site, of a workstation that moves a guest.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use gleaner_collector::archive::Archive;
use gleaner_collector::import::{ImportFormat, ImportOptions, import};
use gleaner_collector::name::WorkstationName;
use gleaner_collector::store::{Batch, Store};
use gleaner_common::trace;
use gleaner_replay::spot::SpotTrace;
use gleaner_replay::workload::elastisim;
use gleaner_replay::workload::swf::SwfLog;

/// A workstation's usage log, and what is kept beside it.
///
/// # Panics
/// Two readings of it differ.
pub fn logs(bytes: &[u8]) {
    in_directory(|data| {
        let name: WorkstationName = "ws".parse().unwrap_or_else(|_| unreachable!("it is a name"));
        let log = data.join("ws");
        let half = bytes.len() / 2;
        std::fs::create_dir(&log)?;
        std::fs::write(log.join("00000001.log"), &bytes[..half])?;
        std::fs::write(log.join("00000002.log"), bytes)?;
        let archive = Archive::new(data);
        let count = || {
            let mut records = 0;
            let _ = archive.read(&name, |_| {
                records += 1;
                ControlFlow::Continue(())
            });
            records
        };
        let first = count();
        let _ = archive.summary(&name);
        assert_eq!(first, count(), "reading changes nothing");
        if let Ok(mut store) = Store::open(data) {
            let _ = store.append(&[Batch::of(name.clone(), vec![])]);
        }
        assert_eq!(first, count(), "a torn tail has no record in it");
        Ok(())
    });
}

/// An agent's records that wait.
pub fn spool(bytes: &[u8]) {
    in_directory(|directory| {
        gleaner_agent::fuzzing::spool(bytes, directory);
        Ok(())
    });
}

/// Records of others.
pub fn imports(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let format = ImportFormat::ALL[usize::from(*which) % ImportFormat::ALL.len()];
    in_directory(|directory| {
        let source = directory.join("source");
        std::fs::File::create(&source)?.write_all(rest)?;
        let options = ImportOptions::new(format, vec![source]);
        let _ = import(&directory.join("data"), &options, &mut |_| {});
        Ok(())
    });
}

/// A program's trace, ours or somebody's recording.
///
/// # Panics
/// A trace reads otherwise when it is written again.
pub fn traces(bytes: &[u8]) {
    let options = trace::import::ImportOptions::new("theirs");
    let _ = trace::import::time_independent(bytes, &options);
    let _ = trace::import::liballprof(bytes, &options);
    let Ok(first) = trace::read(bytes) else { return };
    let mut written = vec![];
    if first.check().is_empty() && trace::write(&first.trace, &mut written).is_ok() {
        let again = trace::read(written.as_slice()).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(again.trace, first.trace);
    }
}

/// A log of jobs, of machines that could be had, an input of another simulator.
///
/// # Panics
/// A log reads otherwise when it is written again.
pub fn workloads(bytes: &[u8]) {
    let _ = SpotTrace::read(bytes);
    let _ = elastisim::Input::read(bytes);
    let Ok(log) = SwfLog::read(bytes) else { return };
    let _ = log.rigid();
    let again = SwfLog::read(log.to_string().as_bytes());
    let again = again.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(again.jobs, log.jobs);
}

/// The files of an image.
pub fn image(bytes: &[u8]) {
    gleaner_move::fuzzing::image(bytes);
}

/// The archive of a guest's files.
pub fn archive(bytes: &[u8]) {
    gleaner_move::fuzzing::archive(bytes);
}

/// A whole image on its way.
pub fn stream(bytes: &[u8]) {
    gleaner_move::fuzzing::stream(bytes);
}

fn in_directory(run: impl FnOnce(&Path) -> std::io::Result<()>) {
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    run(directory.path()).unwrap_or_else(|error| panic!("{error}"));
}

pub(crate) mod seeds {
    use super::trace;

    pub(crate) fn logs() -> Vec<Vec<u8>> {
        let mut header = b"gleanlog\x01\x00\x02\x00ws".to_vec();
        header.extend_from_slice(&[0; 4]);
        vec![header]
    }

    pub(crate) fn spool() -> Vec<Vec<u8>> {
        vec![vec![3, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0]]
    }

    pub(crate) fn imports() -> Vec<Vec<u8>> {
        let texts = [
            "\x002026-01-05T09:03:00Z\nada up 11+02:30, 2 users, load 0.25, 0.16, 0.09\n",
            "\x01workstation,boot,sequence\n",
            "\x02pc1,available,2020-01-01 00:00:00\n",
            "\x03pc1 0 100\n",
            "\x041 0 1 0 100\n",
            "\x05host,start,end\nada,2026-01-05 08:12,2026-01-05T09:15:00Z\n",
            "\x06ada pts/0 10.0.0.5 Mon Jan  5 09:12 - 10:15  (01:03)\n\
             reboot system boot 6.1 Mon Jan  5 09:00:00 2026 - down (01:30)\n\
             wtmp begins Mon Jan  5 08:00:00 2026\n",
        ];
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    pub(crate) fn traces() -> Vec<Vec<u8>> {
        let mut ring = vec![];
        let written = trace::write(&trace::ring::ring17(), &mut ring);
        written.unwrap_or_else(|error| panic!("{error:?}"));
        vec![ring, b"0 compute 1e9\n0 send 1 100\n".to_vec(), b"MPI_Init:1:2\n".to_vec()]
    }

    pub(crate) fn workloads() -> Vec<Vec<u8>> {
        let texts = [
            "; MaxProcs: 128\n1 0 5 100 4 -1 -1 4 200 -1 1 1 1 1 1 1 -1 -1\n",
            "{\"metadata\": {\"gap_seconds\": 600}, \"data\": [0, 1, 16]}",
            "{\"nodes\": 4, \"flops_per_node\": 1e9, \"jobs\": [{\"id\": 0, \"type\": \"rigid\", \
             \"submit_time\": 1, \"num_nodes\": 2, \"flops\": 1e10, \"parallel_percentage\": 1, \
             \"divide\": 1}]}",
        ];
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    pub(crate) fn image() -> Vec<Vec<u8>> {
        let inventory = [0x16_u8, 0x31, 0x31, 0x58, 2, 0, 0, 0, 8, 2];
        let mut file = vec![13];
        file.extend_from_slice(b"inventory.img");
        file.extend_from_slice(&10_u32.to_le_bytes());
        file.extend_from_slice(&inventory);
        vec![file]
    }

    pub(crate) fn archive() -> Vec<Vec<u8>> {
        vec![vec![0; 1_024]]
    }

    pub(crate) fn stream() -> Vec<Vec<u8>> {
        vec![vec![0; 28]]
    }
}
