//! The loops of [`Sparse`](super::Sparse) over one block.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::bits_loops::{compare_tail, Lanes, BLOCK as LANES};
use super::bits_portable::Portable;
use super::level::SimdLevel;
use super::word::Word;

/// Elements of a block: as many as 16 bits can tell apart.
pub const BLOCK: usize = 1 << 16;

/// Masks of a block, one bit an element.
pub const BLOCK_MASKS: usize = BLOCK / LANES;

/// What a block holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of elements whose bit pattern is not zero.
    pub nonzero: u32,
    /// Whether one of these is not exactly one.
    pub others: bool,
}

/// Compares a block with zero and `one`; `masks` gets a bit for each element whose bit pattern is not zero.
pub fn compare<W: Word>(level: SimdLevel, words: &[W], one: W, masks: &mut [u64; BLOCK_MASKS]) -> Tally {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { compare_avx512(words, one, masks) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { compare_avx2(words, one, masks) },
        // SAFETY: every machine has this unit.
        _ => unsafe { compare_lanes::<Portable, W>(words, one, masks) },
    }
}

/// Writes the positions of all bits of a block's `masks`, in order. Returns whether these filled `positions`, and
/// drops what does not fit.
pub fn scan(level: SimdLevel, masks: &[u64], positions: &mut [MaybeUninit<u16>]) -> bool {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { super::sparse_avx512::scan(masks, positions) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { scan_avx2(masks, positions) },
        _ => scan_all(masks, positions),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
fn compare_avx512<W: Word>(words: &[W], one: W, masks: &mut [u64; BLOCK_MASKS]) -> Tally {
    // SAFETY: this function has the features of the vector unit.
    unsafe { compare_lanes::<W::Avx512, W>(words, one, masks) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn compare_avx2<W: Word>(words: &[W], one: W, masks: &mut [u64; BLOCK_MASKS]) -> Tally {
    // SAFETY: this function has the features of the vector unit.
    unsafe { compare_lanes::<W::Avx2, W>(words, one, masks) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn scan_avx2(masks: &[u64], positions: &mut [MaybeUninit<u16>]) -> bool {
    scan_all(masks, positions)
}

/// [`compare`] with the vector unit `L`.
///
/// # Safety
///
/// The machine has the vector unit.
#[inline(always)]
unsafe fn compare_lanes<L: Lanes<W>, W: Word>(words: &[W], one: W, output: &mut [u64; BLOCK_MASKS]) -> Tally {
    let mut nonzero = 0;
    let mut others = 0;
    let (blocks, tail) = words.as_chunks::<LANES>();
    for (block, output) in blocks.iter().zip(output.iter_mut()) {
        // SAFETY: as the caller promises.
        let masks = unsafe { L::compare(block, one) };
        nonzero += masks.nonzero.count_ones();
        others |= masks.ones ^ masks.nonzero;
        *output = masks.nonzero;
    }
    if let Some(output) = output.get_mut(blocks.len()) {
        let masks = compare_tail(tail, one);
        nonzero += masks.nonzero.count_ones();
        others |= masks.ones ^ masks.nonzero;
        *output = masks.nonzero;
    }
    Tally { nonzero, others: others != 0 }
}

#[inline(always)]
fn scan_all(masks: &[u64], positions: &mut [MaybeUninit<u16>]) -> bool {
    let mut written = 0;
    for (index, &mask) in masks.iter().enumerate() {
        written = scan_one(mask, index, positions, written);
    }
    written == positions.len()
}

/// Writes the positions of the bits of the mask with this `index` from `written` on, as far as they fit, and returns
/// how many positions are written then.
#[inline(always)]
pub fn scan_one(mask: u64, index: usize, positions: &mut [MaybeUninit<u16>], mut written: usize) -> usize {
    let mut rest = mask;
    while rest != 0 {
        let Some(position) = positions.get_mut(written) else { break };
        position.write((index * LANES) as u16 + rest.trailing_zeros() as u16);
        rest &= rest - 1;
        written += 1;
    }
    written
}

/// Copies the elements at `positions` to `values`, which is as long. Returns whether all positions lie in `words`.
pub fn gather<W: Word>(words: &[W], positions: &[u16], values: &mut [MaybeUninit<W>]) -> bool {
    for (&position, value) in positions.iter().zip(values) {
        let Some(&word) = words.get(usize::from(position)) else { return false };
        value.write(word);
    }
    true
}

/// Writes every element of a block: the next of `values` at each of `positions`, zero elsewhere.
pub fn scatter<W: Word>(
    positions: &[u16],
    values: impl Iterator<Item = W>,
    output: &mut [MaybeUninit<W>],
) -> bool {
    output.fill(MaybeUninit::new(W::ZERO));
    for (&position, value) in positions.iter().zip(values) {
        let Some(element) = output.get_mut(usize::from(position)) else { return false };
        element.write(value);
    }
    true
}
