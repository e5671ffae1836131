//! How long a calm takes at most, and how much of what it places may come to
//! nothing.

use std::time::Duration;

use gleaner_coordinator_core::{Change, SchedulerConfig};

use super::Lab;
use super::host::Host;
use super::setting::Setting;

/// QUIC's idle timeout, as production has it: how long a connection whose other
/// end is silent is believed in.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// By then both ends of a connection that broke know, and there is another.
pub(super) const RECONNECTED: Duration = Duration::from_secs(2 * 30 + 15);

/// The longest that a workstation rests after it has refused something.
const REST_MAX: Duration = Duration::from_secs(64);

/// What a subprogram takes beside its work: it is offered, staged, laid out,
/// begun, reaped and acknowledged; each within half a second, but for what is
/// collected in two.
const OVERHEAD: Duration = Duration::from_secs(6);

/// As many attempts as wait at an agent beside those that run, as production has it.
const AHEAD_MAX: u64 = 48;

/// The longest that a job of a lab lets a guest wait for its owner to leave.
const PATIENCE_MAX: Duration = Duration::from_secs(20);

/// How long the news of a storm may take until everybody knows how things are.
///
/// Both ends of a connection that broke find out by its idle timeout, and the
/// agent dials for another few seconds. Whatever was placed on an agent that
/// does not come back is given up a lease after the coordinator began to count,
/// which was when it was last heard or restarted; an idle one counts as silent
/// a heartbeat later. Then it may rest, and an owner who has just left keeps
/// the workstation busy for as long as nobody must have touched it.
pub(super) fn news(setting: &Setting) -> Duration {
    let Setting { config, owner_quiet, .. } = setting;
    IDLE_TIMEOUT * 2
        + config.lease * 2
        + config.heartbeat_without_guests
        + REST_MAX
        + *owner_quiet
        + PATIENCE_MAX
        + setting.away
}

impl Lab {
    /// By then everything has ended.
    ///
    /// What is left is a number of runs: each subprogram once for each replica,
    /// and again as often as its job lets it fail. However they are placed, a
    /// place stands idle only while there is nothing for it (Graham's bound on
    /// lists), so that they take no longer than all of them together, divided by
    /// the places, and the longest chain of them: a subprogram that fails until
    /// it may not any more. Ranks begin together, for which half of the places
    /// may have to wait; hence twice of it. A program whose rank fails begins
    /// again with all of its ranks.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only new jobs are looked for")]
    pub(super) fn calm_bound(&self) -> Duration {
        let setting = &self.setting;
        let all: usize = self.originals().iter().map(Host::usable).sum();
        // Other policies than the default one may give a bag what was free when it
        // began, and never more: one place, and nobody else any.
        let grows = setting.config.scheduler.policy == SchedulerConfig::default().policy;
        let places = if grows { all } else { 1 };
        let (mut runs, mut longest) = (0, 0);
        let unwritten = self.pending.iter().flat_map(|pending| &pending.step.changes);
        let unwritten = unwritten.filter_map(|change| match change {
            Change::Job(record) => Some(&**record),
            _ => None,
        });
        let known = self.store.jobs.values().chain(unwritten);
        for job in known.filter(|job| !job.progress.state.has_ended()) {
            let tries = if setting.failures > 0.0 { job.spec.retries + 1 } else { 1 };
            let ranks = u32::from(job.spec.program.is_some()) * job.indexes().len();
            let (tries, ranks) = (u64::from(tries), u64::from(ranks.max(1)));
            let of_job = u64::from(job.indexes().len()) * u64::from(job.spec.replicas) * tries;
            // One that may fail so often, for each of its ranks.
            runs += of_job * ranks;
            longest = longest.max(tries * ranks);
        }
        let waiting = u64::from(self.due_jobs) * u64::from(setting.subprograms_max);
        let each = setting.work_max.max(self.longest_left()) + OVERHEAD;
        let count = (runs + waiting * 4) / places.max(1) as u64 + longest + 4;
        news(setting) + self.let_in_within() + each * u32::try_from(2 * count).unwrap_or(u32::MAX)
    }

    fn longest_left(&self) -> Duration {
        if self.setting.quiet_jobs > 0 { self.setting.quiet_work_max } else { Duration::ZERO }
    }

    /// So many attempts may come to nothing in a calm. Whatever was open when
    /// it began may be lost, or return. A workstation of which the coordinator
    /// does not know yet that it is busy, asleep or gone is given as many as it
    /// has seats and may be sent ahead; and perhaps once more, when it has
    /// rested. What goes down with a rank of its program is not counted.
    pub(super) fn waste_bound(&self, open: u64) -> u64 {
        let given = |host: &Host| host.places.len() as u64 + AHEAD_MAX;
        open + 2 * self.hosts.iter().map(given).sum::<u64>()
    }
}
