//! The arithmetic of batch norm: sums per channel and time step in f64, elements in their own type.
//!
//! Unsafe: an output in fresh memory that the pass writes for the first time.
#![allow(unsafe_code)]

use super::loops::{InputGradient, Moment, Moments, NormalizeBeside, NormalizeOver, Products};
use crate::compress::kernels::{written, SimdLevel};
use crate::module::{NormStatistics, NormSums};
use crate::nn::element::{Element, Real};
use crate::nn::reduce::{Planes, CHANNELS};
use crate::nn::simd;
use rayon::prelude::*;

/// What the elements of one channel are normalized with.
#[derive(Clone, Copy)]
pub(super) struct Channel<R> {
    pub(super) mean: R,
    /// `1 / sqrt(variance + eps)`
    pub(super) inverse: R,
    pub(super) weight: R,
    pub(super) bias: R,
}

pub(super) fn channels<R: Real>(
    statistics: &NormStatistics,
    eps: f64,
    affine: Option<(&[R], &[R])>,
) -> Vec<Channel<R>> {
    let moments = statistics.mean.iter().zip(&statistics.squares).enumerate();
    moments
        .map(|(index, (&mean, &squares))| Channel {
            mean: R::from_f64(mean),
            inverse: R::from_f64(1. / (squares / statistics.count + eps).sqrt()),
            weight: affine.map_or(R::ONE, |(weight, _)| weight[index]),
            bias: affine.map_or(R::ZERO, |(_, bias)| bias[index]),
        })
        .collect()
}

/// The passes of batch norm over its input's elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passes {
    pub(super) planes: Planes,
    pub(super) level: SimdLevel,
}

impl Passes {
    pub(super) fn new(planes: Planes) -> Self {
        Passes { planes, level: SimdLevel::detected() }
    }

    /// Merges the time steps of `z` into the statistics, the first one first (Chan, Golub, LeVeque 1979).
    pub(super) fn add_statistics<E: Element>(self, z: &[E], statistics: &mut NormStatistics) {
        let Passes { planes, level } = self;
        let step_count = (planes.images * planes.size) as f64;
        if step_count == 0. {
            return;
        }
        let steps = self.by_step(|step, channels| {
            let mut moments = [Moment::default(); CHANNELS];
            let to = &mut moments[..channels.len()];
            simd::run(level, Moments { planes, z, step, first: channels.start, to });
            moments
        });
        let mut count = statistics.count;
        for blocks in steps.chunks_exact(self.blocks()) {
            let merged = count + step_count;
            let moments = blocks.iter().flatten();
            let all = statistics.mean.iter_mut().zip(&mut statistics.squares).zip(moments);
            for ((mean, squares), moment) in all {
                let (step_mean, step_squares) = moment.centered(step_count);
                let delta = step_mean - *mean;
                *mean += delta * (step_count / merged);
                *squares += step_squares + delta * delta * (count * step_count / merged);
            }
            count = merged;
        }
        statistics.count = count;
    }

    /// `z` becomes the normalized output.
    pub(super) fn normalize_over<E: Element>(self, channels: &[Channel<E::Real>], z: &mut [E]) {
        let Passes { planes, level } = self;
        if planes.len() == 0 {
            return;
        }
        z.par_chunks_mut(planes.image()).for_each(|z| {
            simd::run(level, NormalizeOver { size: planes.size, channels, z });
        });
    }

    /// The normalized output for `z`.
    pub(super) fn normalize_beside<E: Element>(self, channels: &[Channel<E::Real>], z: &[E]) -> Vec<E> {
        let Passes { planes, level } = self;
        if planes.len() == 0 {
            return Vec::new();
        }
        // SAFETY: the images cover all of `y`, and the loops write all planes of each; there are as many channels.
        let y = unsafe {
            written(z.len(), |y| {
                let images = y.par_chunks_mut(planes.image()).zip(z.par_chunks(planes.image()));
                images.for_each(|(y, z)| {
                    simd::run(level, NormalizeBeside { size: planes.size, channels, z, y });
                });
                channels.len() == planes.channels && z.len() == planes.len()
            })
        };
        y.unwrap_or_default()
    }

    /// Adds the time steps of `step_range` to the sums of `dy` and of `dy` times the normalized values, the last one first.
    pub(super) fn add_sums<E: Element>(
        self,
        step_range: std::ops::Range<usize>,
        channels: &[Channel<E::Real>],
        (z, dy): (&[E], &[E]),
        sums: &mut NormSums,
    ) {
        let Passes { planes, level } = self;
        let range = Planes { steps: step_range.len(), ..planes };
        let steps = Passes { planes: range, level }.by_step(|step, block| {
            let mut products = [[0.; 2]; CHANNELS];
            let to = &mut products[..block.len()];
            let step = step_range.start + step;
            simd::run(level, Products { planes, z, dy, step, first: block.start, channels, to });
            products
        });
        for blocks in steps.chunks_exact(self.blocks()).rev() {
            let all = sums.dy.iter_mut().zip(&mut sums.dy_normalized).zip(blocks.iter().flatten());
            for ((to_dy, to_normalized), [dy, normalized]) in all {
                *to_dy += dy;
                *to_normalized += normalized;
            }
        }
    }

    /// `dy` becomes the gradient of `z`.
    pub(super) fn input_gradient<E: Element>(
        self,
        channels: &[Channel<E::Real>],
        z: &[E],
        dy: &mut [E],
        (sums, count): (&NormSums, f64),
    ) {
        let Passes { planes, level } = self;
        if planes.len() == 0 {
            return;
        }
        let mean = |sum: &f64| E::Real::from_f64(sum / count);
        let means: Vec<_> = sums
            .dy
            .iter()
            .zip(&sums.dy_normalized)
            .map(|(dy, normalized)| (mean(dy), mean(normalized)))
            .collect();
        dy.par_chunks_mut(planes.image()).zip(z.par_chunks(planes.image())).for_each(|(dy, z)| {
            simd::run(level, InputGradient { size: planes.size, channels, means: &means, z, dy });
        });
    }

    /// Blocks of channels in a time step.
    fn blocks(&self) -> usize {
        self.planes.channels.div_ceil(CHANNELS).max(1)
    }

    /// What `f` gives for each time step and block of channels, in this order. Sums of a channel depend on no others, so
    /// that blocks do not matter for the bits.
    fn by_step<T: Send>(&self, f: impl Fn(usize, std::ops::Range<usize>) -> T + Send + Sync) -> Vec<T> {
        let (blocks, channels) = (self.blocks(), self.planes.channels);
        let task = |index: usize| {
            let (step, start) = (index / blocks, index % blocks * CHANNELS);
            f(step, start..(start + CHANNELS).min(channels))
        };
        (0..self.planes.steps * blocks).into_par_iter().map(task).collect()
    }
}
