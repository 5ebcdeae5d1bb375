//! The transposes in AVX-512: 16 channels by 16 pixels in registers.
#![allow(unsafe_code)]

use super::{Span, LANES};
use std::arch::x86_64::*;

/// See [`super::to_lanes`]; whole halves of 16 lanes.
pub(super) fn to_lanes(planes: &[f32], span: Span, rows: &mut [f32]) {
    assert!(span.fits(planes.len(), rows.len()) && span.lanes.is_multiple_of(16));
    // SAFETY: the caller has found AVX-512; the span lies within both slices.
    unsafe { to_lanes_within(planes, span, rows) }
}

/// See [`super::from_lanes`]; whole halves of 16 lanes.
pub(super) fn from_lanes(rows: &[f32], add: Option<&[f32; LANES]>, planes: &mut [f32], span: Span) {
    assert!(span.fits(planes.len(), rows.len()) && span.lanes.is_multiple_of(16));
    // SAFETY: the caller has found AVX-512; the span lies within both slices.
    unsafe { from_lanes_within(rows, add, planes, span) }
}

/// # Safety
///
/// The span lies within both slices, and has a multiple of 16 lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
unsafe fn to_lanes_within(planes: &[f32], span: Span, rows: &mut [f32]) {
    for pixel in (0..span.len).step_by(16) {
        let pixels = (span.len - pixel).min(16);
        let mask = mask_of(pixels);
        for lane in (0..span.lanes).step_by(16) {
            let mut block = [_mm512_setzero_ps(); 16];
            for (index, vector) in block.iter_mut().enumerate() {
                // SAFETY: `pixels` elements of plane `lane + index` are read, which lie within the span.
                *vector = unsafe {
                    let plane = planes.as_ptr().add((lane + index) * span.plane + span.start + pixel);
                    _mm512_maskz_loadu_ps(mask, plane)
                };
            }
            let block = transpose(block);
            for (index, vector) in block.iter().enumerate().take(pixels) {
                // SAFETY: 16 lanes of row `pixel + index` are written, and there is a row for every pixel of the span.
                unsafe { _mm512_storeu_ps(rows.as_mut_ptr().add((pixel + index) * LANES + lane), *vector) };
            }
        }
    }
}

/// # Safety
///
/// The span lies within both slices, and has a multiple of 16 lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,popcnt")]
unsafe fn from_lanes_within(rows: &[f32], add: Option<&[f32; LANES]>, planes: &mut [f32], span: Span) {
    for lane in (0..span.lanes).step_by(16) {
        // SAFETY: `lane` is 0 or 16, so that 16 of the 32 constants are read.
        let add = add.map(|add| unsafe { _mm512_loadu_ps(add.as_ptr().add(lane)) });
        for pixel in (0..span.len).step_by(16) {
            let pixels = (span.len - pixel).min(16);
            let mask = mask_of(pixels);
            let mut block = [_mm512_setzero_ps(); 16];
            for (index, vector) in block.iter_mut().enumerate().take(pixels) {
                // SAFETY: 16 lanes of row `pixel + index` are read, and there is a row for every pixel of the span.
                *vector = unsafe { _mm512_loadu_ps(rows.as_ptr().add((pixel + index) * LANES + lane)) };
                if let Some(add) = add {
                    *vector = _mm512_add_ps(*vector, add);
                }
            }
            for (index, vector) in transpose(block).iter().enumerate() {
                // SAFETY: `pixels` elements of plane `lane + index` are written, which lie within the span.
                unsafe {
                    let plane = planes.as_mut_ptr().add((lane + index) * span.plane + span.start + pixel);
                    _mm512_mask_storeu_ps(plane, mask, *vector);
                }
            }
        }
    }
}

/// The first `count` of 16 lanes.
#[inline]
fn mask_of(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// Element `i` of vector `j` becomes element `j` of vector `i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(r: [__m512; 16]) -> [__m512; 16] {
    let zero = [_mm512_setzero_ps(); 16];
    let double = |v| _mm512_castps_pd(v);
    let (mut t, mut s, mut u, mut o) = (zero, zero, zero, zero);
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for i in 0..4 {
        let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
        s[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(double(a), double(c)));
        s[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(double(a), double(c)));
        s[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(double(b), double(d)));
        s[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(double(b), double(d)));
    }
    for i in 0..4 {
        u[i] = _mm512_shuffle_f32x4::<0x88>(s[i], s[4 + i]);
        u[4 + i] = _mm512_shuffle_f32x4::<0xdd>(s[i], s[4 + i]);
        u[8 + i] = _mm512_shuffle_f32x4::<0x88>(s[8 + i], s[12 + i]);
        u[12 + i] = _mm512_shuffle_f32x4::<0xdd>(s[8 + i], s[12 + i]);
    }
    for i in 0..4 {
        o[i] = _mm512_shuffle_f32x4::<0x88>(u[i], u[8 + i]);
        o[8 + i] = _mm512_shuffle_f32x4::<0xdd>(u[i], u[8 + i]);
        o[4 + i] = _mm512_shuffle_f32x4::<0x88>(u[4 + i], u[12 + i]);
        o[12 + i] = _mm512_shuffle_f32x4::<0xdd>(u[4 + i], u[12 + i]);
    }
    o
}
