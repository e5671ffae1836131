//! Input files: found, checked and hashed before anything is sent, and only
//! what the coordinator lacks is sent.
//!
//! Directories are walked. A symbolic link to a file is followed; one to a
//! directory is refused below the directory asked for, so that a walk always
//! ends and takes nothing along unseen. Sockets, pipes and devices are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use gleaner_common::id::ContentHash;
use gleaner_common::job::{FILES_MAX, StagedFile, is_inside};

use crate::values::Input;

/// Why a file cannot be staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("cannot read the input {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the input {} is neither a file nor a directory", path.display())]
    Special { path: PathBuf },
    #[error("the input {} is a symbolic link to a directory: name that directory as an input of its own", path.display())]
    LinkedDirectory { path: PathBuf },
    #[error("the input {} has no name to be staged under: expected PATH=DEST", path.display())]
    NoName { path: PathBuf },
    #[error("the input {} would lie outside the working directory or is not UTF-8", path.display())]
    BadName { path: PathBuf },
    #[error("the inputs {} and {} would both be staged as {to}", first.display(), second.display())]
    Twice { first: PathBuf, second: PathBuf, to: String },
    #[error("more than {FILES_MAX} input files")]
    TooMany,
    #[error("the program {} is not there or not executable: expected a program file here, an absolute path, or a name in the workstations' PATH", path.display())]
    NoProgram { path: PathBuf },
    #[error("the program {} lies outside this directory: stage it with --input PATH=DEST and run ./DEST", path.display())]
    ProgramOutside { path: PathBuf },
}

/// A file to be staged and where it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub from: PathBuf,
    pub staged: StagedFile,
}

/// Finds and hashes all inputs, in order of their place in the job.
///
/// # Errors
/// The first that cannot be staged.
pub fn collect(inputs: &[Input]) -> Result<Vec<Found>, StageError> {
    let mut found = BTreeMap::new();
    for input in inputs {
        let to = match &input.to {
            Some(to) => to.clone(),
            None => last_part(&input.path)?,
        };
        add(&mut found, &input.path, &to)?;
    }
    found.into_iter().map(|(to, from)| hash(from, to)).collect()
}

/// The command's program as an input, if it is given by a relative path and
/// no input puts it there.
///
/// # Errors
/// There is no such program, or it lies outside this directory.
pub fn program(command: &[String], inputs: &[Input]) -> Result<Option<Input>, StageError> {
    let Some(program) = command.first().filter(|text| text.contains('/')) else { return Ok(None) };
    let path = PathBuf::from(program);
    if path.is_absolute() || program.contains("{i}") {
        return Ok(None);
    }
    let parts: Vec<&str> = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_str().unwrap_or_default())
        .collect();
    let to = parts.join("/");
    let covers = |input: &Input| {
        let at = input.to.clone().or_else(|| last_part(&input.path).ok()).unwrap_or_default();
        to == at || to.starts_with(&format!("{at}/"))
    };
    if inputs.iter().any(covers) {
        return Ok(None);
    }
    if !is_inside(&to) {
        return Err(StageError::ProgramOutside { path });
    }
    match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => {
            Ok(Some(Input { path, to: Some(to) }))
        }
        _ => Err(StageError::NoProgram { path }),
    }
}

fn last_part(path: &Path) -> Result<String, StageError> {
    let name = path.file_name().ok_or_else(|| StageError::NoName { path: path.to_owned() })?;
    let name = name.to_str().ok_or_else(|| StageError::BadName { path: path.to_owned() })?;
    Ok(name.to_owned())
}

/// Adds a file, or all files below a directory. What was named is followed,
/// whatever it is.
fn add(found: &mut BTreeMap<String, PathBuf>, named: &Path, to: &str) -> Result<(), StageError> {
    let mut left = vec![(named.to_owned(), to.to_owned())];
    while let Some((path, to)) = left.pop() {
        let failed = |source| StageError::Read { path: path.clone(), source };
        let meta = fs::metadata(&path).map_err(failed)?;
        if !meta.is_dir() {
            add_file(found, path, to, &meta)?;
            continue;
        }
        if path != named && fs::symlink_metadata(&path).map_err(failed)?.is_symlink() {
            return Err(StageError::LinkedDirectory { path });
        }
        for entry in fs::read_dir(&path).map_err(failed)? {
            let inner = entry.map_err(failed)?.path();
            let to = format!("{to}/{}", last_part(&inner)?);
            left.push((inner, to));
        }
    }
    Ok(())
}

