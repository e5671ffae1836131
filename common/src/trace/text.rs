//! The text form of a trace; `data/README.md` describes it for people.
//!
//! What is written reads back as the same trace, to the nanosecond.

use std::io::{self, BufWriter, Read, Write};

use crate::lines::unpacked;
use crate::plain::quoted;

use super::input::{LineReader, ReadTraceError, RefusedLine, whole};
use super::{Lined, NAME_BYTES_MAX, OPERATIONS_MAX, Op, RANKS_MAX, Trace};

const VERSION: u32 = 1;
const NANOS_PER_S: u64 = 1_000_000_000;
const OPERATIONS: &str = "compute, send, receive, spawn or rank";

/// Reads a trace, plain or compressed with gzip. Whether it can be replayed
/// is another question: [`Lined::check`].
///
/// # Errors
/// Bytes that cannot be read, and the first line that says nothing sensible.
pub fn read(input: impl Read) -> Result<Lined, ReadTraceError> {
    let input = unpacked(input).map_err(ReadTraceError::Read)?;
    let mut lines = LineReader::new(input, String::new());
    read_version(&mut lines)?;
    let name = read_header(&mut lines, "program", "`program` and its name")?;
    check_name(&name).map_err(|what| lines.refuse(what))?;
    let ranks = read_header(&mut lines, "ranks", "`ranks` and how many")?;
    let ranks = whole::<u64>(&ranks, "a number of ranks").map_err(|what| lines.refuse(what))?;
    let ranks = u32::try_from(ranks)
        .ok()
        .filter(|ranks| (1..=RANKS_MAX).contains(ranks))
        .ok_or_else(|| lines.refuse(RefusedLine::Ranks(ranks)))?;
    let mut so_far = Lined::default();
    so_far.trace.name = name;
    read_ranks(&mut lines, ranks, &mut so_far)?;
    Ok(so_far)
}

fn read_version<R: io::BufRead>(lines: &mut LineReader<R>) -> Result<(), ReadTraceError> {
    let found = lines.next()?.map_or(String::new(), |(_, line)| line.to_owned());
    let version =
        found.strip_prefix("gleaner-trace ").and_then(|version| version.trim().parse::<u32>().ok());
    match version {
        Some(VERSION) => Ok(()),
        Some(theirs) => Err(lines.refuse(RefusedLine::Version { theirs, ours: VERSION })),
        None => Err(lines.refuse(RefusedLine::NotATrace { found: quoted(&found) })),
    }
}

fn read_header<R: io::BufRead>(
    lines: &mut LineReader<R>,
    word: &str,
    expected: &'static str,
) -> Result<String, ReadTraceError> {
    let found = lines.next()?.map(|(_, line)| line.to_owned());
    let Some(found) = found else {
        return Err(lines.refuse(RefusedLine::Ended { expected: expected.to_owned() }));
    };
    match found.split_once(char::is_whitespace) {
        Some((first, rest)) if first == word => Ok(rest.trim().to_owned()),
        _ => Err(lines.refuse(RefusedLine::Expected { found: quoted(&found), expected })),
    }
}

fn read_ranks<R: io::BufRead>(
    lines: &mut LineReader<R>,
    ranks: u32,
    so_far: &mut Lined,
) -> Result<(), ReadTraceError> {
    let mut operations = 0;
    while let Some((number, line)) = lines.next()? {
        let parsed = parse_line(line);
        match parsed.map_err(|what| lines.refuse(what))? {
            Said::Rank(found) => {
                let expected = u32::try_from(so_far.trace.ranks.len()).unwrap_or(u32::MAX);
                if found != expected {
                    return Err(lines.refuse(RefusedLine::RankOrder { found, expected }));
                }
                if found >= ranks {
                    let what = format!("rank {found}: the header says {ranks} ranks, from 0");
                    return Err(lines.refuse(RefusedLine::Meaning(what)));
                }
                so_far.trace.ranks.push(vec![]);
                so_far.lines.numbers.push(vec![]);
            }
            Said::Op(op) => {
                operations += 1;
                if operations > OPERATIONS_MAX {
                    return Err(lines.refuse(RefusedLine::TooManyOperations));
                }
                let place = so_far.trace.ranks.last_mut().zip(so_far.lines.numbers.last_mut());
                let Some((ops, numbers)) = place else {
                    let what = "an operation of no rank: expected `rank 0` before it";
                    return Err(lines.refuse(RefusedLine::Meaning(what.to_owned())));
                };
                ops.push(op);
                numbers.push(number);
            }
        }
    }
    let found = so_far.trace.ranks.len();
    if found < ranks as usize {
        let expected = format!("rank {found}, as the header says {ranks} ranks");
        return Err(lines.refuse(RefusedLine::Ended { expected }));
    }
    Ok(())
}

enum Said {
    Rank(u32),
    Op(Op),
}

