//! Means over windows.

use super::windows::Windows;
use crate::autograd::Gradient;
use crate::compress::kernels::{advise_huge_pages, SimdLevel};
use crate::module::Signal;
use crate::nn::element::{with_element, Element, Real};
use crate::nn::function::{function, gradient};
use crate::nn::input::{read, take, wrong, Input};
use crate::nn::simd::{self, Loops};
use crate::Result;
use candle_core::Shape;
use rayon::prelude::*;

/// The mean of each window; keeps nothing but sizes.
pub(super) fn average<E: Element>(
    part: &str,
    x: Input,
    windows: Windows,
    shape: Vec<usize>,
) -> Result<Signal> {
    let level = SimdLevel::detected();
    let mut y = zeros(shape.iter().product());
    read::<E, _>(part, &x.values, |x| {
        y.par_chunks_mut(windows.output_plane())
            .zip(x.par_chunks(windows.input_plane()))
            .for_each(|(y, x)| simd::run(level, Forward { windows: &windows, x, y }));
        Ok(())
    })?;
    let input_shape = x.values.shape().clone();
    drop(x.values);
    function(part, vec![x.edge], y, shape, move |dy: Vec<E>| {
        let dx = input_gradient(&windows, &dy, input_shape.elem_count());
        Ok(vec![gradient(dx, input_shape)])
    })
}

/// The gradient of an input of this shape.
pub(super) fn transposed(part: &str, windows: &Windows, dy: Gradient, input: Shape) -> Result<Gradient> {
    let planes = input.elem_count() / windows.input_plane();
    if dy.shape().elem_count() != planes * windows.output_plane() {
        let what = format!("a gradient of {:?} does not fit an input of {:?}", dy.shape(), input);
        return Err(wrong(part, what));
    }
    with_element!(part, dy.dtype(), E => {
        let dy = take::<E>(part, dy.into_storage()?)?;
        Ok(Gradient::new(E::storage(input_gradient(windows, &dy, input.elem_count())), input))
    })
}

fn input_gradient<E: Element>(windows: &Windows, dy: &[E], elements: usize) -> Vec<E> {
    let level = SimdLevel::detected();
    let mut dx: Vec<E> = zeros(elements);
    dx.par_chunks_mut(windows.input_plane())
        .zip(dy.par_chunks(windows.output_plane()))
        .for_each_init(Vec::new, |scratch, (dx, dy)| {
            E::fill(dx, scratch, |dx| simd::run(level, Backward { windows, dy, dx }))
        });
    dx
}

fn zeros<E: Element>(len: usize) -> Vec<E> {
    let mut values = vec![E::ZERO; len];
    advise_huge_pages(&mut values);
    values
}

/// One plane: the mean of each window, its elements added in row-major order.
struct Forward<'a, E> {
    windows: &'a Windows,
    x: &'a [E],
    y: &'a mut [E],
}

impl<E: Element> Loops for Forward<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Forward { windows, x, y } = self;
        if let Some(pairs) = windows.pairs() {
            for (y, rows) in y.chunks_exact_mut(pairs).zip(x.chunks_exact(2 * windows.width())) {
                let (above, below) = rows.split_at(windows.width());
                let columns = above.as_chunks::<2>().0.iter().zip(below.as_chunks::<2>().0);
                for (y, (above, below)) in y.iter_mut().zip(columns) {
                    let mut sum = <E::Real as Element>::ZERO;
                    above.iter().chain(below).for_each(|value| sum += value.load());
                    *y = E::store(sum / E::Real::from_f64(4.));
                }
            }
            return;
        }
        windows.each(|pixel, rows, columns| {
            let mut sum = <E::Real as Element>::ZERO;
            for row in rows.clone() {
                for value in &x[row * windows.width()..][columns.clone()] {
                    sum += value.load();
                }
            }
            y[pixel] = E::store(sum / E::Real::from_f64((rows.len() * columns.len()) as f64));
        });
    }
}

/// One plane: each input element gets its share of the gradients of the windows that see it.
struct Backward<'a, E: Element> {
    windows: &'a Windows,
    dy: &'a [E],
    dx: &'a mut [E::Real],
}

impl<E: Element> Loops for Backward<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Backward { windows, dy, dx } = self;
        let zero = <E::Real as Element>::ZERO;
        dx.fill(zero);
        if let Some(pairs) = windows.pairs() {
            let rows = dx.chunks_exact_mut(2 * windows.width());
            for (dy, rows) in dy.chunks_exact(pairs).zip(rows) {
                for row in rows.chunks_exact_mut(windows.width()) {
                    for (dx, dy) in row.as_chunks_mut::<2>().0.iter_mut().zip(dy) {
                        // A sum like the others: a share of -0 is +0.
                        *dx = [zero + dy.load() / E::Real::from_f64(4.); 2];
                    }
                }
            }
            return;
        }
        windows.each(|pixel, rows, columns| {
            let share = dy[pixel].load() / E::Real::from_f64((rows.len() * columns.len()) as f64);
            for row in rows.clone() {
                dx[row * windows.width()..][columns.clone()].iter_mut().for_each(|dx| *dx += share);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use proptest::prelude::*;

    fn same<E: Element>(size: [usize; 2], values: &[f32]) {
        let pairs = Windows::sliding(size, [2, 2], [2, 2], [0, 0]).unwrap();
        assert_eq!(pairs.pairs(), Some(size[1] / 2));
        let others = pairs.clone().without_pairs();
        let of = |range: std::ops::Range<usize>| -> Vec<E> {
            let value = |&value: &f32| E::store(E::Real::from_f64(f64::from(value)));
            values[range].iter().map(value).collect()
        };
        let (x, dy) = (of(0..pairs.input_plane()), of(0..pairs.output_plane()));
        let bits = |values: &[E]| -> Vec<u64> {
            values.iter().map(|value| value.load().to_f64().to_bits()).collect()
        };
        let all = |windows: &Windows, level: SimdLevel| {
            let mut y = vec![E::ZERO; dy.len()];
            simd::run(level, Forward { windows, x: &x, y: &mut y });
            let mut dx = vec![<E::Real as Element>::ONE; x.len()];
            simd::run(level, Backward { windows, dy: &dy, dx: &mut dx });
            (bits(&y), dx.iter().map(|value| value.to_f64().to_bits()).collect::<Vec<_>>())
        };
        let expected = all(&others, SimdLevel::Portable);
        for &level in SimdLevel::available() {
            assert_eq!(all(&pairs, level), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Windows of 2x2 have loops of their own, with the bits of the others.
        #[test]
        fn pairs_are_as_other_windows(
            size in [2..37usize, 2..70usize],
            values in prop::collection::vec(prop_oneof![4 => -1e3..1e3f32, 1 => Just(-0.), 1 => Just(1e-40)], 37 * 70),
        ) {
            same::<f32>(size, &values);
            same::<bf16>(size, &values);
            same::<f64>(size, &values);
        }
    }
}
