//! Users: what they submit, and what they cancel.

use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Patience, Reaction, StagedFile};
use gleaner_common::program::ProgramSpec;
use gleaner_common::shape::Shape;
use gleaner_coordinator_core::{Core, Event, RequestId};
use rand::Rng;

use super::host::Host;
use super::rank::talks;
use super::{Happening, Lab};

impl Lab {
    pub(super) fn submit(&mut self) {
        if self.core.is_none() {
            // The user tries again.
            return self.plan(Duration::from_secs(1), Happening::Submit);
        }
        self.submitted += 1;
        self.due_jobs -= 1;
        let count = self.rng.random_range(1..=self.setting.subprograms_max);
        let mut spec = JobSpec::new(
            vec!["work".into(), "{i}".into()],
            IndexRange { first: 3, last: 3 + (count - 1) * 2, step: 2 },
        );
        spec.retries = self.rng.random_range(0..4);
        let reaction = [Reaction::Renice, Reaction::Suspend, Reaction::Retreat, Reaction::Migrate];
        spec.on_busy = OnBusy {
            reaction: reaction[self.rng.random_range(0..4)],
            patience: Patience::For(Duration::from_secs(self.rng.random_range(1..20))),
            then: [Reaction::Retreat, Reaction::Migrate][self.rng.random_range(0..2)],
        };
        if self.rng.random_bool(self.setting.programs) {
            let ranks = self.rng.random_range(1..=4).min(self.places());
            spec.indexes = IndexRange { first: 0, last: ranks - 1, step: 1 };
            let checkpoint_every = self.rng.random_bool(0.5).then_some(Duration::from_secs(2));
            let (ranks_max, increases) = (ranks + 2, self.rng.random_bool(self.setting.increases));
            let program = ProgramSpec { ranks_max, increases, ..ProgramSpec::default() };
            spec.program = Some(ProgramSpec { checkpoint_every, ..program });
            // On so many places at least: its ranks share them.
            let min = increases.then(|| self.rng.random_range(1..=ranks));
            spec.shape = Shape { min, ..Shape::default() };
            if self.rng.random_bool(0.3) {
                spec.on_busy.reaction = Reaction::Rollback;
            }
            // Ranks that talk have no work to return.
            if talks(&spec) {
                let OnBusy { reaction, then, .. } = &mut spec.on_busy;
                *then = Reaction::Migrate;
                if *reaction == Reaction::Retreat {
                    *reaction = Reaction::Migrate;
                }
            }
        }
        if self.setting.moves > 0.0 && self.rng.random_bool(self.setting.moves) {
            let goes_back = spec.program.is_some() && self.rng.random_bool(0.3);
            spec.on_busy.reaction = if goes_back { Reaction::Rollback } else { Reaction::Migrate };
        }
        if spec.program.is_none() && self.rng.random_bool(self.setting.replicated) {
            let replicas = self.rng.random_range(2..=self.setting.replicas_max);
            // Those who disagree need others to decide.
            let most = u8::try_from(self.setting.hosts).unwrap_or(u8::MAX).div_ceil(2);
            spec.replicas = replicas.min(most);
        }
        if self.rng.random_bool(0.3) {
            let (path, hash) = ("input".to_owned(), ContentHash([1; 32]));
            spec.inputs = vec![StagedFile { path, hash, size_bytes: 1, executable: false }];
        }
        let is_single = spec.replicas == 1 && spec.program.is_none();
        if self.setting.large > 0.0 && is_single && self.rng.random_bool(self.setting.large) {
            let most = self.originals().iter().map(Host::usable).max().unwrap_or(1) as u64;
            spec.cores = self.rng.random_range(1..=2).min(u16::try_from(most).unwrap_or(1));
            spec.limits.memory_bytes_max = self.rng.random_range(0..=3).min(2 * most) << 30;
        }
        if let Some(crowd) = self.setting.crowd {
            let count = if self.submitted == 1 { crowd } else { 1 };
            spec.indexes = IndexRange::count_of(count).expect("there is one at least");
            spec.retries = spec.retries.max(self.setting.black_holes.min(1));
        }
        let may_time_out = self.setting.failures > 0.0 && self.rng.random_bool(0.2);
        spec.timeout = may_time_out.then_some(self.setting.work_max / 2);
        self.requests += 1;
        let one_each = self.setting.crowd.is_some();
        let user = match self.rng.random_range(0..self.setting.users) {
            _ if one_each => format!("user{}", self.submitted),
            0 => "ann".to_owned(),
            other => format!("user{other}"),
        };
        let request = RequestId(self.requests);
        self.handle(Event::Submitted { request, user, spec: Box::new(spec) });
        if self.rng.random_bool(0.15) {
            let after = self.up_to(Duration::from_secs(60));
            self.plan(after, Happening::Cancel);
        }
    }

    /// On so many a program can run at once, if no owner comes.
    fn places(&self) -> u32 {
        self.originals().iter().map(|host| u32::try_from(host.usable()).unwrap_or(0)).sum()
    }

    pub(super) fn cancel(&mut self) {
        let jobs = self.core.iter().flat_map(Core::jobs);
        let Some(job) = jobs.last() else { return };
        self.requests += 1;
        self.handle(Event::CancelAsked { request: RequestId(self.requests), job });
    }
}
