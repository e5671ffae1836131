//! The Standard Workload Format: a job a line, 18 numbers each, and comments
//! (Chapin et al. 1999; Parallel Workloads Archive, version 2.2).
//!
//! The promise: what is read is written again as it was. A line that is none is
//! counted and the first ones are told, and the others are read on.

use std::fmt;
use std::io::{self, BufRead, Write as _};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gleaner_common::id::JobId;
use gleaner_common::lines::{BoundedLines, LineError};
use gleaner_common::plain::quoted;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Request, RequestError};

use super::engine::WorkloadJob;
use super::measures::Outcome;

/// How many fields a line has.
const FIELDS: usize = 18;

/// Longer lines are none.
const LINE_BYTES_MAX: usize = 4_096;

/// The longest header has some hundred.
const COMMENTS_MAX: usize = 10_000;

/// Some 1.5 GB: several times the longest log there is.
const JOBS_MAX: usize = 10_000_000;

/// What is counted in nanoseconds: 292 years.
const SECONDS_MAX: i64 = i64::MAX / 1_000_000_000;

const HALF: Duration = Duration::from_millis(500);

/// So many broken lines are told in full.
const TOLD_MAX: usize = 20;

/// A line; -1 stands for what is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwfJob {
    pub number: i64,
    pub submit_s: i64,
    pub wait_s: i64,
    pub run_s: i64,
    pub processors: i64,
    pub cpu_s: f64,
    pub memory_kb: i64,
    pub wanted_processors: i64,
    pub wanted_s: i64,
    pub wanted_memory_kb: i64,
    /// 0 failed, 1 completed, 5 cancelled; 2 to 4 for parts of a job.
    pub status: i64,
    pub user: i64,
    pub group: i64,
    pub application: i64,
    pub queue: i64,
    pub partition: i64,
    pub after_job: i64,
    pub think_s: i64,
}

/// Why a line is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwfLineError {
    #[error("{found} fields: expected 18")]
    Fields { found: usize },
    #[error("field {field} is `{text}`: expected a number")]
    NoNumber { field: usize, text: String },
    #[error("a {what} of {value} s: expected -1 or more")]
    Negative { what: &'static str, value: i64 },
    #[error("a {what} of {value}: expected less")]
    TooMuch { what: &'static str, value: i64 },
}

impl SwfJob {
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &str) -> Result<Self, SwfLineError> {
        let texts: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = texts.len();
        let texts: [&str; FIELDS] = texts.try_into().map_err(|_| SwfLineError::Fields { found })?;
        let whole = |field: usize| {
            let text = texts[field - 1];
            let no = || SwfLineError::NoNumber { field, text: quoted(text) };
            text.parse::<i64>().map_err(|_| no())
        };
        let cpu = texts[5].parse::<f64>().ok().filter(|cpu| cpu.is_finite());
        let no_cpu = || SwfLineError::NoNumber { field: 6, text: quoted(texts[5]) };
        let job = Self {
            number: whole(1)?,
            submit_s: whole(2)?,
            wait_s: whole(3)?,
            run_s: whole(4)?,
            processors: whole(5)?,
            cpu_s: cpu.ok_or_else(no_cpu)?,
            memory_kb: whole(7)?,
            wanted_processors: whole(8)?,
            wanted_s: whole(9)?,
            wanted_memory_kb: whole(10)?,
            status: whole(11)?,
            user: whole(12)?,
            group: whole(13)?,
            application: whole(14)?,
            queue: whole(15)?,
            partition: whole(16)?,
            after_job: whole(17)?,
            think_s: whole(18)?,
        };
        for (what, value) in [("submit time", job.submit_s), ("run time", job.run_s)] {
            if value < -1 {
                return Err(SwfLineError::Negative { what, value });
            }
        }
        let most = [
            ("submit time", job.submit_s, SECONDS_MAX),
            ("run time", job.run_s, SECONDS_MAX),
            ("requested time", job.wanted_s, SECONDS_MAX),
            ("number of processors", job.processors, u32::MAX.into()),
        ];
        match most.into_iter().find(|(_, value, most)| value > most) {
            Some((what, value, _)) => Err(SwfLineError::TooMuch { what, value }),
            None => Ok(job),
        }
    }

    /// A simulated job, rounded to whole seconds as the format has them: one
    /// shorter than half a second took one.
    pub(super) fn of(outcome: &Outcome) -> Self {
        let rounded = |span: Duration| i64::try_from((span + HALF).as_secs()).unwrap_or(i64::MAX);
        let run_s = rounded(outcome.execution()).max(1);
        Self {
            number: i64::from(outcome.job.0) + 1,
            submit_s: rounded(outcome.submitted.since(Moment::ZERO)),
            wait_s: rounded(outcome.wait()),
            run_s,
            processors: outcome.largest.into(),
            cpu_s: -1.0,
            memory_kb: -1,
            wanted_processors: outcome.largest.into(),
            wanted_s: -1,
            wanted_memory_kb: -1,
            status: 1,
            user: -1,
            group: -1,
            application: -1,
            queue: -1,
            partition: -1,
            after_job: -1,
            think_s: -1,
        }
    }

    /// Has it run, on some processors and for some time?
    pub fn has_run(&self) -> bool {
        self.run_s > 0 && self.processors > 0 && self.submit_s >= 0
    }

    /// The job as a rigid one, as far as its line goes; `None` if it has not
    /// run. The estimate is what was asked for; what it took, if nothing was.
    ///
    /// # Errors
    /// If it asks for more than can be counted.
    pub fn rigid(&self) -> Result<Option<WorkloadJob>, RequestError> {
        if !self.has_run() {
            return Ok(None);
        }
        let seconds = |s: i64| Duration::from_secs(u64::try_from(s).unwrap_or(0));
        let takes = seconds(self.run_s);
        let estimate = if self.wanted_s > 0 { seconds(self.wanted_s) } else { takes };
        let size = u32::try_from(self.processors).unwrap_or(u32::MAX);
        let request = Request::rigid(size, Some(estimate))?;
        let number = JobId(u32::try_from(self.number).unwrap_or(u32::MAX));
        let submitted = Moment::ZERO + seconds(self.submit_s);
        Ok(Some(WorkloadJob { number, submitted, takes, request }))
    }
}

