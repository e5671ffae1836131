//! Offers, requests and releases.

use std::ffi::{c_int, c_void};

use gleaner_program::{Agreed, Change, Communicator, Proposal, Response};

use crate::error::{OK, Refused, on, put};
use crate::run::Argument;

/// What the program is offered, or asked to give.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GleanOffer {
    more: c_int,
    by: u32,
    mandatory: c_int,
    last: c_int,
    price: i64,
}

/// What was agreed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GleanAgreement {
    first: u32,
    more: u32,
    fewer: u32,
    enforced: c_int,
}

type Handler = unsafe extern "C" fn(*mut GleanOffer, *mut c_void) -> c_int;

impl From<&Proposal> for GleanOffer {
    fn from(proposal: &Proposal) -> Self {
        Self {
            more: c_int::from(matches!(proposal.change, Change::Grow { .. })),
            by: proposal.change.by(),
            mandatory: c_int::from(proposal.is_mandatory),
            last: c_int::from(proposal.is_final),
            price: proposal.price.and_then(|price| i64::try_from(price).ok()).unwrap_or(-1),
        }
    }
}

/// What the program's function makes of an offer.
fn ask(handler: Handler, argument: Argument, proposal: &Proposal) -> Response {
    let before = GleanOffer::from(proposal);
    let mut offer = before;
    // SAFETY: the caller gave this function for this argument; the offer lives
    // until it returns.
    let given = unsafe { handler(&raw mut offer, argument.0) };
    if given != OK || offer.by == 0 {
        Response::Decline
    } else if (offer.by, offer.price) == (before.by, before.price) {
        Response::Accept
    } else {
        Response::Counter { by: offer.by, price: u64::try_from(offer.price).ok() }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_on_offer(
    rank: *mut Communicator,
    handler: Option<Handler>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let handler = handler.ok_or(Refused::Argument("the handler is null"))?;
            let argument = Argument(argument);
            Ok(rank.on_offer(move |proposal| ask(handler, argument, proposal))?)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_agreed(
    rank: *mut Communicator,
    agreement: *mut GleanAgreement,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if agreement.is_null() {
                return Err(Refused::Argument("where the agreement is to go is null"));
            }
            let nothing = GleanAgreement::default();
            let agreed = match rank.agreed()?.ok_or(Refused::None)? {
                Agreed::More(ranks) => GleanAgreement {
                    first: ranks.start,
                    more: ranks.end.saturating_sub(ranks.start),
                    ..nothing
                },
                Agreed::Fewer { by, enforced } => {
                    GleanAgreement { fewer: by, enforced: c_int::from(enforced), ..nothing }
                }
            };
            put(agreement, agreed)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_request_ranks(
    rank: *mut Communicator,
    count: u32,
    first: *mut u32,
    more: *mut u32,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            if first.is_null() || more.is_null() {
                return Err(Refused::Argument("where the ranks are to go is null"));
            }
            let ranks = rank.request(count)?;
            put(first, ranks.start)?;
            put(more, ranks.end.saturating_sub(ranks.start))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_release_ranks(
    rank: *mut Communicator,
    count: u32,
    counted: *mut u32,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let agreed = rank.release(count)?;
            if counted.is_null() { Ok(()) } else { put(counted, agreed) }
        })
    }
}