fn parse_line(line: &str) -> Result<Said, RefusedLine> {
    let mut fields = line.split_ascii_whitespace();
    let word = fields.next().unwrap_or_default();
    let mut values = [""; 3];
    let mut found = 0;
    for field in fields {
        if let Some(value) = values.get_mut(found) {
            *value = field;
        }
        found += 1;
    }
    let count = |wanted: usize, expected| {
        let operation = quoted(word);
        if found == wanted {
            Ok(())
        } else {
            Err(RefusedLine::Fields { operation, found, expected })
        }
    };
    let [first, second, third] = values;
    match word {
        "compute" => {
            count(1, "one, the seconds")?;
            Ok(Said::Op(Op::Compute { nanos: parse_seconds(first)? }))
        }
        "send" => {
            count(3, "three: to which rank, bytes, tag")?;
            let (to, bytes) = (rank(first)?, whole(second, "a number of bytes")?);
            Ok(Said::Op(Op::Send { to, bytes, tag: tag(third)? }))
        }
        "receive" => {
            count(2, "two: from which rank, tag")?;
            Ok(Said::Op(Op::Receive { from: rank(first)?, tag: tag(second)? }))
        }
        "spawn" => {
            count(1, "one, the rank")?;
            Ok(Said::Op(Op::Spawn { rank: rank(first)? }))
        }
        "rank" => {
            count(1, "one, its number")?;
            Ok(Said::Rank(rank(first)?))
        }
        _ => Err(RefusedLine::Operation(quoted(word), OPERATIONS)),
    }
}

fn rank(field: &str) -> Result<u32, RefusedLine> {
    whole(field, "a rank, a whole number from 0")
}

fn tag(field: &str) -> Result<u32, RefusedLine> {
    whole(field, "a tag, a whole number from 0 to 4294967295")
}

