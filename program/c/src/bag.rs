//! The bag of tasks.

use std::ffi::c_int;

use gleaner_program::{Communicator, TaskId};

use crate::error::{Refused, bytes, on, put};
use crate::message::{give, take_back};

/// A task, or its result.
#[repr(C)]
#[derive(Debug)]
pub struct GleanTask {
    id: u64,
    bytes: usize,
    data: *mut u8,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_free_task(task: *mut GleanTask) {
    // SAFETY: the caller's word; null is nothing to free.
    if let Some(task) = unsafe { task.as_mut() } {
        // SAFETY: made by `hand_out`, and freed once: it is null after.
        unsafe { take_back(task.bytes, task.data) };
        (task.bytes, task.data) = (0, std::ptr::null_mut());
    }
}

unsafe fn hand_out(task: Option<(TaskId, Vec<u8>)>, to: *mut GleanTask) -> Result<(), Refused> {
    let (id, bytes) = task.ok_or(Refused::None)?;
    let (bytes, data) = give(bytes);
    // SAFETY: the caller's word, checked for null.
    unsafe { put(to, GleanTask { id: id.0, bytes, data }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_add_task(
    rank: *mut Communicator,
    data: *const u8,
    length: usize,
    id: *mut u64,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let added = rank.add_task(bytes(data, length)?)?;
            if id.is_null() { Ok(()) } else { put(id, added.0) }
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_close_bag(rank: *mut Communicator) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.close_bag()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_next_task(rank: *mut Communicator, task: *mut GleanTask) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if task.is_null() {
                return Err(Refused::Argument("where the task is to go is null"));
            }
            let next = rank.next_task()?.map(|task| (task.id, task.work));
            hand_out(next, task)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_done(
    rank: *mut Communicator,
    id: u64,
    result: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.done(TaskId(id), bytes(result, length)?)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_return_task(rank: *mut Communicator, id: u64) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.return_task(TaskId(id))?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_next_result(
    rank: *mut Communicator,
    result: *mut GleanTask,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if result.is_null() {
                return Err(Refused::Argument("where the result is to go is null"));
            }
            hand_out(rank.next_result()?, result)
        })
    }
}
