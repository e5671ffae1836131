//! What the site says of this workstation, beside what the agent sees itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use gleaner_common::requirement::{self, AttributeError, Attributes, Value};
use gleaner_common::units::parse_size;

use crate::config::{AttributesConfig, Written};

/// How long the site's program may take, and how much it may say.
const PATIENCE: Duration = Duration::from_secs(10);
const SAID_BYTES_MAX: u64 = 64 << 10;

/// Why nothing more is known of this workstation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SiteError {
    #[error("attributes.from: {path}: {why}")]
    Run { path: PathBuf, why: io::Error },
    #[error("attributes.from: {0} can be changed by others than root: expected root's alone")]
    Loose(PathBuf),
    #[error("attributes.from: {path} took longer than {} s", PATIENCE.as_secs())]
    Slow { path: PathBuf },
    #[error("attributes.from: {path} printed what does not read: {why}")]
    Said { path: PathBuf, why: String },
    #[error("attributes: {0}")]
    Attribute(#[from] AttributeError),
}

/// What the configuration sets, and what its program says; the configuration has
/// the last word.
pub(crate) fn of_site(config: &AttributesConfig) -> Result<Attributes, SiteError> {
    let mut written = match &config.from {
        Some(path) => said_by(path, PATIENCE)?,
        None => BTreeMap::new(),
    };
    written.extend(config.set.clone());
    let attributes = written.into_iter().map(|(name, value)| (name, value.into())).collect();
    requirement::check(&attributes)?;
    Ok(attributes)
}

impl From<Written> for Value {
    fn from(written: Written) -> Self {
        match written {
            Written::Flag(flag) => Self::Flag(flag),
            Written::Number(number) => Self::Number(number),
            #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53 bytes")]
            Written::Text(text) => match parse_size(&text) {
                Ok(bytes) => Self::Number(bytes as f64),
                Err(_) => Self::Text(text),
            },
        }
    }
}

fn said_by(path: &Path, patience: Duration) -> Result<BTreeMap<String, Written>, SiteError> {
    let failed = |why| SiteError::Run { path: path.to_owned(), why };
    let file = fs::metadata(path).map_err(failed)?;
    // The agent's rights are not to be had by whoever may write there.
    let own = rustix::process::geteuid().as_raw();
    if (file.uid() != 0 && file.uid() != own) || file.mode() & 0o022 != 0 {
        return Err(SiteError::Loose(path.to_owned()));
    }
    let mut program = Command::new(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    let said = printed(&mut program, patience);
    // It has said all, or has had its time.
    let _ = program.kill();
    let _ = program.wait();
    let text = said.ok_or_else(|| SiteError::Slow { path: path.to_owned() })?.map_err(failed)?;
    let wrong = |why: toml::de::Error| SiteError::Said {
        path: path.to_owned(),
        why: why.message().lines().next().unwrap_or_default().to_owned(),
    };
    toml::from_str(&text).map_err(wrong)
}

/// All that it prints; none if it has not come to an end of that in time.
fn printed(program: &mut Child, patience: Duration) -> Option<io::Result<String>> {
    let pipe = program.stdout.take()?;
    let (told, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = pipe.take(SAID_BYTES_MAX).read_to_string(&mut text);
        // Whoever has lost patience hears it no more.
        let _ = told.send(read.map(|_| text));
    });
    said.recv_timeout(patience).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(dir: &Path, text: &str, mode: u32) -> PathBuf {
        let path = dir.join("attributes");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn config(from: PathBuf) -> AttributesConfig {
        let set = BTreeMap::from([("floor".to_owned(), Written::Number(3.0))]);
        AttributesConfig { set, from: Some(from) }
    }

    #[test]
    fn what_the_sites_program_prints_is_known_and_the_configuration_has_the_last_word() {
        let dir = tempfile::tempdir().unwrap();
        let says = "echo 'matlab = true'; echo 'floor = 2'; echo 'gpu_memory = \"8GiB\"'";
        let of = of_site(&config(program(dir.path(), says, 0o755))).unwrap();
        let expected = [
            ("floor", Value::Number(3.0)),
            ("gpu_memory", Value::Number(8.0 * f64::from(1 << 30))),
            ("matlab", Value::Flag(true)),
        ];
        assert_eq!(of, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_program_that_others_may_change_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let from = program(dir.path(), "touch \"$0.ran\"", 0o777);
        let refused = of_site(&config(from)).unwrap_err();
        assert!(matches!(refused, SiteError::Loose(_)), "{refused}");
        assert!(!dir.path().join("attributes.ran").exists());
    }

    #[test]
    fn what_does_not_read_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        for (says, told) in [
            ("echo matlab", "printed what does not read"),
            ("echo 'a b = 1'", "printed what does not read"),
            ("echo '\"a b\" = 1'", "attribute `a b`: expected a letter"),
            ("echo 'speed = nan'", "attribute speed: expected a number"),
            ("echo 'floor = [1]'", "printed what does not read"),
        ] {
            let refused = of_site(&config(program(dir.path(), says, 0o755))).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(told) && !refused.contains('\n'), "{says}: {refused}");
        }
        let gone = of_site(&config(dir.path().join("gone"))).unwrap_err();
        assert!(matches!(gone, SiteError::Run { .. }), "{gone}");
    }

    #[test]
    fn a_program_that_never_ends_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let from = program(dir.path(), "exec sleep 1000", 0o755);
        let refused = said_by(&from, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(refused, SiteError::Slow { .. }), "{refused}");
    }
}
