//! Where the spikes of an image are.

use crate::compress::kernels::{word_at, Bits, Element, SimdLevel};
use std::ops::Range;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// A bit for each pixel of an image of zeros and ones, set for a one. Rows begin at a word of their own: bit `i` of word
/// `k` is column `64k + i`, and bits past the width are zero. The rows of the channels follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nn::conv) struct SpikeMasks {
    words: Vec<u64>,
    width: usize,
    ones: usize,
}

impl SpikeMasks {
    /// Of an image; `None` if an element is neither `+0` nor exactly one.
    pub fn from_floats<E: Element>(level: SimdLevel, image: &[E], width: usize) -> Option<Self> {
        let bits = Bits::pack(level, image)?;
        Some(Self::from_bits(bits.words(), 0, bits.len(), width))
    }

    /// Of `len` elements in row-major order, one bit each: element `i` of the image is bit `start + i`, that is bit
    /// `(start + i) % 64` of word `(start + i) / 64`. Bits beyond the end of `bits` are zero.
    pub fn from_bits(bits: &[u64], start: usize, len: usize, width: usize) -> Self {
        let mut words = Vec::with_capacity(len / width.max(1) * Self::words_of(width));
        let mut ones = 0;
        for row in (start..start + len).step_by(width.max(1)) {
            for first in (0..width).step_by(BITS) {
                let count = (width - first).min(BITS);
                let mask = word_at(bits, row + first) & (u64::MAX >> (BITS - count));
                ones += mask.count_ones() as usize;
                words.push(mask);
            }
        }
        SpikeMasks { words, width, ones }
    }

    /// Words of a row.
    pub fn words_of(width: usize) -> usize {
        width.div_ceil(BITS)
    }

    /// The words of some rows. No bit past the width is set.
    pub fn rows(&self, rows: Range<usize>) -> &[u64] {
        let words = Self::words_of(self.width);
        &self.words[rows.start * words..rows.end * words]
    }

    /// Columns of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of spikes.
    pub fn ones(&self) -> usize {
        self.ones
    }
}
