//! Numbers as the bytes of a message: little-endian, one after the other.

/// What a message can be made of: a number, or a few together.
pub trait Value: Copy {
    const BYTES: usize;

    fn write(self, bytes: &mut Vec<u8>);

    /// From exactly [`Self::BYTES`] bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            const BYTES: usize = size_of::<$number>();

            fn write(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl<A: Value, B: Value> Value for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;

    fn write(self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn read(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(A::BYTES);
        (A::read(first), B::read(second))
    }
}

pub(crate) fn to_bytes<T: Value>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * T::BYTES);
    for value in values {
        value.write(&mut bytes);
    }
    bytes
}

/// `None` if the bytes are not a whole number of values.
pub(crate) fn from_bytes<T: Value>(bytes: &[u8]) -> Option<Vec<T>> {
    let values = bytes.chunks_exact(T::BYTES);
    values.remainder().is_empty().then(|| values.map(T::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_their_bytes() {
        let values = [(1.5_f64, 7_u32), (-0.0, u32::MAX)];
        let bytes = to_bytes(&values);
        assert_eq!(bytes.len(), 24);
        assert_eq!(from_bytes::<(f64, u32)>(&bytes).unwrap(), values);
        assert_eq!(from_bytes::<u64>(&bytes[..9]), None);
        assert_eq!(to_bytes(&[0x0102_u16]), [2, 1]);
    }
}
