//! What a guest leaves when it has ended, and how it did.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use gleaner_agent_core::guest::{self, Exit, GuestAt, Left};
use gleaner_common::job::Outcome;
use gleaner_common::units::spoken_size;
use gleaner_common::wire::{INLINE_OUTPUT_BYTES_MAX, Printed};
use gleaner_program_core::facts::End;

use super::{Answers, Container, Ended, Guest, PlaceGroup, Site, records};
use crate::container::place_directories::{DirectoriesError, open_strange};
use crate::link::{Collection, LinkOrder};
use crate::messages::RouterCommand;

/// What is to become of an ended guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reap {
    pub(crate) at: GuestAt,
    pub(crate) endpoint: bool,
    pub(crate) stays: bool,
    pub(crate) discard: bool,
}

impl Container {
    /// Tells how a guest has ended. The router first reads what a rank wrote.
    pub(crate) fn reap(&mut self, site: &Site, reap: Reap, answers: &mut Answers) {
        let Reap { at, endpoint, stays, discard } = reap;
        let mut guest = self.guest.take_if(|guest| guest.start.at == at);
        let ended = guest.as_mut().and_then(|guest| guest.ended.take());
        let status = ended.as_ref().map_or(libc::SIGKILL, |ended| ended.status);
        let status = ExitStatus::from_raw(status);
        let exit = match &guest {
            Some(guest) if ended.is_some() || self.keeper.is_none() => {
                self.exit(site, guest, ended.map(|ended| *ended), discard, answers)
            }
            // Nothing of the guest has run, or nothing could even be prepared.
            Some(_) | None => Exit::never_ran(),
        };
        if endpoint {
            let end = match (status.code(), status.signal()) {
                (Some(code), _) => End::ExitCode(code),
                (None, signal) => End::Signal(signal.unwrap_or(0)),
            };
            answers.commands.push(RouterCommand::Exited { fence: at.fence, end, stays });
            answers.settling.push((at.fence, exit));
            // The handles are its next process's, should the router say that the
            // rank stays.
            if guest.is_some() {
                self.guest = guest;
            }
        } else {
            answers.guest(at.fence, guest::Event::Exited { exit: Box::new(exit), stays: false });
        }
    }

    fn exit(
        &mut self,
        site: &Site,
        guest: &Guest,
        ended: Option<Ended>,
        discard: bool,
        answers: &mut Answers,
    ) -> Exit {
        let was_killed = self.keeper.is_none();
        let used = self.group.as_ref().map_or(Duration::ZERO, PlaceGroup::cpu_time);
        let used = used.saturating_sub(guest.cpu_before);
        let status = ended.as_ref().map_or(libc::SIGKILL, |ended| ended.status);
        let outcome = self.outcome(guest, ExitStatus::from_raw(status));
        let cpu = ended.as_ref().filter(|_| !was_killed).map_or(used, |ended| ended.cpu);
        if discard {
            self.clear_directories(guest.start.at, answers);
            return Exit { outcome, cpu, left: Some(Left::default()) };
        }
        let clean = ended.as_ref().is_some_and(|ended| ended.clean && !was_killed);
        let (printed, all_inline) = self.printed(ended, was_killed);
        let left = if clean && all_inline {
            Some(printed)
        } else {
            self.take_away(site, guest, printed, all_inline, answers)
        };
        Exit { outcome, cpu, left }
    }

    /// What it printed, and whether that is all: what its keeper has taken out of
    /// the files already, and what lies there.
    fn printed(&self, ended: Option<Ended>, was_killed: bool) -> (Left, bool) {
        let (mut printed, mut all_inline) = (Left::default(), true);
        if was_killed && let Some(directories) = &self.directories {
            (printed, all_inline) = read_printed(directories.root());
        }
        let Some(Ended { stdout, stderr, stdout_bytes, stderr_bytes, .. }) = ended else {
            return (printed, all_inline);
        };
        if !was_killed {
            let inline = |bytes: &[u8], size| bytes.len() as u64 == size;
            all_inline = inline(&stdout, stdout_bytes) && inline(&stderr, stderr_bytes);
        }
        if !was_killed || !stdout.is_empty() {
            printed.stdout = Printed::Inline(stdout);
        }
        if !was_killed || !stderr.is_empty() {
            printed.stderr = Printed::Inline(stderr);
        }
        (printed, all_inline)
    }

