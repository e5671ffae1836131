//! The critical path of a trace, and stretching it to a given duration.

use std::time::Duration;

use super::check::{Problem, check};
use super::flow::{self, Flow};
use super::{Lines, Op, Trace};

/// Why a trace could not be stretched.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    #[error("the trace cannot be replayed: {0}")]
    Bad(Problem),
    #[error("nothing is computed on the critical path, so nothing can be stretched")]
    NothingComputed,
    #[error("{0:?} is longer than a trace can be: expected less than 500 years")]
    TooLong(Duration),
}

impl Trace {
    /// How long the program takes if no rank is ever disturbed and messages
    /// take no time: the longest chain of computation.
    ///
    /// # Errors
    /// A trace that cannot be replayed.
    pub fn critical_path(&self) -> Result<Duration, Problem> {
        Ok(Duration::from_nanos(sound(self)?.last().map_or(0, |(_, end)| end)))
    }

    /// The same program with all compute times stretched (or shrunk) alike so
    /// that its critical path is exactly `to`: what Phalen 1994, Table 8 gives
    /// as the length of an execution.
    ///
    /// Each time is rounded down to a nanosecond; what the critical path then
    /// lacks, at most a nanosecond for each of its operations, is added to its
    /// longest computation.
    ///
    /// # Errors
    /// A trace that cannot be replayed, or that computes nothing; a duration
    /// that does not fit.
    pub fn scaled_to(&self, to: Duration) -> Result<Self, ScaleError> {
        let wanted = u64::try_from(to.as_nanos()).map_err(|_| ScaleError::TooLong(to))?;
        let flow = sound(self).map_err(ScaleError::Bad)?;
        let (_, length) = flow.last().unwrap_or_default();
        if length == 0 {
            return Err(ScaleError::NothingComputed);
        }
        let mut scaled = self.clone();
        for op in scaled.ranks.iter_mut().flatten() {
            if let Op::Compute { nanos } = op {
                let stretched = u128::from(*nanos) * u128::from(wanted) / u128::from(length);
                *nanos = u64::try_from(stretched).map_err(|_| ScaleError::TooLong(to))?;
            }
        }
        scaled.lengthen_to(wanted);
        Ok(scaled)
    }

    /// Adds what the critical path lacks to its longest computation.
    fn lengthen_to(&mut self, wanted: u64) {
        let flow = flow::run(self);
        let lacking = wanted.saturating_sub(flow.last().map_or(0, |(_, end)| end));
        let path = flow.critical_path(self);
        let places = path.into_iter().flat_map(|(rank, operations)| {
            operations.map(move |operation| (rank as usize, operation))
        });
        let longest = places.max_by_key(|&(rank, operation)| match self.ranks[rank][operation] {
            Op::Compute { nanos } => Some(nanos),
            Op::Send { .. } | Op::Receive { .. } | Op::Spawn { .. } => None,
        });
        let Some((rank, operation)) = longest else { return };
        if let Op::Compute { nanos } = &mut self.ranks[rank][operation] {
            *nanos = nanos.saturating_add(lacking);
        }
    }
}

fn sound(trace: &Trace) -> Result<Flow, Problem> {
    match check(trace, &Lines::default()).into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(flow::run(trace)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    fn trace(body: &str) -> Trace {
        let ranks = body.matches("rank").count();
        let text =
            format!("gleaner-trace 1\nprogram x\nranks {ranks}\n{}", body.replace("; ", "\n"));
        text::read(text.as_bytes()).unwrap().trace
    }

    #[test]
    fn the_critical_path_goes_through_the_messages() {
        let ping = trace(
            "rank 0; compute 1; send 1 1 0; receive 1 0; compute 2; \
                          rank 1; compute 0.5; receive 0 0; compute 10; send 0 1 0; compute 1",
        );
        assert_eq!(ping.critical_path(), Ok(Duration::from_secs(13)));
        let spawned = trace("rank 0; compute 1; spawn 1; rank 1; compute 1");
        assert_eq!(spawned.critical_path(), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn a_stretched_trace_lasts_exactly_as_long_as_asked() {
        let uneven = trace(
            "rank 0; compute 0.000000333; send 1 1 0; receive 1 0; compute 0.1; \
                            rank 1; receive 0 0; compute 0.000000007; send 0 1 0; compute 0.003",
        );
        for nanos in [1, 17, 1_000_003, 304_032_000_000] {
            let to = Duration::from_nanos(nanos);
            assert_eq!(uneven.scaled_to(to).unwrap().critical_path(), Ok(to));
        }
    }

    #[test]
    fn what_cannot_be_stretched_is_refused() {
        let second = Duration::from_secs(1);
        assert!(matches!(trace("rank 0").scaled_to(second), Err(ScaleError::NothingComputed)));
        assert!(matches!(trace("rank 0; spawn 9").scaled_to(second), Err(ScaleError::Bad(_))));
        let long = Duration::MAX;
        assert!(matches!(trace("rank 0; compute 1").scaled_to(long), Err(ScaleError::TooLong(_))));
    }
}
