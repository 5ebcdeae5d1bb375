//! One time step of a block of neurons, forward and backward, and the loop over all steps.

use super::charge::Charge;
use super::firing::{Firing, Reset};
use super::tiles::{Columns, Tile};
use crate::nn::element::{Element, Real};
use crate::nn::Surrogate;

/// Neurons that go through all time steps together; their potentials stay in the innermost cache.
const BLOCK: usize = 64;

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

    pub(super) fn rest(&self) -> R {
        self.rest
    }

    /// Whether backward needs the sums for a factor that is learned.
    pub(super) fn is_learned(&self) -> bool {
        matches!(self.charge, Charge::Gate { .. })
    }

    /// All steps of a tile's neurons: `tile.rows` get the spikes, `tile.v` goes from the first potential to the last.
    pub(super) fn forward<E: Element<Real = R>>(&self, x: Columns<'_, E>, tile: Tile<'_, E, R>) {
        let Tile { mut rows, v, start } = tile;
        let mut h = [R::ZERO; BLOCK];
        for (block, v) in v.chunks_mut(BLOCK).enumerate() {
            let (from, h) = (block * BLOCK, &mut h[..v.len()]);
            for (t, row) in rows.iter_mut().enumerate() {
                self.charge.forward(self.rest, v, x.at(t, start + from, v.len()), h);
                for ((s, v), h) in row[from..].iter_mut().zip(&mut *v).zip(&*h) {
                    *s = if self.fires(*h) { E::ONE } else { E::ZERO };
                    *v = self.after(*h);
                }
            }
        }
    }

    /// The same where `tile.rows` hold the input, over which the spikes are written.
    pub(super) fn fire<E: Element<Real = R>>(&self, tile: Tile<'_, E, R>) {
        let Tile { mut rows, v, .. } = tile;
        let mut h = [R::ZERO; BLOCK];
        for (block, v) in v.chunks_mut(BLOCK).enumerate() {
            let (from, h) = (block * BLOCK, &mut h[..v.len()]);
            for row in &mut rows {
                let row = &mut row[from..][..v.len()];
                self.charge.forward(self.rest, v, row, h);
                for ((s, v), h) in row.iter_mut().zip(&mut *v).zip(&*h) {
                    *s = if self.fires(*h) { E::ONE } else { E::ZERO };
                    *v = self.after(*h);
                }
            }
        }
    }

    /// Backward through all steps of a tile's neurons, which starts from `v0`.
    ///
    /// `tile.rows` go from the gradient of the spikes to that of `x`, `tile.v` from the gradient of the last potential to
    /// that of the first. Gives, for each step, the tile's part of the gradient of the learned factor.
    pub(super) fn backward<E: Element<Real = R>>(
        &self,
        x: Columns<'_, E>,
        v0: Option<&[R]>,
        tile: Tile<'_, E, R>,
    ) -> Vec<f64> {
        let Tile { mut rows, v: dv, start } = tile;
        let mut sums = vec![0.; rows.len()];
        // The potentials before firing, of one block.
        let mut hs = vec![R::ZERO; rows.len() * BLOCK];
        let (mut v, mut dh) = ([self.rest; BLOCK], [R::ZERO; BLOCK]);
        for (block, dv) in dv.chunks_mut(BLOCK).enumerate() {
            let (from, n) = (block * BLOCK, dv.len());
            let (v, dh) = (&mut v[..n], &mut dh[..n]);
            let first = v0.map(|v0| &v0[start + from..][..n]);
            let initial = |v: &mut [R]| match first {
                Some(first) => v.copy_from_slice(first),
                None => v.fill(self.rest),
            };
            initial(v);
            for (t, h) in hs.chunks_exact_mut(BLOCK).enumerate() {
                self.charge.forward(self.rest, v, x.at(t, start + from, n), &mut h[..n]);
                self.set_after(&h[..n], v);
            }
            for (t, row) in rows.iter_mut().enumerate().rev() {
                let row = &mut row[from..][..n];
                self.fire_backward(&hs[t * BLOCK..][..n], row, dv, dh);
                if self.is_learned() {
                    match t.checked_sub(1) {
                        Some(before) => self.set_after(&hs[before * BLOCK..][..n], v),
                        None => initial(v),
                    }
                    sums[t] += self.charge.factor_gradient(self.rest, dh, v, x.at(t, start + from, n));
                }
                self.charge.backward(dh, row, dv);
            }
        }
        sums
    }

    /// Not `h >= threshold`: the difference is what the surrogate sees.
    #[inline(always)]
    fn fires(&self, h: R) -> bool {
        h - self.threshold >= R::ZERO
    }

    /// The potential after firing and reset.
    #[inline(always)]
    fn after(&self, h: R) -> R {
        match (self.fires(h), self.v_reset) {
            (false, _) => h,
            (true, Some(v_reset)) => v_reset,
            (true, None) => h - self.threshold,
        }
    }

    fn set_after(&self, h: &[R], v: &mut [R]) {
        for (v, h) in v.iter_mut().zip(h) {
            *v = self.after(*h);
        }
    }

    /// `dL/dh` from the gradients of spikes and of the potential after the reset:
    ///
    /// ```text
    /// dh = (ds + dv dv/ds) g'(h - threshold) + dv dv/dh
    /// hard: dv/ds = v_reset - h, dv/dh = 1 - s;   soft: dv/ds = -threshold, dv/dh = 1;   detached: dv/ds = 0
    /// ```
    fn fire_backward<E: Element<Real = R>>(&self, h: &[R], ds: &[E], dv: &[R], dh: &mut [R]) {
        for (dh, h) in dh.iter_mut().zip(h) {
            *dh = *h - self.threshold;
        }
        self.surrogate.derivatives(dh);
        let parts = dh.iter_mut().zip(h).zip(ds.iter().zip(dv));
        match (self.v_reset, self.detach_reset) {
            (Some(v_reset), false) => parts.for_each(|((dh, h), (ds, dv))| {
                *dh = (ds.load() + *dv * (v_reset - *h)) * *dh + self.kept(*h, *dv);
            }),
            (Some(_), true) => parts.for_each(|((dh, h), (ds, dv))| {
                *dh = ds.load() * *dh + self.kept(*h, *dv);
            }),
            (None, false) => parts.for_each(|((dh, _), (ds, dv))| {
                *dh = (ds.load() - *dv * self.threshold) * *dh + *dv;
            }),
            (None, true) => parts.for_each(|((dh, _), (ds, dv))| *dh = ds.load() * *dh + *dv),
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
