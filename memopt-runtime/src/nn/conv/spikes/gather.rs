//! The inner loop of the weight's gradient: each spike adds the output's gradients around it.

use super::{for_each_spike, Walk, AREA, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;

/// Adds, for every channel of `sums` (`[channels, 9, LANES]`) and every image of `walk`, the last first, what the rows of
/// lanes hold around each spike. The rows of the images, `image` elements each, follow each other in `rows`. The sum of
/// an image begins with its part of `begin`, [`LANES`] for each: zero, or NaN where there must be no other result.
#[inline]
pub(super) fn gather<R: Real>(
    level: SimdLevel,
    walk: &Walk<'_>,
    (rows, image): (&[R], usize),
    begin: &[R],
    sums: &mut [R],
) {
    #[cfg(target_arch = "x86_64")]
    if level.clamped() == SimdLevel::Avx512 {
        use crate::nn::conv::cast::{f32s, f32s_mut};
        if let (Some(rows), Some(begin), Some(sums)) = (f32s(rows), f32s(begin), f32s_mut(sums)) {
            return super::avx512::gather(walk, (rows, image), begin, sums);
        }
    }
    by_level(level, walk, rows, image, begin, sums);
}

for_each_level! {
    fn by_level(walk: &Walk<'_>, rows: &[R], image: usize, begin: &[R], sums: &mut [R]) = loops
}

#[inline(always)]
fn loops<R: Real>(walk: &Walk<'_>, rows: &[R], image: usize, begin: &[R], sums: &mut [R]) {
    let row = walk.cut.row;
    for (channel, sums) in sums.chunks_exact_mut(AREA * LANES).enumerate() {
        let images = walk.masks.iter().zip(rows.chunks_exact(image)).zip(begin.chunks_exact(LANES));
        for ((masks, rows), begin) in images.rev() {
            let words = walk.of(masks, channel);
            if words.iter().all(|&word| word == 0) && begin.iter().all(|&value| value == R::ZERO) {
                continue;
            }
            let mut sum = [[R::ZERO; LANES]; AREA];
            sum.iter_mut().for_each(|sum| sum.copy_from_slice(begin));
            for (index, words) in words.chunks_exact(walk.words()).enumerate() {
                for_each_spike(words, |column| {
                    for (tap, sum) in sum.iter_mut().enumerate() {
                        let place = (index + 2 - tap / 3) * row + (column + 2 - tap % 3) * LANES;
                        sum.iter_mut().zip(&rows[place..][..LANES]).for_each(|(sum, row)| *sum += *row);
                    }
                });
            }
            let sum = sum.as_flattened();
            sums.iter_mut().zip(sum).for_each(|(sums, sum)| *sums += *sum);
        }
    }
}

for_each_level! {
    /// Writes to `taint`, for each lane, zero if all of `rows` is finite, else NaN.
    pub(super) fn taint(rows: &[R], taint: &mut [R]) = taint_loops
}

#[inline(always)]
fn taint_loops<R: Real>(rows: &[R], taint: &mut [R]) {
    // Four sums, so that an addition does not wait for the last.
    let mut sums = [[R::ZERO; LANES]; 4];
    for rows in rows.chunks(4 * LANES) {
        let sums = sums.as_flattened_mut();
        sums.iter_mut().zip(rows).for_each(|(sum, value)| *sum += *value * R::ZERO);
    }
    for (lane, taint) in taint.iter_mut().enumerate() {
        *taint = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
    }
}
