//! The machine being set up, or a directory that stands for one.
//!
//! Each step says in one line what it did, or that nothing was to be done.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use gleaner_shell::atomic;

use super::{BINARY, USER};
use crate::failure::hinted;
use crate::output;

/// Who a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Root,
    /// The user of the daemons that need not be root.
    Gleaner,
}

#[derive(Debug)]
pub(super) struct Site {
    root: PathBuf,
    /// User and group number of [`USER`], once it is there.
    gleaner: Option<(u32, u32)>,
    /// The tree of commands, of which manual pages and completions are made.
    pub(super) all: clap::Command,
}

impl Site {
    /// # Errors
    /// A live machine, and no right to set it up.
    pub(super) fn open(root: &Path, all: &clap::Command) -> Result<Self> {
        let site = Self { root: root.to_owned(), gleaner: None, all: all.clone() };
        if site.is_live() && !rustix::process::geteuid().is_root() {
            return Err(hinted(
                format!(
                    "cannot set up this machine: we are user {}, expected root",
                    rustix::process::geteuid().as_raw()
                ),
                "the same with sudo; --root DIR sets up below a directory",
            ));
        }
        Ok(site)
    }

    /// Is this the machine we run on?
    pub(super) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path of the machine is.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// # Errors
    /// It cannot be made, or is no directory.
    pub(super) fn directory(&self, path: &str, mode: u32, owner: Owner) -> Result<()> {
        let path = self.path(path);
        let failed = || format!("cannot make the directory {}", path.display());
        let new = !path.is_dir();
        fs::create_dir_all(&path).with_context(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(failed)?;
        self.give(&path, owner)?;
        say(&format!("{} {}", if new { "made" } else { "kept" }, path.display()));
        Ok(())
    }

    /// A configuration: one that is there is its site's own and stays.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn configuration(&self, path: &str, content: &str) -> Result<()> {
        let path = self.path(path);
        if path.exists() {
            say(&format!("kept {}", path.display()));
            return Ok(());
        }
        atomic::replace(&path, content.as_bytes(), atomic::PUBLIC)?;
        say(&format!("wrote {}", path.display()));
        Ok(())
    }

    /// A file that is ours: it follows the release. Returns whether it changed.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn file(&self, path: &str, content: &[u8]) -> Result<bool> {
        self.replace(path, content, atomic::PUBLIC)
    }

    fn replace(&self, path: &str, content: &[u8], mode: u32) -> Result<bool> {
        let path = self.path(path);
        if fs::read(&path).is_ok_and(|there| there == content) {
            say(&format!("kept {}", path.display()));
            return Ok(false);
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make the directory {}", parent.display()))?;
        }
        atomic::replace(&path, content, mode)?;
        // The process's mask may have taken bits away.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        say(&format!("wrote {}", path.display()));
        Ok(true)
    }

    /// Puts this very binary where the services look for it. Returns whether
    /// it changed.
    ///
    /// # Errors
    /// It cannot be copied.
    pub(super) fn binary(&self) -> Result<bool> {
        let from = std::env::current_exe().context("cannot tell where this program is")?;
        if same_file(&from, &self.path(BINARY)) {
            return Ok(false);
        }
        let content = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        self.replace(BINARY, &content, 0o755)
    }

    /// Makes [`USER`] where it is not. Below a directory there are no users.
    ///
    /// # Errors
    /// The machine's tools refuse.
    pub(super) fn user(&mut self) -> Result<()> {
        if !self.is_live() {
            return Ok(());
        }
        if account()?.is_none() {
            let mut command = Command::new("useradd");
            command.args(["--system", "--user-group", "--no-create-home"]);
            command.args(["--home-dir", "/var/lib/gleaner", "--shell", "/usr/sbin/nologin", USER]);
            run(&mut command)?;
            say(&format!("made the user {USER}"));
        }
        self.gleaner = account()?;
        if self.gleaner.is_none() {
            bail!("the user {USER} is not in /etc/passwd after useradd made it");
        }
        Ok(())
    }

    /// Takes [`USER`] away.
    pub(super) fn remove_user(&self) {
        if self.is_live() && matches!(account(), Ok(Some(_))) {
            match run(Command::new("userdel").arg(USER)) {
                Ok(()) => say(&format!("removed the user {USER}")),
                Err(error) => say(&format!("kept the user {USER}: {error:#}")),
            }
        }
    }

    /// Gives a path, and all below it, to its owner.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn give(&self, path: &Path, owner: Owner) -> Result<()> {
        let to = match owner {
            _ if !self.is_live() => return Ok(()),
            Owner::Root => return Ok(()),
            Owner::Gleaner => self.gleaner,
        };
        let Some((uid, gid)) = to else { return Ok(()) };
        let failed = || format!("cannot give {} to {USER}", path.display());
        // Never through a link: what it points to may be anybody's.
        if fs::symlink_metadata(path).with_context(failed)?.is_symlink() {
            return Ok(());
        }
        chown(path, Some(uid), Some(gid)).with_context(failed)?;
        if path.is_dir() {
            for entry in fs::read_dir(path).with_context(failed)? {
                self.give(&entry.with_context(failed)?.path(), owner)?;
            }
        }
        Ok(())
    }

    /// Takes a file or a whole directory away, if it is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        let removed = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => Err(error),
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
        say(&format!("removed {}", path.display()));
        Ok(())
    }

    /// Takes a directory away if nothing is left in it.
    pub(super) fn remove_if_empty(&self, path: impl AsRef<Path>) {
        // Somebody's files in it are the usual reason not to.
        let _ = fs::remove_dir(self.path(path));
    }
}

/// One line of what was done.
pub(super) fn say(line: &str) {
    output::say(line);
}

/// Runs one of the machine's tools.
///
/// # Errors
/// It is not there, or it fails; the message carries what it said.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {tool}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{tool} failed ({}): {}", output.status, said.trim());
    }
    Ok(())
}

/// Are these one file? A link of `/proc` leads to what a process runs, also where that has been
/// replaced.
pub(super) fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// User and group number of [`USER`].
fn account() -> Result<Option<(u32, u32)>> {
    let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    Ok(passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(USER)).then_some(())?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    }))
}
