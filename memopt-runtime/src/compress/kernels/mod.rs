//! Slice-level codecs for spike tensors: [`Bits`], [`Bytes`] and [`Sparse`].
//!
//! A codec turns a slice of [`Element`]s into something smaller and back into the same bits, or refuses. The result
//! depends on neither the [`SimdLevel`] nor the number of threads.
//!
//! This is pure slice code: it depends on nothing else in memopt and knows no tensors. It holds the only unsafe code
//! of `compress`. Each file that needs some says so at its top: vector units (`bits_avx2`, `bits_avx512`,
//! `sparse_avx512`), the loops around them, and `memory`, which hands out outputs before they are written.

mod bits;
#[cfg(target_arch = "x86_64")]
mod bits_avx2;
#[cfg(target_arch = "x86_64")]
mod bits_avx512;
mod bits_loops;
mod bits_portable;
mod bytes;
mod bytes_loops;
mod element;
mod level;
mod memory;
mod parallel;
mod sparse;
#[cfg(target_arch = "x86_64")]
mod sparse_avx512;
mod sparse_loops;
mod values;
mod word;

#[cfg(test)]
mod tests;

pub use bits::Bits;
pub(crate) use bits::{unpack_to, word_at};
pub use bytes::Bytes;
pub use element::Element;
pub use level::SimdLevel;
pub(crate) use memory::{advise_huge_pages, copied, written};
pub use sparse::Sparse;
