//! Rows of spikes as bits.

use crate::compress::kernels::{Bits, Element, SimdLevel};
use std::ops::Range;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// Rows of zeros and ones, one bit an element. Rows begin at a word of their own: bit `i` of word `k` is element `64k + i`,
/// and bits past the width are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpikeRows {
    words: Vec<u64>,
    width: usize,
}

impl SpikeRows {
    /// No rows, of a width of at least one.
    pub fn new(width: usize) -> Self {
        SpikeRows { words: Vec::new(), width: width.max(1) }
    }

    /// Adds a row, unless an element is neither `+0` nor exactly one, or more than `most` are one; whether it did.
    pub fn push<E: Element>(&mut self, level: SimdLevel, row: &[E], most: usize) -> bool {
        debug_assert_eq!(row.len(), self.width);
        let few = Bits::pack(level, row).filter(|bits| bits.count_ones() <= most);
        few.is_some_and(|bits| {
            self.words.extend_from_slice(bits.words());
            true
        })
    }

    /// All rows, row-major; `None` if an element is neither `+0` nor exactly one, or more than `most` are one.
    pub fn of_floats<E: Element>(level: SimdLevel, values: &[E], width: usize, most: usize) -> Option<Self> {
        let bits = Bits::pack(level, values).filter(|bits| bits.count_ones() <= most)?;
        Some(Self::of_bits(bits.words(), 0, bits.len(), width))
    }

    /// Of `len` elements, row-major, one bit each: element `i` is bit `(start + i) % 64` of word `(start + i) / 64`. Bits
    /// beyond the end of `bits` are zero.
    pub fn of_bits(bits: &[u64], start: usize, len: usize, width: usize) -> Self {
        let mut rows = SpikeRows::new(width);
        rows.words.reserve(len / rows.width * rows.per_row());
        let word = |index: usize| bits.get(index).copied().unwrap_or_default();
        for row in (start..start + len).step_by(rows.width) {
            for first in (0..rows.width).step_by(BITS) {
                let (index, shift) = ((row + first) / BITS, (row + first) % BITS);
                let high = if shift == 0 { 0 } else { word(index + 1) << (BITS - shift) };
                let count = (rows.width - first).min(BITS);
                rows.words.push((word(index) >> shift | high) & (u64::MAX >> (BITS - count)));
            }
        }
        rows
    }

    /// Number of ones.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Columns of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Words of a row.
    pub fn per_row(&self) -> usize {
        self.width.div_ceil(BITS)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.words.len() / self.per_row()
    }

    /// The words of some rows.
    pub fn words(&self, rows: Range<usize>) -> &[u64] {
        let words = self.per_row();
        &self.words[rows.start * words..rows.end * words]
    }

    /// Columns as rows.
    pub fn transposed(&self) -> Self {
        let mut columns = SpikeRows::new(self.len());
        let words = columns.per_row();
        columns.words = vec![0; self.width * words];
        for (row, spikes) in self.words.chunks_exact(self.per_row()).enumerate() {
            let (word, bit) = (row / BITS, 1 << (row % BITS));
            for_each_spike(spikes, |column| columns.words[column * words + word] |= bit);
        }
        columns
    }
}

/// Visits the set bits of words, in ascending order.
#[inline(always)]
fn for_each_spike(words: &[u64], mut visit: impl FnMut(usize)) {
    for (index, &word) in words.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            visit(index * BITS + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}
