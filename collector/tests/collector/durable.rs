//! Nothing is confirmed before it is on the disk: the test holds the collector's
//! syncs, lets one through after another, and sees which of them it waits for.

use std::pin::pin;

use gleaner_common::usage::UsageRecord;
use gleaner_common::wire::close;
use gleaner_disks::SyncGate;
use gleaner_shell::stream::StreamError;
use quinn::Connection;

use crate::receive::{Agent, Lab, on_runtime, records};

/// The file whose sync waits.
async fn held(gate: &SyncGate) -> String {
    loop {
        if let Some(path) = gate.held().first() {
            return path.file_name().unwrap().to_string_lossy().into_owned();
        }
        tokio::task::yield_now().await;
    }
}

async fn let_one_through(gate: &SyncGate) {
    let before = gate.passed();
    gate.let_one_through();
    while gate.passed() == before {
        tokio::task::yield_now().await;
    }
}

/// What needs no disk goes to the collector and back: a frame that it refuses.
async fn goes_round(connection: &Connection) {
    let mut agent = Agent::of(connection, "bad").await;
    agent.send(vec![]).await;
    assert_eq!(agent.reply().await, Err(StreamError::Reset { code: close::PROTOCOL }));
}

/// The files that are synced, in order, before these records are confirmed.
async fn synced_before_confirmed(
    gate: &SyncGate,
    connection: &Connection,
    agent: &mut Agent,
    records: Vec<UsageRecord>,
) -> Vec<String> {
    let last = records.last().unwrap().sequence;
    agent.send(records).await;
    let mut reply = pin!(agent.reply());
    let mut files = vec![];
    loop {
        let file = tokio::select! {
            biased;
            reply = &mut reply => {
                Agent::confirmed(reply, last);
                return files;
            }
            file = held(gate) => file,
        };
        tokio::select! {
            biased;
            _ = &mut reply => panic!("it did not wait for the sync of {file}"),
            () = goes_round(connection) => {}
        }
        files.push(file);
        let_one_through(gate).await;
    }
}

#[test]
fn a_record_is_confirmed_when_its_file_and_all_directories_above_it_are_on_the_disk() {
    let Some(gate) = SyncGate::new() else { return };
    on_runtime(async {
        let lab = Lab::start();
        let connection = lab.connection().await;
        let mut ada = Agent::of(&connection, "ada").await;
        gate.close();
        let synced = synced_before_confirmed(&gate, &connection, &mut ada, records(1..=3)).await;
        let [data, header, directory, log] = &synced[..] else { panic!("{synced:?}") };
        assert_eq!((data.as_str(), directory.as_str()), ("data", "ada"));
        assert!(header.starts_with("00000001.log.new-"), "{header}");
        assert_eq!(log, "00000001.log");
        let synced = synced_before_confirmed(&gate, &connection, &mut ada, records(4..=5)).await;
        assert_eq!(synced, ["00000001.log"]);
    });
}