impl fmt::Display for SwfJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, submit_s, wait_s, run_s, processors, cpu_s, .. } = self;
        write!(f, "{number} {submit_s} {wait_s} {run_s} {processors} {cpu_s}")?;
        let rest = [
            self.memory_kb,
            self.wanted_processors,
            self.wanted_s,
            self.wanted_memory_kb,
            self.status,
            self.user,
            self.group,
            self.application,
            self.queue,
            self.partition,
            self.after_job,
            self.think_s,
        ];
        rest.iter().try_for_each(|number| write!(f, " {number}"))
    }
}

/// A whole log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwfLog {
    /// Comments, without their semicolons.
    pub comments: Vec<String>,
    pub jobs: Vec<SwfJob>,
    /// How many lines are no jobs.
    pub broken: usize,
    /// The first of them: their numbers, and why.
    pub told: Vec<(u64, SwfLineError)>,
}

impl SwfLog {
    /// Reads a log as it is; one in gzip is to be unpacked by the caller's
    /// reader.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut log = Self::default();
        let mut lines = BoundedLines::new(input, LINE_BYTES_MAX);
        loop {
            let number = lines.number() + 1;
            let Some(line) = lines.next_bytes().map_err(|error| no_line(number, error))? else {
                return Ok(log);
            };
            // Comments name people and places, in whatever letters.
            log.line(number, String::from_utf8_lossy(line).trim())
                .map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        }
    }

    fn line(&mut self, number: u64, line: &str) -> Result<(), &'static str> {
        if let Some(comment) = line.strip_prefix(';') {
            self.comments.push(comment.trim().to_owned());
        } else if !line.is_empty() {
            match SwfJob::parse(line) {
                Ok(job) => self.jobs.push(job),
                Err(why) => self.complain(number, why),
            }
        }
        if self.comments.len() > COMMENTS_MAX {
            return Err("more than 10,000 comments");
        }
        if self.jobs.len() > JOBS_MAX { Err("more than 10,000,000 jobs") } else { Ok(()) }
    }

    /// Its text, packed with gzip.
    ///
    /// # Errors
    /// None that memory gives.
    pub fn packed(&self) -> io::Result<Vec<u8>> {
        let mut gzip = GzEncoder::new(vec![], Compression::default());
        write!(gzip, "{self}")?;
        gzip.finish()
    }

    fn complain(&mut self, line: u64, why: SwfLineError) {
        self.broken += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push((line, why));
        }
    }

    /// What a comment such as `MaxProcs: 128` says.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named =
            |comment: &&String| comment.split_once(':').is_some_and(|(key, _)| key.trim() == name);
        let comment = self.comments.iter().find(named)?;
        comment.split_once(':').map(|(_, value)| value.trim())
    }

    /// How many processors the machine had.
    pub fn processors(&self) -> Option<u32> {
        let named = ["MaxProcs", "MaxNodes"].iter().find_map(|name| self.header(name));
        named.and_then(|text| text.parse().ok())
    }

    /// Those that ran, as rigid jobs in the order of their submission, numbered
    /// by it: some logs use a number twice.
    ///
    /// # Errors
    /// If one asks for more than can be counted.
    pub fn rigid(&self) -> Result<Vec<WorkloadJob>, RequestError> {
        let jobs = self.jobs.iter().filter_map(|job| job.rigid().transpose());
        let mut jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        jobs.sort_by_key(|job| job.submitted);
        for (number, job) in (0..).zip(&mut jobs) {
            job.number = JobId(number);
        }
        Ok(jobs)
    }
}

fn no_line(number: u64, error: LineError) -> io::Error {
    if let LineError::Read(error) = error {
        return error;
    }
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
}

impl fmt::Display for SwfLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.comments.iter().try_for_each(|comment| writeln!(f, "; {comment}"))?;
        self.jobs.iter().try_for_each(|job| writeln!(f, "{job}"))
    }
}
