//! The arithmetic of batch norm: sums per channel and time step in f64, elements in their own type.

use crate::module::{NormStatistics, NormSums};
use crate::nn::element::{Element, Real};
use crate::nn::reduce::{sum, Planes, CHANNELS};
use rayon::prelude::*;

/// Merges the time steps of `z` into the statistics, the first one first (Chan, Golub, LeVeque 1979).
pub(super) fn add_statistics<E: Element>(planes: Planes, z: &[E], statistics: &mut NormStatistics) {
    let step_count = (planes.images * planes.size) as f64;
    if step_count == 0. {
        return;
    }
    let before = statistics.count;
    let blocks =
        statistics.mean.par_chunks_mut(CHANNELS).zip(statistics.squares.par_chunks_mut(CHANNELS)).enumerate();
    blocks.for_each(|(block, (means, squares))| {
        let mut count = before;
        for step in 0..planes.steps {
            let mut step_means = [0f64; CHANNELS];
            for image in 0..planes.images {
                for (index, total) in step_means[..means.len()].iter_mut().enumerate() {
                    let plane = planes.plane(z, step, image, block * CHANNELS + index);
                    *total += sum(plane.len(), |i| plane[i].load().to_f64());
                }
            }
            step_means.iter_mut().for_each(|mean| *mean /= step_count);
            let mut step_squares = [0f64; CHANNELS];
            for image in 0..planes.images {
                for (index, total) in step_squares[..means.len()].iter_mut().enumerate() {
                    let plane = planes.plane(z, step, image, block * CHANNELS + index);
                    let mean = step_means[index];
                    *total += sum(plane.len(), |i| {
                        let deviation = plane[i].load().to_f64() - mean;
                        deviation * deviation
                    });
                }
            }
            let merged = count + step_count;
            for (index, (mean, squares)) in means.iter_mut().zip(squares.iter_mut()).enumerate() {
                let delta = step_means[index] - *mean;
                *mean += delta * (step_count / merged);
                *squares += step_squares[index] + delta * delta * (count * step_count / merged);
            }
            count = merged;
        }
    });
    statistics.count = before + step_count * planes.steps as f64;
}

/// What the elements of one channel are normalized with.
#[derive(Clone, Copy)]
pub(super) struct Channel<R> {
    mean: R,
    /// `1 / sqrt(variance + eps)`
    inverse: R,
    weight: R,
    bias: R,
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

/// `z` becomes the normalized output.
pub(super) fn normalize<E: Element>(planes: Planes, channels: &[Channel<E::Real>], z: &mut [E]) {
    if planes.len() == 0 {
        return;
    }
    z.par_chunks_mut(planes.image()).for_each(|image| {
        for (plane, channel) in image.chunks_exact_mut(planes.size).zip(channels) {
            let Channel { mean, inverse, weight, bias } = *channel;
            plane.iter_mut().for_each(|z| *z = E::store((z.load() - mean) * inverse * weight + bias));
        }
    });
}

/// Adds the time steps of `step_range` to the sums of `dy` and of `dy` times the normalized values, the last one first.
pub(super) fn add_sums<E: Element>(
    planes: Planes,
    step_range: std::ops::Range<usize>,
    channels: &[Channel<E::Real>],
    (z, dy): (&[E], &[E]),
    sums: &mut NormSums,
) {
    let blocks =
        sums.dy.par_chunks_mut(CHANNELS).zip(sums.dy_normalized.par_chunks_mut(CHANNELS)).enumerate();
    blocks.for_each(|(block, (to_dy, to_normalized))| {
        for step in step_range.clone().rev() {
            let (mut of_dy, mut of_normalized) = ([0f64; CHANNELS], [0f64; CHANNELS]);
            for image in (0..planes.images).rev() {
                for index in 0..to_dy.len() {
                    let channel = block * CHANNELS + index;
                    let (z, dy) =
                        (planes.plane(z, step, image, channel), planes.plane(dy, step, image, channel));
                    let Channel { mean, inverse, .. } = channels[channel];
                    of_dy[index] += sum(dy.len(), |i| dy[i].load().to_f64());
                    of_normalized[index] +=
                        sum(dy.len(), |i| dy[i].load().to_f64() * ((z[i].load() - mean) * inverse).to_f64());
                }
            }
            to_dy.iter_mut().zip(of_dy).for_each(|(to, of)| *to += of);
            to_normalized.iter_mut().zip(of_normalized).for_each(|(to, of)| *to += of);
        }
    });
}

/// `dy` becomes the gradient of `z`.
pub(super) fn input_gradient<E: Element>(
    planes: Planes,
    channels: &[Channel<E::Real>],
    z: &[E],
    dy: &mut [E],
    (sums, count): (&NormSums, f64),
) {
    if planes.len() == 0 {
        return;
    }
    // What the mean and the deviation depend on `z` takes away: the mean of dy, and its part along z.
    let means: Vec<(E::Real, E::Real)> = sums
        .dy
        .iter()
        .zip(&sums.dy_normalized)
        .map(|(dy, normalized)| (E::Real::from_f64(dy / count), E::Real::from_f64(normalized / count)))
        .collect();
    dy.par_chunks_mut(planes.image()).zip(z.par_chunks(planes.image())).for_each(|(dy, z)| {
        let planes = dy.chunks_exact_mut(planes.size).zip(z.chunks_exact(planes.size));
        for ((dy, z), (channel, &(of_dy, of_normalized))) in planes.zip(channels.iter().zip(&means)) {
            let Channel { mean, inverse, weight, .. } = *channel;
            let scale = weight * inverse;
            for (dy, z) in dy.iter_mut().zip(z) {
                let normalized = (z.load() - mean) * inverse;
                *dy = E::store(scale * ((dy.load() - of_dy) - normalized * of_normalized));
            }
        }
    });
}
