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
            None => self.averages = sample.kernel.map_or([active; 3], as_array),
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
