//! The loop over all time steps of a tile of neurons, forward and backward, block by block.

use super::charge::Charge;
use super::firing::{Firing, Reset};
use super::tiles::{Columns, Rows};
use crate::nn::element::{Element, Real};
use crate::nn::simd::Loops;
use crate::nn::Surrogate;
use std::mem::MaybeUninit;

/// Neurons that go through all time steps together; their potentials stay in the innermost cache.
pub(super) const BLOCK: usize = 256;

/// The dynamics of a neuron in the type that is computed with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dynamics<R> {
    charge: Charge<R>,
    threshold: R,
    /// `Some`: hard.
    v_reset: Option<R>,
    rest: R,
    detach_reset: bool,
    surrogate: Surrogate,
}

/// All steps of a tile's neurons: its rows go from the input to the spikes.
pub(super) struct Forward<'a, E: Element, P> {
    pub(super) dynamics: Dynamics<E::Real>,
    pub(super) rows: P,
    /// The potentials before the first step, of the tile's neurons; `None`: they rest.
    pub(super) first: Option<&'a [E::Real]>,
    /// All of those after the last step are written.
    pub(super) last: &'a mut [MaybeUninit<E::Real>],
}

/// Backward through all steps of a tile's neurons: its rows go from the gradient of the spikes to that of the input.
///
/// Gives, for each step, the tile's part of the gradient of the learned factor, if there is one.
pub(super) struct Backward<'a, E: Element, P> {
    pub(super) dynamics: Dynamics<E::Real>,
    pub(super) x: Columns<'a, E>,
    pub(super) rows: P,
    /// The tile's neurons.
    pub(super) start: usize,
    pub(super) neurons: usize,
    /// The potentials before the first step, of the tile's neurons; `None`: they rest.
    pub(super) first: Option<&'a [E::Real]>,
    /// Goes from the gradient of the last potential to that of the first; `None`: there is none, and none is wanted.
    pub(super) dv: Option<&'a mut [E::Real]>,
    pub(super) scratch: &'a mut Vec<E::Real>,
}

impl<E: Element, P: Rows<E>> Loops for Forward<'_, E, P> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Forward { dynamics, mut rows, first, last } = self;
        let (mut v, mut h) = ([dynamics.rest; BLOCK], [dynamics.rest; BLOCK]);
        for (block, last) in last.chunks_mut(BLOCK).enumerate() {
            let (from, n) = (block * BLOCK, last.len());
            let (v, h) = (&mut v[..n], &mut h[..n]);
            dynamics.begin(first, from, v);
            for t in 0..rows.steps() {
                dynamics.charge.forward(dynamics.rest, v, rows.read(t, from, n), h);
                dynamics.fire(h, v, &mut rows, (t, from));
            }
            for (last, v) in last.iter_mut().zip(&*v) {
                last.write(*v);
            }
        }
    }
}

impl<E: Element, P: Rows<E>> Loops for Backward<'_, E, P> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run(self) -> Vec<f64> {
        let Backward { dynamics, x, mut rows, start, neurons, first, dv: mut outer, scratch } = self;
        let steps = rows.steps();
        let mut sums = vec![0.; if dynamics.is_learned() { steps } else { 0 }];
        // The potentials before firing, of one block.
        scratch.resize(steps * BLOCK, E::Real::ZERO);
        let hs = scratch.as_mut_slice();
        let (mut v, mut dv, mut dh) =
            ([dynamics.rest; BLOCK], [E::Real::ZERO; BLOCK], [E::Real::ZERO; BLOCK]);
        for from in (0..neurons).step_by(BLOCK) {
            let n = BLOCK.min(neurons - from);
            let (v, dv, dh) = (&mut v[..n], &mut dv[..n], &mut dh[..n]);
            dynamics.begin(first, from, v);
            for (t, h) in hs.chunks_exact_mut(BLOCK).enumerate() {
                let h = &mut h[..n];
                dynamics.charge.forward(dynamics.rest, v, x.at(t, start + from, n), h);
                dynamics.set_after(h, v);
            }
            match &outer {
                Some(outer) => dv.copy_from_slice(&outer[from..][..n]),
                None => dv.fill(E::Real::ZERO),
            }
            for t in (0..steps).rev() {
                dynamics.fire_backward(&hs[t * BLOCK..][..n], rows.read(t, from, n), dv, dh);
                if dynamics.is_learned() {
                    match t.checked_sub(1) {
                        Some(before) => dynamics.set_after(&hs[before * BLOCK..][..n], v),
                        None => dynamics.begin(first, from, v),
                    }
                    let x = x.at(t, start + from, n);
                    sums[t] += dynamics.charge.factor_gradient(dynamics.rest, dh, v, x);
                }
                dynamics.charge.backward(dh, dv, &mut rows, (t, from));
            }
            if let Some(outer) = &mut outer {
                outer[from..][..n].copy_from_slice(dv);
            }
        }
        sums
    }
}

