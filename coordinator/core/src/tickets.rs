//! What shows that a move is the one that was ordered: fences are numbers, which
//! anybody can count.

use std::fmt;

use gleaner_common::id::Fence;
use gleaner_common::program::Ticket;

/// The coordinator's secret. From it and a fence a ticket follows, and from any
/// number of tickets no other: none has to be kept, also over a restart.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TicketKey(pub [u8; 32]);

impl TicketKey {
    /// For the move to this attempt, of which there is one.
    pub(crate) fn ticket(&self, new: Fence) -> Ticket {
        let hash = blake3::keyed_hash(&self.0, &new.packed().to_le_bytes());
        let mut ticket = [0; 16];
        ticket.copy_from_slice(&hash.as_bytes()[..16]);
        Ticket(ticket)
    }
}

/// Secrets are in no log.
impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_its_fences_and_its_coordinators() {
        let (ours, theirs) = (TicketKey([1; 32]), TicketKey([2; 32]));
        assert_eq!(ours.ticket(Fence::of(7)), ours.ticket(Fence::of(7)));
        assert_ne!(ours.ticket(Fence::of(7)), ours.ticket(Fence::of(8)));
        assert_ne!(ours.ticket(Fence::of(7)), theirs.ticket(Fence::of(7)));
        assert!(!format!("{ours:?} {:?}", ours.ticket(Fence::of(7))).contains(char::is_numeric));
    }
}
