//! Which message goes to which receive. Pure.
//!
//! The promise is MPI's non-overtaking rule: of the messages that a receive
//! would take, it gets the one that came first; of the receives that a message
//! would go to, the one that was posted first gets it. As messages of a pair
//! come in the order they were sent, those of one tag never overtake.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use gleaner_common::trace::COLLECTIVE_TAGS;

/// What came from another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub from: u32,
    pub tag: u32,
    pub bytes: Vec<u8>,
    /// By which the transport knows it.
    pub(crate) number: u64,
}

/// What a receive takes; `None` takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub from: Option<u32>,
    pub tag: Option<u32>,
}

impl Wanted {
    /// Any tag means any of the program's own: never a collective's message.
    fn takes(self, message: &Message) -> bool {
        let tag = match self.tag {
            Some(tag) => tag == message.tag,
            None => message.tag < COLLECTIVE_TAGS,
        };
        tag && self.from.is_none_or(|from| from == message.from)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Some(tag) if tag >= COLLECTIVE_TAGS => f.write_str("its part of a collective")?,
            Some(tag) => write!(f, "a message of tag {tag}")?,
            None => f.write_str("a message of any tag")?,
        }
        match self.from {
            Some(from) => write!(f, " from rank {from}"),
            None => f.write_str(" from any rank"),
        }
    }
}

/// A receive that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The messages that came and the receives that wait, of one rank.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// In order of posting.
    posted: VecDeque<(Ticket, Wanted)>,
    /// In order of arrival; no posted receive takes any of them.
    unexpected: VecDeque<Message>,
    matched: BTreeMap<Ticket, Message>,
    next: u64,
}

impl Mailbox {
    pub(crate) fn deliver(&mut self, message: Message) {
        match self.posted.iter().position(|(_, wanted)| wanted.takes(&message)) {
            Some(place) => {
                if let Some((ticket, _)) = self.posted.remove(place) {
                    self.matched.insert(ticket, message);
                }
            }
            None => self.unexpected.push_back(message),
        }
    }

    pub(crate) fn post(&mut self, wanted: Wanted) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let place = self.unexpected.iter().position(|message| wanted.takes(message));
        match place.and_then(|place| self.unexpected.remove(place)) {
            Some(message) => {
                self.matched.insert(ticket, message);
            }
            None => self.posted.push_back((ticket, wanted)),
        }
        ticket
    }

    /// Has a message come that this would take?
    pub(crate) fn offers(&self, wanted: Wanted) -> bool {
        self.unexpected.iter().any(|message| wanted.takes(message))
    }

    pub(crate) fn has(&self, ticket: Ticket) -> bool {
        self.matched.contains_key(&ticket)
    }

    /// Hands the message over, once.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Message> {
        self.matched.remove(&ticket)
    }

    /// The receive is given up; a message that came for it is given up with it.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<Message> {
        self.posted.retain(|(posted, _)| *posted != ticket);
        self.matched.remove(&ticket)
    }

    /// Messages that nobody has received.
    pub(crate) fn unreceived(&self) -> impl Iterator<Item = &Message> {
        self.unexpected.iter().chain(self.matched.values())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(from: u32, tag: u32, number: u8) -> Message {
        Message { from, tag, bytes: vec![number], number: 0 }
    }

    fn any() -> Wanted {
        Wanted { from: None, tag: None }
    }

    #[test]
    fn an_early_message_waits_for_its_receive() {
        let mut mailbox = Mailbox::default();
        mailbox.deliver(message(1, 7, 0));
        let other = mailbox.post(Wanted { from: Some(2), tag: Some(7) });
        let right = mailbox.post(Wanted { from: Some(1), tag: Some(7) });
        assert!(!mailbox.has(other));
        assert_eq!(mailbox.take(right), Some(message(1, 7, 0)));
        assert_eq!(mailbox.take(right), None);
    }

    #[test]
    fn the_receive_posted_first_gets_the_message() {
        let mut mailbox = Mailbox::default();
        let first = mailbox.post(any());
        let second = mailbox.post(Wanted { from: Some(1), tag: Some(7) });
        mailbox.deliver(message(1, 7, 0));
        mailbox.deliver(message(1, 7, 1));
        assert_eq!(mailbox.take(second).unwrap().bytes, [1]);
        assert_eq!(mailbox.take(first).unwrap().bytes, [0]);
    }

    #[test]
    fn any_tag_does_not_take_a_collectives_message() {
        let mut mailbox = Mailbox::default();
        mailbox.deliver(message(1, COLLECTIVE_TAGS, 0));
        let ticket = mailbox.post(any());
        assert!(!mailbox.has(ticket));
    }

    #[test]
    fn a_withdrawn_receive_takes_nothing() {
        let mut mailbox = Mailbox::default();
        let given_up = mailbox.post(any());
        mailbox.withdraw(given_up);
        mailbox.deliver(message(1, 7, 0));
        let ticket = mailbox.post(any());
        assert_eq!(mailbox.take(ticket), Some(message(1, 7, 0)));
    }

    proptest! {
        /// Whatever the order of messages and receives.
        #[test]
        fn messages_of_a_pair_and_tag_never_overtake(
            steps in proptest::collection::vec((any_bool(), 0..3_u32, 0..3_u32), 1..60),
        ) {
            let mut mailbox = Mailbox::default();
            let mut tickets = vec![];
            for (number, (arrives, from, tag)) in (0..).zip(steps) {
                if arrives {
                    mailbox.deliver(message(from, tag, number));
                } else {
                    let wanted = Wanted { from: (from < 2).then_some(from), tag: (tag < 2).then_some(tag) };
                    tickets.push(mailbox.post(wanted));
                }
            }
            let mut last: BTreeMap<(u32, u32), u8> = BTreeMap::new();
            let mut taken = vec![];
            for ticket in tickets {
                if let Some(message) = mailbox.take(ticket) {
                    taken.push(message);
                }
            }
            // Receives of the same wish, in order of posting, see them in order:
            // weaker wishes may take turns, so compare the whole set by arrival.
            taken.sort_by_key(|message| message.bytes[0]);
            for message in taken.iter().chain(&mailbox.unexpected) {
                let before = last.insert((message.from, message.tag), message.bytes[0]);
                prop_assert!(before.is_none_or(|before| before < message.bytes[0]));
            }
        }
    }

    fn any_bool() -> impl Strategy<Value = bool> {
        proptest::bool::ANY
    }
}
