//! Malleable jobs as Posner, Hupfeld and Finnerty make them for ElastiSim
//! (Özden et al. 2022): their inputs, read; and inputs of the same kind, drawn.
//!
//! A job's work is cut into equal iterations, and it changes its size between
//! two of them; its speed-up is Amdahl's. Nothing is sent and nothing is known
//! of the network.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::lines::{LineError, whole_text};
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Allowed, Class, Request, RequestError, Sizes, SizesError, Speedup,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use serde::Deserialize;

use super::engine::WorkloadJob;
use super::rules::Rules;

/// How often ElastiSim calls a scheduler in these experiments.
const CALLED_EVERY: Duration = Duration::from_secs(60);

/// What one experiment starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub processors: u32,
    /// In the order of their submission.
    pub jobs: Vec<WorkloadJob>,
    /// Into how many iterations malleable jobs are cut.
    pub parts: BTreeMap<JobId, u32>,
}

impl Input {
    /// The scheduler is called as ElastiSim does.
    pub fn as_elastisim(&self) -> Rules {
        Rules { every: Some(CALLED_EVERY), ..self.when_needed() }
    }

    /// The scheduler is called whenever something has happened.
    pub fn when_needed(&self) -> Rules {
        Rules { parts: self.parts.clone(), ..Rules::default() }
    }
}

/// A hundred times the longest of theirs.
const BYTES_MAX: usize = 32 << 20;

/// The longest span that a simulation counts.
const SPAN_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// Why this is no input.
#[derive(Debug, thiserror::Error)]
pub enum ReadInputError {
    #[error("expected the JSON of a generated input")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Text(#[from] LineError),
    #[error("job {job} has no usable sizes")]
    Sizes { job: u32, source: SizesError },
    #[error("job {job} is no request")]
    Request { job: u32, source: RequestError },
    #[error("job {job} has a {what} of {value}")]
    Number { job: u32, what: &'static str, value: f64 },
}

#[derive(Deserialize)]
struct File {
    nodes: u32,
    flops_per_node: f64,
    jobs: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Rigid,
    Moldable,
    Malleable,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: u32,
    r#type: Kind,
    submit_time: f64,
    #[serde(default)]
    num_nodes: u32,
    #[serde(default)]
    num_nodes_min: u32,
    #[serde(default)]
    num_nodes_pref: u32,
    #[serde(default)]
    num_nodes_max: u32,
    flops: f64,
    parallel_percentage: f64,
    divide: u32,
}

impl Input {
    /// Reads one; what is in gzip is to be unpacked by the caller's reader.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn read(input: impl Read) -> Result<Self, ReadInputError> {
        let file: File = serde_json::from_str(&whole_text(input, BYTES_MAX)?)?;
        Self::of(file.nodes, file.flops_per_node, &file.jobs)
    }

    fn of(processors: u32, flops_per_node: f64, entries: &[Entry]) -> Result<Self, ReadInputError> {
        let jobs = entries.iter().map(|entry| entry.job(flops_per_node));
        let mut jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        jobs.sort_by_key(|job| (job.submitted, job.number));
        let malleable = entries.iter().filter(|entry| entry.r#type == Kind::Malleable);
        let parts = malleable.map(|entry| (JobId(entry.id), entry.divide.max(1))).collect();
        Ok(Self { processors, jobs, parts })
    }
}

impl Entry {
    fn job(&self, flops_per_node: f64) -> Result<WorkloadJob, ReadInputError> {
        let job = self.id;
        let (class, three) = match self.r#type {
            Kind::Rigid => (Class::Rigid, [self.num_nodes; 3]),
            Kind::Moldable => (Class::Moldable, self.three()),
            Kind::Malleable => (Class::Malleable, self.three()),
        };
        let sizes = Sizes::new(three, Allowed::Any)
            .map_err(|source| ReadInputError::Sizes { job, source })?;
        let speedup = Speedup::Amdahl { parallel: self.parallel_percentage };
        speedup.check().map_err(|why| ReadInputError::Request { job, source: why.into() })?;
        let seconds = |what, value: f64| {
            let span = Duration::try_from_secs_f64(value).ok().filter(|span| *span < SPAN_MAX);
            span.ok_or(ReadInputError::Number { job, what, value })
        };
        let alone_s = self.flops / flops_per_node;
        let takes = seconds("run time", alone_s / speedup.at(sizes.preferred()))?;
        let submitted = Moment::ZERO + seconds("submit time", self.submit_time)?;
        let request = Request { speedup, ..Request::new(class, sizes, Some(takes)) };
        Ok(WorkloadJob { number: JobId(job), submitted, takes, request })
    }

    fn three(&self) -> [u32; 3] {
        [self.num_nodes_min, self.num_nodes_pref, self.num_nodes_max]
    }
}

