//! What came of a lab.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use super::{Lab, Trouble};

/// What came of a lab: equal for equal seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    pub took: Duration,
    pub subprograms: u64,
    pub attempts: usize,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub retreats: u64,
    pub suspensions: u64,
    pub lost: u64,
    pub retried: u64,
    pub moves: u64,
    pub went: u64,
    /// How often a program of several ranks began, all of them at once.
    pub gangs: usize,
    /// Lives of programs beyond their first.
    pub lives: u64,
    pub tasks: usize,
    pub shared: u64,
    /// Messages that ranks have received.
    pub received: u64,
    /// Negotiations of which programs have heard the end, and ranks that they agreed to
    /// let go.
    pub negotiated: u64,
    pub gave: u64,
    /// Ranks that began with what was kept of them.
    pub went_back: u64,
    /// Images of ranks, and ranks that began with one.
    pub images: u64,
    pub snapshots_with_image: u64,
    /// How often the first job's subprograms were lost at most, and how many of
    /// them failed.
    pub first_lost_most: u32,
    pub first_failed: u32,
    /// How many attempts of the first job began between another's submission
    /// and its placement, at most.
    pub turns_waited: usize,
    /// Replicas that came to something else than what counts.
    pub outvoted: u64,
    /// How often the coordinator's store went back in time.
    pub restored: u64,
    /// How often one of two machines with one identity was refused.
    pub refused: u64,
    /// How many newcomers were let in, and how many taken out.
    pub let_in: u64,
    pub taken_out: u64,
    /// Usage records that are with the collector.
    pub records: usize,
    /// Steps, and the whole history as one number.
    pub steps: u64,
    pub history: u64,
    pub faults: BTreeMap<Trouble, u64>,
    /// All faults that were drawn, also those left out.
    pub faults_drawn: u64,
    /// The longest calm and the most waste in one, in thousandths of what they
    /// may be.
    pub calm_permille: u64,
    pub waste_permille: u64,
}

impl Outline {
    pub(super) fn of(lab: &Lab) -> Self {
        let mut outline = Self {
            took: lab.now.since(Moment::ZERO),
            attempts: lab.store.attempts.len(),
            went: lab.witness.moves,
            gangs: lab.witness.gangs,
            went_back: lab.cuts.begun,
            images: lab.images,
            shared: lab.shared,
            received: lab.received,
            negotiated: lab.negotiated,
            gave: lab.gave,
            snapshots_with_image: lab.snapshots_with_image,
            tasks: lab.witness.tasks_accepted(),
            outvoted: lab.store.outvoted(),
            restored: lab.copies.restored,
            refused: lab.twins.refused,
            let_in: lab.enrolment.counts.0,
            taken_out: lab.enrolment.counts.1,
            records: lab.usage.kept,
            steps: lab.history.steps,
            history: lab.history.hash(),
            faults: lab.chances.counts.clone(),
            faults_drawn: lab.chances.drawn(),
            calm_permille: permille(lab.calm_part),
            waste_permille: permille(lab.waste_part),
            ..Self::default()
        };
        let records = lab.store.subprograms.values();
        let of_first = records.filter(|record| record.subprogram.job == JobId(1));
        outline.first_lost_most = of_first.map(|it| it.history.lost).max().unwrap_or(0);
        outline.first_failed =
            lab.store.jobs.get(&JobId(1)).map_or(0, |job| job.progress.counts.failed);
        outline.turns_waited = lab.turns_waited.values().copied().max().unwrap_or(0);
        for job in lab.store.jobs.values() {
            let progress = &job.progress;
            outline.subprograms += u64::from(job.indexes().len());
            outline.succeeded += u64::from(progress.counts.succeeded);
            outline.failed += u64::from(progress.counts.failed);
            outline.cancelled += u64::from(progress.counts.cancelled);
            outline.retreats += progress.counts.retreats;
            outline.suspensions += progress.counts.suspensions;
            outline.lost += progress.counts.lost;
            outline.retried += progress.counts.retried;
            outline.moves += progress.counts.moves;
            outline.lives += u64::from(progress.life.0.saturating_sub(1));
        }
        outline
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part is 0 or more")]
fn permille(part: f64) -> u64 {
    (part * 1_000.0) as u64
}
