//! What a campaign executes: ranks that send messages, or a bag of subtasks,
//! under one of the eight models of Phalen 1994, Table 1.

use std::time::Duration;

use crate::results::{Measure, Row};
use crate::{
    Bag, BagModel, Breakdown, Execution, Lab, Model, Program, Scratch, Workers, run, run_bag,
};

/// A program that is ready to be executed.
#[derive(Clone, Debug)]
pub(crate) enum Runnable {
    /// Models 5 to 8: the processes are scheduled.
    Ranks { program: Program, table1: u8 },
    /// Models 1 to 4: the program adapts itself.
    Bag { bag: Bag, table1: u8, workers: Workers },
}

impl Runnable {
    /// How long the program takes on so many workstations that are always idle.
    pub(crate) fn undisturbed(&self, workstations: u32) -> Duration {
        match self {
            Self::Ranks { program, .. } => program.critical_path(),
            Self::Bag { bag, table1, workers } => {
                let grows = table1.is_multiple_of(2);
                let at_once = if grows { workstations } else { workers.among(workstations) };
                bag.work() / at_once.max(1)
            }
        }
    }

    /// Executes the program once, and writes what it came to into the row.
    pub(crate) fn execute(&self, lab: &Lab, model: &Model, scratch: &mut Scratch, row: &mut Row) {
        match self {
            Self::Ranks { program, table1 } => {
                let (grows, spawns) = (table1.is_multiple_of(2), *table1 >= 7);
                let model = Model { grows, spawns, ..*model };
                fill(row, &run(program, lab, &model, scratch));
            }
            Self::Bag { bag, table1, workers } => {
                let Some(of_table1) = BagModel::of_table1(*table1, *workers, model.costs.retreat)
                else {
                    unreachable!("a bag's model was checked to be 1 to 4")
                };
                let model = BagModel {
                    placement: model.placement,
                    on_busy: model.on_busy,
                    costs: model.costs,
                    renice_share: model.renice_share,
                    ..of_table1
                };
                fill(row, &run_bag(bag, lab, &model, scratch).shared);
            }
        }
    }
}

fn fill(row: &mut Row, execution: &Execution) {
    row[Measure::Finished] = i64::from(execution.finished);
    row[Measure::Execution] = nanos(execution.execution);
    row[Measure::Transitions] = i64::from(execution.busy_transitions);
    row[Measure::OnCriticalPath] = i64::from(execution.on_critical_path);
    row[Measure::Moves] = i64::from(execution.moves);
    row[Measure::Waits] = i64::from(execution.waits);
    row[Measure::NodesUsed] = i64::from(execution.nodes_used);
    row[Measure::AverageIdle] = nanos(execution.average_idle);
    fill_path(row, Measure::PathCompute, &execution.path);
    fill_path(row, Measure::LastCompute, &execution.last_rank);
    row[Measure::Useful] = nanos(execution.useful);
    row[Measure::Wasted] = nanos(execution.wasted);
    row[Measure::IdleTime] = nanos(execution.idle_time);
    row[Measure::SharedComputing] = nanos(execution.shared_computing);
    row[Measure::SharedFrozen] = nanos(execution.shared_frozen);
}

/// The parts are in the same order in both breakdowns.
fn fill_path(row: &mut Row, first: Measure, path: &Breakdown) {
    let parts = [
        path.compute,
        path.repeated,
        path.slowed,
        path.messages,
        path.waiting,
        path.frozen,
        path.moving,
    ];
    let first = first as usize;
    for (place, part) in row.measures[first..].iter_mut().zip(parts) {
        *place = nanos(part);
    }
}

pub(super) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