    /// Clears the directories. `None` if what was in them must be staged first.
    fn take_away(
        &mut self,
        site: &Site,
        guest: &Guest,
        printed: Left,
        all_inline: bool,
        answers: &mut Answers,
    ) -> Option<Left> {
        let directories = self.directories.as_ref()?;
        let (fence, spec) = (guest.start.at.fence, &guest.start.spec);
        self.fresh = true;
        let directory = match directories.take_away(fence) {
            Ok(directory) => directory,
            Err(error) => {
                self.abandon_directories(&error);
                return Some(printed);
            }
        };
        let outputs = (spec.collect_output || records(spec))
            && fs::read_dir(directory.join("guest/output"))
                .is_ok_and(|mut entries| entries.next().is_some());
        if all_inline && !outputs {
            answers.orders.push(LinkOrder::Clear(directory));
            return Some(printed);
        }
        answers.orders.push(LinkOrder::Collect(Collection {
            fence,
            directory,
            outputs,
            printed,
            output_bytes_max: site.config.guests.output_bytes_max,
        }));
        None
    }

    /// Clears away what was laid for a guest that did not run.
    pub(crate) fn clear_directories(&mut self, at: GuestAt, answers: &mut Answers) {
        let Some(directories) = &self.directories else { return };
        self.fresh = true;
        match directories.take_away(at.fence) {
            Ok(directory) => answers.orders.push(LinkOrder::Clear(directory)),
            Err(error) => self.abandon_directories(&error),
        }
    }

    /// A place that cannot be cleared is made anew, its keeper included: a guest
    /// that is started meanwhile has another.
    fn abandon_directories(&mut self, error: &DirectoriesError) {
        tracing::error!(place = %self.id, %error, "cannot clear a place: it is made anew");
        (self.directories, self.fresh) = (None, true);
        self.kill();
    }

    /// How it ended, a limit that the kernel enforced included.
    fn outcome(&self, guest: &Guest, status: ExitStatus) -> Outcome {
        let starved = self
            .group
            .as_ref()
            .is_some_and(|group| group.starvation().is_beyond(guest.starved_before));
        let limits = guest.start.limits;
        match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Succeeded,
            (None, Some(libc::SIGXFSZ)) => {
                Outcome::OverLimit(format!("disk: at most {}", spoken_size(limits.disk_bytes_max)))
            }
            // This holds if a child of it was killed and it went on to say so.
            _ if starved => {
                let most = spoken_size(limits.memory_bytes_max);
                Outcome::OverLimit(format!("memory: at most {most}"))
            }
            (Some(code), _) => Outcome::ExitCode(code),
            (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
        }
    }
}

/// What a guest that was killed had printed, if it rides inline.
fn read_printed(directory: &Path) -> (Left, bool) {
    let read = |name: &str| {
        let mut file = open_strange(&directory.join(name)).ok()?;
        let size = file.metadata().ok()?.len();
        let mut bytes = vec![];
        if size <= INLINE_OUTPUT_BYTES_MAX as u64 {
            file.read_to_end(&mut bytes).ok()?;
        }
        Some((bytes, size))
    };
    let (stdout, out) = read("stdout").unwrap_or_default();
    let (stderr, err) = read("stderr").unwrap_or_default();
    let inline = stdout.len() as u64 == out && stderr.len() as u64 == err;
    let left =
        Left { stdout: Printed::Inline(stdout), stderr: Printed::Inline(stderr), outputs: vec![] };
    (left, inline)
}

#[cfg(test)]
mod tests {
    use gleaner_agent_core::agent::Event;
    use gleaner_common::id::{Fence, PlaceId};
    use gleaner_common::job::Limits;

    use super::*;
    use crate::config::AgentConfig;
    use crate::container::keeper::Program;

    /// What a place answers at which no guest could be prepared.
    fn reaped(endpoint: bool) -> Answers {
        let site = Site {
            config: AgentConfig::default(),
            program: Program::own().unwrap(),
            tree: None,
            limits: Limits::default(),
            mover: Err("not here".into()),
            beats: None,
        };
        let at = GuestAt { place: PlaceId(0), fence: Fence::of(7) };
        let mut answers = Answers::default();
        let reap = Reap { at, endpoint, stays: false, discard: false };
        Container::new(at.place).reap(&site, reap, &mut answers);
        answers
    }

    #[test]
    fn a_guest_that_could_not_be_prepared_has_exited() {
        let exited = guest::Event::Exited { exit: Box::new(Exit::never_ran()), stays: false };
        assert_eq!(reaped(false).events, [Event::Guest(Fence::of(7), exited)]);
    }

    #[test]
    fn of_a_rank_that_could_not_be_prepared_the_router_is_asked() {
        let answers = reaped(true);
        assert!(matches!(
            answers.commands[..],
            [RouterCommand::Exited { fence: Fence { number: 7, .. }, .. }]
        ));
        assert_eq!(answers.settling, [(Fence::of(7), Exit::never_ran())]);
    }
}
