//! The AVX2 vector unit: comparisons give vectors of all-ones lanes, whose top bits are collected into masks.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::bits_loops::{pack_lanes, unpack_lanes, Lanes, Masks, BLOCK};
use super::word::Word;

/// AVX2, BMI1, BMI2 and POPCNT.
pub struct Avx2;

macro_rules! lanes {
    ($word:ty, $signed:ty, $count:literal, $splat:ident, $equal:ident, $collect:ident, $spread:ident) => {
        impl Lanes<$word> for Avx2 {
            #[inline]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
            unsafe fn compare(block: &[$word; BLOCK], one: $word) -> Masks {
                let one = $splat(one as $signed);
                let mut ones = 0;
                let mut zeros = 0;
                for (index, lanes) in block.as_chunks::<$count>().0.iter().enumerate() {
                    // SAFETY: reads exactly the 32 bytes of `lanes`.
                    let lanes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
                    ones |= $collect($equal(lanes, one)) << (index * $count);
                    zeros |= $collect($equal(lanes, _mm256_setzero_si256())) << (index * $count);
                }
                Masks { ones, nonzero: !zeros }
            }

            #[inline]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
            unsafe fn ones(block: &[$word; BLOCK], one: $word) -> (u64, u64) {
                let one = $splat(one as $signed);
                let mut ones = 0;
                let mut valid = _mm256_set1_epi8(-1);
                for (index, lanes) in block.as_chunks::<$count>().0.iter().enumerate() {
                    // SAFETY: reads exactly the 32 bytes of `lanes`.
                    let lanes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
                    let equal = $equal(lanes, one);
                    let zero = $equal(lanes, _mm256_setzero_si256());
                    ones |= $collect(equal) << (index * $count);
                    valid = _mm256_and_si256(valid, _mm256_or_si256(equal, zero));
                }
                (ones, u64::from(!_mm256_movemask_epi8(valid) as u32))
            }

            #[inline]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
            unsafe fn expand(mask: u64, one: $word, block: &mut [MaybeUninit<$word>; BLOCK]) {
                let one = $splat(one as $signed);
                for (index, lanes) in block.as_chunks_mut::<$count>().0.iter_mut().enumerate() {
                    let selected = _mm256_and_si256($spread(mask >> (index * $count)), one);
                    // SAFETY: writes exactly the 32 bytes of `lanes`.
                    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), selected) };
                }
            }
        }
    };
}

lanes!(u8, i8, 32, _mm256_set1_epi8, _mm256_cmpeq_epi8, collect_8, spread_8);
lanes!(u16, i16, 16, _mm256_set1_epi16, _mm256_cmpeq_epi16, collect_16, spread_16);
lanes!(u32, i32, 8, _mm256_set1_epi32, _mm256_cmpeq_epi32, collect_32, spread_32);
lanes!(u64, i64, 4, _mm256_set1_epi64x, _mm256_cmpeq_epi64, collect_64, spread_64);

/// The top bit of each lane of 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn collect_8(lanes: __m256i) -> u64 {
    u64::from(_mm256_movemask_epi8(lanes) as u32)
}

/// The top bit of each lane of 16 bits, which is all zeros or all ones.
#[inline]
#[target_feature(enable = "avx2")]
fn collect_16(lanes: __m256i) -> u64 {
    // Narrows to bytes; 128 bits, because packing 256 would interleave the halves.
    let narrow = _mm_packs_epi16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    u64::from(_mm_movemask_epi8(narrow) as u32)
}

/// The top bit of each lane of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn collect_32(lanes: __m256i) -> u64 {
    u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u32)
}

/// The top bit of each lane of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn collect_64(lanes: __m256i) -> u64 {
    u64::from(_mm256_movemask_pd(_mm256_castsi256_pd(lanes)) as u32)
}

/// All ones in each of 32 lanes of 8 bits whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_8(mask: u64) -> __m256i {
    // Each byte of the mask goes to the eight lanes of which it holds the bits.
    let byte = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(mask as i32), byte);
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
}

/// All ones in each of 16 lanes of 16 bits whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_16(mask: u64) -> __m256i {
    let bit = _mm256_setr_epi16(
        1,
        1 << 1,
        1 << 2,
        1 << 3,
        1 << 4,
        1 << 5,
        1 << 6,
        1 << 7,
        1 << 8,
        1 << 9,
        1 << 10,
        1 << 11,
        1 << 12,
        1 << 13,
        1 << 14,
        i16::MIN,
    );
    _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(mask as i16), bit), bit)
}

/// All ones in each of 8 lanes of 32 bits whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_32(mask: u64) -> __m256i {
    let bit = _mm256_setr_epi32(1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7);
    _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask as i32), bit), bit)
}

/// All ones in each of 4 lanes of 64 bits whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_64(mask: u64) -> __m256i {
    let bit = _mm256_setr_epi64x(1, 1 << 1, 1 << 2, 1 << 3);
    _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(mask as i64), bit), bit)
}

/// [`pack`](super::bits_loops::pack) with AVX2.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn pack<W: Word>(words: &[W], one: W, output: &mut [MaybeUninit<u64>]) -> bool {
    // SAFETY: this function has the features of the vector unit.
    unsafe { pack_lanes::<W::Avx2, W>(words, one, output) }
}

/// [`unpack`](super::bits_loops::unpack) with AVX2.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn unpack<W: Word>(masks: &[u64], one: W, output: &mut [MaybeUninit<W>]) {
    // SAFETY: this function has the features of the vector unit.
    unsafe { unpack_lanes::<W::Avx2, W>(masks, one, output) }
}