/// What inputs are drawn from: the parameters of their `runSimulations.sh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generator {
    pub processors: u32,
    pub days: u32,
    /// The longest job, on one processor.
    pub most_s: f64,
    /// The share of malleable jobs; all others are rigid.
    pub malleable: f64,
}

impl Default for Generator {
    fn default() -> Self {
        Self { processors: 32, days: 3, most_s: 400_000.0, malleable: 1.0 }
    }
}

/// The least work of a job, on one processor.
const LEAST_S: f64 = 5.0;
/// Preferred sizes are drawn below this.
const SIZES_BELOW: u32 = 16;
/// One iteration, if its job scaled perfectly, and how many there are at most.
const PART_S: f64 = 60.0;
const PARTS_MAX: f64 = 1_000.0;
/// Efficiencies above which a number of processors is one: the minimum, the
/// preferred, the maximum.
const EFFICIENCIES: [f64; 3] = [0.95, 0.8, 0.5];
const PARALLEL: [f64; 11] =
    [0.999, 0.995, 0.99, 0.985, 0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95];

fn efficiency(parallel: f64, processors: u32) -> f64 {
    Speedup::Amdahl { parallel }.at(processors) / f64::from(processors)
}

impl Generator {
    /// As much work as fills the processors for those days, at the efficiency
    /// of the preferred sizes, submitted uniformly. The same seed draws the same
    /// jobs whatever the share of malleable ones; the numbers are not those that
    /// their program draws from a seed.
    ///
    /// # Panics
    /// If a minimum is no size: [`Generator::processors`] is 0.
    pub fn draw(&self, seed: u64) -> Input {
        let mut chance = SmallRng::seed_from_u64(seed);
        let span_s = f64::from(self.days) * 86_400.0;
        let capacity_s = span_s * f64::from(self.processors);
        let (mut work_s, mut entries) = (0.0, vec![]);
        while work_s < capacity_s - self.most_s {
            let entry = self.entry(&mut chance, span_s);
            let preferred = entry.num_nodes_pref;
            work_s += entry.flops / efficiency(entry.parallel_percentage, preferred);
            entries.push(entry);
        }
        // Their last one is not cut, since its node's speed is mistaken.
        entries.push(Entry { divide: 1, ..self.entry(&mut chance, span_s) });
        entries.sort_by(|a, b| a.submit_time.total_cmp(&b.submit_time));
        let first_s = entries.first().map_or(0.0, |entry| entry.submit_time);
        for (id, entry) in (0..).zip(&mut entries) {
            (entry.id, entry.submit_time) = (id, entry.submit_time - first_s);
        }
        Self::input(self.processors, &entries)
    }

    fn input(processors: u32, entries: &[Entry]) -> Input {
        #[expect(clippy::expect_used, reason = "sizes are drawn in order")]
        Input::of(processors, 1.0, entries).expect("a drawn input")
    }

    fn entry(&self, chance: &mut SmallRng, span_s: f64) -> Entry {
        let is_malleable = chance.random_range(0.0..1.0) < self.malleable;
        let submit_time = chance.random_range(0.0..span_s).floor();
        let preferred = 1 << chance.random_range(1..SIZES_BELOW).ilog2();
        let parallel = PARALLEL.into_iter().filter(|p| efficiency(*p, preferred) > EFFICIENCIES[1]);
        let parallel = parallel
            .min_by(|a, b| efficiency(*a, preferred).total_cmp(&efficiency(*b, preferred)))
            .unwrap_or(PARALLEL[0]);
        let above = |limit: f64| {
            let sizes = (1..=SIZES_BELOW).take_while(|n| efficiency(parallel, *n) > limit);
            1 << sizes.last().unwrap_or(1).ilog2()
        };
        let share = f64::from(preferred - 1) / f64::from(SIZES_BELOW - 1);
        let mean = LEAST_S + share * (self.most_s - LEAST_S);
        let spread = (self.most_s - LEAST_S) / 100.0;
        let drawn = Normal::new(mean, spread).map_or(mean, |normal| normal.sample(chance));
        let flops = drawn.clamp(LEAST_S, self.most_s);
        let parts = (flops / f64::from(preferred) / PART_S).floor().clamp(1.0, PARTS_MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1000")]
        let divide = parts as u32;
        Entry {
            id: 0,
            r#type: if is_malleable { Kind::Malleable } else { Kind::Rigid },
            submit_time,
            num_nodes: preferred,
            num_nodes_min: above(EFFICIENCIES[0]).min(preferred),
            num_nodes_pref: preferred,
            num_nodes_max: above(EFFICIENCIES[2]).max(preferred),
            flops,
            parallel_percentage: parallel,
            divide,
        }
    }
}
