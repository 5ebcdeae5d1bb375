//! Two ranks' values become one, element by element; and which rank does it for which elements.

use super::call::Kind;
use super::communicator::Reduce;
use bytemuck::{bytes_of, pod_read_unaligned, Pod};
use std::ops::Range;

/// Combines into the values of lower ranks those of the next rank. Both are elements of `kind`, as bytes, as many.
pub(super) fn combine(kind: Kind, reduce: Reduce, lower: &mut [u8], next: &[u8]) {
    match (kind, reduce) {
        (Kind::F32, Reduce::Sum) => fold(lower, next, |a: f32, b| a + b),
        (Kind::F64, Reduce::Sum) => fold(lower, next, |a: f64, b| a + b),
        (Kind::U64, Reduce::Sum) => fold(lower, next, u64::saturating_add),
        (Kind::F32, Reduce::Max) => fold(lower, next, |a: f32, b| if a.is_nan() || a >= b { a } else { b }),
        (Kind::F64, Reduce::Max) => fold(lower, next, |a: f64, b| if a.is_nan() || a >= b { a } else { b }),
        (Kind::U64, Reduce::Max) => fold(lower, next, u64::max),
    }
}

fn fold<T: Pod>(lower: &mut [u8], next: &[u8], f: impl Fn(T, T) -> T) {
    let size = std::mem::size_of::<T>();
    for (a, b) in lower.chunks_exact_mut(size).zip(next.chunks_exact(size)) {
        let combined = f(pod_read_unaligned(a), pod_read_unaligned(b));
        a.copy_from_slice(bytes_of(&combined));
    }
}

/// The slice of `len` elements that a rank combines: all slices are as long as can be, the first ones one longer.
pub(super) fn slice_of(rank: usize, size: usize, len: usize) -> Range<usize> {
    let (each, more) = (len / size, len % size);
    let start = rank * each + rank.min(more);
    start..start + each + usize::from(rank < more)
}
