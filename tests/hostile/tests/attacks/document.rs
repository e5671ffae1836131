//! `SECURITY.md` names every attack and what shows that it does not work.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;

pub(crate) const CLAIMS: &[Claim] = claims!(Bare:
    security_md_names_every_attack_here_and_no_test_that_is_not,
    there_are_sixty_attacks_and_more,
);

/// Names of tests are longer than any other name in there.
const WORDS_MIN: usize = 4;

fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    Ok(root.context("two directories up")?.to_owned())
}

/// The tests that the document names, in `backquotes`.
fn named() -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(root()?.join("SECURITY.md"))?;
    let quoted = text.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        name.split('_').count() >= WORDS_MIN
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    Ok(quoted.filter(is_test).map(str::to_owned).collect())
}

/// All that is written in Rust here.
fn sources() -> Result<String> {
    let mut text = String::new();
    let mut directories = vec![root()?];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)?.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() && name != "target" && !name.starts_with('.') {
                directories.push(path);
            } else if name.ends_with(".rs") {
                text += &fs::read_to_string(path)?;
            }
        }
    }
    Ok(text)
}

fn security_md_names_every_attack_here_and_no_test_that_is_not() -> Result<()> {
    let named = named()?;
    let ours: BTreeSet<String> =
        crate::claims().iter().map(|(name, _)| (*name).to_owned()).collect();
    let silent: Vec<_> = ours.difference(&named).collect();
    ensure!(silent.is_empty(), "SECURITY.md does not name {silent:#?}");
    let sources = sources()?;
    let is_test = |name: &&String| {
        sources.contains(&format!("fn {name}("))
            || sources.contains(&format!("(\"{name}\", "))
            || sources.contains(&format!("\"{name}\",\n"))
    };
    let gone: Vec<_> = named.iter().filter(|name| !is_test(name)).collect();
    ensure!(gone.is_empty(), "SECURITY.md names tests that are not there: {gone:#?}");
    Ok(())
}

fn there_are_sixty_attacks_and_more() -> Result<()> {
    let count = crate::claims().len() - CLAIMS.len();
    ensure!(count >= 60, "{count}");
    Ok(())
}