/// Decimal seconds as nanoseconds, exactly: at most nine decimals.
pub(super) fn parse_seconds(field: &str) -> Result<u64, RefusedLine> {
    let wrong = || RefusedLine::field(field, "seconds, such as 0.25, with at most nine decimals");
    let (whole, decimals) = field.split_once('.').unwrap_or((field, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 9 {
        return Err(wrong());
    }
    let seconds: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u64 = format!("{decimals:0<9}").parse().map_err(|_| wrong())?;
    seconds.checked_mul(NANOS_PER_S).and_then(|s| s.checked_add(nanos)).ok_or_else(wrong)
}

fn check_name(name: &str) -> Result<(), RefusedLine> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if good { Ok(()) } else { Err(RefusedLine::Name { bytes: name.len() }) }
}

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteTraceError {
    #[error("the program's name: {0}")]
    Name(RefusedLine),
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Writes a trace so that [`read`] gives the same again.
///
/// # Errors
/// A name that would not read back; a writer that fails.
pub fn write(trace: &Trace, output: impl Write) -> Result<(), WriteTraceError> {
    check_name(&trace.name).map_err(WriteTraceError::Name)?;
    let mut out = BufWriter::new(output);
    writeln!(out, "gleaner-trace {VERSION}")?;
    writeln!(out, "program {}", trace.name)?;
    writeln!(out, "ranks {}", trace.ranks.len())?;
    for (rank, ops) in trace.ranks.iter().enumerate() {
        writeln!(out, "\nrank {rank}")?;
        for op in ops {
            write_op(&mut out, *op)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn write_op(out: &mut impl Write, op: Op) -> io::Result<()> {
    match op {
        Op::Compute { nanos } => {
            let (seconds, nanos) = (nanos / NANOS_PER_S, nanos % NANOS_PER_S);
            let decimals = format!("{nanos:09}");
            match decimals.trim_end_matches('0') {
                "" => writeln!(out, "compute {seconds}"),
                decimals => writeln!(out, "compute {seconds}.{decimals}"),
            }
        }
        Op::Send { to, bytes, tag } => writeln!(out, "send {to} {bytes} {tag}"),
        Op::Receive { from, tag } => writeln!(out, "receive {from} {tag}"),
        Op::Spawn { rank } => writeln!(out, "spawn {rank}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    const PING: &str = "gleaner-trace 1
program ping pong
ranks 2

# the one who asks
rank 0
compute 0.5
send 1 8 7
receive 1 7

rank 1
receive 0 7
compute 1.000000001
send 0 8 7
";

    #[track_caller]
    fn refused(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().in_file(Path::new("a.trace"))
    }

    #[test]
    fn a_trace_is_read_with_its_lines() {
        let lined = read(PING.as_bytes()).unwrap();
        assert_eq!(lined.trace.name, "ping pong");
        assert_eq!(lined.trace.ranks[0][0], Op::Compute { nanos: 500_000_000 });
        assert_eq!(lined.trace.ranks[1][1], Op::Compute { nanos: 1_000_000_001 });
        assert_eq!(lined.lines.numbers, [[7, 8, 9], [12, 13, 14]]);
        assert_eq!(lined.check(), []);
    }

    #[test]
    fn a_compressed_trace_is_read_like_a_plain_one() {
        let mut gzip = flate2::read::GzEncoder::new(PING.as_bytes(), flate2::Compression::fast());
        let mut packed = vec![];
        gzip.read_to_end(&mut packed).unwrap();
        assert_eq!(read(&*packed).unwrap(), read(PING.as_bytes()).unwrap());
        packed.truncate(packed.len() / 2);
        assert!(refused_bytes(&packed).ends_with("it was cut off"), "{}", refused_bytes(&packed));
    }

    fn refused_bytes(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().in_file(Path::new("a.trace"))
    }

    #[test]
    fn every_bad_line_is_named() {
        let with = |line: &str| PING.replace("send 1 8 7", line);
        let claims = [
            (with("send 1 8"), "a.trace:8: 2 fields after `send`: expected three: to which"),
            (with("send 1 8 7 9"), "a.trace:8: 4 fields after `send`"),
            (with("send -1 8 7"), "a.trace:8: `-1` is not a rank, a whole number from 0"),
            (with("sned 1 8 7"), "a.trace:8: `sned` is not an operation: expected compute, send,"),
            (with("compute 1e3"), "a.trace:8: `1e3` is not seconds, such as 0.25"),
            (with("compute 0.1234567891"), "a.trace:8: `0.1234567891` is not seconds"),
            (with("compute 18446744074"), "a.trace:8: `18446744074` is not seconds"),
            (with("rank 2"), "a.trace:8: rank 2: expected rank 1"),
            (PING.replace("ranks 2", "ranks 1"), "a.trace:11: rank 1: the header says 1 ranks"),
            (PING.replace("ranks 2", "ranks 3"), "a.trace:14: the file ends here: expected rank 2"),
            (PING.replace("ranks 2", "ranks 0"), "a.trace:3: 0 ranks: expected 1 to"),
            (PING.replace("trace 1", "trace 9"), "a.trace:1: a trace of version 9: expected"),
            (PING.replace("program", "name"), "a.trace:2: `name ping pong`: expected `program`"),
            (PING.replace("rank 0", ""), "a.trace:7: an operation of no rank"),
            (String::new(), "a.trace:1: `` is not the beginning of a trace"),
            ("PK\u{3}".to_owned(), "a.trace:1: `PK\\u0003` is not the beginning"),
        ];
        for (text, expected) in claims {
            let said = refused(&text);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_and_not_kept() {
        let endless = PING.to_owned() + &"x".repeat(1 << 20);
        assert_eq!(refused(&endless), "a.trace:15: a line of more than 131072 bytes");
        assert_eq!(refused_bytes(b"\xff\n"), "a.trace:1: a line that is not UTF-8");
    }

    /// One long comment was an empty file, and one operation had all the others
    /// for fields.
    #[test]
    fn line_ends_of_old_macs_are_refused_and_others_and_a_byte_order_mark_taken() {
        assert_eq!(read(PING.replace('\n', "\r\n").as_bytes()).unwrap().trace.ranks.len(), 2);
        assert!(read(format!("\u{feff}{PING}").as_bytes()).is_ok());
        let said = refused(&PING.replace('\n', "\r"));
        assert!(said.starts_with("a.trace:1: a carriage return inside a line"), "{said}");
        let options = crate::trace::import::ImportOptions::new("theirs");
        for text in ["# all of it\r0 compute 1\r0 compute 2\r", "0 compute 1\r0 compute 2\r"] {
            let error = crate::trace::import::time_independent(text.as_bytes(), &options);
            let said = error.unwrap_err().in_file(Path::new("a.ti"));
            assert!(said.starts_with("a.ti:1: a carriage return inside a line"), "{said}");
        }
    }

    #[test]
    fn a_name_that_would_not_read_back_is_not_written() {
        for name in ["", " a", "two\nlines"] {
            let trace = Trace { name: name.to_owned(), ranks: vec![vec![]] };
            assert!(matches!(write(&trace, io::sink()), Err(WriteTraceError::Name(_))), "{name}");
        }
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            any::<u64>().prop_map(|nanos| Op::Compute { nanos }),
            (0..u64::MAX).prop_map(|nanos| Op::Compute { nanos: nanos % 2_000_000_000 }),
            any::<(u32, u64, u32)>().prop_map(|(to, bytes, tag)| Op::Send { to, bytes, tag }),
            any::<(u32, u32)>().prop_map(|(from, tag)| Op::Receive { from, tag }),
            any::<u32>().prop_map(|rank| Op::Spawn { rank }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(
            name in "[!-~]([ -~]{0,20}[!-~])?",
            ranks in proptest::collection::vec(proptest::collection::vec(op(), 0..20), 1..5),
        ) {
            let trace = Trace { name, ranks };
            let mut text = vec![];
            write(&trace, &mut text).unwrap();
            prop_assert_eq!(read(&*text).unwrap().trace, trace);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&*bytes);
            let mut after_header = b"gleaner-trace 1\nprogram x\nranks 2\nrank 0\n".to_vec();
            after_header.extend(bytes);
            let _ = read(&*after_header);
        }
    }
}
