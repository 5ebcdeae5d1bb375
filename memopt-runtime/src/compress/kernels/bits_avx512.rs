//! The AVX-512 vector unit: comparisons give masks, and masks select vectors.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::bits_loops::{pack_lanes, unpack_lanes, Lanes, Masks, BLOCK};
use super::word::Word;

/// AVX-512 F, BW, VL and DQ.
pub struct Avx512;

macro_rules! lanes {
    ($word:ty, $signed:ty, $mask:ty, $count:literal, $splat:ident, $test:ident, $equal:ident, $select:ident) => {
        impl Lanes<$word> for Avx512 {
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
            unsafe fn compare(block: &[$word; BLOCK], one: $word) -> Masks {
                let one = $splat(one as $signed);
                let mut masks = Masks::default();
                for (index, lanes) in block.as_chunks::<$count>().0.iter().enumerate() {
                    // SAFETY: reads exactly the 64 bytes of `lanes`.
                    let lanes = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
                    masks.ones |= u64::from($equal(lanes, one)) << (index * $count);
                    masks.nonzero |= u64::from($test(lanes, lanes)) << (index * $count);
                }
                masks
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
            unsafe fn expand(mask: u64, one: $word, block: &mut [MaybeUninit<$word>; BLOCK]) {
                let one = $splat(one as $signed);
                for (index, lanes) in block.as_chunks_mut::<$count>().0.iter_mut().enumerate() {
                    let selected = $select((mask >> (index * $count)) as $mask, one);
                    // SAFETY: writes exactly the 64 bytes of `lanes`.
                    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), selected) };
                }
            }
        }
    };
}

lanes!(
    u8,
    i8,
    u64,
    64,
    _mm512_set1_epi8,
    _mm512_test_epi8_mask,
    _mm512_cmpeq_epi8_mask,
    _mm512_maskz_mov_epi8
);
lanes!(
    u16,
    i16,
    u32,
    32,
    _mm512_set1_epi16,
    _mm512_test_epi16_mask,
    _mm512_cmpeq_epi16_mask,
    _mm512_maskz_mov_epi16
);
lanes!(
    u32,
    i32,
    u16,
    16,
    _mm512_set1_epi32,
    _mm512_test_epi32_mask,
    _mm512_cmpeq_epi32_mask,
    _mm512_maskz_mov_epi32
);
lanes!(
    u64,
    i64,
    u8,
    8,
    _mm512_set1_epi64,
    _mm512_test_epi64_mask,
    _mm512_cmpeq_epi64_mask,
    _mm512_maskz_mov_epi64
);

/// [`pack`](super::bits_loops::pack) with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
pub fn pack<W: Word>(words: &[W], one: W, output: &mut [MaybeUninit<u64>]) -> bool {
    // SAFETY: this function has the features of the vector unit.
    unsafe { pack_lanes::<W::Avx512, W>(words, one, output) }
}

/// [`unpack`](super::bits_loops::unpack) with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
pub fn unpack<W: Word>(masks: &[u64], one: W, output: &mut [MaybeUninit<W>]) {
    // SAFETY: this function has the features of the vector unit.
    unsafe { unpack_lanes::<W::Avx512, W>(masks, one, output) }
}
