//! The list of planted bugs: what is changed, which promise that breaks, and
//! who must notice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The file, beside this package's own.
pub(crate) const FILE: &str = "tests/simulation/mutants/list.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// By name: the arguments of `cargo` that run it.
    pub(crate) catchers: BTreeMap<String, Vec<String>>,
    #[serde(rename = "mutant")]
    pub(crate) mutants: Vec<Mutant>,
}

/// One bug.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The promise that it breaks, as SAFETY.md or ARCHITECTURE.md name it.
    pub(crate) breaks: String,
    pub(crate) file: String,
    /// Stands there once.
    pub(crate) find: String,
    pub(crate) put: String,
    pub(crate) caught_by: String,
    /// The catcher's test that notices it; labs have a bound in their arguments.
    pub(crate) test: Option<String>,
}

impl List {
    /// Reads the list and checks that each bug can be planted.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let list: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let mut names = BTreeSet::new();
        for mutant in &list.mutants {
            ensure!(names.insert(&mutant.name), "`{}` is there twice", mutant.name);
            ensure!(
                list.catchers.contains_key(&mutant.caught_by),
                "`{}` is caught by `{}`: expected one of [catchers]",
                mutant.name,
                mutant.caught_by
            );
            ensure!(
                mutant.test.is_some() == (list.catchers[&mutant.caught_by][0] == "test"),
                "`{}`: expected the name of the one test that notices it",
                mutant.name
            );
            mutant.planted(root)?;
        }
        Ok(list)
    }
}

impl Mutant {
    pub(crate) fn noticed_by(&self) -> &str {
        self.test.as_ref().unwrap_or(&self.caught_by)
    }

    /// The text of the file with the bug in it.
    pub(crate) fn planted(&self, root: &Path) -> Result<String> {
        let path = root.join(&self.file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("`{}` is to be planted in {}", self.name, path.display()))?;
        let places = text.matches(&self.find).count();
        ensure!(
            places == 1,
            "`{}`: what it changes stands {places} times in {}: expected once",
            self.name,
            self.file
        );
        ensure!(self.find != self.put, "`{}` changes nothing", self.name);
        Ok(text.replacen(&self.find, &self.put, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
    }

    /// So that the list does not rot: what it changes is still there.
    #[test]
    fn each_bug_can_still_be_planted_and_there_are_fifty_five() {
        let list = List::read(root()).unwrap();
        assert!(list.mutants.len() >= 55, "{}", list.mutants.len());
    }

    #[test]
    fn what_stands_nowhere_or_twice_is_refused() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("a.rs"), "one two two").unwrap();
        let mutant = |find: &str| Mutant {
            name: "m".into(),
            breaks: "p".into(),
            file: "a.rs".into(),
            find: find.into(),
            put: "x".into(),
            caught_by: "c".into(),
            test: None,
        };
        assert_eq!(mutant("one").planted(home.path()).unwrap(), "x two two");
        for (find, places) in [("two", 2), ("three", 0)] {
            let error = mutant(find).planted(home.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("stands {places} times")), "{error}");
        }
    }
}
