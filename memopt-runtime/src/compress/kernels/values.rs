//! The values of a sparse tensor that are not all one.

use std::mem::size_of;

/// Bit patterns of the nonzero elements, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Every nonzero element is exactly one: nothing is kept.
    Ones,
    /// Of one byte each.
    Width8(Vec<u8>),
    /// Of two bytes each.
    Width16(Vec<u16>),
    /// Of four bytes each.
    Width32(Vec<u32>),
    /// Of eight bytes each.
    Width64(Vec<u64>),
}

impl Values {
    /// Heap bytes kept.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Ones => 0,
            Self::Width8(values) => values.capacity(),
            Self::Width16(values) => values.capacity() * size_of::<u16>(),
            Self::Width32(values) => values.capacity() * size_of::<u32>(),
            Self::Width64(values) => values.capacity() * size_of::<u64>(),
        }
    }
}
