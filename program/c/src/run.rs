//! A program, and who its ranks are.

use std::ffi::{c_int, c_void};

use gleaner_program::{Communicator, Failure, Run, RunError, live};

use crate::error::{LOST, OK, PROGRAM, Refused, guarded, last, note};

/// A program's function, or a retreat handler.
pub type Program = unsafe extern "C" fn(*mut Communicator, *mut c_void) -> c_int;

/// How to run a program that no agent runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GleanAlone {
    ranks: u32,
    processors: u32,
}

/// What the program wants given to its functions.
#[derive(Clone, Copy)]
pub(crate) struct Argument(pub(crate) *mut c_void);

// SAFETY: `glean.h` says that all ranks of a process get it, each on a thread
// of its own; what they do with it is the program's.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

impl Argument {
    pub(crate) fn call(self, function: Program, rank: &mut Communicator) -> c_int {
        // SAFETY: the caller gave this function for this argument; the rank
        // lives until it returns.
        unsafe { function(rank, self.0) }
    }
}

/// What a program's function gave, if that is not `GLEAN_OK`.
#[derive(Debug)]
struct Gave(c_int, String);

impl std::fmt::Display for Gave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.1.as_str() {
            "" => write!(f, "its function gave {}", self.0),
            words => f.write_str(words),
        }
    }
}

impl std::error::Error for Gave {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_run(
    alone: GleanAlone,
    program: Option<Program>,
    argument: *mut c_void,
) -> c_int {
    let mut failed = None;
    let number = guarded(|| {
        let program = program.ok_or(Refused::Argument("the program is null"))?;
        let argument = Argument(argument);
        let GleanAlone { ranks, processors } = alone;
        let run = Run { ranks, processors, ..Run::default() };
        failed = live::run(run, |rank| perform(program, argument, rank)).err();
        Ok(())
    });
    match failed {
        None => number,
        Some(error) => {
            note(&error.to_string());
            if matches!(error, RunError::Agent(_)) { LOST } else { PROGRAM }
        }
    }
}

fn perform(program: Program, argument: Argument, rank: &mut Communicator) -> Result<(), Failure> {
    note("");
    match argument.call(program, rank) {
        OK => Ok(()),
        number => {
            // Whoever waits for this rank is told why it is gone.
            let words = last();
            Err(Box::new(Gave(number, words)))
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_rank(rank: *const Communicator) -> u32 {
    // SAFETY: the caller's word, checked for null.
    unsafe { rank.as_ref() }.map_or(0, Communicator::rank)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_size(rank: *const Communicator) -> u32 {
    // SAFETY: the caller's word, checked for null.
    unsafe { rank.as_ref() }.map_or(0, Communicator::size)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_first(rank: *const Communicator) -> u32 {
    // SAFETY: the caller's word, checked for null.
    unsafe { rank.as_ref() }.map_or(0, |rank| rank.members().start)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_members(rank: *const Communicator) -> u32 {
    // SAFETY: the caller's word, checked for null.
    let members = unsafe { rank.as_ref() }.map(Communicator::members);
    members.map_or(0, |members| members.end - members.start)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_parent(rank: *const Communicator) -> i64 {
    // SAFETY: the caller's word, checked for null.
    unsafe { rank.as_ref() }.and_then(Communicator::parent).map_or(-1, i64::from)
}
