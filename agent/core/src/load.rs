//! The owner's load: how many tasks besides the guests' want a core.
//!
//! The promise: a guest's own load never shows, and a sudden rise of the
//! owner's shows within seconds, long before a one-minute average has moved.
//! Knows nothing of `/proc`, control groups or criteria.

use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_common::usage::LoadAverages;

/// The spans of the three averages, in seconds.
const SPANS_S: [f64; 3] = [60.0, 300.0, 900.0];

/// The kernel's averages count the guests as well. Once these have been gone
/// for so many spans of an average, what is left of them there is e^-5,
/// seven thousandths.
const SPANS_UNTIL_CLEAN: f64 = 5.0;

/// From this share of the cores in use on, owner's tasks may be waiting for a
/// core, and CPU time no longer tells how many there are.
const SATURATED: f64 = 0.9;

/// Shorter gaps between two samples give no rate: CPU time is counted in
/// ticks of up to 10 ms.
const GAP_MIN: Duration = Duration::from_millis(200);

/// What a load sensor has counted, all of it without the guests' share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadSample {
    /// Runnable tasks at this moment.
    pub running: f64,
    /// Uninterruptible tasks at this moment.
    pub blocked: f64,
    /// CPU time used since some fixed moment; it only grows. `None` where it
    /// was not asked for.
    pub cpu: Option<Duration>,
    /// The kernel's own averages, guests included, where they are of this
    /// workstation (a lab host shares its kernel with others).
    pub kernel: Option<LoadAverages>,
    /// Have there been guests since the last sample?
    pub guests: bool,
}

/// Averages and recent use, kept from samples at any spacing.
#[derive(Clone, Debug)]
pub struct Load {
    cores: f64,
    averages: [f64; 3],
    sampled: Option<Moment>,
    /// The last sample with a CPU time.
    cpu: Option<(Moment, Duration)>,
    use_cores: Option<f64>,
    guests_seen: Option<Moment>,
}

impl Load {
    pub fn new(cores: u16) -> Self {
        Self {
            cores: f64::from(cores.max(1)),
            averages: [0.0; 3],
            sampled: None,
            cpu: None,
            use_cores: None,
            guests_seen: None,
        }
    }

    /// When the last sample was taken.
    pub fn sampled(&self) -> Option<Moment> {
        self.sampled
    }

    pub fn averages(&self) -> LoadAverages {
        #[expect(clippy::cast_possible_truncation, reason = "an average has few digits")]
        let [one, five, fifteen] = self.averages.map(|average| average as f32);
        LoadAverages { one, five, fifteen }
    }

    /// The one-minute average.
    pub fn one(&self) -> f64 {
        self.averages[0]
    }

    /// Cores the owner has used between the last two samples that told the
    /// CPU time: the fast path.
    pub fn use_cores(&self) -> Option<f64> {
        self.use_cores
    }

    /// Takes a sample in. One that is earlier than the last counts as if it
    /// had been taken together with it.
    pub fn sample(&mut self, now: Moment, sample: &LoadSample) {
        if sample.guests {
            self.guests_seen = Some(now);
        }
        self.measure_use(now, sample.cpu);
        let active = self.active(sample);
        match self.sampled {
            Some(before) => self.decay(now.since(before), active),
            // Without the kernel's averages from nothing, as the kernel's own
            // begin: one look is no average, and it may have met just us.
            None => self.averages = sample.kernel.map_or([0.0; 3], as_array),
        }
        self.sampled = Some(now);
        if let Some(kernel) = sample.kernel {
            self.follow(now, as_array(kernel));
        }
    }

    /// The number of the owner's active tasks.
    ///
    /// Guests are scheduled below everything of the owner's, so as long as
    /// there are cores to spare an owner's task runs whenever it is runnable:
    /// the mean number of runnable tasks *is* the CPU time used per time,
    /// which is exact, while counting at one moment catches guests between
    /// two states. Only when the owner uses all cores does the count say more.
    fn active(&self, sample: &LoadSample) -> f64 {
        let running = match self.use_cores {
            Some(used) if used < SATURATED * self.cores => used,
            Some(used) => used.max(sample.running),
            None => sample.running,
        };
        running.max(0.0) + sample.blocked.max(0.0)
    }

    fn measure_use(&mut self, now: Moment, cpu: Option<Duration>) {
        let Some(cpu) = cpu else {
            (self.cpu, self.use_cores) = (None, None);
            return;
        };
        let Some((at, before)) = self.cpu else {
            self.cpu = Some((now, cpu));
            return;
        };
        let gap = now.since(at);
        if gap < GAP_MIN {
            return;
        }
        // A guest that ended may take its CPU time with it for a moment.
        let used = cpu.saturating_sub(before);
        self.use_cores = Some((used.as_secs_f64() / gap.as_secs_f64()).min(self.cores));
        self.cpu = Some((now, cpu));
    }

    /// One step of the three exponential averages, as the kernel takes one
    /// every 5 s (`kernel/sched/loadavg.c`: a1 = a0 e + a (1 - e)), for a gap
    /// of any length.
    fn decay(&mut self, gap: Duration, active: f64) {
        for (average, span_s) in self.averages.iter_mut().zip(SPANS_S) {
            let kept = (-gap.as_secs_f64() / span_s).exp();
            *average = *average * kept + active * (1.0 - kept);
        }
    }

