//! Errors as numbers, and in words.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gleaner_program::{Communicator, Error};

pub(crate) const OK: c_int = 0;
pub(crate) const LOST: c_int = 13;
pub(crate) const PROGRAM: c_int = 15;
pub(crate) const FAULT: c_int = 16;

/// What a call comes to where it does not succeed.
#[derive(Debug)]
pub(crate) enum Refused {
    Of(Error),
    /// There is none, which is no error.
    None,
    Argument(&'static str),
    Length {
        found: usize,
        expected: usize,
    },
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Of(error)
    }
}

impl Refused {
    fn number(&self) -> c_int {
        match self {
            Self::None => 1,
            Self::Of(Error::BadRank { .. } | Error::NotOfGroup { .. }) => 2,
            Self::Of(Error::BadTag { .. }) => 3,
            Self::Of(Error::PeerGone { .. }) => 4,
            Self::Of(Error::Deadlock { .. }) => 5,
            Self::Of(
                Error::NotWholeValues { .. }
                | Error::UnequalLengths { .. }
                | Error::WrongParts { .. }
                | Error::TooLong { .. },
            )
            | Self::Length { .. } => 6,
            // 7 was for a task in other hands: whoever does a task, its work is kept.
            Self::Of(Error::BagClosed) => 8,
            Self::Of(Error::NoProcessors { .. }) => 9,
            Self::Of(Error::Retreated) => 10,
            Self::Of(Error::Left) => 11,
            Self::Of(Error::Declined(_)) => 12,
            Self::Of(Error::Lost(_)) => LOST,
            Self::Argument(_) => 14,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Of(error) => error.to_string(),
            Self::None => "there is none".to_owned(),
            Self::Argument(what) => (*what).to_owned(),
            Self::Length { found, expected } => {
                format!("{found} bytes: expected {expected}")
            }
        }
    }

    /// The error with this number, for a retreat handler's own failure.
    pub(crate) fn is_of_program(number: c_int) -> Error {
        Error::Declined(format!("the retreat handler gave {number}"))
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn note(words: &str) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = words);
}

pub(crate) fn last() -> String {
    LAST.with(|last| last.borrow().to_string_lossy().into_owned())
}

/// What went wrong last on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn glean_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Makes a number of what comes out; nothing unwinds further.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Refused>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => OK,
        Ok(Err(refused)) => {
            note(&refused.words());
            refused.number()
        }
        Err(_) => {
            note("a fault of the library: it panicked");
            FAULT
        }
    }
}

/// As [`guarded`], for a call on a rank.
pub(crate) unsafe fn on(
    rank: *mut Communicator,
    call: impl FnOnce(&mut Communicator) -> Result<(), Refused>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller has it from `glean_run`, for this thread.
        let rank = unsafe { rank.as_mut() };
        call(rank.ok_or(Refused::Argument("the rank is null"))?)
    })
}

/// Somebody's bytes; a null pointer is none.
pub(crate) unsafe fn bytes<'a>(data: *const u8, bytes: usize) -> Result<&'a [u8], Refused> {
    match (data.is_null(), bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Refused::Argument("the data is null, but not empty")),
        // SAFETY: the caller's word.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data, bytes) }),
    }
}

/// Writes where the caller wants it.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Refused> {
    if to.is_null() {
        return Err(Refused::Argument("where the result is to go is null"));
    }
    // SAFETY: the caller's word, and not null.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies bytes to where the caller wants them: exactly as many as expected.
pub(crate) unsafe fn fill(to: *mut u8, expected: usize, from: &[u8]) -> Result<(), Refused> {
    if from.len() != expected {
        return Err(Refused::Length { found: from.len(), expected });
    }
    if expected == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(Refused::Argument("where the result is to go is null"));
    }
    // SAFETY: the caller's word for `expected` bytes, and not null; what is
    // copied is our own.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, expected) };
    Ok(())
}

/// A rank or tag, or any.
pub(crate) fn any(number: i64) -> Result<Option<u32>, Refused> {
    match number {
        -1 => Ok(None),
        number => u32::try_from(number)
            .map(Some)
            .map_err(|_| Refused::Argument("expected a rank or a tag, or GLEAN_ANY")),
    }
}
