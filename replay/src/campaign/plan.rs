//! The grid of a campaign: which execution is which row.
//!
//! Rows are ordered by network, period, criterion, program, policy, reaction and cost.
//! The rows of one network and period are a *unit*: they share a lab. Units
//! are done in *chunks*, each a file of results.

use std::ops::Range;
use std::time::Duration;

use gleaner_common::time::WallTime;

use super::file::{Campaign, Choose};
use super::periods::{PeriodStart, TimeOfDay};
use super::runnable::{Runnable, nanos};
use super::values::{PlacementChoice, ReactionChoice};
use crate::results::manifest::NetworkFacts;
use crate::results::{Label, Legend, Measure, Row};
use crate::{Costs, Lab, Learner, Model, Order, Placement, Scratch, SelectError, Selection, Usage};

/// What a thread works with, from chunk to chunk.
#[derive(Debug)]
pub(crate) struct Executor<'a> {
    scratch: Scratch,
    /// One for each criterion; none if no policy asks for the past.
    learners: Vec<Learner<'a>>,
    pub(crate) rows: Vec<Row>,
}

/// A campaign with everything that it needs to run.
#[derive(Debug)]
pub struct Plan {
    pub(crate) campaign: Campaign,
    pub(crate) programs: Vec<Runnable>,
    /// One for each criterion.
    pub(crate) usages: Vec<Usage>,
    pub(crate) networks: Vec<NetworkFacts>,
    units: Vec<Unit>,
    legend: Legend,
}

/// One network in one period.
#[derive(Clone, Copy, Debug)]
struct Unit {
    workstations: u32,
    start: PeriodStart,
    seed: u64,
}

/// Why a campaign has no executions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no period has {workstations} workstations with a transition before and one after it: \
     {best} at most, on {starts} periods tried"
)]
pub struct NoPeriodError {
    pub workstations: u32,
    pub best: u32,
    pub starts: usize,
}

impl Plan {
    /// Draws the periods in which there are workstations enough.
    ///
    /// # Errors
    /// A network for which there is no period at all.
    pub(crate) fn new(
        campaign: Campaign,
        programs: Vec<Runnable>,
        usages: Vec<Usage>,
    ) -> Result<Self, NoPeriodError> {
        let candidates = campaign.periods.get_ref().candidates(campaign.seed).unwrap_or_default();
        let legend = legend(&campaign);
        let mut plan = Self { campaign, programs, usages, networks: vec![], units: vec![], legend };
        for network in 0..plan.campaign.networks.len() {
            plan.draw(network, &candidates)?;
        }
        Ok(plan)
    }

    fn draw(&mut self, network: usize, candidates: &[PeriodStart]) -> Result<(), NoPeriodError> {
        let network = &self.campaign.networks[network];
        let (workstations, wanted) = (*network.workstations.get_ref(), *network.periods.get_ref());
        let (mut eligible_min, mut eligible_max, mut best) = (u32::MAX, 0, 0);
        let (mut taken, mut passed_over) = (0, 0);
        let mut units = vec![];
        for (seed, start) in (self.campaign.seed..).zip(candidates) {
            if taken == wanted {
                break;
            }
            let eligible = self.eligible(start.at);
            best = best.max(eligible);
            if eligible < workstations {
                passed_over += 1;
                continue;
            }
            eligible_min = eligible_min.min(eligible);
            eligible_max = eligible_max.max(eligible);
            units.push(Unit { workstations, start: *start, seed });
            taken += 1;
        }
        // The units are in order of time, because what the past teaches is learned once.
        units.sort_by_key(|unit| unit.start.at);
        self.units.extend(units);
        if taken == 0 {
            return Err(NoPeriodError { workstations, best, starts: candidates.len() });
        }
        let (periods_wanted, periods) = (wanted, taken);
        self.networks.push(NetworkFacts {
            workstations,
            periods_wanted,
            periods,
            passed_over,
            eligible_min,
            eligible_max,
        });
        Ok(())
    }

    /// How many workstations could be chosen, under every criterion.
    fn eligible(&self, at: WallTime) -> u32 {
        let selection = Selection {
            start: at,
            span: self.campaign.periods.get_ref().length,
            // More than there are: the refusal says how many there are.
            count: u32::MAX,
            order: Order::AsRead,
        };
        let each = self.usages.iter().map(|usage| match Lab::select(usage, &selection) {
            Ok(lab) => u32::try_from(lab.workstations()).unwrap_or(u32::MAX),
            Err(SelectError { eligible, .. }) => eligible,
        });
        each.min().unwrap_or(0)
    }

    pub(crate) fn legend(&self) -> &Legend {
        &self.legend
    }

    /// Without those at cost zero that slowdowns are measured against.
    pub(crate) fn executions(&self) -> u64 {
        self.units.len() as u64 * self.campaign.executions_per_period()
    }

    fn units_per_chunk(&self) -> usize {
        let rows = self.campaign.executions_per_period().max(1);
        let wanted = u64::from(self.campaign.chunk_rows);
        usize::try_from((wanted / rows).max(1)).unwrap_or(usize::MAX)
    }

