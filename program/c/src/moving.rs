//! More and fewer ranks, saved state, and the retreat.

use std::ffi::{c_int, c_void};

use gleaner_program::{Communicator, Ending};

use crate::error::{OK, Refused, bytes, on, put};
use crate::message::GleanMessage;
use crate::run::{Argument, Program};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_processors(rank: *mut Communicator, processors: *mut u32) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| put(processors, rank.processors()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_spawn(
    rank: *mut Communicator,
    count: u32,
    first: *mut u32,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if first.is_null() {
                return Err(Refused::Argument("where the first rank is to go is null"));
            }
            put(first, rank.spawn(count)?.start)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_join(
    rank: *mut Communicator,
    other: u32,
    well: *mut c_int,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let is_well = match rank.join(other)? {
                Ending::Returned | Ending::Left | Ending::Retreated => 1,
                Ending::Failed(_) | Ending::Panicked(_) => 0,
            };
            if well.is_null() { Ok(()) } else { put(well, is_well) }
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_leave(rank: *mut Communicator) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.leave()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_save(
    rank: *mut Communicator,
    state: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.save(bytes(state, length)?)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_boundary(rank: *mut Communicator) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.boundary()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_restore(rank: *mut Communicator, state: *mut GleanMessage) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if state.is_null() {
                return Err(Refused::Argument("where the state is to go is null"));
            }
            let own = rank.rank();
            let saved = rank.restore().ok_or(Refused::None)?;
            put(state, GleanMessage::of(own, 0, saved))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_wants_state(rank: *mut Communicator, wanted: *mut c_int) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| put(wanted, c_int::from(rank.wants_state()?))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_heed(rank: *mut Communicator) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.heed()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_on_retreat(
    rank: *mut Communicator,
    handler: Option<Program>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let handler = handler.ok_or(Refused::Argument("the handler is null"))?;
            let argument = Argument(argument);
            rank.on_retreat(move |rank| match argument.call(handler, rank) {
                OK => Ok(()),
                number => Err(Refused::is_of_program(number)),
            });
            Ok(())
        })
    }
}
