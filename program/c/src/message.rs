//! Messages.

use std::ffi::c_int;

use gleaner_program::{Communicator, Message, Receiving, Sending};

use crate::error::{Refused, any, bytes, on, put};

/// What came; the bytes are the receiver's.
#[repr(C)]
#[derive(Debug)]
pub struct GleanMessage {
    from: u32,
    tag: u32,
    bytes: usize,
    data: *mut u8,
}

/// Hands bytes to C.
pub(crate) fn give(bytes: Vec<u8>) -> (usize, *mut u8) {
    let bytes = bytes.into_boxed_slice();
    (bytes.len(), Box::into_raw(bytes).cast())
}

/// Takes bytes back that `give` handed out.
pub(crate) unsafe fn take_back(bytes: usize, data: *mut u8) {
    if !data.is_null() {
        // SAFETY: the caller's word that both are as `give` made them.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, bytes)) });
    }
}

impl GleanMessage {
    pub(crate) fn of(from: u32, tag: u32, bytes: Vec<u8>) -> Self {
        let (bytes, data) = give(bytes);
        Self { from, tag, bytes, data }
    }
}

/// Begun, and not ended.
#[derive(Debug)]
pub enum GleanRequest {
    Sending(Sending),
    Receiving(Receiving),
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_free(message: *mut GleanMessage) {
    // SAFETY: the caller's word; null is nothing to free.
    if let Some(message) = unsafe { message.as_mut() } {
        // SAFETY: made by `GleanMessage::of`, and freed once: it is null after.
        unsafe { take_back(message.bytes, message.data) };
        (message.bytes, message.data) = (0, std::ptr::null_mut());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_send(
    rank: *mut Communicator,
    to: u32,
    tag: u32,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.send(to, tag, bytes(data, length)?)?)) }
}

unsafe fn hand_out(message: Message, to: *mut GleanMessage) -> Result<(), Refused> {
    let Message { from, tag, bytes, .. } = message;
    // SAFETY: the caller's word, checked for null before anything is received.
    unsafe { put(to, GleanMessage::of(from, tag, bytes)) }
}

fn has_place<T>(to: *mut T) -> Result<(), Refused> {
    if to.is_null() { Err(Refused::Argument("where the result is to go is null")) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_recv(
    rank: *mut Communicator,
    from: i64,
    tag: i64,
    message: *mut GleanMessage,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            has_place(message)?;
            hand_out(rank.recv(any(from)?, any(tag)?)?, message)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_isend(
    rank: *mut Communicator,
    to: u32,
    tag: u32,
    data: *const u8,
    length: usize,
    request: *mut *mut GleanRequest,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            has_place(request)?;
            let sending = rank.isend(to, tag, bytes(data, length)?)?;
            put(request, Box::into_raw(Box::new(GleanRequest::Sending(sending))))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_irecv(
    rank: *mut Communicator,
    from: i64,
    tag: i64,
    request: *mut *mut GleanRequest,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            has_place(request)?;
            let receiving = rank.irecv(any(from)?, any(tag)?)?;
            put(request, Box::into_raw(Box::new(GleanRequest::Receiving(receiving))))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_test(
    rank: *mut Communicator,
    request: *const GleanRequest,
    done: *mut c_int,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let request = request.as_ref().ok_or(Refused::Argument("the request is null"))?;
            let is_done = match request {
                GleanRequest::Sending(sending) => rank.test_sent(sending)?,
                GleanRequest::Receiving(receiving) => rank.test(receiving)?,
            };
            put(done, c_int::from(is_done))
        })
    }
}

/// Takes a request back.
unsafe fn ended(request: *mut GleanRequest) -> Result<GleanRequest, Refused> {
    if request.is_null() {
        return Err(Refused::Argument("the request is null"));
    }
    // SAFETY: the caller's word that it is one of ours and was not ended.
    Ok(*unsafe { Box::from_raw(request) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_wait(
    rank: *mut Communicator,
    request: *mut GleanRequest,
    message: *mut GleanMessage,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| match ended(request)? {
            GleanRequest::Sending(sending) => Ok(rank.wait_sent(&sending)?),
            GleanRequest::Receiving(receiving) => {
                has_place(message)?;
                hand_out(rank.wait(receiving)?, message)
            }
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_withdraw(
    rank: *mut Communicator,
    request: *mut GleanRequest,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if let GleanRequest::Receiving(receiving) = ended(request)? {
                rank.withdraw(receiving);
            }
            Ok(())
        })
    }
}