fn add_file(
    found: &mut BTreeMap<String, PathBuf>,
    path: PathBuf,
    to: String,
    meta: &fs::Metadata,
) -> Result<(), StageError> {
    if !meta.is_file() {
        return Err(StageError::Special { path });
    }
    if !is_inside(&to) {
        return Err(StageError::BadName { path });
    }
    if let Some(first) = found.insert(to.clone(), path.clone()) {
        return Err(StageError::Twice { first, second: path, to });
    }
    if found.len() > FILES_MAX { Err(StageError::TooMany) } else { Ok(()) }
}

fn hash(from: PathBuf, to: String) -> Result<Found, StageError> {
    let failed = |source| StageError::Read { path: from.clone(), source };
    let file = File::open(&from).map_err(failed)?;
    let executable = file.metadata().map_err(failed)?.permissions().mode() & 0o111 != 0;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(failed)?;
    let staged = StagedFile {
        path: to,
        hash: ContentHash(*hasher.finalize().as_bytes()),
        size_bytes: hasher.count(),
        executable,
    };
    Ok(Found { from, staged })
}

/// Of the files found, one for each content that is missing.
pub fn to_send<'a>(found: &'a [Found], missing: &[ContentHash]) -> Vec<&'a Found> {
    let mut left: BTreeSet<ContentHash> = missing.iter().copied().collect();
    found.iter().filter(|file| left.remove(&file.staged.hash)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn place() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/deep")).unwrap();
        fs::write(dir.path().join("data/a.txt"), "same").unwrap();
        fs::write(dir.path().join("data/deep/b.txt"), "same").unwrap();
        fs::write(dir.path().join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    fn input(path: PathBuf, to: Option<&str>) -> Input {
        Input { path, to: to.map(str::to_owned) }
    }

    #[test]
    fn a_directory_is_walked_and_its_content_sent_once() {
        let dir = place();
        let inputs = [
            input(dir.path().join("data"), None),
            input(dir.path().join("run.sh"), Some("bin/go")),
        ];
        let found = collect(&inputs).unwrap();
        let paths: Vec<_> = found.iter().map(|file| file.staged.path.as_str()).collect();
        assert_eq!(paths, ["bin/go", "data/a.txt", "data/deep/b.txt"]);
        assert!(found[0].staged.executable && !found[1].staged.executable);
        let missing: Vec<_> = found.iter().map(|file| file.staged.hash).collect();
        assert_eq!(to_send(&found, &missing).len(), 2);
        assert_eq!(to_send(&found, &[]).len(), 0);
    }

    #[test]
    fn a_link_to_a_file_is_followed_and_one_to_a_directory_refused() {
        let dir = place();
        symlink(dir.path().join("run.sh"), dir.path().join("data/link")).unwrap();
        assert_eq!(collect(&[input(dir.path().join("data"), None)]).unwrap().len(), 3);
        symlink(dir.path(), dir.path().join("data/loop")).unwrap();
        let error = collect(&[input(dir.path().join("data"), None)]).unwrap_err();
        assert!(matches!(error, StageError::LinkedDirectory { .. }), "{error}");
    }

    #[test]
    fn a_pipe_and_a_missing_file_are_named() {
        let dir = place();
        let error = collect(&[input("/dev/null".into(), None)]).unwrap_err();
        assert_eq!(error.to_string(), "the input /dev/null is neither a file nor a directory");
        let error = collect(&[input(dir.path().join("none"), None)]).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the input "), "{error}");
    }

    #[test]
    fn two_inputs_at_one_place_are_refused() {
        let dir = place();
        let inputs =
            ["data/a.txt", "data/deep/b.txt"].map(|path| input(dir.path().join(path), Some("x")));
        assert!(matches!(collect(&inputs), Err(StageError::Twice { .. })));
    }

    #[test]
    fn a_relative_program_must_be_here_and_an_absolute_one_is_the_workstations() {
        let command = |text: &str| vec![text.to_owned()];
        assert_eq!(program(&command("/bin/true"), &[]).unwrap(), None);
        assert_eq!(program(&command("python3"), &[]).unwrap(), None);
        let staged = [input("x".into(), Some("bin"))];
        assert_eq!(program(&command("./bin/go"), &staged).unwrap(), None);
        assert!(matches!(
            program(&command("./no/such/program"), &[]),
            Err(StageError::NoProgram { .. })
        ));
        assert!(matches!(
            program(&command("../elsewhere"), &[]),
            Err(StageError::ProgramOutside { .. })
        ));
    }
}
