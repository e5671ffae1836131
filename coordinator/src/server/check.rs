//! What an agent says, checked before the core hears it: an agent is enrolled,
//! but its machine may be in anybody's hands.

use gleaner_common::job::{FILES_MAX, is_inside};
use gleaner_common::machine::{Machine, PARTS_MAX};
use gleaner_common::program::{ADDRESSES_MAX, RANK_REPORT_BYTES_MAX, RELAYED_BYTES_MAX};
use gleaner_common::requirement::{self, AttributeError};
use gleaner_common::usage::{LoadAverages, REASON_BYTES_MAX};
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, Facts, Finished, INLINE_OUTPUT_BYTES_MAX, Presence, Printed,
    UNKNOWN_MAX,
};

const TEXT_BYTES_MAX: usize = 4 * REASON_BYTES_MAX;
const MISSING_MAX: usize = 64;
const HELD_MAX: usize = 4_096;

/// A frame that goes too far: what, and how far it may go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("{what} of {bytes} bytes: expected at most {bytes_max}")]
    Bytes { what: &'static str, bytes: usize, bytes_max: usize },
    #[error("{count} {what}: expected at most {count_max}")]
    Count { what: &'static str, count: usize, count_max: usize },
    #[error("{what} of {figure}: expected {expected}")]
    Figure { what: &'static str, figure: String, expected: &'static str },
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    #[error("output file `{0}` does not stay inside its directory")]
    Path(String),
}

pub(super) fn check(frame: &AgentFrame) -> Result<(), Excess> {
    match frame {
        AgentFrame::Hello { facts, presence, held, .. } => {
            check_facts(facts)?;
            count("held guests", held.len(), HELD_MAX)?;
            check_presence(presence)
        }
        AgentFrame::Presence(presence) => check_presence(presence),
        AgentFrame::Attempt(event) => check_attempt(event),
        AgentFrame::Leaving { reason } => text("a reason", reason),
        AgentFrame::Missing(missing) => check_missing(missing),
        AgentFrame::Unready(why) => check_unready(why.as_ref()),
        AgentFrame::Heartbeat { load, .. } => check_load(*load),
        AgentFrame::Relay { bytes, .. } => {
            at_most("what agents hand each other", bytes.len(), RELAYED_BYTES_MAX)
        }
        AgentFrame::FromRank { bytes, .. } => {
            at_most("what is said of a rank", bytes.len(), RANK_REPORT_BYTES_MAX)
        }
        AgentFrame::Stopped { .. } => Ok(()),
        AgentFrame::Unknown(attempts) => count("attempts", attempts.len(), UNKNOWN_MAX),
    }
}

fn check_facts(facts: &Facts) -> Result<(), Excess> {
    text("a kernel's name", &facts.kernel)?;
    from_0_on("a speed", facts.speed)?;
    check_missing(&facts.missing)?;
    check_unready(facts.unready.as_ref())?;
    count("addresses", facts.addresses.len(), ADDRESSES_MAX)?;
    requirement::check(&facts.attributes)?;
    check_machine(&facts.machine)
}

fn check_unready(why: Option<&String>) -> Result<(), Excess> {
    why.map_or(Ok(()), |why| text("a reason", why))
}

fn check_missing(missing: &[String]) -> Result<(), Excess> {
    count("missing things", missing.len(), MISSING_MAX)?;
    missing.iter().try_for_each(|line| text("a missing thing", line))
}

fn check_machine(machine: &Machine) -> Result<(), Excess> {
    let Machine { hostname, os, processor, physical_cores: _, disks, temperatures } = machine;
    [hostname, os, processor].into_iter().try_for_each(|name| text("a machine's name", name))?;
    count("disks", disks.len(), PARTS_MAX)?;
    disks.iter().try_for_each(|disk| text("a disk's name", &disk.path))?;
    count("temperatures", temperatures.len(), PARTS_MAX)?;
    temperatures.iter().try_for_each(|one| {
        text("a temperature's name", &one.label)?;
        let celsius = [Some(one.celsius), one.critical_celsius].into_iter().flatten();
        celsius.into_iter().try_for_each(|celsius| number("a temperature", celsius))
    })
}

fn check_presence(presence: &Presence) -> Result<(), Excess> {
    text("a reason", &presence.reason)?;
    check_load(presence.load)
}

fn check_load(load: LoadAverages) -> Result<(), Excess> {
    [load.one, load.five, load.fifteen].into_iter().try_for_each(|load| from_0_on("a load", load))
}

fn from_0_on(what: &'static str, figure: f32) -> Result<(), Excess> {
    figure_if(LoadAverages::is_possible(figure), what, figure, "a number from 0 on")
}

fn number(what: &'static str, figure: f32) -> Result<(), Excess> {
    figure_if(figure.is_finite(), what, figure, "a number")
}

fn figure_if(
    is_one: bool,
    what: &'static str,
    figure: f32,
    expected: &'static str,
) -> Result<(), Excess> {
    let wrong = || Excess::Figure { what, figure: figure.to_string(), expected };
    if is_one { Ok(()) } else { Err(wrong()) }
}

fn check_attempt(event: &AttemptEvent) -> Result<(), Excess> {
    match event {
        AttemptEvent::Finished(finished) => check_finished(finished),
        AttemptEvent::Retreated { reason, .. }
        | AttemptEvent::Refused { reason, .. }
        | AttemptEvent::CannotLeave { reason, .. }
        | AttemptEvent::Lost { reason, .. } => text("a reason", reason),
        AttemptEvent::Started { .. }
        | AttemptEvent::Suspended { .. }
        | AttemptEvent::Demoted { .. }
        | AttemptEvent::Resumed { .. }
        | AttemptEvent::WantsAway { .. }
        | AttemptEvent::Arrived { .. }
        | AttemptEvent::Stays { .. } => Ok(()),
    }
}

fn check_finished(finished: &Finished) -> Result<(), Excess> {
    text("an outcome", &finished.outcome.to_string())?;
    for printed in [&finished.stdout, &finished.stderr] {
        if let Printed::Inline(bytes) = printed {
            at_most("inline output", bytes.len(), INLINE_OUTPUT_BYTES_MAX)?;
        }
    }
    count("output files", finished.outputs.len(), FILES_MAX)?;
    match finished.outputs.iter().find(|file| !is_inside(&file.path)) {
        Some(file) => Err(Excess::Path(file.path.chars().take(100).collect())),
        None => Ok(()),
    }
}

fn text(what: &'static str, text: &str) -> Result<(), Excess> {
    at_most(what, text.len(), TEXT_BYTES_MAX)
}

fn at_most(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), Excess> {
    if bytes > bytes_max { Err(Excess::Bytes { what, bytes, bytes_max }) } else { Ok(()) }
}

fn count(what: &'static str, count: usize, count_max: usize) -> Result<(), Excess> {
    if count > count_max { Err(Excess::Count { what, count, count_max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_common::frame::FRAME_BYTES_MAX;
    use gleaner_common::id::{ContentHash, Fence};
    use gleaner_common::job::Outcome;
    use gleaner_common::machine::Temperature;
    use gleaner_common::program::{Life, RANKS_MAX};
    use gleaner_common::wire::OutputFile;
    use gleaner_program_core::address::Rank;
    use gleaner_program_core::facts::{End, RankFacts, Stance};
    use gleaner_program_core::wire::FromRank;

    use super::*;

    fn finished(stdout: usize, path: &str) -> AgentFrame {
        AgentFrame::Attempt(AttemptEvent::Finished(Finished {
            fence: Fence::of(1),
            outcome: Outcome::Succeeded,
            cpu: Duration::ZERO,
            ran: Duration::ZERO,
            suspended: Duration::ZERO,
            suspensions: 0,
            stdout: Printed::Inline(vec![0; stdout]),
            stderr: Printed::default(),
            outputs: vec![OutputFile {
                path: path.to_owned(),
                hash: ContentHash([0; 32]),
                size_bytes: 0,
                executable: false,
            }],
        }))
    }

    #[test]
    fn a_load_a_speed_or_a_temperature_is_a_number() {
        let said = |frame: &AgentFrame| check(frame).map_err(|excess| excess.to_string());
        let heartbeat = |one: f32| {
            let load = LoadAverages { one, ..LoadAverages::default() };
            AgentFrame::Heartbeat { sequence: 1, slots: 1, load }
        };
        assert_eq!(said(&heartbeat(0.25)), Ok(()));
        for (load, figure) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-0.5, "-0.5")] {
            let expected = format!("a load of {figure}: expected a number from 0 on");
            assert_eq!(said(&heartbeat(load)), Err(expected));
        }
        let fast = Facts { speed: f32::INFINITY, ..Facts::default() };
        assert!(check_facts(&fast).unwrap_err().to_string().starts_with("a speed of inf"));
        let label = "core".to_owned();
        let hot = Temperature { label, celsius: f32::NAN, critical_celsius: None };
        let machine = Machine { temperatures: vec![hot], ..Machine::default() };
        assert!(check_machine(&machine).unwrap_err().to_string().starts_with("a temperature of"));
    }

    #[test]
    fn results_within_the_limits_pass_and_others_are_named() {
        assert_eq!(check(&finished(INLINE_OUTPUT_BYTES_MAX, "a/b")), Ok(()));
        assert_eq!(
            check(&finished(INLINE_OUTPUT_BYTES_MAX + 1, "a")).unwrap_err().to_string(),
            "inline output of 16385 bytes: expected at most 16384"
        );
        assert_eq!(check(&finished(0, "../a")), Err(Excess::Path("../a".into())));
        let reason = "x".repeat(1_000);
        assert!(check(&AgentFrame::Leaving { reason }).is_err());
    }

    #[test]
    fn the_longest_report_of_a_rank_passes_and_no_longer_one() {
        let all: Vec<_> = (0..RANKS_MAX).map(|rank| (Rank(rank), u64::MAX)).collect();
        let stance = Stance::Ended(End::ExitCode(i32::MIN));
        let rank = Rank(RANKS_MAX);
        let facts = RankFacts { rank, stance, sent: all.clone(), received: all };
        let report = FromRank::Facts { asked: Some(u64::MAX), facts };
        let said = |bytes| {
            check(&AgentFrame::FromRank { fence: Fence::of(1), life: Life::default(), bytes })
        };
        assert_eq!(said(postcard::to_stdvec(&report).unwrap()), Ok(()));
        assert!(said(vec![0; RANK_REPORT_BYTES_MAX + 1]).is_err());
        const { assert!(RANK_REPORT_BYTES_MAX + 100 < FRAME_BYTES_MAX) };
    }
}
