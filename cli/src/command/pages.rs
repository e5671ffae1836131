//! Completions and manual pages, made from the tree of commands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write a page for every command into this directory; otherwise print that of glean itself.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// # Errors
/// Standard output is closed or full.
pub fn completions(args: &CompletionsArgs, all: &mut Command) -> Result<Verdict> {
    output::bytes(&completions_of(args.shell, all))?;
    Ok(Verdict::Yes)
}

pub(crate) fn completions_of(shell: Shell, all: &mut Command) -> Vec<u8> {
    let mut text = vec![];
    clap_complete::generate(shell, all, "glean", &mut text);
    text
}

/// # Errors
/// The directory cannot be written.
pub fn man(args: &ManArgs, all: Command) -> Result<Verdict> {
    let Some(dir) = &args.out else {
        let mut page = vec![];
        clap_mangen::Man::new(all).render(&mut page)?;
        output::bytes(&page)?;
        return Ok(Verdict::Yes);
    };
    let failed = || format!("cannot write the manual pages to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(failed)?;
    clap_mangen::generate_to(all, dir).with_context(failed)?;
    output::say(&format!("the manual pages are in {}", dir.display()));
    Ok(Verdict::Yes)
}

/// The page of every command, by its file's name.
pub(crate) fn manuals(all: &Command) -> Result<BTreeMap<String, Vec<u8>>> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    clap_mangen::generate_to(all.clone(), &dir).context("cannot make the manual pages")?;
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(&dir)? {
        let entry = entry?;
        pages
            .insert(entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::arguments::Cli;

    #[test]
    fn completions_are_made_for_every_shell() {
        for shell in Shell::value_variants() {
            let text = String::from_utf8(completions_of(*shell, &mut Cli::command())).unwrap();
            assert!(text.contains("workstations"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_manual_page_and_the_hidden_one_has_none() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs { out: Some(dir.path().to_owned()) }, Cli::command()).unwrap();
        for page in ["glean.1", "glean-submit.1", "glean-agent-pause.1", "glean-usage-export.1"] {
            let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains(".SH"), "{page}");
        }
        assert!(!dir.path().join("glean-keeper.1").exists());
    }
}
