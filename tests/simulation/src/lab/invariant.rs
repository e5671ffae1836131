//! What a lab promises, by name. `SAFETY.md` says the same in more words.

use std::cell::Cell;
use std::fmt;

/// A promise that is checked while a lab goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// No guest runs where an owner is present past the promised time.
    OwnerFirst,
    /// At most one attempt of a subprogram runs unexpired.
    OneAttempt,
    /// A result is accepted once, and some guest came to it.
    AcceptedOnce,
    /// Nothing acknowledged is ever missing.
    AcknowledgedDurable,
    /// Of two machines with one identity, one speaks: the first, as long as it is heard.
    OneSpeaker,
    /// A token lets one key in, once; what is revoked stays out; and a number is one
    /// workstation's.
    Admission,
    /// Usage numbers have no gap and no repeat.
    UsageSequence,
    /// Messages of ranks arrive once and in order; what they ask is answered once, and a
    /// task is accepted once.
    RankOrder,
    /// Guests have no more together than their workstation lends.
    LentOnce,
    /// What the coordinator counts is what its records say.
    CountersAgree,
    /// What one moment brings is decided at last.
    ComesToRest,
    /// Of what needs several places nothing begins before all of it can.
    BeginsWhole,
    /// What moves goes on from where it stood, on one side only.
    MovesWhole,
    /// After a storm everything ends within a bound of time.
    CalmInTime,
    /// And of attempts that came to nothing.
    CalmWithoutWaste,
    /// A coordinator that stood still hears who waited before it gives anything up.
    HeardFirst,
    /// Equal seeds give equal histories.
    Determinism,
}

const COUNT: usize = Invariant::ALL.len();

thread_local! {
    static EXERCISED: [Cell<u64>; COUNT] = const { [const { Cell::new(0) }; COUNT] };
}

impl Invariant {
    pub const ALL: [Self; 17] = [
        Self::OwnerFirst,
        Self::OneAttempt,
        Self::AcceptedOnce,
        Self::AcknowledgedDurable,
        Self::OneSpeaker,
        Self::Admission,
        Self::UsageSequence,
        Self::RankOrder,
        Self::LentOnce,
        Self::CountersAgree,
        Self::ComesToRest,
        Self::BeginsWhole,
        Self::MovesWhole,
        Self::CalmInTime,
        Self::CalmWithoutWaste,
        Self::HeardFirst,
        Self::Determinism,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::OwnerFirst => "owner-first",
            Self::OneAttempt => "one-attempt",
            Self::AcceptedOnce => "accepted-once",
            Self::AcknowledgedDurable => "acknowledged-durable",
            Self::OneSpeaker => "one-speaker",
            Self::Admission => "admission",
            Self::UsageSequence => "usage-sequence",
            Self::RankOrder => "rank-order",
            Self::LentOnce => "lent-once",
            Self::CountersAgree => "counters-agree",
            Self::ComesToRest => "comes-to-rest",
            Self::BeginsWhole => "begins-whole",
            Self::MovesWhole => "moves-whole",
            Self::CalmInTime => "calm-in-time",
            Self::CalmWithoutWaste => "calm-without-waste",
            Self::HeardFirst => "heard-first",
            Self::Determinism => "determinism",
        }
    }

    /// The promise was put to the test.
    pub(crate) fn exercise(self) {
        EXERCISED.with(|counts| {
            let count = &counts[self as usize];
            count.set(count.get() + 1);
        });
    }

    /// How often each was put to the test on this thread since this was last
    /// asked.
    pub fn take_exercised() -> [u64; COUNT] {
        EXERCISED.with(|counts| std::array::from_fn(|at| counts[at].take()))
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Puts a promise to the test; a lab in which it does not hold ends.
macro_rules! holds {
    ($invariant:ident, $holds:expr, $($message:tt)+) => {{
        let invariant = $crate::lab::invariant::Invariant::$invariant;
        invariant.exercise();
        assert!($holds, "{invariant}: {}", format_args!($($message)+));
    }};
}
pub(crate) use holds;
