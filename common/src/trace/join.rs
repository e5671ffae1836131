//! One trace of the files in which each rank of a live program has written
//! what it did itself.

use super::{RANKS_MAX, Trace};

/// Why ranks' own traces make none together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("no rank's trace: expected one of each rank")]
    Nothing,
    #[error("{name}: expected the trace of one rank, but rank {first} and rank {second} act in it")]
    Several { name: String, first: usize, second: usize },
    #[error("rank {rank} comes twice")]
    Twice { rank: usize },
    #[error("rank {rank} of {ranks} is missing: expected one trace of each")]
    Missing { rank: usize, ranks: usize },
}

impl Trace {
    /// Joins what each rank has recorded by itself: a trace in which only the
    /// last rank has done anything. Whether they fit together,
    /// [`check`](super::check()) tells.
    ///
    /// # Errors
    /// Not one trace of each rank.
    pub fn join(name: String, parts: Vec<Self>) -> Result<Self, JoinError> {
        let ranks = parts.iter().map(|part| part.ranks.len()).max().unwrap_or(0);
        if ranks == 0 || ranks > RANKS_MAX as usize {
            return Err(JoinError::Nothing);
        }
        let mut joined = vec![None; ranks];
        for mut part in parts {
            let Some(ops) = part.ranks.pop() else { return Err(JoinError::Nothing) };
            let rank = part.ranks.len();
            if let Some(first) = part.ranks.iter().position(|ops| !ops.is_empty()) {
                return Err(JoinError::Several { name: part.name, first, second: rank });
            }
            if joined[rank].replace(ops).is_some() {
                return Err(JoinError::Twice { rank });
            }
        }
        match joined.iter().position(Option::is_none) {
            Some(rank) => Err(JoinError::Missing { rank, ranks }),
            None => Ok(Self { name, ranks: joined.into_iter().flatten().collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    fn part(rank: usize, nanos: u64) -> Trace {
        let mut ranks = vec![vec![]; rank];
        ranks.push(vec![Op::Compute { nanos }]);
        Trace { name: format!("rank {rank}"), ranks }
    }

    fn join(parts: &[Trace]) -> Result<Trace, JoinError> {
        Trace::join("whole".to_owned(), parts.to_vec())
    }

    #[test]
    fn the_ranks_traces_make_one_in_whatever_order_they_come() {
        let whole = join(&[part(2, 5), part(0, 3), part(1, 4)]).unwrap();
        let computed: Vec<u64> = (0..3).map(|rank| whole.computed(rank)).collect();
        assert_eq!((whole.name.as_str(), computed), ("whole", vec![3, 4, 5]));
    }

    #[test]
    fn what_is_not_one_trace_of_each_rank_is_refused() {
        assert_eq!(join(&[]), Err(JoinError::Nothing));
        assert_eq!(join(&[part(0, 1), part(2, 1)]), Err(JoinError::Missing { rank: 1, ranks: 3 }));
        assert_eq!(join(&[part(0, 1), part(0, 2)]), Err(JoinError::Twice { rank: 0 }));
        let mut both = part(1, 1);
        both.ranks[0].push(Op::Compute { nanos: 7 });
        let refused = join(&[both]).unwrap_err().to_string();
        let told = "rank 1: expected the trace of one rank, but rank 0 and rank 1 act in it";
        assert_eq!(refused, told);
    }
}
