//! Positions of the bits of masks with AVX-512: one compression finds those of 16 elements at once.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::bits_loops::BLOCK as LANES;
use super::sparse_loops::scan_one;

/// Positions that one compression writes, used or not.
const STEP: usize = 16;

/// [`scan`](super::sparse_loops::scan) with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
pub fn scan(masks: &[u64], positions: &mut [MaybeUninit<u16>]) -> bool {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut written = 0;
    for (index, &mask) in masks.iter().enumerate() {
        if positions.len() - written < LANES {
            // Whole steps could write past the end.
            written = scan_one(mask, index, positions, written);
            continue;
        }
        for part in 0..LANES / STEP {
            let mask = (mask >> (part * STEP)) as u16;
            let first = _mm512_set1_epi32((index * LANES + part * STEP) as i32);
            // In a register, because compressing to memory is slow on AMD.
            let found = _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(lanes, first));
            let narrow = _mm512_cvtepi32_epi16(found);
            // SAFETY: at least 64 positions were left before this mask, and each earlier part took at most 16 of them.
            unsafe { _mm256_storeu_si256(positions.as_mut_ptr().add(written).cast(), narrow) };
            written += mask.count_ones() as usize;
        }
    }
    written == positions.len()
}