    /// Takes over those of the kernel's averages in which no guest is left:
    /// they saw every five seconds, also those before the agent came.
    fn follow(&mut self, now: Moment, kernel: [f64; 3]) {
        for ((average, kernel), span_s) in self.averages.iter_mut().zip(kernel).zip(SPANS_S) {
            let clean = self
                .guests_seen
                .is_none_or(|seen| now.since(seen).as_secs_f64() >= SPANS_UNTIL_CLEAN * span_s);
            if clean {
                *average = kernel;
            }
        }
    }
}

fn as_array(averages: LoadAverages) -> [f64; 3] {
    [averages.one, averages.five, averages.fifteen].map(|average| {
        let average = f64::from(average);
        if average.is_finite() { average.max(0.0) } else { 0.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// A load that has been sampled since second 0, every `step_ms`, of an
    /// owner with this many tasks that run on this many cores.
    fn sampled(cores: u16, tasks: f64, used: f64, step_ms: u64, until_ms: u64) -> Load {
        let mut load = Load::new(cores);
        load.sample(Moment::ZERO, &LoadSample { cpu: Some(Duration::ZERO), ..Default::default() });
        for ms in (step_ms..=until_ms).step_by(usize::try_from(step_ms).unwrap()) {
            let cpu = Some(Duration::from_secs_f64(used * ms as f64 / 1e3));
            let sample = LoadSample { running: tasks, cpu, guests: true, ..Default::default() };
            load.sample(at_ms(ms), &sample);
        }
        load
    }

    #[track_caller]
    fn check(is: f64, expected: f64) {
        assert!((is - expected).abs() < 0.01, "{is}, not {expected}");
    }

    #[test]
    fn a_minute_of_one_task_is_the_kernels_number_at_any_spacing() {
        // 1 - 1/e; the kernel comes to 0.62 in steps of 5 s.
        for step_ms in [1_000, 5_000, 30_000] {
            check(sampled(4, 1.0, 1.0, step_ms, 60_000).one(), 0.632);
        }
    }

    #[test]
    fn between_cores_to_spare_the_cpu_time_is_the_number_of_tasks() {
        let miscounted = sampled(4, 3.0, 1.0, 1_000, 600_000);
        check(miscounted.one(), 1.0);
        let saturated = sampled(2, 5.0, 2.0, 1_000, 600_000);
        check(saturated.one(), 5.0);
    }

    #[test]
    fn a_sudden_rise_shows_in_the_next_sample() {
        let mut load = sampled(4, 0.0, 0.0, 1_000, 10_000);
        assert_eq!(load.use_cores(), Some(0.0));
        let cpu = Some(Duration::from_millis(900));
        load.sample(at_ms(11_000), &LoadSample { cpu, guests: true, ..Default::default() });
        check(load.use_cores().unwrap(), 0.9);
        assert!(load.one() < 0.05);
    }

    #[test]
    fn blocked_tasks_count() {
        let mut load = Load::new(1);
        load.sample(Moment::ZERO, &LoadSample { blocked: 2.0, ..Default::default() });
        check(load.one(), 0.0); // One look is no average.
        load.sample(at_ms(3_600_000), &LoadSample { blocked: 2.0, ..Default::default() });
        check(load.one(), 2.0);
    }

    #[test]
    fn the_kernels_averages_hold_until_a_guest_comes_and_again_long_after() {
        let kernel = |one| Some(LoadAverages { one, five: 3.0, fifteen: 3.0 });
        let mut load = Load::new(2);
        load.sample(at_ms(0), &LoadSample { kernel: kernel(1.5), ..Default::default() });
        check(load.one(), 1.5);
        let with_guest = LoadSample { kernel: kernel(2.0), guests: true, ..Default::default() };
        load.sample(at_ms(5_000), &with_guest);
        assert!(load.one() < 1.5, "the guest is not in it");
        let after = LoadSample { kernel: kernel(2.0), ..Default::default() };
        load.sample(at_ms(10_000), &after);
        assert!(load.one() < 1.5, "what is left of the guest neither");
        load.sample(at_ms(306_000), &after);
        check(load.one(), 2.0);
        assert!(load.averages().five < 3.0, "five minutes take longer to forget");
    }

    proptest! {
        #[test]
        fn no_samples_make_a_load_negative_or_more_than_was_there(
            samples in proptest::collection::vec((0u64..10_000, 0u32..9, 0u32..9, 0u64..20_000), 1..60),
        ) {
            let mut load = Load::new(4);
            let (mut ms, mut cpu_ms) = (0, 0);
            for (gap, running, blocked, used) in samples {
                ms += gap;
                cpu_ms += used;
                load.sample(at_ms(ms), &LoadSample {
                    running: f64::from(running),
                    blocked: f64::from(blocked),
                    cpu: Some(Duration::from_millis(cpu_ms)),
                    ..Default::default()
                });
                prop_assert!((0.0..=16.0).contains(&load.one()));
                prop_assert!(load.use_cores().is_none_or(|used| (0.0..=4.0).contains(&used)));
            }
        }
    }
}
