//! The loops of batch norm, as the vector units run them.

use super::kernels::Channel;
use crate::nn::element::{Element, Real};
use crate::nn::reduce::{sums, sums_of_pairs, Planes};
use crate::nn::simd::Loops;
use std::mem::MaybeUninit;

/// Sums over one channel in one time step, of the deviations from one of its elements and of their squares.
///
/// One pass is enough: since the shift is one of the n elements, the squared distance to the mean is at most n variances,
/// and what the difference of the sums loses in f64 is at most about n times 2^-53 of the variance.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    shift: f64,
    deviations: f64,
    squares: f64,
}

impl Moment {
    /// The mean of `count` elements and the sum of the squared deviations from it.
    pub(super) fn centered(&self, count: f64) -> (f64, f64) {
        let mean = self.deviations / count;
        (self.shift + mean, self.squares - self.deviations * mean)
    }
}

/// The moments of some channels, from the `first` on, in one time step.
pub(super) struct Moments<'a, E> {
    pub(super) planes: Planes,
    pub(super) z: &'a [E],
    pub(super) step: usize,
    pub(super) first: usize,
    pub(super) to: &'a mut [Moment],
}

impl<E: Element> Loops for Moments<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Moments { planes, z, step, first, to } = self;
        for image in 0..planes.images {
            for (index, to) in to.iter_mut().enumerate() {
                let plane = planes.plane(z, step, image, first + index);
                if let (0, Some(element)) = (image, plane.first()) {
                    to.shift = element.load().to_f64();
                }
                let shift = to.shift;
                let [deviations, squares] = sums(plane, |z| {
                    let deviation = z.load().to_f64() - shift;
                    [deviation, deviation * deviation]
                });
                to.deviations += deviations;
                to.squares += squares;
            }
        }
    }
}

/// Sums of `dy` and of `dy` times the normalized values, of some channels, from the `first` on, in one time step: the last
/// image first.
pub(super) struct Products<'a, E: Element> {
    pub(super) planes: Planes,
    pub(super) z: &'a [E],
    pub(super) dy: &'a [E],
    pub(super) step: usize,
    pub(super) first: usize,
    /// All channels.
    pub(super) channels: &'a [Channel<E::Real>],
    pub(super) to: &'a mut [[f64; 2]],
}

impl<E: Element> Loops for Products<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Products { planes, z, dy, step, first, channels, to } = self;
        for image in (0..planes.images).rev() {
            for (index, to) in to.iter_mut().enumerate() {
                let channel = first + index;
                let plane = |values| planes.plane(values, step, image, channel);
                let Channel { mean, inverse, .. } = channels[channel];
                let [of_dy, of_normalized] = sums_of_pairs(plane(dy), plane(z), |dy, z| {
                    let dy = dy.load().to_f64();
                    [dy, dy * ((z.load() - mean) * inverse).to_f64()]
                });
                to[0] += of_dy;
                to[1] += of_normalized;
            }
        }
    }
}

impl<R: Real> Channel<R> {
    #[inline(always)]
    fn normalize(&self, z: R) -> R {
        (z - self.mean) * self.inverse * self.weight + self.bias
    }
}

/// One image: `z` becomes the output.
pub(super) struct NormalizeOver<'a, E: Element> {
    pub(super) size: usize,
    pub(super) channels: &'a [Channel<E::Real>],
    pub(super) z: &'a mut [E],
}

impl<E: Element> Loops for NormalizeOver<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (plane, channel) in self.z.chunks_exact_mut(self.size).zip(self.channels) {
            let channel = *channel;
            for z in plane {
                *z = E::store(channel.normalize(z.load()));
            }
        }
    }
}

/// One image: all of the output `y` is written.
pub(super) struct NormalizeBeside<'a, E: Element> {
    pub(super) size: usize,
    pub(super) channels: &'a [Channel<E::Real>],
    pub(super) z: &'a [E],
    pub(super) y: &'a mut [MaybeUninit<E>],
}

impl<E: Element> Loops for NormalizeBeside<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let planes = self.y.chunks_exact_mut(self.size).zip(self.z.chunks_exact(self.size));
        for ((y, z), channel) in planes.zip(self.channels) {
            let channel = *channel;
            for (y, z) in y.iter_mut().zip(z) {
                y.write(E::store(channel.normalize(z.load())));
            }
        }
    }
}

/// One image: `dy` becomes the gradient of `z`.
pub(super) struct InputGradient<'a, E: Element> {
    pub(super) size: usize,
    pub(super) channels: &'a [Channel<E::Real>],
    /// What the mean and the deviation depend on `z` takes away: the mean of dy, and its part along z.
    pub(super) means: &'a [(E::Real, E::Real)],
    pub(super) z: &'a [E],
    pub(super) dy: &'a mut [E],
}

impl<E: Element> Loops for InputGradient<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let planes = self.dy.chunks_exact_mut(self.size).zip(self.z.chunks_exact(self.size));
        for ((dy, z), (channel, &(of_dy, of_normalized))) in planes.zip(self.channels.iter().zip(self.means))
        {
            let Channel { mean, inverse, weight, .. } = *channel;
            let scale = weight * inverse;
            for (dy, z) in dy.iter_mut().zip(z) {
                let normalized = (z.load() - mean) * inverse;
                *dy = E::store(scale * ((dy.load() - of_dy) - normalized * of_normalized));
            }
        }
    }
}
