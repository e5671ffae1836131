//! What is told of what a rank does wrong and may.

use gleaner_program_core::complaint::Complaint;

/// The most that is told of one rank.
const COMPLAINTS_MAX: usize = 64;

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    told: Vec<Complaint>,
    /// The last of those about snapshots, which may go on for as long as it runs.
    missed: Option<Complaint>,
}

impl Complaints {
    /// Is this worth telling? Not twice, and not without end. That it had no
    /// part in a snapshot is said of each, because the coordinator tells what is
    /// news of it; it takes no room from what else may be wrong.
    pub(super) fn adds(&mut self, complaint: &Complaint) -> bool {
        if matches!(complaint, Complaint::NoCut { .. }) {
            let before = self.missed.replace(complaint.clone());
            return before.as_ref() != Some(complaint);
        }
        let new = self.told.len() < COMPLAINTS_MAX && !self.told.contains(complaint);
        if new {
            self.told.push(complaint.clone());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use gleaner_program_core::address::{Rank, Snapshot};

    use super::*;

    fn no_cut(snapshot: u32) -> Complaint {
        let because = "it saves no state".to_owned();
        Complaint::NoCut { rank: Rank(0), snapshot: Snapshot(snapshot), because }
    }

    #[test]
    fn missed_snapshots_do_not_crowd_out_what_else_is_wrong() {
        let mut complaints = Complaints::default();
        for snapshot in 1..=1_000 {
            assert!(complaints.adds(&no_cut(snapshot)));
            assert!(!complaints.adds(&no_cut(snapshot)), "snapshot {snapshot} twice");
        }
        assert!(complaints.adds(&Complaint::EndedInsideMessage { rank: Rank(0), to: Rank(1) }));
    }

    #[test]
    fn a_rank_is_not_complained_of_twice_nor_without_end() {
        let mut complaints = Complaints::default();
        let full = |bytes_max| Complaint::LogFull { rank: Rank(0), bytes_max };
        let told = (0..1_000).filter(|bytes| complaints.adds(&full(*bytes))).count();
        assert_eq!(told, COMPLAINTS_MAX);
        assert!(!complaints.adds(&full(0)));
    }
}
