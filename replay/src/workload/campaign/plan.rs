//! The grid of a campaign: which run is which row.
//!
//! Runs are ordered by workload (its gap, share and range), site, policy, cost
//! of a negotiation, cost of an adaptation, and repetition.

use std::ops::Range as Rows;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::JobId;

use super::file::{PolicyName, WorkloadCampaign};
use crate::campaign::values::CostChoices;
use crate::workload::generate::{Knobs, Model, Range, flexible, is_malleable, within};
use crate::workload::{ChangeCosts, Outcome, Rules, Site, Summary, WorkloadJob, run_on};

/// One workload that has come to its end, and where in the grid that was.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub workload: String,
    pub policy: &'static str,
    pub site: String,
    pub range: String,
    pub processors: u32,
    pub speed: f64,
    pub malleable: u32,
    pub gap_s: f64,
    pub negotiation_s: f64,
    pub adaptation_s: f64,
    pub repeat: u32,
    pub summary: Summary,
    /// Only if each job is asked for.
    pub outcomes: Vec<Outcome>,
}

/// Where jobs come from.
#[derive(Clone, Debug)]
pub(super) enum Jobs {
    Model(Model),
    /// Those of a log that have run, as rigid jobs.
    Log(Arc<Vec<WorkloadJob>>),
}

/// A workload with what it is varied in.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    jobs: Jobs,
    gap: Duration,
    pub(super) malleable: u32,
    pub(super) range: Option<Range>,
}

/// A campaign with everything that it needs to run.
#[derive(Clone, Debug)]
pub(super) struct WorkloadPlan {
    pub(super) campaign: WorkloadCampaign,
    pub(super) variants: Vec<Variant>,
    /// Each with its name: one for all repetitions, or one for each.
    pub(super) sites: Vec<(String, Vec<Site>)>,
}

/// A log's jobs that can be malleable have half of their processors to twice as
/// many, where a campaign does not say.
const USUAL_RANGE: Range = Range::Percent { min: 50, max: 200 };

impl WorkloadPlan {
    /// `jobs` are those of the campaign's workloads, in their order.
    pub(super) fn new(
        campaign: WorkloadCampaign,
        jobs: Vec<Jobs>,
        sites: Vec<(String, Vec<Site>)>,
    ) -> Self {
        let mut variants = vec![];
        for (entry, jobs) in campaign.workloads.iter().zip(jobs) {
            let gaps = entry.gaps.clone().unwrap_or(CostChoices(vec![Duration::ZERO]));
            let ranges: Vec<Option<Range>> = entry.ranges.iter().copied().map(Some).collect();
            let ranges = if ranges.is_empty() { vec![None] } else { ranges };
            for gap in &gaps.0 {
                for malleable in &entry.malleable {
                    variants.extend(ranges.iter().map(|range| Variant {
                        name: entry.name.get_ref().clone(),
                        jobs: jobs.clone(),
                        gap: *gap,
                        malleable: *malleable,
                        range: *range,
                    }));
                }
            }
        }
        Self { campaign, variants, sites }
    }

    pub(super) fn runs(&self) -> u64 {
        let campaign = &self.campaign;
        let axes = [
            self.variants.len(),
            self.sites.len(),
            campaign.policies.0.len(),
            campaign.negotiation.0.len(),
            campaign.adaptation.0.len(),
        ];
        let all: u64 = axes.iter().map(|many| *many as u64).product();
        all * u64::from(campaign.repeats)
    }

    pub(super) fn chunks(&self) -> u32 {
        let chunks = self.runs().div_ceil(self.campaign.chunk_runs.into());
        u32::try_from(chunks).unwrap_or(u32::MAX)
    }

    fn runs_of(&self, chunk: u32) -> Rows<u64> {
        let many = u64::from(self.campaign.chunk_runs);
        let first = u64::from(chunk) * many;
        first..(first + many).min(self.runs())
    }

