//! Which of the free workstations is chosen.

use serde::Deserialize;

/// A placement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The workstation that turned idle last (Phalen 1994, §6.4: "strictly in
    /// a LIFO manner").
    #[default]
    LastIdleFirst,
    /// The one that has been idle longest (Phalen 1994, §7.2.3).
    FirstIdleFirst,
    /// The best by load, idle time and speed, as Quahog did (Phalen 1994,
    /// §4.3.2).
    Ranked,
}
