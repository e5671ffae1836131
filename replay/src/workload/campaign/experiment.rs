//! What a campaign would run, for whoever runs it otherwise: on a real lab.

use gleaner_coordinator_core::scheduler::{Named, Parameters};

use super::inputs::WorkloadInputs;
use crate::workload::generate::within;
use crate::workload::{ChangeCosts, Site, WorkloadJob};

/// One workload under one policy: the first repetition, at the first costs.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub workload: String,
    pub policy: &'static Named,
    pub parameters: Parameters,
    /// How many of a hundred jobs are malleable.
    pub malleable: u32,
    /// Their sizes, as the campaign says them.
    pub range: String,
    pub site: Site,
    pub costs: ChangeCosts,
    pub jobs: Vec<WorkloadJob>,
}

impl WorkloadInputs {
    /// All of them, in the order of the campaign's runs.
    pub fn experiments(&self) -> Vec<Experiment> {
        let plan = &self.plan;
        let campaign = &plan.campaign;
        let costs = ChangeCosts {
            negotiation: campaign.negotiation.0[0],
            adaptation: campaign.adaptation.0[0],
        };
        let mut experiments = vec![];
        for variant in &plan.variants {
            for (_, sites) in &plan.sites {
                let site = &sites[0];
                let most = site.groups.iter().copied().max().unwrap_or(1);
                let jobs = || variant.jobs(campaign.seed).map(|job| within(job, most));
                experiments.extend(campaign.policies.0.iter().map(|policy| Experiment {
                    workload: variant.name.clone(),
                    policy: policy.0,
                    parameters: campaign.parameters.parameters(),
                    malleable: variant.malleable,
                    range: variant.range.map_or_else(String::new, |range| range.to_string()),
                    site: site.clone(),
                    costs,
                    jobs: jobs().collect(),
                }));
            }
        }
        experiments
    }
}
