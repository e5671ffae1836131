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
