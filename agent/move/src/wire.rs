//! The little of protocol buffers that CRIU's images and its image socket
//! need: fields are looked at, changed or left out; the rest is copied as it is.
//!
//! Source: protobuf.dev, "Encoding"; CRIU, `images/*.proto`.

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Eight or four bytes as they are.
    Fixed(&'a [u8]),
}

/// What becomes of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Keep,
    Drop,
    Varint(u64),
    Bytes(Vec<u8>),
}

/// The message is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message")]
pub(crate) struct Malformed;

/// The fields of a message, in order.
pub(crate) fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
    let mut found = vec![];
    while !bytes.is_empty() {
        found.push(read_field(&mut bytes)?);
    }
    Ok(found)
}

/// Takes the field that `bytes` begins with.
pub(crate) fn read_field<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Value<'a>), Malformed> {
    let key = take_varint(bytes)?;
    let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
    let value = match key & 7 {
        0 => Value::Varint(take_varint(bytes)?),
        1 => Value::Fixed(take(bytes, 8)?),
        2 => {
            let length = usize::try_from(take_varint(bytes)?).map_err(|_| Malformed)?;
            Value::Bytes(take(bytes, length)?)
        }
        5 => Value::Fixed(take(bytes, 4)?),
        _ => return Err(Malformed),
    };
    Ok((number, value))
}

/// The message with every field passed through `edit`.
pub(crate) fn rewrite(
    message: &[u8],
    edit: &mut dyn FnMut(u32, Value<'_>) -> Result<Edit, Malformed>,
) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(message.len() + 16);
    for (number, value) in fields(message)? {
        match edit(number, value)? {
            Edit::Drop => {}
            Edit::Varint(changed) => put(&mut out, number, Value::Varint(changed)),
            Edit::Bytes(changed) => put(&mut out, number, Value::Bytes(&changed)),
            Edit::Keep => put(&mut out, number, value),
        }
    }
    Ok(out)
}

/// Appends a field.
pub(crate) fn put(out: &mut Vec<u8>, number: u32, value: Value<'_>) {
    let key = |kind: u64| u64::from(number) << 3 | kind;
    match value {
        Value::Varint(value) => {
            put_varint(out, key(0));
            put_varint(out, value);
        }
        Value::Bytes(bytes) => {
            put_varint(out, key(2));
            put_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Value::Fixed(bytes) => {
            put_varint(out, key(if bytes.len() == 8 { 1 } else { 5 }));
            out.extend_from_slice(bytes);
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(bytes, 1)?.first().ok_or(Malformed)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Vec<u8> {
        let mut bytes = vec![];
        put(&mut bytes, 1, Value::Varint(300));
        put(&mut bytes, 20, Value::Bytes(b"name"));
        put(&mut bytes, 3, Value::Fixed(&[1, 2, 3, 4, 5, 6, 7, 8]));
        bytes
    }

    #[test]
    fn fields_are_read_as_they_were_put() {
        let bytes = message();
        let read = fields(&bytes).unwrap();
        assert_eq!(read[0], (1, Value::Varint(300)));
        assert_eq!(read[1], (20, Value::Bytes(b"name")));
        assert_eq!(read[2].0, 3);
    }

    #[test]
    fn only_what_is_edited_changes() {
        let bytes = message();
        assert_eq!(rewrite(&bytes, &mut |_, _| Ok(Edit::Keep)).unwrap(), bytes);
        let changed = rewrite(&bytes, &mut |number, _| {
            Ok(match number {
                1 => Edit::Varint(7),
                20 => Edit::Drop,
                _ => Edit::Keep,
            })
        })
        .unwrap();
        assert_eq!(fields(&changed).unwrap()[0], (1, Value::Varint(7)));
        assert_eq!(fields(&changed).unwrap().len(), 2);
    }

    #[test]
    fn cut_off_messages_are_refused() {
        let bytes = message();
        for length in [1, 2, 5, 9, bytes.len() - 1] {
            assert!(fields(&bytes[..length]).is_err(), "{length}");
        }
        assert!(fields(&[0xff; 12]).is_err());
    }
}
