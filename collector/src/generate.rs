//! Made-up owners: a seeded source of usage logs for any number of
//! workstations and months.
//!
//! ```text
//! OwnerModel ─► life (who is where, when) ─► truth (with loads) ─┬─► exact records, as agents write
//!     ▲                                                          └─► snapshots, as rwho gave them
//!     └── fit ◄── timelines of a real log
//! ```
//!
//! The promise: a workstation's log depends on the model, the seed, the time
//! and its own number only. More workstations do not change the first ones,
//! and the two forms tell of the same life.
//!
//! Only `keep` knows of files.

mod exact;
mod fit;
mod keep;
mod lengths;
mod life;
mod model;
mod phalen;
mod record;
mod snapshots;
mod truth;

use gleaner_common::time::WallTime;
use gleaner_common::usage::UsageRecord;
use jiff::tz::TimeZone;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::name::WorkstationName;
use life::Life;
use record::RecordWriter;
use truth::truth;

pub use crate::week::Week;
pub use fit::FitError;
pub use keep::{GenerateError, Generated, generate_into, generate_table};
pub use model::{Arrivals, Loads, LogNormal, ModelError, OwnerModel, Pauses, Stops, mean_s};

gleaner_common::named! {
    /// What the records look like.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Form {
        /// Every transition at its moment, as our agents write.
        #[default]
        Exact = "exact",
        /// What a look every three minutes shows, with the rules of collection
        /// of Phalen 1994, §5 (Tables 4 and 5), so that Table 6 is needed to
        /// read it.
        Snapshots = "snapshots",
    }
}

/// What to generate.
#[derive(Clone, Debug)]
pub struct GeneratorPlan {
    pub workstations: u32,
    pub from: WallTime,
    pub to: WallTime,
    pub seed: u64,
    pub form: Form,
    /// Whose hours and days the owners keep.
    pub zone: TimeZone,
}

impl GeneratorPlan {
    /// The workstations' names are in the order of their numbers.
    pub fn name(number: u32) -> WorkstationName {
        format!("ws-{:05}", number.saturating_add(1))
            .parse()
            .unwrap_or_else(|_| unreachable!("letters and digits"))
    }
}

/// The logs of all workstations, one after the other.
pub fn generate<'a>(
    model: &'a OwnerModel,
    plan: &'a GeneratorPlan,
) -> impl Iterator<Item = (WorkstationName, Vec<UsageRecord>)> + 'a {
    (0..plan.workstations).map(|number| (GeneratorPlan::name(number), records(model, plan, number)))
}

/// The log of one workstation: `number` counts from 0.
pub fn records(model: &OwnerModel, plan: &GeneratorPlan, number: u32) -> Vec<UsageRecord> {
    let life = Life::new(model, &plan.zone, source(plan.seed, number, "life"));
    let stretches = life.live(plan.from, plan.to);
    let truth = truth(&model.load, &stretches, source(plan.seed, number, "load"));
    let writer = RecordWriter::new(GeneratorPlan::name(number), plan.seed, model.cores);
    let chance = source(plan.seed, number, plan.form.name());
    match plan.form {
        Form::Exact => exact::write(&truth, writer, model.stops.unannounced, chance),
        Form::Snapshots => snapshots::write(&truth, writer, plan, chance),
    }
}

/// The random numbers of one workstation for one purpose.
fn source(seed: u64, number: u32, purpose: &str) -> StdRng {
    let text = format!("gleaner owners 1 {seed} {number} {purpose}");
    StdRng::from_seed(*blake3::hash(text.as_bytes()).as_bytes())
}

#[cfg(test)]
mod tests;
