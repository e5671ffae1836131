//! Messages between two ranks, on one workstation and on two: one byte there
//! and back, and 16 MiB at once. Beside them, in the same run, the barest that
//! does the same: Unix sockets with a process between, which passes on; and a
//! QUIC stream over the lab's network, with the agents' own settings.

mod floor;
pub(crate) mod rank;

use anyhow::{Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::JobState;
use gleaner_lab::Lab;

pub(crate) use self::rank::What;
use self::rank::{BLOCK_BYTES, Figures};
use crate::record::Record;
use crate::{Args, Progress, idle_lab, own_binary};
use gleaner_lab::blocking_client::BlockingClient;

const ROUNDS: u32 = 5_000;

/// The goals: at most so many times the floor's round trip, at least so much of
/// its bandwidth.
const HERE_RATIO: f64 = 1.5;
const THERE_RATIO: f64 = 2.0;
const BANDWIDTH_RATIO: f64 = 0.7;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let rounds = args.times.unwrap_or(ROUNDS).max(10);
    let progress = Progress::new(args, "messages", 4);
    let sockets = floor::sockets(rounds)?;
    progress.step();
    let here = {
        let lab = lab(1, 2)?;
        ranks(&lab, rounds, 1)?
    };
    progress.step();
    let lab = lab(2, 1)?;
    let quic = floor::quic(&lab, rounds)?;
    progress.step();
    let there = ranks(&lab, rounds, 2)?;
    progress.step();
    let mut records = judge("one workstation", &here, &sockets, HERE_RATIO);
    records.extend(judge("two workstations", &there, &quic, THERE_RATIO));
    records.extend(bare("relayed Unix sockets", &sockets));
    records.extend(bare("QUIC stream between two workstations", &quic));
    Ok(records)
}

fn lab(hosts: usize, places: u16) -> Result<Lab> {
    idle_lab(hosts, |options| {
        options.host.places = places;
        (options.network, options.collector) = (true, false);
    })
}

/// A job of two ranks, on so many workstations.
fn ranks(lab: &Lab, rounds: u32, workstations: usize) -> Result<Figures> {
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let program = format!("{}=rank", own_binary()?.display());
    let rounds = rounds.to_string();
    let own = ["--", "./rank", "ping", "--rounds", &rounds];
    let submitted = lab.submit(&[&["--ranks", "2", "--input", &program][..], &own].concat())?;
    let job = JobId(u32::try_from(submitted)?);
    let summary = talk.wait(job)?;
    if summary.state != JobState::Succeeded {
        let known = lab.text(&["job", &submitted.to_string()]).unwrap_or_default();
        bail!("the ranks ended {}:\n{known}", summary.state.name());
    }
    let rows = lab.rows::<serde_json::Value>(&["job", &submitted.to_string(), "--json"])?;
    let mut places: Vec<&str> = rows.iter().filter_map(|row| row["workstation"].as_str()).collect();
    places.sort_unstable();
    places.dedup();
    if places.len() != workstations {
        bail!("the ranks were on {places:?}: expected {workstations} workstations");
    }
    Ok(serde_json::from_str(&talk.printed(SubprogramId { job, index: 0 })?)?)
}

fn judge(case: &str, found: &Figures, floor: &Figures, ratio: f64) -> Vec<Record> {
    vec![
        found
            .round_trip(&format!("{case}: one byte, there and back"))
            .over(floor.p50_s)
            .at_most("ratio", ratio),
        found
            .bandwidth(&format!("{case}: 16 MiB at once"))
            .over(floor.bytes_per_s())
            .at_least("ratio", BANDWIDTH_RATIO),
    ]
}

fn bare(case: &str, floor: &Figures) -> [Record; 2] {
    [
        floor.round_trip(&format!("floor: {case}, one byte")),
        floor.bandwidth(&format!("floor: {case}, 16 MiB")),
    ]
}

impl Figures {
    fn round_trip(&self, case: &str) -> Record {
        Record {
            bench: "messages",
            case: case.to_owned(),
            unit: "s",
            n: Some(self.rounds),
            p50: Some(self.p50_s),
            p99: Some(self.p99_s),
            max: Some(self.max_s),
            ..Record::default()
        }
    }

    fn bytes_per_s(&self) -> f64 {
        BLOCK_BYTES as f64 / self.block_s
    }

    fn bandwidth(&self, case: &str) -> Record {
        Record::value("messages", case, "byte/s", self.bytes_per_s())
    }
}
