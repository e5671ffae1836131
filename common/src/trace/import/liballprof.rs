//! Recordings of liballprof: a tar archive with one file for each rank, one MPI
//! call a line, its fields separated by `:`, with the times it began and ended.
//!
//! What a rank computed is the time between two calls, so what else its
//! processor did then counts as well. Source: liballprof's own output, version
//! 0.9 (Hoefler and others, Indiana University).

use std::io::{BufReader, Read};

use crate::lines::unpacked;
use crate::plain::quoted;

use super::super::input::{LineReader, ReadTraceError, RefusedLine, whole};
use super::super::{COLLECTIVE_TAGS, Lined, RANKS_MAX};
use super::expand::{Held, Recording, Script, expand, note_size};
use super::{Action, Collective, CollectiveKind, ImportOptions};

const CALLS: &str = "MPI_Init, MPI_Finalize, MPI_Comm_size, MPI_Comm_rank, MPI_Send, MPI_Recv, \
                     MPI_Barrier, MPI_Bcast, MPI_Reduce or MPI_Allreduce";
const FILES: &str = "an archive of files such as trace-rank-0.txt, one for each rank";

/// Reads an archive, plain or compressed with gzip.
///
/// # Errors
/// Bytes that cannot be read, an archive without a file for each rank, and the
/// first line that cannot be taken.
pub fn read(input: impl Read, options: &ImportOptions) -> Result<Lined, ReadTraceError> {
    let input = unpacked(input).map_err(ReadTraceError::Read)?;
    let mut archive = tar::Archive::new(input);
    let mut ranks: Vec<Option<(String, Script)>> = vec![];
    let (mut sizes, mut held) = (vec![], Held::default());
    // As they stand: a long name in an entry of its own would be held whole.
    for entry in archive.entries().map_err(ReadTraceError::Read)?.raw(true) {
        let entry = entry.map_err(ReadTraceError::Read)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let file = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let file = quoted(&file);
        let rank = rank_of(&file).ok_or_else(|| {
            ReadTraceError::Archive(format!("`{file}` is of no rank: expected {FILES}"))
        })?;
        let script = read_rank(entry, &file, rank, (&mut sizes, &mut held))?;
        if ranks.len() <= rank as usize {
            ranks.resize_with(rank as usize + 1, || None);
        }
        if ranks[rank as usize].replace((file, script)).is_some() {
            return Err(ReadTraceError::Archive(format!("rank {rank} is there twice")));
        }
    }
    if ranks.is_empty() {
        return Err(ReadTraceError::Empty(FILES));
    }
    let mut recording = Recording::default();
    for (rank, found) in ranks.into_iter().enumerate() {
        let missing =
            || ReadTraceError::Archive(format!("no file of rank {rank}: expected {FILES}"));
        let (file, script) = found.ok_or_else(missing)?;
        recording.files.push(file);
        recording.ranks.push(script);
    }
    let expected = recording.ranks.len() as u64;
    match sizes.into_iter().find(|(size, _)| *size != expected) {
        None => expand(options.name.clone(), recording),
        Some((size, (file, line))) => {
            let what = format!("a group of {size} ranks: expected {expected}, all there are");
            Err(ReadTraceError::Line { file, line, what: RefusedLine::Meaning(what) })
        }
    }
}

/// The number at the end of a file's name.
fn rank_of(file: &str) -> Option<u32> {
    let stem = file.strip_suffix(".txt").unwrap_or(file);
    let digits = stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem[digits..].parse().ok().filter(|rank| *rank < RANKS_MAX)
}

/// The sizes of groups, each with where it was said.
type Sizes = Vec<(u64, (String, u32))>;

fn read_rank(
    entry: impl Read,
    file: &str,
    rank: u32,
    (sizes, held): (&mut Sizes, &mut Held),
) -> Result<Script, ReadTraceError> {
    let mut lines = LineReader::new(BufReader::new(entry), file.to_owned());
    let mut script = vec![];
    // The time before MPI_Init's end is not the program's.
    let mut ended = None;
    while let Some((line, text)) = lines.next()? {
        let call = Call { fields: text.split(':').collect() };
        let taken = call.times(ended).and_then(|(nanos, end)| {
            ended = Some(end);
            if nanos > 0 {
                held.push(&mut script, line, Action::Compute { nanos })?;
            }
            if let Some(size) = call.group(rank)? {
                note_size(sizes, size, || (file.to_owned(), line));
            }
            call.meaning()?.map_or(Ok(()), |meaning| held.push(&mut script, line, meaning))
        });
        taken.map_err(|what| lines.refuse(what))?;
    }
    Ok(script)
}

/// One line.
struct Call<'a> {
    fields: Vec<&'a str>,
}

