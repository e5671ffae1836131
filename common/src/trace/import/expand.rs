//! From what each line says to the operations of each rank.

use std::collections::VecDeque;

use super::super::input::{ReadTraceError, RefusedLine};
use super::super::{Lined, Lines, OPERATIONS_MAX, Op, Trace};
use super::{Action, collective};

/// What a rank's lines say, in order, with their numbers.
pub(super) type Script = Vec<(u32, Action)>;

/// The ranks' scripts, and the file of each if they came in files of their own.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) ranks: Vec<Script>,
    pub(super) files: Vec<String>,
}

/// How much of a recording is held: no more than may come of it, also if nothing does.
#[derive(Default)]
pub(super) struct Held(usize);

impl Held {
    /// Takes in what one more line of a rank says.
    pub(super) fn push(
        &mut self,
        script: &mut Script,
        line: u32,
        action: Action,
    ) -> Result<(), RefusedLine> {
        let arguments = if let Action::Collective(it) = &action { it.arguments.len() } else { 0 };
        self.0 += 1 + arguments;
        if self.0 > OPERATIONS_MAX {
            return Err(RefusedLine::TooManyOperations);
        }
        script.push((line, action));
        Ok(())
    }
}

/// Notes how large a group is said to be, and where. Of two sizes one is wrong: more than
/// the first of each need not be known.
pub(super) fn note_size<T>(sizes: &mut Vec<(u64, T)>, size: u64, at: impl FnOnce() -> T) {
    if sizes.len() < 2 && sizes.iter().all(|(known, _)| *known != size) {
        sizes.push((size, at()));
    }
}

/// One rank's operations, each with the line that it came from.
#[derive(Default)]
pub(super) struct Writer {
    ops: Vec<Op>,
    numbers: Vec<u32>,
    line: u32,
}

impl Writer {
    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.numbers.push(self.line);
    }

    /// Added to the computation before it, if nothing came between.
    pub(super) fn compute(&mut self, nanos: u64) -> Result<(), RefusedLine> {
        match self.ops.last_mut() {
            Some(Op::Compute { nanos: before }) => {
                let long = || RefusedLine::Meaning("more than 584 years of computation".into());
                *before = before.checked_add(nanos).ok_or_else(long)?;
            }
            _ if nanos > 0 => self.push(Op::Compute { nanos }),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn send(&mut self, to: u32, bytes: u64, tag: u32) {
        self.push(Op::Send { to, bytes, tag });
    }

    pub(super) fn receive(&mut self, from: u32, tag: u32) {
        self.push(Op::Receive { from, tag });
    }
}

/// A request that was begun and not waited for yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Send { to: u32, tag: u32 },
    Receive { from: u32, tag: u32 },
}

/// Writes all ranks' operations.
pub(super) fn expand(name: String, recording: Recording) -> Result<Lined, ReadTraceError> {
    let size = u32::try_from(recording.ranks.len()).unwrap_or(u32::MAX);
    let mut expanded = Lined {
        trace: Trace { name, ranks: vec![] },
        lines: Lines { files: recording.files, numbers: vec![] },
    };
    let mut operations = 0;
    for (rank, script) in (0..size).zip(recording.ranks) {
        let refuse = |line: u32, what| {
            let file = expanded.lines.files.get(rank as usize).cloned().unwrap_or_default();
            ReadTraceError::Line { file, line, what }
        };
        let mut player = Player { rank, size, out: Writer::default(), requests: VecDeque::new() };
        for (line, action) in script {
            player.out.line = line;
            player.take(action).map_err(|what| refuse(line, what))?;
            if operations + player.out.ops.len() > OPERATIONS_MAX {
                return Err(refuse(line, RefusedLine::TooManyOperations));
            }
        }
        // What was begun and only tested for has come by the rank's end.
        player.wait_all();
        operations += player.out.ops.len();
        expanded.trace.ranks.push(player.out.ops);
        expanded.lines.numbers.push(player.out.numbers);
    }
    Ok(expanded)
}

struct Player {
    rank: u32,
    size: u32,
    out: Writer,
    requests: VecDeque<Request>,
}

impl Player {
    fn take(&mut self, action: Action) -> Result<(), RefusedLine> {
        match action {
            Action::Compute { nanos } => self.out.compute(nanos)?,
            Action::Send { to, bytes, tag } => self.out.send(to, bytes, tag),
            Action::BeginSend { to, bytes, tag } => {
                self.out.send(to, bytes, tag);
                self.requests.push_back(Request::Send { to, tag });
            }
            Action::Receive { from, tag } => self.out.receive(from, tag),
            Action::BeginReceive { from, tag } => {
                self.requests.push_back(Request::Receive { from, tag });
            }
            Action::Wait { from, to, tag } => {
                let rank = self.rank;
                let fits = |request: &Request| {
                    (to == rank && *request == Request::Receive { from, tag })
                        || (from == rank && *request == Request::Send { to, tag })
                };
                self.wait(fits)?;
            }
            Action::WaitOldest => {
                self.wait(|request| matches!(request, Request::Receive { .. }))?;
            }
            Action::WaitAll => self.wait_all(),
            Action::Collective(collective) => {
                collective::expand(&collective, self.rank, self.size, &mut self.out)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, fits: impl Fn(&Request) -> bool) -> Result<(), RefusedLine> {
        let request = self.requests.iter().position(fits);
        let request = request.and_then(|place| self.requests.remove(place)).ok_or_else(|| {
            RefusedLine::Meaning("a wait for what was not begun, or was waited for".to_owned())
        })?;
        self.finish(request);
        Ok(())
    }

    fn wait_all(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            self.finish(request);
        }
    }

    fn finish(&mut self, request: Request) {
        if let Request::Receive { from, tag } = request {
            self.out.receive(from, tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Collective, CollectiveKind};
    use super::*;

    #[test]
    fn a_recording_is_bounded_also_by_what_no_operation_comes_of() {
        let (mut held, mut script) = (Held(OPERATIONS_MAX - 12), vec![]);
        held.push(&mut script, 1, Action::WaitAll).unwrap();
        let kind = CollectiveKind::Barrier;
        let collective =
            Collective { kind, arguments: vec![0.0; 10], unit: 1, nanos_per_flop: 0.0 };
        held.push(&mut script, 2, Action::Collective(Box::new(collective))).unwrap();
        let refused = held.push(&mut script, 3, Action::WaitAll).unwrap_err();
        assert_eq!((refused, script.len()), (RefusedLine::TooManyOperations, 2));
    }
}
