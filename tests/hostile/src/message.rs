//! Protocol buffers, as far as an attacker changes CRIU's images: a number deep
//! inside a message.

use anyhow::{Context as _, Result, bail};

/// Two magic numbers begin an image file.
const MAGIC: usize = 8;

/// An image file whose first entry has another number at that path of fields.
///
/// # Errors
/// There is no such field.
pub fn with_number(file: &[u8], path: &[u32], number: u64) -> Result<Vec<u8>> {
    let (magic, rest) = file.split_at_checked(MAGIC).context("no magic numbers")?;
    let (length, rest) = rest.split_first_chunk::<4>().context("no entry")?;
    let length = usize::try_from(u32::from_le_bytes(*length))?;
    let (entry, rest) = rest.split_at_checked(length).context("a cut entry")?;
    let changed = change(entry, path, number)?;
    let length = u32::try_from(changed.len())?.to_le_bytes();
    Ok([magic, &length, &changed, rest].concat())
}

/// A message with another number at that path, or with one more field.
fn change(mut message: &[u8], path: &[u32], number: u64) -> Result<Vec<u8>> {
    let (wanted, inner) = path.split_first().context("an empty path")?;
    let (mut out, mut changed) = (vec![], false);
    while !message.is_empty() {
        let key = take_number(&mut message)?;
        let value = take_value(&mut message, key & 7)?;
        let is_it = key >> 3 == u64::from(*wanted) && !changed;
        put_number(&mut out, key);
        match (is_it, value) {
            (true, Value::Number(_)) if inner.is_empty() => put_number(&mut out, number),
            (true, Value::Bytes(bytes)) if !inner.is_empty() => {
                put_bytes(&mut out, &change(bytes, inner, number)?);
            }
            (_, Value::Number(value)) => put_number(&mut out, value),
            (_, Value::Bytes(bytes)) => put_bytes(&mut out, bytes),
            (_, Value::Fixed(bytes)) => out.extend_from_slice(bytes),
        }
        changed |= is_it;
    }
    if !changed {
        if !inner.is_empty() {
            bail!("no field {wanted}");
        }
        put_number(&mut out, u64::from(*wanted) << 3);
        put_number(&mut out, number);
    }
    Ok(out)
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed(&'a [u8]),
}

fn take_value<'a>(message: &mut &'a [u8], kind: u64) -> Result<Value<'a>> {
    Ok(match kind {
        0 => Value::Number(take_number(message)?),
        1 => Value::Fixed(take(message, 8)?),
        2 => {
            let length = usize::try_from(take_number(message)?)?;
            Value::Bytes(take(message, length)?)
        }
        5 => Value::Fixed(take(message, 4)?),
        _ => bail!("no kind of field"),
    })
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length).context("a cut message")?;
    *message = rest;
    Ok(taken)
}

fn take_number(message: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a number without an end")
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
