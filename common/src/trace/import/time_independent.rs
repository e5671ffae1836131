//! `SimGrid`'s time-independent traces: `rank action arguments`, all ranks in one
//! text, each in the order of its program.
//!
//! Two spellings: that of SMPI's recordings (`3 send 5 7 100 0`: to, tag,
//! count, type; actions in any letter case), and the older one of MSG (`p3 send
//! p5 800`: to, bytes). Source: `SimGrid`'s documentation, "Offline simulation:
//! time-independent traces"; its `smpi_replay.cpp` for the arguments.

use std::io::Read;

use crate::lines::unpacked;
use crate::plain::quoted;

use super::super::input::{LineReader, ReadTraceError, RefusedLine, whole};
use super::super::{COLLECTIVE_TAGS, Lined, RANKS_MAX};
use super::collective::nanos;
use super::expand::{Held, Recording, expand, note_size};
use super::{Action, Collective, CollectiveKind, ImportOptions};

const NANOS_PER_S: f64 = 1e9;
const DOUBLE_BYTES: u64 = 8;
const ACTIONS: &str = "compute, send, recv, isend, irecv, wait, waitall, test, barrier, bcast, \
                       reduce, allreduce, alltoall, alltoallv, gather, gatherv, scatter, scatterv, \
                       allgather, allgatherv, reducescatter, scan, comm_size, init or finalize";

/// Bytes of MPI's types, by the code that `SimGrid` writes for each.
const TYPE_BYTES: [u64; 45] = [
    8, 4, 1, 2, 8, 4, 1, // double, int, char, short, long, float, byte
    8, 1, 1, 2, 4, 8, 8, // long long, signed and unsigned kinds
    16, 4, 1, // long double, wchar_t, bool
    1, 2, 4, 8, 1, 2, 4, 8, // int8_t to int64_t, uint8_t to uint64_t
    8, 16, 32, // complex: float, double, long double
    8, 8, // MPI_Aint, MPI_Offset
    8, 16, 16, 8, 8, 8, 16, 16, // pairs: float-int, long-int, double-int, ..
    4, 4, 8, 16, // Fortran's reals
    8, 16, 32, // Fortran's complex
];

/// Reads a recording, plain or compressed with gzip.
///
/// # Errors
/// Bytes that cannot be read, and the first line that cannot be taken.
pub fn read(input: impl Read, options: &ImportOptions) -> Result<Lined, ReadTraceError> {
    let input = unpacked(input).map_err(ReadTraceError::Read)?;
    let mut lines = LineReader::new(input, String::new());
    let nanos_per_flop = NANOS_PER_S / options.flops_per_s;
    let mut recording = Recording::default();
    let mut held = Held::default();
    let mut units: Vec<u64> = vec![];
    let mut sizes = vec![];
    while let Some((line, text)) = lines.next()? {
        let taken = Line::split(text).and_then(|action| {
            let rank = action.rank as usize;
            if recording.ranks.len() <= rank {
                recording.ranks.resize_with(rank + 1, Vec::new);
                units.resize(rank + 1, if action.older { 1 } else { DOUBLE_BYTES });
            }
            if action.is("comm_size") {
                let size = action.number(0, "a number of ranks")?;
                note_size(&mut sizes, size, || line);
            }
            if action.is("init") {
                units[rank] = action.first_unit();
            }
            let meaning = action.meaning(units[rank], nanos_per_flop)?;
            meaning.map_or(Ok(()), |it| held.push(&mut recording.ranks[rank], line, it))
        });
        taken.map_err(|what| lines.refuse(what))?;
    }
    check_sizes(&recording, &sizes)?;
    expand(options.name.clone(), recording)
}

/// All ranks are there, and every collective is of all of them.
fn check_sizes(recording: &Recording, sizes: &[(u64, u32)]) -> Result<(), ReadTraceError> {
    let ranks = recording.ranks.len();
    if ranks == 0 {
        return Err(ReadTraceError::Empty("lines such as `0 compute 1000`"));
    }
    let refuse = |line, what| ReadTraceError::Line {
        file: String::new(),
        line,
        what: RefusedLine::Meaning(what),
    };
    if let Some((size, line)) = sizes.iter().find(|(size, _)| *size != ranks as u64) {
        let what = format!("a group of {size} ranks: expected {ranks}, all that the trace has");
        return Err(refuse(*line, what));
    }
    Ok(())
}

/// A line's parts.
struct Line<'a> {
    rank: u32,
    action: &'a str,
    arguments: Vec<&'a str>,
    /// Whether the line has the older spelling.
    older: bool,
}

impl<'a> Line<'a> {
    fn split(text: &'a str) -> Result<Self, RefusedLine> {
        let mut fields = text.split_ascii_whitespace();
        let (rank, action) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let older = rank.starts_with('p');
        Ok(Self { rank: peer(rank)?, action, arguments: fields.collect(), older })
    }

    fn is(&self, action: &str) -> bool {
        self.action.eq_ignore_ascii_case(action)
    }

