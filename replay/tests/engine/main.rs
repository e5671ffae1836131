//! What the replay engine promises.
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic, and looks at few kinds of what happens"
)]

mod compared;
mod examples;
mod laws;
mod slow;
