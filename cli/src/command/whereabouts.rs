//! Where the ranks of a program are, and how often each has moved: one line.

use std::collections::BTreeMap;

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::{JobRow, SubprogramRow, SubprogramState};
use gleaner_shell::client::Client;

use crate::ask;

/// Asks for the ranks of each program that has not ended.
pub(super) async fn ask(client: &Client, rows: &[JobRow]) -> Result<BTreeMap<JobId, String>> {
    let mut found = BTreeMap::new();
    for row in rows {
        if row.program.is_some() && !row.summary.state.has_ended() {
            let ranks = ask::subprograms(client, row.job).await?;
            found.insert(row.job, whereabouts(&ranks));
        }
    }
    Ok(found)
}

/// Neighbours by number that moved equally often.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
    moves: u32,
}

/// `host1: 0-3, 7 (2 moves); host2: 4-6`. Whoever has ended is nowhere.
fn whereabouts(ranks: &[SubprogramRow]) -> String {
    let mut places: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
    for row in ranks {
        let Some(place) = place(row) else { continue };
        let (rank, moves) = (row.subprogram.index, row.moves);
        let runs = places.entry(place).or_default();
        match runs.last_mut() {
            Some(run) if run.last + 1 == rank && run.moves == moves => run.last = rank,
            _ => runs.push(Run { first: rank, last: rank, moves }),
        }
    }
    let places = places.into_iter().map(|(place, runs)| {
        let runs: Vec<String> = runs.into_iter().map(spoken).collect();
        format!("{place}: {}", runs.join(", "))
    });
    places.collect::<Vec<_>>().join("; ")
}

fn place(row: &SubprogramRow) -> Option<&str> {
    use SubprogramState::{
        Cancelled, Demoted, Failed, Placed, Queued, Running, Succeeded, Suspended,
    };
    match row.state {
        Queued => Some("waiting"),
        Placed | Running | Suspended | Demoted => row.workstation.as_deref(),
        Succeeded | Failed | Cancelled => None,
    }
}

fn spoken(Run { first, last, moves }: Run) -> String {
    let numbers = if first == last { first.to_string() } else { format!("{first}-{last}") };
    match moves {
        0 => numbers,
        1 => format!("{numbers} (1 move)"),
        _ => format!("{numbers} ({moves} moves)"),
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::SubprogramId;

    use super::*;

    fn rank(index: u32, state: SubprogramState, at: &str, moves: u32) -> SubprogramRow {
        SubprogramRow {
            subprogram: SubprogramId { job: JobId(7), index },
            state,
            workstation: Some(at.to_owned()),
            fence: None,
            attempts: 1,
            failures: 0,
            retreats: 0,
            lost: 0,
            outcome: None,
            cpu_s: 0.0,
            moves,
        }
    }

    #[test]
    fn ranks_are_told_by_where_they_are_and_how_often_they_moved() {
        use SubprogramState::{Demoted, Queued, Running, Succeeded, Suspended};
        let ranks = [
            rank(0, Running, "host1", 0),
            rank(1, Running, "host1", 0),
            rank(2, Suspended, "host1", 1),
            rank(3, Demoted, "host2", 2),
            rank(4, Succeeded, "host2", 0),
            rank(5, Running, "host1", 0),
            rank(6, Queued, "host2", 0),
        ];
        assert_eq!(
            whereabouts(&ranks),
            "host1: 0-1, 2 (1 move), 5; host2: 3 (2 moves); waiting: 6"
        );
    }
}
