//! What all members do together.

use std::ffi::c_int;

use gleaner_program::{Communicator, Error, Value};

use crate::error::{Refused, bytes, fill, on};

/// How values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Sum,
    Product,
    Min,
    Max,
}

impl Op {
    fn of(number: c_int) -> Result<Self, Refused> {
        match number {
            0 => Ok(Self::Sum),
            1 => Ok(Self::Product),
            2 => Ok(Self::Min),
            3 => Ok(Self::Max),
            _ => Err(Refused::Argument("the operation: expected GLEAN_SUM to GLEAN_MAX")),
        }
    }
}

/// A number that can be combined.
trait Number: Value {
    fn combine(self, op: Op, other: Self) -> Self;
}

macro_rules! number {
    ($type:ty, $add:expr, $multiply:expr) => {
        impl Number for $type {
            fn combine(self, op: Op, other: Self) -> Self {
                match op {
                    Op::Sum => $add(self, other),
                    Op::Product => $multiply(self, other),
                    Op::Min => self.min(other),
                    Op::Max => self.max(other),
                }
            }
        }
    };
}

number!(i32, i32::wrapping_add, i32::wrapping_mul);
number!(u32, u32::wrapping_add, u32::wrapping_mul);
number!(i64, i64::wrapping_add, i64::wrapping_mul);
number!(u64, u64::wrapping_add, u64::wrapping_mul);
number!(f32, |a, b| a + b, |a, b| a * b);
number!(f64, |a, b| a + b, |a, b| a * b);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_barrier(rank: *mut Communicator) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe { on(rank, |rank| Ok(rank.barrier()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_broadcast(
    rank: *mut Communicator,
    root: u32,
    data: *mut u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let is_root = rank.rank() == root;
            let own = if is_root { bytes(data, length)?.to_vec() } else { vec![] };
            let all = rank.broadcast::<u8>(root, own)?;
            if is_root { Ok(()) } else { fill(data, length, &all) }
        })
    }
}

/// Where a reduction goes.
#[derive(Clone, Copy)]
struct Reduction {
    /// `None`: to all.
    root: Option<u32>,
    op: Op,
    values: *const u8,
    out: *mut u8,
    count: usize,
}

unsafe fn reduce<T: Number>(rank: &mut Communicator, reduction: Reduction) -> Result<(), Refused> {
    let Reduction { root, op, values, out, count } = reduction;
    let length = count.checked_mul(T::BYTES).ok_or(Refused::Argument("too many values"))?;
    // SAFETY: the caller's word, checked for null.
    let values = unsafe { bytes(values, length)? };
    let values: Vec<T> = values.chunks_exact(T::BYTES).map(T::read).collect();
    let combine = |a: T, b: T| a.combine(op, b);
    let reduced = match root {
        Some(root) => rank.reduce(root, &values, combine)?,
        None => Some(rank.allreduce(&values, combine)?),
    };
    let Some(reduced) = reduced else { return Ok(()) };
    let mut written = Vec::with_capacity(length);
    for value in reduced {
        value.write(&mut written);
    }
    // SAFETY: the caller's word, checked for null.
    unsafe { fill(out, length, &written) }
}

unsafe fn reduce_any(rank: *mut Communicator, kind: c_int, reduction: Reduction) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| match kind {
            0 => reduce::<i32>(rank, reduction),
            1 => reduce::<u32>(rank, reduction),
            2 => reduce::<i64>(rank, reduction),
            3 => reduce::<u64>(rank, reduction),
            4 => reduce::<f32>(rank, reduction),
            5 => reduce::<f64>(rank, reduction),
            _ => Err(Refused::Argument("the type: expected GLEAN_I32 to GLEAN_F64")),
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_reduce(
    rank: *mut Communicator,
    root: u32,
    kind: c_int,
    op: c_int,
    values: *const u8,
    out: *mut u8,
    count: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        match Op::of(op) {
            Ok(op) => {
                reduce_any(rank, kind, Reduction { root: Some(root), op, values, out, count })
            }
            Err(refused) => on(rank, |_| Err(refused)),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_allreduce(
    rank: *mut Communicator,
    kind: c_int,
    op: c_int,
    values: *const u8,
    out: *mut u8,
    count: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        match Op::of(op) {
            Ok(op) => reduce_any(rank, kind, Reduction { root: None, op, values, out, count }),
            Err(refused) => on(rank, |_| Err(refused)),
        }
    }
}

/// All parts in a row: `length` bytes of each.
fn in_a_row(parts: &[Vec<u8>], length: usize) -> Result<Vec<u8>, Refused> {
    match parts.iter().find(|part| part.len() != length) {
        Some(part) => Err(Refused::Length { found: part.len(), expected: length }),
        None => Ok(parts.concat()),
    }
}

/// As many parts as there are members.
unsafe fn parts(
    rank: &Communicator,
    data: *const u8,
    length: usize,
) -> Result<Vec<Vec<u8>>, Refused> {
    let all = total(rank, length)?;
    // SAFETY: the caller's word, checked for null.
    let data = unsafe { bytes(data, all)? };
    Ok(match length {
        0 => vec![vec![]; rank.members().len()],
        length => data.chunks(length).map(<[u8]>::to_vec).collect(),
    })
}

fn total(rank: &Communicator, length: usize) -> Result<usize, Refused> {
    rank.members().len().checked_mul(length).ok_or(Refused::Argument("too many bytes"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_gather(
    rank: *mut Communicator,
    root: u32,
    data: *const u8,
    length: usize,
    all: *mut u8,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let Some(parts) = rank.gather(root, bytes(data, length)?)? else { return Ok(()) };
            fill(all, total(rank, length)?, &in_a_row(&parts, length)?)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_scatter(
    rank: *mut Communicator,
    root: u32,
    all: *const u8,
    out: *mut u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let parts = if rank.rank() == root { parts(rank, all, length)? } else { vec![] };
            let own: Result<Vec<u8>, Error> = rank.scatter(root, &parts);
            fill(out, length, &own?)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn glean_alltoall(
    rank: *mut Communicator,
    data: *const u8,
    out: *mut u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's word, checked for null.
    unsafe {
        on(rank, |rank| {
            let received = rank.all_to_all(parts(rank, data, length)?)?;
            fill(out, total(rank, length)?, &in_a_row(&received, length)?)
        })
    }
}
