//! A rank's own part of the program's trace, taken while it runs.
//!
//! Source: Phalen 1994, §6.3. What is counted is the CPU time of the rank's
//! thread between its calls, so neither waiting nor the library's own work is
//! in it, and ranks that share a processor do not count each other's time.

use gleaner_common::trace::Op;

use crate::cpu::CpuClock;

/// Shorter stretches are not worth an operation each: they are added to the
/// next, so none is lost.
const STRETCH_NANOS_MIN: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Recorder {
    clock: CpuClock,
    /// The clock's time, in nanoseconds, when the rank's own code went on.
    since: u64,
    /// Computed, and in no operation yet.
    carried: u64,
    ops: Vec<Op>,
}

impl Recorder {
    pub(crate) fn start(clock: CpuClock) -> Self {
        Self { clock, since: clock.nanos(), carried: 0, ops: vec![] }
    }

    /// The rank calls us: what it did since is computation.
    pub(crate) fn enter(&mut self) {
        let now = self.clock.nanos();
        // A process that has moved with its state counts from nothing again.
        self.carried += now.checked_sub(self.since).unwrap_or(now);
        if self.carried >= STRETCH_NANOS_MIN {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let nanos = std::mem::take(&mut self.carried);
        match self.ops.last_mut() {
            // Nothing was sent or received since.
            Some(Op::Compute { nanos: before }) => *before = before.saturating_add(nanos),
            _ if nanos > 0 => self.ops.push(Op::Compute { nanos }),
            _ => {}
        }
    }

    pub(crate) fn note(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// The rank's own code goes on.
    pub(crate) fn leave(&mut self) {
        self.since = self.clock.nanos();
    }

    pub(crate) fn finish(mut self) -> Vec<Op> {
        self.enter();
        self.flush();
        self.ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computation_is_counted_and_waiting_is_not() {
        let mut recorder = Recorder::start(CpuClock::Thread);
        std::thread::sleep(std::time::Duration::from_millis(30));
        recorder.enter();
        recorder.note(Op::Send { to: 1, bytes: 0, tag: 0 });
        recorder.leave();
        let worked = (0..20_000_000_u64).fold(1_u64, |a, b| std::hint::black_box(a ^ b));
        assert!(std::hint::black_box(worked) > 0);
        let ops = recorder.finish();
        let [Op::Compute { nanos: slept }, _, Op::Compute { nanos: computed }] = ops[..] else {
            panic!("{ops:?}")
        };
        assert!(slept < 10_000_000, "{slept} ns of sleep count as computation");
        assert!(computed > 1_000_000, "{computed} ns");
    }
}
