//! Sums in a fixed order, in f64.

use super::element::{Element, Real};
use super::parallel::least_items;
use crate::autograd::Gradient;
use crate::module::WeightGradient;
use crate::Result;
use candle_core::CpuStorage;
use rayon::prelude::*;

/// Channels that one task handles. Sums are per channel, so that it does not matter for the bits.
pub(crate) const CHANNELS: usize = 16;

/// How `[T, N, C, ...]` lies in memory: contiguous planes, one for each step, image and channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planes {
    pub steps: usize,
    pub images: usize,
    pub channels: usize,
    /// Elements of a plane.
    pub size: usize,
}

impl Planes {
    /// Those of a tensor of at least three dimensions.
    pub fn of(dims: &[usize]) -> Option<Self> {
        match *dims {
            [steps, images, channels, ref rest @ ..] => {
                Some(Planes { steps, images, channels, size: rest.iter().product() })
            }
            _ => None,
        }
    }

    /// Elements of one image.
    pub fn image(&self) -> usize {
        self.channels * self.size
    }

    /// Elements of all.
    pub fn len(&self) -> usize {
        self.steps * self.images * self.image()
    }

    /// The plane of a channel in the `image`-th image of a step.
    pub fn plane<'a, E>(&self, values: &'a [E], step: usize, image: usize, channel: usize) -> &'a [E] {
        &values[((step * self.images + image) * self.channels + channel) * self.size..][..self.size]
    }
}

/// Sum of `f` over indices, in eight lanes: a fixed order that needs no single chain of additions.
#[inline(always)]
pub(crate) fn sum(n: usize, f: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0f64; 8];
    let whole = n - n % 8;
    for start in (0..whole).step_by(8) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(start + lane);
        }
    }
    for (sum, index) in lanes.iter_mut().zip(whole..n) {
        *sum += f(index);
    }
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// Lanes of [`sums`].
const LANES: usize = 16;

/// Sums of the terms of values, in lanes: a fixed order that fills vector units and needs no single chain of additions.
#[inline(always)]
pub(crate) fn sums<const K: usize, T: Copy>(values: &[T], terms: impl Fn(T) -> [f64; K]) -> [f64; K] {
    sums_of_pairs(values, values, |value, _| terms(value))
}

/// The same of pairs; as many as the fewer of the two.
#[inline(always)]
pub(crate) fn sums_of_pairs<const K: usize, A: Copy, B: Copy>(
    a: &[A],
    b: &[B],
    terms: impl Fn(A, B) -> [f64; K],
) -> [f64; K] {
    let mut sums = [[0f64; LANES]; K];
    let (a, b) = (a.chunks(LANES), b.chunks(LANES));
    for (a, b) in a.zip(b) {
        match (<&[A; LANES]>::try_from(a), <&[B; LANES]>::try_from(b)) {
            (Ok(a), Ok(b)) => {
                for lane in 0..LANES {
                    let terms = terms(a[lane], b[lane]);
                    for k in 0..K {
                        sums[k][lane] += terms[k];
                    }
                }
            }
            _ => {
                for (lane, (a, b)) in a.iter().zip(b).enumerate() {
                    let terms = terms(*a, *b);
                    for k in 0..K {
                        sums[k][lane] += terms[k];
                    }
                }
            }
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for sums in &mut sums {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
        }
        width /= 2;
    }
    sums.map(|sums| sums[0])
}

/// Adds the gradient of a bias: `to[c] += sum over images and plane of dy`, one step after the other, the last first.
pub(crate) fn add_bias_gradient<E: Element>(planes: Planes, dy: &[E], to: &mut [E::Real]) {
    let least = least_items(CHANNELS * planes.steps * planes.images * planes.size);
    to.par_chunks_mut(CHANNELS).enumerate().with_min_len(least).for_each(|(block, to)| {
        for step in (0..planes.steps).rev() {
            let mut sums = [0f64; CHANNELS];
            for image in (0..planes.images).rev() {
                for (index, sums) in sums[..to.len()].iter_mut().enumerate() {
                    let plane = planes.plane(dy, step, image, block * CHANNELS + index);
                    *sums += sum(plane.len(), |i| plane[i].load().to_f64());
                }
            }
            to.iter_mut().zip(sums).for_each(|(to, sum)| *to += E::Real::from_f64(sum));
        }
    });
}

/// The gradient of a weight: `add` adds to its buffer, in the type that is computed in.
pub(crate) fn accumulate<E: Element>(
    gradient: &WeightGradient,
    add: impl FnOnce(&mut [E::Real]) -> Result<()>,
) -> Result<Option<Gradient>> {
    if !gradient.is_wanted() {
        return Ok(None);
    }
    let buffer = gradient.begin();
    let sum: CpuStorage = match E::slice(&buffer) {
        // bf16, f16: the sum is formed in f32.
        Some(values) if E::DTYPE != E::Real::DTYPE => {
            let mut sum: Vec<E::Real> = values.iter().map(|value| value.load()).collect();
            add(&mut sum)?;
            E::storage(sum.into_iter().map(E::store).collect())
        }
        _ => {
            let mut sum = super::input::take::<E::Real>("weight gradient", buffer)?;
            add(&mut sum)?;
            E::Real::storage(sum)
        }
    };
    Ok(gradient.finish(sum))
}

#[cfg(test)]
mod tests {
    use super::{sum, sums, sums_of_pairs};

    #[test]
    fn sums_have_all_terms() {
        for n in 0..40usize {
            let expected = (n * n.saturating_sub(1) / 2) as f64;
            let values: Vec<usize> = (0..n).collect();
            assert_eq!(sum(n, |i| i as f64), expected);
            assert_eq!(sums(&values, |i| [i as f64, 1.]), [expected, n as f64]);
            assert_eq!(
                sums_of_pairs(&values, &vec![2f32; n], |i, two| [i as f64 * f64::from(two)]),
                [2. * expected]
            );
        }
    }
}
