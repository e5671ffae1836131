//! All workstations of a lab, and what became different of them in a step.
//!
//! A step touches one or two of many: whatever is known of the others (when
//! something is due there, what runs there) is as it was. Whoever changes a
//! host goes through `IndexMut`, which notes it.

use std::ops::{Deref, Index, IndexMut};

use gleaner_common::time::Moment;

use super::host::Host;

/// One bit for each.
type Set = u64;

pub(crate) const HOSTS_MAX: u64 = Set::BITS as u64;

#[derive(Debug)]
pub(crate) struct Hosts {
    all: Vec<Host>,
    /// Since something was last looked up, and since they were last checked.
    touched: Set,
    unchecked: Set,
    due: Vec<Due>,
}

/// What happens by itself at a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Due {
    agent: Option<Moment>,
    router: Option<Moment>,
    /// A guest's end, at which place.
    exit: Option<(Moment, usize)>,
}

impl Due {
    fn of(host: &Host) -> Self {
        Self { agent: host.deadline(), router: host.router_deadline(), exit: host.next_exit() }
    }
}

/// What is due at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    Agent(usize),
    Router(usize),
    Exit(usize, usize),
}

impl Hosts {
    pub(crate) fn new(hosts: Vec<Host>) -> Self {
        let count = u32::try_from(hosts.len()).expect("few hosts");
        assert!(count <= Set::BITS, "a lab has {} hosts at most", Set::BITS);
        let every = Set::MAX.checked_shr(Set::BITS - count).unwrap_or(0);
        Self {
            due: vec![Due::default(); hosts.len()],
            all: hosts,
            touched: every,
            unchecked: every,
        }
    }

    pub(crate) fn touch(&mut self, index: usize) {
        self.touched |= 1 << index;
    }

    /// When something is due at any of them.
    pub(crate) fn next_at(&mut self) -> Option<Moment> {
        self.refresh();
        self.due
            .iter()
            .flat_map(|due| [due.agent, due.router, due.exit.map(|(at, _)| at)])
            .flatten()
            .min()
    }

    /// What is due first, by their order.
    pub(crate) fn first_due(&mut self, now: Moment) -> Option<Wakes> {
        self.refresh();
        self.due.iter().enumerate().find_map(|(index, due)| {
            let agent = due.agent.filter(|at| *at <= now).map(|_| Wakes::Agent(index));
            let router = due.router.filter(|at| *at <= now).map(|_| Wakes::Router(index));
            let exit = due.exit.filter(|(at, _)| *at <= now);
            agent.or(router).or(exit.map(|(_, place)| Wakes::Exit(index, place)))
        })
    }

    fn refresh(&mut self) {
        self.unchecked |= self.touched;
        while self.touched != 0 {
            let index = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            self.due[index] = Due::of(&self.all[index]);
        }
    }

    /// Whatever is known of hosts is as it would be found now.
    pub(crate) fn check(&mut self) {
        self.refresh();
        for (host, due) in self.all.iter().zip(&self.due) {
            assert_eq!(*due, Due::of(host), "host{} changed, and nobody noted it", host.id);
        }
    }

    /// Those that were touched since this was last asked.
    pub(crate) fn take_unchecked(&mut self) -> impl Iterator<Item = usize> + use<> {
        let mut left = std::mem::take(&mut self.unchecked) | self.touched;
        std::iter::from_fn(move || {
            let index = (left != 0).then_some(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(index)
        })
    }
}

impl Deref for Hosts {
    type Target = [Host];

    fn deref(&self) -> &[Host] {
        &self.all
    }
}

impl Index<usize> for Hosts {
    type Output = Host;

    fn index(&self, index: usize) -> &Host {
        &self.all[index]
    }
}

impl IndexMut<usize> for Hosts {
    fn index_mut(&mut self, index: usize) -> &mut Host {
        self.touch(index);
        &mut self.all[index]
    }
}
