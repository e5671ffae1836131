//! A copy of the sources to plant bugs in, with a target of its own that stays
//! warm: what a bug does not touch is built once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::list::Mutant;
use crate::verdict::Verdict;

/// Longer than this, a catcher hangs: that is noticed too.
const CATCHER_WITHIN_S: u32 = 900;

/// Where proptest keeps what failed: the next bug is not to be found by what it
/// remembers of the last.
const REMEMBERED: &str = "proptest-regressions";

pub(crate) struct Field {
    root: PathBuf,
    tree: PathBuf,
    target: PathBuf,
}

impl Field {
    /// Copies what has changed since the last time, so that little is built anew.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let home = root.join("target/mutants");
        let field =
            Self { root: root.to_owned(), tree: home.join("tree"), target: home.join("target") };
        let files = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git lists the sources")?;
        ensure!(files.status.success(), "git does not list the sources");
        let files = String::from_utf8(files.stdout).context("a file's name")?;
        for file in files.split_terminator('\0').filter(|file| root.join(file).is_file()) {
            field.restore(file)?;
        }
        Ok(field)
    }

    fn restore(&self, file: &str) -> Result<()> {
        let wanted = fs::read(self.root.join(file)).with_context(|| file.to_owned())?;
        self.write(file, &wanted)?;
        for package in Path::new(file).ancestors() {
            let _ = fs::remove_dir_all(self.tree.join(package).join(REMEMBERED));
        }
        Ok(())
    }

    fn write(&self, file: &str, wanted: &[u8]) -> Result<()> {
        let path = self.tree.join(file);
        if fs::read(&path).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        let parent = path.parent().context("a file is somewhere")?;
        fs::create_dir_all(parent)?;
        fs::write(&path, wanted).with_context(|| path.display().to_string())?;
        let mode = fs::metadata(self.root.join(file))?.permissions();
        Ok(fs::set_permissions(&path, mode)?)
    }

    /// What the catcher, or these of its tests, say of it.
    pub(crate) fn plant(
        &self,
        mutant: &Mutant,
        catcher: &[String],
        tests: &[String],
    ) -> Result<Verdict> {
        self.write(&mutant.file, mutant.planted(&self.root)?.as_bytes())?;
        let verdict = self.build_and_run(catcher, tests);
        self.restore(&mutant.file)?;
        verdict.with_context(|| format!("`{}`", mutant.name))
    }

    fn build_and_run(&self, catcher: &[String], tests: &[String]) -> Result<Verdict> {
        // What does not compile has been noticed by nobody.
        let before = catcher.iter().take_while(|it| *it != "--");
        let mut build: Vec<String> = before.cloned().collect();
        match build.first().map(String::as_str) {
            Some("run") => "build".clone_into(&mut build[0]),
            Some("test") => build.push("--no-run".to_owned()),
            _ => bail!("a catcher begins with `run` or `test`"),
        }
        let compiled = self.cargo(&build)?;
        ensure!(compiled.passes, "it does not compile: {}", compiled.said);
        self.run(catcher, tests)
    }

    pub(crate) fn run(&self, catcher: &[String], tests: &[String]) -> Result<Verdict> {
        let exact = (!tests.is_empty()).then_some(["--".to_owned(), "--exact".to_owned()]);
        let arguments = catcher.iter().chain(exact.iter().flatten()).chain(tests);
        self.cargo(&arguments.cloned().collect::<Vec<_>>())
    }

    fn cargo(&self, arguments: &[String]) -> Result<Verdict> {
        let output = Command::new("timeout")
            .args([CATCHER_WITHIN_S.to_string().as_str(), "cargo"])
            .args(arguments)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUST_BACKTRACE", "0")
            .output()
            .context("cargo runs")?;
        Ok(Verdict::of(&output))
    }
}
