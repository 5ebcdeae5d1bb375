//! One pass over a parameter, its gradient and its state.

use crate::compress::kernels::SimdLevel;
use crate::nn::element::{Element, Real};
use crate::nn::simd::{self, Loops};
use crate::train::piece;

/// How an optimizer moves some elements of a parameter; an element's update depends on its own numbers only.
pub(super) trait Update<const K: usize>: Copy + Send + Sync {
    /// Moves `weights` by `gradient`, and the `K` buffers of state with them; all have one length.
    ///
    /// `#[inline(always)]`: it is compiled for each level of vector instructions.
    fn run<R: Real>(self, weights: &mut [R], gradient: &[R], state: [&mut [R]; K]);
}

/// Elements of a parameter, and what belongs to them.
pub(super) struct Piece<'a, E: Element, const K: usize> {
    /// bf16 and f16: the parameter itself; `weights` is its master copy.
    pub(super) stored: Option<&'a mut [E]>,
    pub(super) weights: &'a mut [E::Real],
    pub(super) gradient: &'a [E::Real],
    pub(super) state: [&'a mut [E::Real]; K],
}

impl<'a, E: Element, const K: usize> Piece<'a, E, K> {
    /// Runs an update, by several threads where that pays.
    pub(super) fn update<U: Update<K>>(self, update: U) {
        self.update_at(SimdLevel::detected(), update);
    }

    pub(super) fn update_at<U: Update<K>>(self, level: SimdLevel, update: U) {
        if self.weights.len() <= piece::LENGTH {
            return simd::run(level, Run { piece: self, update });
        }
        let (left, right) = self.halves();
        rayon::join(|| left.update_at(level, update), || right.update_at(level, update));
    }

    fn halves(self) -> (Self, Self) {
        let middle = self.weights.len() / 2;
        let (left, right) = match self.stored {
            None => (None, None),
            Some(stored) => {
                let (left, right) = stored.split_at_mut(middle);
                (Some(left), Some(right))
            }
        };
        let (weights, right_weights) = self.weights.split_at_mut(middle);
        let (gradient, right_gradient) = self.gradient.split_at(middle);
        let mut right_state: [&'a mut [E::Real]; K] = std::array::from_fn(|_| Default::default());
        let mut places = right_state.iter_mut();
        let state = self.state.map(|all| {
            let (left, right) = all.split_at_mut(middle);
            if let Some(place) = places.next() {
                *place = right;
            }
            left
        });
        let left = Piece { stored: left, weights, gradient, state };
        (left, Piece { stored: right, weights: right_weights, gradient: right_gradient, state: right_state })
    }
}

struct Run<'a, E: Element, U, const K: usize> {
    piece: Piece<'a, E, K>,
    update: U,
}

impl<E: Element, U: Update<K>, const K: usize> Loops for Run<'_, E, U, K> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Piece { stored, weights, gradient, state } = self.piece;
        match stored {
            None => self.update.run(weights, gradient, state),
            Some(stored) => {
                for (weight, stored) in weights.iter_mut().zip(&*stored) {
                    // Whoever set the parameter since the last step did not know of the master copy.
                    if E::store(*weight).load() != stored.load() {
                        *weight = stored.load();
                    }
                }
                self.update.run(weights, gradient, state);
                stored.iter_mut().zip(weights).for_each(|(stored, weight)| *stored = E::store(*weight));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An update with a rounding in each of its operations.
    #[derive(Clone, Copy)]
    struct Rounding;

    impl Update<2> for Rounding {
        #[inline(always)]
        fn run<R: Real>(self, weights: &mut [R], gradient: &[R], [first, second]: [&mut [R]; 2]) {
            let (a, b) = (R::from_f64(0.1), R::from_f64(0.3));
            for (((weight, gradient), first), second) in
                weights.iter_mut().zip(gradient).zip(first).zip(second)
            {
                *first += a * (*gradient - *first);
                *second = b * *second + a * (*gradient * *gradient);
                *weight = *weight - b * *first / (second.sqrt() + a);
            }
        }
    }

    fn run<E: Element>(level: SimdLevel, n: usize) -> Vec<u64> {
        let of = |i: usize, k: usize| E::Real::from_f64(((i * k) % 1013) as f64 / 97. - 3.);
        let all = |k: usize| (0..n).map(|i| of(i, k)).collect::<Vec<E::Real>>();
        let mut stored: Vec<E> = all(11).into_iter().map(E::store).collect();
        let mut weights: Vec<E::Real> = stored.iter().map(|value| value.load()).collect();
        let (gradient, mut first, mut second) = (all(7), all(3), vec![E::Real::ONE; n]);
        for _ in 0..3 {
            let stored = (E::DTYPE != <E::Real as Element>::DTYPE).then_some(&mut stored[..]);
            let state = [&mut first[..], &mut second[..]];
            Piece { stored, weights: &mut weights, gradient: &gradient, state }.update_at(level, Rounding);
        }
        let stored = stored.into_iter().map(|value| value.load());
        [weights, first, second].concat().into_iter().chain(stored).map(|v| v.to_f64().to_bits()).collect()
    }

    #[test]
    fn threads_and_instructions_change_no_bit() {
        for n in [0, 1, 37, crate::train::piece::LENGTH * 3 + 11] {
            let check = |run: fn(SimdLevel, usize) -> Vec<u64>| {
                let in_pool = |threads: usize, level| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    pool.install(|| run(level, n))
                };
                let expected = in_pool(1, SimdLevel::Portable);
                for &level in SimdLevel::available() {
                    assert!(
                        [1, 2, 5].iter().all(|&threads| in_pool(threads, level) == expected),
                        "{level:?} {n}"
                    );
                }
            };
            check(run::<f32>);
            check(run::<f64>);
            check(run::<half::bf16>);
            check(run::<half::f16>);
        }
    }
}
