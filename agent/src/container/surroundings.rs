//! What a guest is started with: its words, and its environment.

use std::path::PathBuf;

use gleaner_agent_core::guest::Start;
use gleaner_program_core::wire::PIPES_VARIABLE;

use super::{Container, records};
use crate::container::keeper::PIPES_FD;
use crate::container::place_directories::PlaceDirectories;

/// A place's directories, as its guest sees them.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) work: PathBuf,
    pub(super) tmp: PathBuf,
    pub(super) output: PathBuf,
}

impl Container {
    pub(super) fn as_seen(&self, directories: &PlaceDirectories) -> Seen {
        let seen = |path: PathBuf| match &self.keeper {
            Some(keeper) => keeper.as_seen(directories.root(), &path),
            None => path,
        };
        Seen {
            work: seen(directories.work()),
            tmp: seen(directories.tmp()),
            output: seen(directories.output()),
        }
    }
}

/// `{i}` is replaced by the subprogram's index.
pub(super) fn with_index(command: &[String], index: u32) -> Vec<String> {
    command.iter().map(|word| word.replace("{i}", &index.to_string())).collect()
}

/// Which GPUs are the guest's own, by number: for itself, and for what is built
/// with CUDA.
const GPUS: [&str; 2] = ["GLEAN_GPUS", "CUDA_VISIBLE_DEVICES"];

/// A clean environment: ours, then the job's.
pub(super) fn environment(seen: &Seen, start: &Start) -> Vec<(String, String)> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let ours = [
        ("PATH", crate::container::keeper::PATH.to_owned()),
        ("HOME", text(seen.work.clone())),
        ("TMPDIR", text(seen.tmp.clone())),
        ("LANG", "C.UTF-8".to_owned()),
        ("GLEAN_JOB", start.subprogram.job.to_string()),
        ("GLEAN_SUBPROGRAM", start.subprogram.to_string()),
        ("GLEAN_INDEX", start.subprogram.index.to_string()),
        ("GLEAN_OUTPUT", text(seen.output.clone())),
    ];
    let gpus = start.gpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    // None is said too: programs take all that they see otherwise.
    let ours = ours.into_iter().chain(GPUS.map(|name| (name, gpus.clone())));
    let given = &start.spec.environment;
    let about_rank = rank_environment(seen, start);
    ours.map(|(key, value)| (key.to_owned(), value))
        .filter(|(key, _)| !given.iter().any(|(name, _)| name == key))
        .chain(
            given.iter().filter(|(name, _)| ![PIPES_VARIABLE, RECORD].contains(&&**name)).cloned(),
        )
        .chain(about_rank)
        .collect()
}

/// Where a rank writes down what it does.
const RECORD: &str = "GLEAN_RECORD";

/// What only we can say: no job's environment hides it.
fn rank_environment(seen: &Seen, start: &Start) -> Vec<(String, String)> {
    let mut variables = vec![];
    if start.rank.is_some() {
        let pipes = format!("{PIPES_FD},{}", PIPES_FD + 1);
        variables.push((PIPES_VARIABLE.to_owned(), pipes));
        if records(&start.spec) {
            let path = seen.output.join(format!("trace.{}", start.subprogram.index));
            variables.push((RECORD.to_owned(), path.to_string_lossy().into_owned()));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_put_wherever_it_is_asked_for() {
        let command = ["run".to_owned(), "--seed={i}".to_owned(), "{i}{i}".to_owned()];
        assert_eq!(with_index(&command, 7), ["run", "--seed=7", "77"]);
    }
}