impl<R: Real> Dynamics<R> {
    pub(super) fn new(charge: Charge<f64>, firing: &Firing) -> Self {
        let rest = R::from_f64(firing.rest());
        Dynamics {
            charge: charge.of(),
            threshold: R::from_f64(firing.threshold),
            v_reset: matches!(firing.reset, Reset::Hard(_)).then_some(rest),
            rest,
            detach_reset: firing.detach_reset,
            surrogate: firing.surrogate,
        }
    }

    /// Whether backward needs the sums for a factor that is learned.
    #[inline(always)]
    fn is_learned(&self) -> bool {
        matches!(self.charge, Charge::Gate { .. })
    }

    /// The potentials before the first step, of a block.
    #[inline(always)]
    fn begin(&self, first: Option<&[R]>, from: usize, v: &mut [R]) {
        match first {
            Some(first) => v.copy_from_slice(&first[from..][..v.len()]),
            None => v.fill(self.rest),
        }
    }

    /// Not `h >= threshold`: the difference is what the surrogate sees.
    #[inline(always)]
    fn fires(&self, h: R) -> bool {
        h - self.threshold >= R::ZERO
    }

    /// Spikes and potentials of a block after firing and reset; `(t, from)` is where it is in the rows.
    #[inline(always)]
    fn fire<E: Element<Real = R>>(
        &self,
        h: &[R],
        v: &mut [R],
        rows: &mut impl Rows<E>,
        (t, from): (usize, usize),
    ) {
        let spike = |fires| if fires { E::ONE } else { E::ZERO };
        let parts = h.iter().zip(v);
        match self.v_reset {
            Some(v_reset) => rows.write(
                t,
                from,
                parts.map(|(h, v)| {
                    let fires = self.fires(*h);
                    *v = if fires { v_reset } else { *h };
                    spike(fires)
                }),
            ),
            None => rows.write(
                t,
                from,
                parts.map(|(h, v)| {
                    let fires = self.fires(*h);
                    *v = if fires { *h - self.threshold } else { *h };
                    spike(fires)
                }),
            ),
        }
    }

    /// The potentials after firing and reset.
    #[inline(always)]
    fn set_after(&self, h: &[R], v: &mut [R]) {
        match self.v_reset {
            Some(v_reset) => {
                for (v, h) in v.iter_mut().zip(h) {
                    *v = if self.fires(*h) { v_reset } else { *h };
                }
            }
            None => {
                for (v, h) in v.iter_mut().zip(h) {
                    *v = if self.fires(*h) { *h - self.threshold } else { *h };
                }
            }
        }
    }

    /// `dL/dh` from the gradients of spikes and of the potential after the reset:
    ///
    /// ```text
    /// dh = (ds + dv dv/ds) g'(h - threshold) + dv dv/dh
    /// hard: dv/ds = v_reset - h, dv/dh = 1 - s;   soft: dv/ds = -threshold, dv/dh = 1;   detached: dv/ds = 0
    /// ```
    #[inline(always)]
    fn fire_backward<E: Element<Real = R>>(&self, h: &[R], ds: &[E], dv: &[R], dh: &mut [R]) {
        for (dh, h) in dh.iter_mut().zip(h) {
            *dh = *h - self.threshold;
        }
        self.surrogate.derivatives(dh);
        match (self.v_reset, self.detach_reset) {
            (Some(v_reset), false) => {
                combine(dh, h, ds, dv, |g, h, ds, dv| (ds + dv * (v_reset - h)) * g + self.kept(h, dv));
            }
            (Some(_), true) => combine(dh, h, ds, dv, |g, h, ds, dv| ds * g + self.kept(h, dv)),
            (None, false) => combine(dh, h, ds, dv, |g, _, ds, dv| (ds - dv * self.threshold) * g + dv),
            (None, true) => combine(dh, h, ds, dv, |g, _, ds, dv| ds * g + dv),
        }
    }

    /// `dv (1 - s)`
    #[inline(always)]
    fn kept(&self, h: R, dv: R) -> R {
        if self.fires(h) {
            R::ZERO
        } else {
            dv
        }
    }
}

/// `dh = f(dh, h, ds, dv)`, element by element. By index: the compiler does not vectorize four zipped iterators.
#[inline(always)]
fn combine<E: Element>(
    dh: &mut [E::Real],
    h: &[E::Real],
    ds: &[E],
    dv: &[E::Real],
    f: impl Fn(E::Real, E::Real, E::Real, E::Real) -> E::Real,
) {
    let n = dh.len();
    let (h, ds, dv) = (&h[..n], &ds[..n], &dv[..n]);
    for i in 0..n {
        dh[i] = f(dh[i], h[i], ds[i].load(), dv[i]);
    }
}
