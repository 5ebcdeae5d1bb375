//! Positions of the nonzero elements, and their values where these are not all one.
#![allow(unsafe_code)]

use std::iter;
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::bits::Bits;
use super::element::Element;
use super::level::SimdLevel;
use super::memory;
use super::parallel;
use super::sparse_loops::{self, BLOCK, BLOCK_MASKS};
use super::values::Values;
use super::word::Word;

/// A tensor of mostly `+0`: where the other bit patterns are, in blocks of 65,536 elements, and what they are.
///
/// Every bit pattern comes back exactly, NaN payloads and `-0.0` included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse {
    length: usize,
    /// Nonzero elements of each block.
    counts: Vec<u32>,
    /// Their offsets in their blocks.
    positions: Vec<u16>,
    values: Values,
}

impl Sparse {
    /// Packs `elements`; `None` as soon as that is known to take no fewer bytes than they do. Sizes are counted before
    /// anything is stored, so no more than the result is ever allocated.
    pub fn pack<E: Element>(level: SimdLevel, elements: &[E]) -> Option<Self> {
        let raw_bytes = size_of_val(elements);
        let words = E::words(elements);
        let (counts, others) = count(level, words, E::ONE, raw_bytes)?;
        let blocks = words.chunks(BLOCK);
        let positions = fill(raw_bytes, &counts, blocks.clone(), |block, positions| {
            let mut masks = [0; BLOCK_MASKS];
            sparse_loops::compare(level, block, E::ONE, &mut masks);
            sparse_loops::scan(level, &masks, positions)
        })?;
        let values = if others {
            let places = blocks.zip(split(&positions, &counts));
            E::Word::store(fill(raw_bytes, &counts, places, |(block, positions), values| {
                sparse_loops::gather(block, positions, values)
            })?)
        } else {
            Values::Ones
        };
        Some(Self { length: elements.len(), counts, positions, values })
    }

    /// The same elements, found from their bits.
    pub fn from_bits(level: SimdLevel, bits: &Bits) -> Self {
        let blocks = bits.words().chunks(BLOCK_MASKS);
        let counts: Vec<u32> =
            blocks.clone().map(|block| block.iter().map(|mask| mask.count_ones()).sum()).collect();
        let positions =
            fill(bits.len(), &counts, blocks, |block, positions| sparse_loops::scan(level, block, positions));
        // `scan` finds as many positions as were counted, so there always are some.
        Self { length: bits.len(), counts, positions: positions.unwrap_or_default(), values: Values::Ones }
    }

    /// The elements; `None` if values are kept and are not of the width of `E`. Where values are kept, `E` must be the
    /// type that was packed for them to mean the same.
    pub fn unpack<E: Element>(&self) -> Option<Vec<E>> {
        let raw_bytes = self.length * size_of::<E>();
        let places = split(&self.positions, &self.counts);
        let write = |output: &mut [_]| match &self.values {
            Values::Ones => {
                parallel::all(raw_bytes, places.zip(output.chunks_mut(BLOCK)), |(places, output)| {
                    sparse_loops::scatter(places, iter::repeat(E::ONE), output)
                })
            }
            values => E::Word::load(values).is_some_and(|values| {
                let places = places.zip(split(values, &self.counts));
                parallel::all(
                    raw_bytes,
                    places.zip(output.chunks_mut(BLOCK)),
                    |((places, values), output)| {
                        sparse_loops::scatter(places, values.iter().copied(), output)
                    },
                )
            }),
        };
        // SAFETY: there is a count for each chunk of the output, and `scatter` writes all of its chunk.
        let words = unsafe { memory::written(self.length, write) }?;
        Some(E::from_words(words))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of elements whose bit pattern is not zero.
    pub fn count(&self) -> usize {
        self.positions.len()
    }

    /// Heap bytes kept.
    pub fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u32>()
            + self.positions.capacity() * size_of::<u16>()
            + self.values.bytes()
    }

    /// What [`Sparse::bytes`] is for a tensor of `length` elements of which `count` are one and the others zero.
    pub fn bytes_for_ones(count: usize, length: usize) -> usize {
        count.saturating_mul(size_of::<u16>()).saturating_add(length.div_ceil(BLOCK) * size_of::<u32>())
    }
}

/// Nonzero elements of each block, and whether one of them is not exactly `one`; `None` as soon as that takes no fewer
/// than `raw_bytes`.
fn count<W: Word>(level: SimdLevel, words: &[W], one: W, raw_bytes: usize) -> Option<(Vec<u32>, bool)> {
    let mut counts = vec![0; words.len().div_ceil(BLOCK)];
    let total = AtomicUsize::new(0);
    let others = AtomicBool::new(false);
    let smaller = || {
        let total = total.load(Relaxed);
        let values = if others.load(Relaxed) { total * size_of::<W>() } else { 0 };
        Sparse::bytes_for_ones(total, words.len()) + values < raw_bytes
    };
    let tasks = words.chunks(BLOCK).zip(&mut counts);
    let fits = parallel::all(raw_bytes, tasks, |(block, count)| {
        let tally = sparse_loops::compare(level, block, one, &mut [0; BLOCK_MASKS]);
        *count = tally.nonzero;
        total.fetch_add(tally.nonzero as usize, Relaxed);
        others.fetch_or(tally.others, Relaxed);
        smaller()
    });
    // Once more, because an empty tensor has no blocks and each block saw only some of the others.
    let fits = fits && smaller();
    fits.then(|| (counts, others.into_inner()))
}

/// A vector of as many items as `counts` sum to, of which `write` writes those of each block or returns `false`.
fn fill<T: Send, B: Send>(
    raw_bytes: usize,
    counts: &[u32],
    blocks: impl Iterator<Item = B>,
    write: impl Fn(B, &mut [std::mem::MaybeUninit<T>]) -> bool + Send + Sync,
) -> Option<Vec<T>> {
    let total = counts.iter().map(|&count| count as usize).sum();
    // SAFETY: the slices cover the output, one for each block, and `write` vouches for each.
    unsafe {
        memory::written(total, |mut output| {
            let slices = counts.iter().map(|&count| {
                let (slice, rest) = take(&mut output).split_at_mut(count as usize);
                output = rest;
                slice
            });
            parallel::all(raw_bytes, blocks.zip(slices), |(block, slice)| write(block, slice))
        })
    }
}

/// The items of each block.
fn split<'a, T>(mut items: &'a [T], counts: &'a [u32]) -> impl Iterator<Item = &'a [T]> {
    counts.iter().map(move |&count| {
        let (slice, rest) = items.split_at(count as usize);
        items = rest;
        slice
    })
}
