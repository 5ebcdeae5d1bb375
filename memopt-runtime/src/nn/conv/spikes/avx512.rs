//! The inner loops in AVX-512: the kernel's nine elements of 32 channels stay in 18 registers.
#![allow(unsafe_code)]

use super::{Walk, AREA, LANES};
use std::arch::x86_64::*;

/// Registers of a kernel.
const REGISTERS: usize = AREA * 2;

/// Checks that the rows of lanes around every spike of `walk` lie within `image` elements.
fn check(walk: &Walk<'_>, image: usize) {
    let cut = walk.cut;
    assert!(cut.row == (cut.width + 2) * LANES && (walk.rows.len() + 2) * cut.row <= image);
    assert!(walk.masks.iter().all(|masks| masks.width() == cut.width));
}

/// See [`super::scatter::scatter`].
pub(super) fn scatter(walk: &Walk<'_>, weights: &[f32], to: &mut [f32], image: usize) {
    check(walk, image);
    // SAFETY: the caller has found AVX-512; the rows around every spike lie within those of its image.
    unsafe { scatter_within(walk, weights, to, image) }
}

/// See [`super::gather::gather`].
pub(super) fn gather(walk: &Walk<'_>, (rows, image): (&[f32], usize), begin: &[f32], sums: &mut [f32]) {
    check(walk, image);
    // SAFETY: the caller has found AVX-512; the rows around every spike lie within those of its image.
    unsafe { gather_within(walk, (rows, image), begin, sums) }
}

/// Runs `$body` for each of the nine places around a spike, as a constant: its distance in rows and in columns, and its
/// first register. Kernel element `(y, x)` is two rows and columns before `(2 - y, 2 - x)`.
macro_rules! for_each_place {
    (|$row:ident, $column:ident, $register:ident| $body:expr) => {
        for_each_place!(@ $row $column $register $body;
            0 0 16, 0 1 14, 0 2 12, 1 0 10, 1 1 8, 1 2 6, 2 0 4, 2 1 2, 2 2 0)
    };
    (@ $row:ident $column:ident $register:ident $body:expr; $($y:literal $x:literal $first:literal),*) => {
        $({
            let ($row, $column, $register) = ($y, $x, $first);
            $body
        })*
    };
}

/// # Safety
///
/// `(walk.rows.len() + 2) * walk.cut.row <= image`, the rows have room for two columns more than the masks, and the masks
/// have no bits past their width.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
unsafe fn scatter_within(walk: &Walk<'_>, weights: &[f32], to: &mut [f32], image: usize) {
    let (row, words) = (walk.cut.row, walk.words());
    for (channel, kernel) in weights.as_chunks::<{ AREA * LANES }>().0.iter().enumerate() {
        for (masks, to) in walk.masks.iter().zip(to.chunks_exact_mut(image)) {
            let masks = walk.of(masks, channel);
            if masks.iter().fold(0, |any, word| any | word) == 0 {
                continue;
            }
            let kernel = load(kernel);
            for (index, words) in masks.chunks_exact(words).enumerate() {
                for (first, &word) in words.iter().enumerate() {
                    let mut word = word;
                    while word != 0 {
                        let column = first * 64 + word.trailing_zeros() as usize;
                        word &= word - 1;
                        // SAFETY: three rows from `index` on and three columns from `column` on, 32 lanes each, lie within
                        // `to`: the index is less than the number of rows, the column less than the width.
                        unsafe {
                            let corner = to.as_mut_ptr().add(index * row + column * LANES);
                            for_each_place!(|y, x, register| {
                                let place = corner.add(y * row + x * LANES);
                                let sum = _mm512_add_ps(_mm512_loadu_ps(place), kernel[register]);
                                _mm512_storeu_ps(place, sum);
                                let place = place.add(16);
                                let sum = _mm512_add_ps(_mm512_loadu_ps(place), kernel[register + 1]);
                                _mm512_storeu_ps(place, sum);
                            });
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
///
/// As [`scatter_within`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
unsafe fn gather_within(walk: &Walk<'_>, (rows, image): (&[f32], usize), begin: &[f32], sums: &mut [f32]) {
    let (row, words) = (walk.cut.row, walk.words());
    let clean = begin.iter().all(|&value| value == 0.);
    for (channel, sums) in sums.as_chunks_mut::<{ AREA * LANES }>().0.iter_mut().enumerate() {
        let images = walk.masks.iter().zip(rows.chunks_exact(image)).zip(begin.as_chunks::<LANES>().0);
        for ((masks, rows), begin) in images.rev() {
            let masks = walk.of(masks, channel);
            let none = masks.iter().fold(0, |any, word| any | word) == 0;
            if none && (clean || begin.iter().all(|&value| value == 0.)) {
                continue;
            }
            // SAFETY: `begin` is 32 lanes.
            let begin = unsafe { [_mm512_loadu_ps(begin.as_ptr()), _mm512_loadu_ps(begin.as_ptr().add(16))] };
            let mut sum: [__m512; REGISTERS] = std::array::from_fn(|register| begin[register % 2]);
            for (index, words) in masks.chunks_exact(words).enumerate() {
                for (first, &word) in words.iter().enumerate() {
                    let mut word = word;
                    while word != 0 {
                        let column = first * 64 + word.trailing_zeros() as usize;
                        word &= word - 1;
                        // SAFETY: three rows from `index` on and three columns from `column` on, 32 lanes each, lie within
                        // `rows`: the index is less than the number of rows, the column less than the width.
                        unsafe {
                            let corner = rows.as_ptr().add(index * row + column * LANES);
                            for_each_place!(|y, x, register| {
                                let place = corner.add(y * row + x * LANES);
                                sum[register] = _mm512_add_ps(sum[register], _mm512_loadu_ps(place));
                                let next = _mm512_loadu_ps(place.add(16));
                                sum[register + 1] = _mm512_add_ps(sum[register + 1], next);
                            });
                        }
                    }
                }
            }
            let before = load(sums);
            for (register, (sum, before)) in sum.iter().zip(before).enumerate() {
                // SAFETY: `sums` are as many elements as the registers hold.
                unsafe {
                    let place = sums.as_mut_ptr().add(register * 16);
                    _mm512_storeu_ps(place, _mm512_add_ps(before, *sum));
                }
            }
        }
    }
}

/// A kernel in registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(kernel: &[f32; AREA * LANES]) -> [__m512; REGISTERS] {
    // SAFETY: the kernel is as many elements as the registers hold.
    std::array::from_fn(|register| unsafe { _mm512_loadu_ps(kernel.as_ptr().add(register * 16)) })
}