    pub(super) fn rows_of(&self, chunk: u32) -> u64 {
        let Rows { start, end } = self.runs_of(chunk);
        end - start
    }

    /// Runs a chunk; tells of each run as it ends.
    pub(super) fn execute(&self, chunk: u32, done: &mut dyn FnMut(u64)) -> Vec<RunRow> {
        let run = |number| {
            let row = self.run(number);
            done(1);
            row
        };
        self.runs_of(chunk).map(run).collect()
    }

    /// The first run, with each of its jobs.
    pub(super) fn first_run(&self) -> RunRow {
        self.run_with(0, true)
    }

    /// The run of this number: the last axis changes fastest.
    fn run(&self, number: u64) -> RunRow {
        self.run_with(number, self.campaign.per_job)
    }

    fn run_with(&self, number: u64, per_job: bool) -> RunRow {
        let campaign = &self.campaign;
        let mut rest = number;
        let mut digit = |many: usize| {
            let many = many.max(1) as u64;
            let digit = usize::try_from(rest % many).unwrap_or(0);
            rest /= many;
            digit
        };
        let repeat = digit(campaign.repeats as usize);
        let adaptation = campaign.adaptation.0[digit(campaign.adaptation.0.len())];
        let negotiation = campaign.negotiation.0[digit(campaign.negotiation.0.len())];
        let policy = campaign.policies.0[digit(campaign.policies.0.len())];
        let (site_name, sites) = &self.sites[digit(self.sites.len())];
        let variant = &self.variants[digit(self.variants.len())];
        let site = &sites[repeat.min(sites.len() - 1)];
        let costs = ChangeCosts { negotiation, adaptation };
        let repeat = u32::try_from(repeat).unwrap_or(u32::MAX);
        let mut outcomes = vec![];
        let tell = |outcome: &Outcome| {
            if per_job {
                outcomes.push(*outcome);
            }
        };
        let summary = self.execute_one(variant, site, policy, (costs, repeat), tell);
        RunRow {
            workload: variant.name.clone(),
            policy: policy.0.name,
            site: site_name.clone(),
            range: variant.range.map_or_else(String::new, |range| range.to_string()),
            processors: site.groups.iter().sum(),
            speed: site.speed,
            malleable: variant.malleable,
            gap_s: variant.gap.as_secs_f64(),
            negotiation_s: negotiation.as_secs_f64(),
            adaptation_s: adaptation.as_secs_f64(),
            repeat,
            summary,
            outcomes,
        }
    }

    fn execute_one(
        &self,
        variant: &Variant,
        site: &Site,
        policy: PolicyName,
        (costs, repeat): (ChangeCosts, u32),
        tell: impl FnMut(&Outcome),
    ) -> Summary {
        let parameters = self.campaign.parameters.parameters();
        let most = site.groups.iter().copied().max().unwrap_or(1);
        let seed = self.campaign.seed.wrapping_add(repeat.into());
        let jobs = variant.jobs(seed).map(|job| within(job, most));
        let ramp = self.campaign.ramp.map(|ramp| ramp.ramp(seed));
        let rules = Rules { costs, ramp, ..Rules::default() };
        run_on(jobs, site, || (policy.0.build)(&parameters), rules, tell)
    }
}

impl Variant {
    pub(super) fn jobs(&self, seed: u64) -> Box<dyn Iterator<Item = WorkloadJob> + '_> {
        match &self.jobs {
            Jobs::Model(model) => {
                let Self { gap, malleable, range, .. } = *self;
                model.jobs(Knobs { seed, gap, malleable, range })
            }
            Jobs::Log(jobs) => Box::new(jobs.iter().zip(0..).map(|(job, number)| {
                let job = WorkloadJob { number: JobId(number), ..job.clone() };
                if is_malleable(number, self.malleable) {
                    flexible(job, self.range.unwrap_or(USUAL_RANGE))
                } else {
                    job
                }
            })),
        }
    }
}
