//! Manual pages and shell completions, put where `man` and the shells look.

use std::path::Path;

use anyhow::Result;
use clap_complete::Shell;

use super::site::Site;
use crate::command::pages;

const SHARE: &str = "/usr/local/share";
const MANUALS: &str = "/usr/local/share/man/man1";

/// Where each shell looks for what an administrator installs.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "/usr/local/share/bash-completion/completions/glean"),
    (Shell::Fish, "/usr/local/share/fish/vendor_completions.d/glean.fish"),
    (Shell::Zsh, "/usr/local/share/zsh/site-functions/_glean"),
];

/// # Errors
/// A file that cannot be written.
pub(super) fn write(site: &Site) -> Result<()> {
    for (name, page) in pages::manuals(&site.all)? {
        site.file(&format!("{MANUALS}/{name}"), &page)?;
    }
    for (shell, path) in COMPLETIONS {
        site.file(path, &pages::completions_of(shell, &mut site.all.clone()))?;
    }
    Ok(())
}

/// # Errors
/// A file that cannot be removed.
pub(super) fn remove(site: &Site) -> Result<()> {
    for (name, _) in pages::manuals(&site.all)? {
        site.remove(&format!("{MANUALS}/{name}"))?;
    }
    site.remove_if_empty(MANUALS);
    for (_, path) in COMPLETIONS {
        site.remove(path)?;
        // A shell that is not installed has no directory of its own.
        let above = Path::new(path).ancestors().skip(1);
        above
            .take_while(|above| *above != Path::new(SHARE))
            .for_each(|it| site.remove_if_empty(it));
    }
    Ok(())
}
