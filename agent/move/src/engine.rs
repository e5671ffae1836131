//! CRIU: which one, where, and how it is called.
//!
//! A lab machine has it from its distribution, or in a private tree with a
//! loader and libraries of its own (`get-criu.sh` makes one where the
//! distribution's is too old for the kernel). Either is only a command line to
//! us. Knows nothing of what is dumped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gleaner_common::fingerprint::Version;
use serde::{Deserialize, Serialize};

use crate::inside::is_root;

/// Where the private tree lies: below `/usr`, which guests' namespaces show
/// too, so that CRIU can be run inside of them.
const TREE: &str = "/usr/lib/gleaner/criu";

/// The oldest that we use. 3.17 (Debian 12) cannot dump on current kernels.
const AT_LEAST: Version = Version { major: 4, minor: 1, patch: 0 };

/// From what `criu --version` prints: `Version: 4.1.1`.
fn read_version(printed: &str) -> Option<Version> {
    let text = printed.lines().find_map(|line| line.strip_prefix("Version: "))?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let major = numbers.next()?.ok()?;
    let mut rest = || numbers.next().and_then(Result::ok).unwrap_or(0);
    Some(Version { major, minor: rest(), patch: rest() })
}

/// Why there is no CRIU to use.
#[derive(Debug, thiserror::Error)]
pub enum MissingEngine {
    #[error("no criu here: {AT_LEAST} or newer is needed")]
    Nowhere,
    #[error("criu {found} in {path}: {AT_LEAST} or newer is needed")]
    TooOld { path: PathBuf, found: Version },
    #[error("{path} does not run as criu: {why}")]
    Broken { path: PathBuf, why: String },
}

impl MissingEngine {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Nowhere | Self::TooOld { .. } => {
                "apt-get install criu on Debian 13 or newer; elsewhere agent/move/get-criu.sh of \
                 gleaner's sources fetches it"
            }
            Self::Broken { .. } => "correct moves.criu in the agent's configuration",
        }
    }
}

/// A CRIU that runs here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::unsafe_derive_deserialize, reason = "only paths, which a keeper is told")]
pub struct Engine {
    program: PathBuf,
    /// A private tree's loader and the directory of its libraries.
    loader: Option<(PathBuf, PathBuf)>,
    version: Version,
}

impl Engine {
    /// The one that is configured, or the best of `PATH` and the private tree.
    /// `configured` is a program or a private tree's directory.
    ///
    /// # Errors
    /// There is none, or none that is new enough.
    pub fn find(configured: Option<&Path>) -> Result<Self, MissingEngine> {
        if let Some(path) = configured {
            return Self::at(path);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut failed = None;
        std::env::split_paths(&path)
            .chain(system)
            .map(|directory| directory.join("criu"))
            .chain([PathBuf::from(TREE)])
            .filter(|path| path.exists())
            .find_map(|path| Self::at(&path).map_err(|error| failed = Some(error)).ok())
            .ok_or_else(|| failed.unwrap_or(MissingEngine::Nowhere))
    }

    fn at(path: &Path) -> Result<Self, MissingEngine> {
        let mut engine = Self { program: path.to_path_buf(), loader: None, version: AT_LEAST };
        if path.is_dir() {
            engine.program = path.join("criu");
            let libraries = path.join("lib");
            engine.loader = loader_in(&libraries).map(|loader| (loader, libraries));
        }
        let broken = |why: String| MissingEngine::Broken { path: path.to_path_buf(), why };
        let output = engine
            .command()
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| broken(error.to_string()))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        engine.version = read_version(&printed).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            broken(said.lines().next().unwrap_or("it says no version").to_owned())
        })?;
        if engine.version < AT_LEAST {
            let path = path.to_path_buf();
            return Err(MissingEngine::TooOld { path, found: engine.version });
        }
        Ok(engine)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The words that start it; its own arguments follow.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let program = self.program.clone().into_os_string();
        match &self.loader {
            None => vec![program],
            Some((loader, libraries)) => {
                let (loader, libraries) = (loader.as_os_str(), libraries.as_os_str());
                vec![loader.into(), "--library-path".into(), libraries.into(), program]
            }
        }
    }

    pub(crate) fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// As [`Self::command`], of one of its parts, for a guest's user; what it
    /// knows of the kernel lies in `knowledge`.
    pub(crate) fn command_as(&self, user: (u32, u32), part: &str, knowledge: &str) -> Command {
        let mut command = self.command();
        command.args([part, "--no-default-config"]).env_clear();
        if !is_root(user) {
            command.arg("--unprivileged").env("XDG_RUNTIME_DIR", knowledge);
        }
        command
    }
}

fn loader_in(libraries: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(libraries).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ld-linux") && name.contains(".so.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by another process: what is open for writing here, a process that
    /// another test starts in that moment has open as well, and nobody can run it.
    fn pretend(directory: &Path, prints: &str) -> PathBuf {
        let path = directory.join("criu");
        let write = "printf '#!/bin/sh\\necho \"%s\"\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh"]).arg(&path).arg(prints).status().unwrap();
        assert!(written.success());
        path
    }

    #[test]
    fn a_version_is_read_with_and_without_a_patch() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(read_version("Version: 4.1.1\n"), version(4, 1, 1));
        assert_eq!(read_version("Version: 4.2\nGitID: v4.2-5-gabc\n"), version(4, 2, 0));
        assert_eq!(read_version("criu?"), None);
    }

    #[test]
    fn a_tree_is_found_by_its_directory_and_an_old_one_refused() {
        let home = tempfile::tempdir().unwrap();
        pretend(home.path(), "Version: 4.2");
        let engine = Engine::find(Some(home.path())).unwrap();
        assert_eq!(engine.version().to_string(), "4.2");
        let old = pretend(home.path(), "Version: 3.17.1");
        let error = Engine::find(Some(&old)).unwrap_err();
        assert!(error.to_string().contains("criu 3.17.1 in "), "{error}");
    }

    #[test]
    fn what_is_not_criu_is_named() {
        let home = tempfile::tempdir().unwrap();
        let not = pretend(home.path(), "hello");
        let error = Engine::find(Some(&not)).unwrap_err().to_string();
        assert!(error.ends_with("does not run as criu: it says no version"), "{error}");
        let none = Engine::find(Some(&home.path().join("none"))).unwrap_err();
        assert!(matches!(none, MissingEngine::Broken { .. }), "{none}");
    }
}