    /// `None` for what says nothing about computation or messages.
    fn meaning(&self, unit: u64, nanos_per_flop: f64) -> Result<Option<Action>, RefusedLine> {
        let action = match self.action.to_ascii_lowercase().as_str() {
            // What a test finds out shows in the wait that comes later.
            "init" | "finalize" | "comm_size" | "comm_dup" | "test" => return Ok(None),
            "compute" => {
                let flops = self.amount(0, "a number of operations")?;
                Action::Compute { nanos: nanos(flops * nanos_per_flop)? }
            }
            "send" => {
                let (to, bytes, tag) = self.message(unit)?;
                Action::Send { to, bytes, tag }
            }
            "isend" => {
                let (to, bytes, tag) = self.message(unit)?;
                Action::BeginSend { to, bytes, tag }
            }
            "recv" => Action::Receive { from: self.peer(0)?, tag: self.tag(1)? },
            "irecv" => Action::BeginReceive { from: self.peer(0)?, tag: self.tag(1)? },
            "wait" if self.arguments.is_empty() => Action::WaitOldest,
            "wait" => Action::Wait { from: self.peer(0)?, to: self.peer(1)?, tag: self.tag(2)? },
            "waitall" => Action::WaitAll,
            other => {
                let kind = kind(other);
                let kind =
                    kind.ok_or_else(|| RefusedLine::Operation(quoted(self.action), ACTIONS))?;
                let numbers = (0..self.arguments.len()).map(|at| self.amount(at, "a number"));
                let arguments = numbers.collect::<Result<_, _>>()?;
                Action::Collective(Box::new(Collective { kind, arguments, unit, nanos_per_flop }))
            }
        };
        Ok(Some(action))
    }

    /// To whom, bytes and tag.
    fn message(&self, unit: u64) -> Result<(u32, u64, u32), RefusedLine> {
        let to = self.peer(0)?;
        if self.older {
            return Ok((to, self.number(1, "a number of bytes")?, 0));
        }
        let count: u64 = self.number(2, "a number of values")?;
        let unit = match self.arguments.get(3) {
            Some(_) => type_bytes(self.amount(3, "a type")?)?,
            None => unit,
        };
        let bytes = count.checked_mul(unit);
        let bytes = bytes.ok_or_else(|| RefusedLine::field(self.arguments[2], "a size"))?;
        Ok((to, bytes, self.tag(1)?))
    }

    fn field(&self, at: usize, expected: &'static str) -> Result<&'a str, RefusedLine> {
        self.arguments.get(at).copied().ok_or_else(|| RefusedLine::Fields {
            operation: quoted(self.action),
            found: self.arguments.len(),
            expected,
        })
    }

    fn peer(&self, at: usize) -> Result<u32, RefusedLine> {
        peer(self.field(at, "a rank")?)
    }

    /// 0 in the older spelling, which has none.
    fn tag(&self, at: usize) -> Result<u32, RefusedLine> {
        if self.older {
            return Ok(0);
        }
        let expected = "a tag, a whole number from 0 to 2147483647";
        let field = self.field(at, expected)?;
        whole(field, expected)
            .ok()
            .filter(|tag| *tag < COLLECTIVE_TAGS)
            .ok_or_else(|| RefusedLine::field(field, expected))
    }

    fn number(&self, at: usize, expected: &'static str) -> Result<u64, RefusedLine> {
        whole(self.field(at, expected)?, expected)
    }

    /// As `SimGrid` writes large amounts: `1.38469e+06`.
    fn amount(&self, at: usize, expected: &'static str) -> Result<f64, RefusedLine> {
        let field = self.field(at, expected)?;
        let amount = field.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0);
        amount.ok_or_else(|| RefusedLine::field(field, expected))
    }

    /// What values are where no type is given: doubles if `init` says
    /// anything, else bytes.
    fn first_unit(&self) -> u64 {
        if self.arguments.is_empty() { 1 } else { DOUBLE_BYTES }
    }
}

fn peer(field: &str) -> Result<u32, RefusedLine> {
    let expected = "a rank, such as 3 or p3";
    let rank = whole(field.strip_prefix('p').unwrap_or(field), expected);
    rank.ok().filter(|rank| *rank < RANKS_MAX).ok_or_else(|| RefusedLine::field(field, expected))
}

fn kind(action: &str) -> Option<CollectiveKind> {
    Some(match action {
        "barrier" => CollectiveKind::Barrier,
        "bcast" => CollectiveKind::Broadcast,
        "reduce" => CollectiveKind::Reduce,
        "allreduce" => CollectiveKind::AllReduce,
        "alltoall" => CollectiveKind::AllToAll,
        "alltoallv" => CollectiveKind::AllToAllV,
        "gather" => CollectiveKind::Gather,
        "gatherv" => CollectiveKind::GatherV,
        "scatter" => CollectiveKind::Scatter,
        "scatterv" => CollectiveKind::ScatterV,
        "allgather" => CollectiveKind::AllGather,
        "allgatherv" => CollectiveKind::AllGatherV,
        "reducescatter" => CollectiveKind::ReduceScatter,
        "scan" | "exscan" => CollectiveKind::Scan,
        _ => return None,
    })
}

pub(super) fn type_bytes(code: f64) -> Result<u64, RefusedLine> {
    let place = super::collective::whole(code).and_then(|code| usize::try_from(code).ok());
    let bytes = place.and_then(|place| TYPE_BYTES.get(place)).copied();
    bytes.ok_or_else(|| RefusedLine::field(&code.to_string(), "the code of a type, 0 to 44"))
}
