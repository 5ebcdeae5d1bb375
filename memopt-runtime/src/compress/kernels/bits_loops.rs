//! The loops of [`Bits`](super::Bits) over one task, for any vector unit.
//!
//! A vector unit handles 64 elements at a time through [`Lanes`]; the loops do the rest: early exit and the
//! tail.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::bits_portable::Portable;
use super::level::SimdLevel;
use super::word::Word;

/// Elements that one `u64` describes.
pub const BLOCK: usize = 64;

/// Blocks between two checks for elements that are neither zero nor one.
const GROUP: usize = 32;

/// What a comparison of 64 elements tells, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Which are exactly one.
    pub ones: u64,
    /// Which bit patterns are not zero.
    pub nonzero: u64,
}

/// A vector unit for words of type `W`.
pub trait Lanes<W: Word> {
    /// Compares 64 elements with zero and one.
    ///
    /// # Safety
    ///
    /// The machine has the vector unit.
    unsafe fn compare(block: &[W; BLOCK], one: W) -> Masks;

    /// The mask of ones of 64 elements, and a number that is zero if all others are zero. Cheaper than
    /// [`Lanes::compare`] where that has to collect two masks.
    ///
    /// # Safety
    ///
    /// The machine has the vector unit.
    #[inline(always)]
    unsafe fn ones(block: &[W; BLOCK], one: W) -> (u64, u64) {
        // SAFETY: as the caller promises.
        let masks = unsafe { Self::compare(block, one) };
        (masks.ones, masks.ones ^ masks.nonzero)
    }

    /// Writes `one` where `mask` has a bit, zero elsewhere: all 64 elements.
    ///
    /// # Safety
    ///
    /// The machine has the vector unit.
    unsafe fn expand(mask: u64, one: W, block: &mut [MaybeUninit<W>; BLOCK]);
}

/// Writes the `ones` mask of each 64 `words` to `output`, which has exactly as many. Returns `false`, and may leave
/// some of `output` unwritten, if a word is neither zero nor `one`.
pub fn pack<W: Word>(level: SimdLevel, words: &[W], one: W, output: &mut [MaybeUninit<u64>]) -> bool {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { super::bits_avx512::pack(words, one, output) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { super::bits_avx2::pack(words, one, output) },
        // SAFETY: every machine has this unit.
        _ => unsafe { pack_lanes::<Portable, W>(words, one, output) },
    }
}

/// Writes every element of `output`: `one` where `masks` has a bit, zero elsewhere.
pub fn unpack<W: Word>(level: SimdLevel, masks: &[u64], one: W, output: &mut [MaybeUninit<W>]) {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { super::bits_avx512::unpack(masks, one, output) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { super::bits_avx2::unpack(masks, one, output) },
        // SAFETY: every machine has this unit.
        _ => unsafe { unpack_lanes::<Portable, W>(masks, one, output) },
    }
}

/// [`pack`] with the vector unit `L`.
///
/// # Safety
///
/// The machine has the vector unit.
#[inline(always)]
pub unsafe fn pack_lanes<L: Lanes<W>, W: Word>(words: &[W], one: W, output: &mut [MaybeUninit<u64>]) -> bool {
    let (blocks, tail) = words.as_chunks::<BLOCK>();
    let (full, partial) = output.split_at_mut(blocks.len());
    for (blocks, output) in blocks.chunks(GROUP).zip(full.chunks_mut(GROUP)) {
        let mut others = 0;
        for (block, output) in blocks.iter().zip(output) {
            // SAFETY: as the caller promises.
            let (ones, other) = unsafe { L::ones(block, one) };
            others |= other;
            output.write(ones);
        }
        if others != 0 {
            return false;
        }
    }
    let masks = compare_tail(tail, one);
    if let Some(output) = partial.first_mut() {
        output.write(masks.ones);
    }
    masks.ones == masks.nonzero
}

/// [`Lanes::compare`] for fewer than 64 elements; the bits of missing ones are zero.
pub fn compare_tail<W: Word>(tail: &[W], one: W) -> Masks {
    let mut masks = Masks::default();
    for (index, &word) in tail.iter().enumerate() {
        masks.ones |= u64::from(word == one) << index;
        masks.nonzero |= u64::from(word != W::ZERO) << index;
    }
    masks
}

/// [`unpack`] with the vector unit `L`.
///
/// # Safety
///
/// The machine has the vector unit.
#[inline(always)]
pub unsafe fn unpack_lanes<L: Lanes<W>, W: Word>(masks: &[u64], one: W, output: &mut [MaybeUninit<W>]) {
    let (blocks, tail) = output.as_chunks_mut::<BLOCK>();
    let (full, partial) = masks.split_at(blocks.len());
    for (&mask, block) in full.iter().zip(blocks) {
        // SAFETY: as the caller promises.
        unsafe { L::expand(mask, one, block) };
    }
    if let Some(&mask) = partial.first() {
        for (index, element) in tail.iter_mut().enumerate() {
            element.write(if mask >> index & 1 == 1 { one } else { W::ZERO });
        }
    }
}
