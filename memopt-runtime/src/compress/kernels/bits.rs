//! One bit an element, for tensors of zeros and ones.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::bits_loops::{self, BLOCK};
use super::element::Element;
use super::level::SimdLevel;
use super::memory;
use super::parallel::{self, TASK_ELEMENTS};

/// Words that [`unpack_to`] moves into place at a time.
const WORDS: usize = 32;

/// The 64 bits from bit `start` on: bit `i` of word `k` is number `64k + i`. Those past the end are zero.
#[inline]
pub(crate) fn word_at(words: &[u64], start: usize) -> u64 {
    let (index, shift) = (start / BLOCK, start % BLOCK);
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    match shift {
        0 => word(index),
        _ => word(index) >> shift | word(index + 1) << (BLOCK - shift),
    }
}

/// Writes the elements from number `start` on to `to`, one for each bit of `words`; those past the end are zero.
pub(crate) fn unpack_to<E: Element>(level: SimdLevel, words: &[u64], start: usize, to: &mut [E]) {
    for (chunk, to) in to.chunks_mut(WORDS * BLOCK).enumerate() {
        let mut masks = [0; WORDS];
        let masks = &mut masks[..to.len().div_ceil(BLOCK)];
        for (index, mask) in masks.iter_mut().enumerate() {
            *mask = word_at(words, start + (chunk * WORDS + index) * BLOCK);
        }
        let to: *mut [E::Word] = E::words_mut(to);
        // SAFETY: it is the same slice, borrowed no longer, and `unpack` writes initialized elements to it and nothing else.
        bits_loops::unpack(level, masks, E::ONE, unsafe { &mut *(to as *mut [MaybeUninit<E::Word>]) });
    }
}

/// A tensor of `+0` and `1`, one bit an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    length: usize,
}

impl Bits {
    /// Packs `elements`; `None` if one of them is neither `+0` nor exactly one. That is found while packing, within a
    /// few thousand elements of the first such one, and rules out `-0.0`, NaN and every other value.
    pub fn pack<E: Element>(level: SimdLevel, elements: &[E]) -> Option<Self> {
        let length = elements.len();
        let input = E::words(elements).chunks(TASK_ELEMENTS);
        // SAFETY: the chunks of both sides pair up and cover everything, and a successful `pack` writes all of its.
        let words = unsafe {
            memory::written(length.div_ceil(BLOCK), |output| {
                let tasks = input.zip(output.chunks_mut(TASK_ELEMENTS / BLOCK));
                parallel::all(size_of_val(elements), tasks, |(input, output)| {
                    bits_loops::pack(level, input, E::ONE, output)
                })
            })
        }?;
        Some(Self { words, length })
    }

    /// The elements, in any type.
    pub fn unpack<E: Element>(&self, level: SimdLevel) -> Vec<E> {
        let bytes = self.length * size_of::<E>();
        let input = self.words.chunks(TASK_ELEMENTS / BLOCK);
        // SAFETY: the chunks of both sides pair up and cover everything, and `unpack` writes all of its.
        let elements = unsafe {
            memory::written(self.length, |output| {
                let tasks = input.zip(output.chunks_mut(TASK_ELEMENTS));
                parallel::all(bytes, tasks, |(input, output)| {
                    bits_loops::unpack(level, input, E::ONE, output);
                    true
                })
            })
        };
        E::from_words(elements.unwrap_or_default())
    }

    /// Some of the elements; those past the end are zero.
    pub fn unpack_range<E: Element>(&self, level: SimdLevel, range: std::ops::Range<usize>) -> Vec<E> {
        let words = range.clone().step_by(BLOCK).map(|start| word_at(&self.words, start)).collect();
        Self { words, length: range.len() }.unpack(level)
    }

    /// The bits: bit `i` of word `k` is element `64k + i`; those past the end are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of elements that are one.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Heap bytes kept.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