impl<'a> Call<'a> {
    fn name(&self) -> &'a str {
        self.fields[0]
    }

    fn field(&self, at: usize, expected: &'static str) -> Result<&'a str, RefusedLine> {
        self.fields.get(at).copied().ok_or_else(|| RefusedLine::Fields {
            operation: quoted(self.name()),
            found: self.fields.len() - 1,
            expected,
        })
    }

    /// What was computed since the last call ended, and when this one ended;
    /// both in nanoseconds.
    fn times(&self, before: Option<u64>) -> Result<(u64, u64), RefusedLine> {
        let (begin, last) = (self.field(1, "times")?, self.fields[self.fields.len() - 1]);
        // MPI_Finalize's end was not taken, and MPI_Init's beginning not.
        let end = micros(if last == "-" { begin } else { last })?;
        let Some(before) = before else { return Ok((0, end)) };
        let begin = micros(begin)?;
        let nanos = begin.checked_sub(before).filter(|_| begin <= end);
        let backwards =
            || RefusedLine::Meaning("a call that begins before the last one ended".into());
        Ok((nanos.ok_or_else(backwards)?, end))
    }

    fn meaning(&self) -> Result<Option<Action>, RefusedLine> {
        let collective = |kind, arguments, unit| {
            let nanos_per_flop = 0.0;
            Action::Collective(Box::new(Collective { kind, arguments, unit, nanos_per_flop }))
        };
        Ok(Some(match self.name() {
            "MPI_Init" | "MPI_Finalize" | "MPI_Comm_size" | "MPI_Comm_rank" | "MPI_Wtime" => {
                return Ok(None);
            }
            "MPI_Send" => {
                let bytes = self.number(3)?.checked_mul(self.unit(4)?);
                let bytes = bytes.ok_or_else(|| RefusedLine::field(self.fields[3], "a size"))?;
                Action::Send { to: self.peer(5)?, bytes, tag: self.tag(6)? }
            }
            "MPI_Recv" => Action::Receive { from: self.peer(5)?, tag: self.tag(6)? },
            "MPI_Barrier" => collective(CollectiveKind::Barrier, vec![], 1),
            "MPI_Bcast" => {
                let arguments = vec![self.number(3)? as f64, f64::from(self.peer(5)?)];
                collective(CollectiveKind::Broadcast, arguments, self.unit(4)?)
            }
            "MPI_Reduce" => {
                let arguments = vec![self.number(4)? as f64, 0.0, f64::from(self.peer(7)?)];
                collective(CollectiveKind::Reduce, arguments, self.unit(5)?)
            }
            "MPI_Allreduce" => collective(
                CollectiveKind::AllReduce,
                vec![self.number(4)? as f64, 0.0],
                self.unit(5)?,
            ),
            other => return Err(RefusedLine::Operation(quoted(other), CALLS)),
        }))
    }

    /// The size of the group that takes part: `id,rank,size`, where the call
    /// has its group.
    fn group(&self, rank: u32) -> Result<Option<u64>, RefusedLine> {
        let at = match self.name() {
            "MPI_Barrier" => 2,
            "MPI_Bcast" => 6,
            "MPI_Send" | "MPI_Recv" | "MPI_Allreduce" => 7,
            "MPI_Reduce" => 8,
            _ => return Ok(None),
        };
        let expected = "a group: its number, the rank in it, its size";
        let field = self.field(at, expected)?;
        let parts: Vec<&str> = field.split(',').collect();
        let [_, own, size] = parts[..] else { return Err(RefusedLine::field(field, expected)) };
        if whole::<u32>(own, expected)? != rank {
            return Err(RefusedLine::Meaning(format!(
                "rank {own} of a group: expected {rank}, as the file is named"
            )));
        }
        whole(size, expected).map(Some)
    }

    fn number(&self, at: usize) -> Result<u64, RefusedLine> {
        let expected = "a number of values";
        whole(self.field(at, expected)?, expected)
    }

    fn peer(&self, at: usize) -> Result<u32, RefusedLine> {
        let expected = "a rank, a whole number from 0";
        whole(self.field(at, expected)?, expected)
    }

    fn tag(&self, at: usize) -> Result<u32, RefusedLine> {
        let expected = "a tag, a whole number from 0 to 2147483647";
        let field = self.field(at, expected)?;
        let tag = whole(field, expected).ok().filter(|tag| *tag < COLLECTIVE_TAGS);
        tag.ok_or_else(|| RefusedLine::field(field, expected))
    }

    /// Bytes of a value: the second number of its type.
    fn unit(&self, at: usize) -> Result<u64, RefusedLine> {
        let expected = "a type: its number, its bytes, its extent";
        let field = self.field(at, expected)?;
        let bytes = field.split(',').nth(1).ok_or_else(|| RefusedLine::field(field, expected))?;
        whole(bytes, expected)
    }
}

/// Microseconds with at most three decimals that count, as nanoseconds.
fn micros(field: &str) -> Result<u64, RefusedLine> {
    let wrong = || RefusedLine::field(field, "a time in microseconds");
    let (whole, decimals) = field.split_once('.').unwrap_or((field, ""));
    let decimals: String = decimals.chars().chain("000".chars()).take(3).collect();
    let micros: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u64 = decimals.parse().map_err(|_| wrong())?;
    micros.checked_mul(1_000).and_then(|all| all.checked_add(nanos)).ok_or_else(wrong)
}
