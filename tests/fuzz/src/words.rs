//! What people write: words of commands, files of settings, lines at a socket.

use std::path::Path;
use std::str::FromStr;

use gleaner_agent::AgentConfig;
use gleaner_collector::CollectorConfig;
use gleaner_collector::generate::OwnerModel;
use gleaner_collector::name::WorkstationName;
use gleaner_common::id::{BootId, JobId, SubprogramId};
use gleaner_common::job::OnBusy;
use gleaner_common::plain;
use gleaner_common::units;
use gleaner_coordinator::CoordinatorConfig;
use gleaner_shell::config::parse;
use gleaner_shell::identity::Token;

/// A word of a command.
///
/// # Panics
/// It reads otherwise when it is written again.
pub fn texts(bytes: &[u8]) {
    assert!(std::str::from_utf8(&plain::line_with_colours(bytes)).is_ok(), "it is text");
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(!plain::quoted(text).contains(plain::is_harmful), "{text:?}");
    let _ = units::parse_duration(text);
    let _ = units::parse_size(text);
    let _ = text.parse::<OnBusy>();
    reads_as_written::<JobId>(text);
    reads_as_written::<SubprogramId>(text);
    reads_as_written::<BootId>(text);
    reads_as_written::<Token>(text);
    reads_as_written::<WorkstationName>(text);
}

fn reads_as_written<T: FromStr + ToString>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let written = value.to_string();
    let again = written.parse::<T>().ok().unwrap_or_else(|| panic!("{written} does not read"));
    assert_eq!(again.to_string(), written);
}

/// A file of settings.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("settings.toml");
    let _ = parse::<AgentConfig>(path, text).map(|config| config.check());
    let _ = parse::<CoordinatorConfig>(path, text).map(|config| config.check());
    let _ = parse::<CollectorConfig>(path, text);
    let _ = OwnerModel::from_toml(text);
    let _ = gleaner_replay::campaign::file::parse(path, text);
}

/// A line at the owner's socket.
pub fn owner(bytes: &[u8]) {
    gleaner_agent::fuzzing::owner(bytes);
}

pub(crate) mod seeds {
    fn all(of: &[&str]) -> Vec<Vec<u8>> {
        of.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    pub(crate) fn texts() -> Vec<Vec<u8>> {
        all(&["60days", "1h30m", "1.5GiB", "7.3", "12", "suspend:10m,retreat", "ws-3.lab"])
    }

    pub(crate) fn settings() -> Vec<Vec<u8>> {
        all(&[
            include_str!("../../../agent/src/agent.toml"),
            "[shares]\nhalf_life = \"1day\"\n[shares.groups.physics]\nweight = 2\nmembers = [\"ada\"]\n",
        ])
    }

    pub(crate) fn owner() -> Vec<Vec<u8>> {
        all(&["\"status\"\n", "{\"pause\":{\"seconds\":60}}\n", "{\"stop\":{\"fence\":7}}\n"])
    }
}
