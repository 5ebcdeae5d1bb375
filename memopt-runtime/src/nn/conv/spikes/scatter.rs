//! The inner loop of the forward: each spike adds the kernel around it.

use super::{for_each_spike, Walk, AREA, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;

/// Adds, for every channel of `weights` (`[channels, 9, LANES]`) and every image of `walk`, the kernel to the rows of
/// lanes around each spike. The rows of the images, `image` elements each, follow each other in `to`; the first is for
/// kernel row 2 at the walk's first row.
#[inline]
pub(super) fn scatter<R: Real>(level: SimdLevel, walk: &Walk<'_>, weights: &[R], to: &mut [R], image: usize) {
    #[cfg(target_arch = "x86_64")]
    if level.clamped() == SimdLevel::Avx512 {
        use crate::nn::conv::cast::{f32s, f32s_mut};
        if let (Some(weights), Some(to)) = (f32s(weights), f32s_mut(to)) {
            return super::avx512::scatter(walk, weights, to, image);
        }
    }
    by_level(level, walk, weights, to, image);
}

for_each_level! {
    fn by_level(walk: &Walk<'_>, weights: &[R], to: &mut [R], image: usize) = loops
}

#[inline(always)]
fn loops<R: Real>(walk: &Walk<'_>, weights: &[R], to: &mut [R], image: usize) {
    let row = walk.cut.row;
    for (channel, taps) in weights.chunks_exact(AREA * LANES).enumerate() {
        for (masks, to) in walk.masks.iter().zip(to.chunks_exact_mut(image)) {
            let masks = walk.of(masks, channel).chunks_exact(walk.words());
            for (index, words) in masks.enumerate() {
                for_each_spike(words, |column| {
                    for (tap, taps) in taps.chunks_exact(LANES).enumerate() {
                        let place = (index + 2 - tap / 3) * row + (column + 2 - tap % 3) * LANES;
                        to[place..][..LANES].iter_mut().zip(taps).for_each(|(to, tap)| *to += *tap);
                    }
                });
            }
        }
    }
}
