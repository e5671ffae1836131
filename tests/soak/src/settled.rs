//! What became of all jobs, by what the coordinator tells at the end and by what their
//! user knows: that they were accepted, whether they were cancelled, and the answers.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::JobId;
use gleaner_common::report::{SubprogramRow, SubprogramState};

use crate::jobs::Job;
use crate::witness::Subprogram;

/// A job as the coordinator tells of it.
#[derive(Clone, Debug)]
pub struct Told {
    pub id: JobId,
    pub job: Job,
    /// It has not ended, and why not.
    pub stuck: Option<String>,
    /// With what they have printed.
    pub subprograms: Vec<(SubprogramRow, String)>,
}

#[derive(Debug, Default)]
pub struct Settled {
    pub jobs: usize,
    /// Those that the coordinator took without their user's having heard of it.
    pub unheard: usize,
    pub subprograms: usize,
    pub succeeded: BTreeSet<Subprogram>,
    /// Of jobs that were cancelled.
    pub cancelled: usize,
    /// One line each: jobs that are not known any more, and subprograms that
    /// came to nothing.
    pub lost: Vec<String>,
    /// One line each.
    pub wrong: Vec<String>,
    pub stuck: Vec<String>,
    pub attempts: u64,
    /// Attempts that failed, of programs that do not.
    pub failures: u64,
    pub moves: u64,
    pub retreats: u64,
}

impl Settled {
    /// Jobs that were accepted have the coordinator's numbers, those that may have been
    /// cancelled their own.
    pub fn judge(
        told: &[Told],
        accepted: &BTreeMap<JobId, Job>,
        cancelled: &BTreeSet<u64>,
    ) -> Self {
        let mut settled = Self::default();
        let known: BTreeMap<_, _> = told.iter().map(|it| (it.id, &it.job)).collect();
        for (id, job) in accepted {
            if known.get(id) != Some(&job) {
                settled.lost.push(format!("job {id} was accepted and is not known"));
            }
        }
        for job in told {
            settled.jobs += 1;
            settled.unheard += usize::from(!accepted.contains_key(&job.id));
            settled.job(job, cancelled.contains(&job.job.number));
        }
        settled
    }

    fn job(&mut self, told: &Told, cancelled: bool) {
        let count = told.job.subprograms();
        self.subprograms += count as usize;
        if let Some(why) = &told.stuck {
            self.stuck.push(format!("job {}: {why}", told.id));
            return;
        }
        let mut missing: BTreeSet<u32> = (0..count).collect();
        for (row, printed) in &told.subprograms {
            missing.remove(&row.subprogram.index);
            self.subprogram(&told.job, row, printed, cancelled);
        }
        let missing = missing.into_iter().map(|index| format!("{}.{index} is not known", told.id));
        self.lost.extend(missing);
    }

    fn subprogram(&mut self, job: &Job, row: &SubprogramRow, printed: &str, cancelled: bool) {
        let id = row.subprogram;
        self.attempts += u64::from(row.attempts);
        self.failures += u64::from(row.failures);
        self.moves += u64::from(row.moves);
        self.retreats += u64::from(row.retreats);
        match row.state {
            SubprogramState::Succeeded => {
                self.succeeded.insert(Subprogram { job: job.number, index: id.index });
                let expected = job.answer(id.index);
                if printed != expected {
                    self.wrong.push(format!("{id} printed {printed:?}: expected {expected:?}"));
                }
            }
            SubprogramState::Cancelled if cancelled => self.cancelled += 1,
            _ => self.lost.push(format!("{id} is {}: {:?}", row.state.name(), row.outcome)),
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::SubprogramId;

    use super::*;

    const ID: JobId = JobId(7);

    /// A job that ended as it should.
    fn good() -> Told {
        let job = Job::draw(1, 3);
        let row = |index| SubprogramRow {
            subprogram: SubprogramId { job: ID, index },
            state: SubprogramState::Succeeded,
            workstation: None,
            fence: None,
            attempts: 1,
            failures: 0,
            retreats: 0,
            lost: 0,
            outcome: None,
            cpu_s: 0.0,
            moves: 0,
        };
        let subprograms = (0..job.subprograms()).map(|index| (row(index), job.answer(index)));
        Told { id: ID, subprograms: subprograms.collect(), stuck: None, job }
    }

    /// How many are lost, wrong and stuck.
    fn judged(told: &[Told], cancelled: bool) -> [usize; 3] {
        let accepted = BTreeMap::from([(ID, Job::draw(1, 3))]);
        let cancelled = cancelled.then_some(3).into_iter().collect();
        let settled = Settled::judge(told, &accepted, &cancelled);
        [settled.lost.len(), settled.wrong.len(), settled.stuck.len()]
    }

    #[test]
    fn a_job_that_ended_well_is_none_of_them() {
        assert_eq!(judged(&[good()], false), [0, 0, 0]);
    }

    #[test]
    fn a_job_that_is_forgotten_or_another_is_lost() {
        assert_eq!(judged(&[], false), [1, 0, 0]);
        let other = Told { job: Job::draw(1, 4), subprograms: vec![], ..good() };
        assert!(judged(&[other], false)[0] > 0);
    }

    #[test]
    fn a_subprogram_that_failed_or_is_not_told_of_is_lost() {
        let mut failed = good();
        failed.subprograms[0].0.state = SubprogramState::Failed;
        assert_eq!(judged(&[failed], false), [1, 0, 0]);
        let mut fewer = good();
        fewer.subprograms.pop();
        assert_eq!(judged(&[fewer], false), [1, 0, 0]);
    }

    #[test]
    fn only_who_was_cancelled_may_be() {
        let mut cancelled = good();
        cancelled.subprograms[0].0.state = SubprogramState::Cancelled;
        assert_eq!(judged(&[cancelled.clone()], false), [1, 0, 0]);
        assert_eq!(judged(&[cancelled], true), [0, 0, 0]);
    }

    #[test]
    fn another_answer_is_wrong_and_a_job_that_goes_on_is_stuck() {
        let mut wrong = good();
        wrong.subprograms[1].1 = "1\n".to_owned();
        assert_eq!(judged(&[wrong], false), [0, 1, 0]);
        let stuck = Told { stuck: Some("no workstation is idle".to_owned()), ..good() };
        assert_eq!(judged(&[stuck], false), [0, 0, 1]);
    }
}