    pub(crate) fn chunks(&self) -> u32 {
        u32::try_from(self.units.len().div_ceil(self.units_per_chunk())).unwrap_or(u32::MAX)
    }

    fn units_of(&self, chunk: u32) -> Range<usize> {
        let many = self.units_per_chunk();
        let first = chunk as usize * many;
        first..(first + many).min(self.units.len())
    }

    pub(crate) fn rows_of(&self, chunk: u32) -> u64 {
        self.units_of(chunk).len() as u64 * self.campaign.executions_per_period()
    }

    /// What one thread works with.
    pub(crate) fn executor(&self) -> Executor<'_> {
        let asks = |choice: &PlacementChoice| Placement::from(*choice).asks_outlook();
        let learners = if self.campaign.policies.0.iter().any(asks) {
            self.usages.iter().map(Learner::new).collect()
        } else {
            vec![]
        };
        Executor { scratch: Scratch::default(), learners, rows: vec![] }
    }

    /// Executes a chunk, into the worker's emptied rows.
    pub(crate) fn execute(
        &self,
        chunk: u32,
        executor: &mut Executor<'_>,
        done: &mut dyn FnMut(u64),
    ) {
        executor.rows.clear();
        for unit in &self.units[self.units_of(chunk)] {
            let before = executor.rows.len();
            self.execute_unit(*unit, executor);
            done((executor.rows.len() - before) as u64);
        }
    }

    fn execute_unit(&self, unit: Unit, executor: &mut Executor<'_>) {
        for (criterion, usage) in (0..).zip(&self.usages) {
            let mut lab = self.lab(usage, unit).unwrap_or_else(|error| {
                unreachable!("the period was drawn because it has workstations enough: {error}")
            });
            if let Some(learner) = executor.learners.get_mut(usize::from(criterion)) {
                learner.teach(&mut lab);
            }
            for (program, compiled) in (0..).zip(&self.programs) {
                for (policy, placement) in (0..).zip(&self.campaign.policies.0) {
                    for (reaction, on_busy) in (0..).zip(&self.campaign.on_busy.0) {
                        let time_of_day = unit.start.time_of_day() as u16;
                        let labels: [u16; 5] = [program, policy, reaction, criterion, time_of_day];
                        let row = Row { labels, ..Self::row_of(unit, compiled) };
                        let rules = self.campaign.rules.rules();
                        let model = Model { rules, ..model(*placement, *on_busy) };
                        self.execute_costs(compiled, &lab, model, row, executor);
                    }
                }
            }
        }
    }

    fn lab(&self, usage: &Usage, unit: Unit) -> Result<Lab, SelectError> {
        let order = match self.campaign.choose {
            Choose::AsRead => Order::AsRead,
            Choose::Shuffled => Order::Shuffled { seed: unit.seed },
        };
        let span = self.campaign.periods.get_ref().length;
        let count = unit.workstations;
        Lab::select(usage, &Selection { start: unit.start.at, span, count, order })
    }

    /// What is the same for all executions of a program in a unit.
    fn row_of(unit: Unit, program: &Runnable) -> Row {
        let mut row = Row::EMPTY;
        row[Measure::Workstations] = i64::from(unit.workstations);
        row[Measure::PeriodStart] = unit.start.at.0.div_euclid(1_000_000_000);
        row[Measure::Weekday] = i64::from(unit.start.weekday);
        row[Measure::Hour] = i64::from(unit.start.hour);
        row[Measure::Undisturbed] = nanos(program.undisturbed(unit.workstations));
        row
    }

    fn execute_costs(
        &self,
        program: &Runnable,
        lab: &Lab,
        mut model: Model,
        mut row: Row,
        executor: &mut Executor<'_>,
    ) {
        model.costs = Costs::default();
        let mut free = row;
        program.execute(lab, &model, &mut executor.scratch, &mut free);
        row[Measure::ZeroCost] = if free.finished() { free[Measure::Execution] } else { 0 };
        for cost in &self.campaign.costs.0 {
            model.costs = Costs { migrate: *cost, rollback: *cost, retreat: *cost };
            row[Measure::Cost] = nanos(*cost);
            program.execute(lab, &model, &mut executor.scratch, &mut row);
            executor.rows.push(row);
        }
    }
}

fn legend(campaign: &Campaign) -> Legend {
    Legend::new(Label::ALL.map(|label| match label {
        Label::Program => {
            campaign.programs.iter().map(|program| program.name.get_ref().clone()).collect()
        }
        Label::Policy => campaign.policies.0.iter().map(ToString::to_string).collect(),
        Label::OnBusy => campaign.on_busy.0.iter().map(ToString::to_string).collect(),
        Label::Criterion => campaign.criteria.0.iter().map(ToString::to_string).collect(),
        Label::TimeOfDay => TimeOfDay::ALL.iter().map(|time| time.name().to_owned()).collect(),
    }))
}

/// The model of a campaign's choices, at no cost.
pub fn model(placement: PlacementChoice, reaction: ReactionChoice) -> Model {
    Model {
        placement: placement.into(),
        on_busy: reaction.on_busy,
        renice_share: reaction.share,
        ..Model::phalen1994(Duration::ZERO)
    }
}
