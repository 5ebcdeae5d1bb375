//! How the input moves the membrane potential.

use super::tiles::Rows;
use crate::nn::element::{Element, Real};
use crate::nn::reduce::sum;

/// `h` as a function of `v` and `x`; `r` is the potential at rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Charge<R> {
    /// `h = v + x`
    Integrate,
    /// `h = v + (x - (v - r)) / tau`, or `h = v - (v - r) / tau + x` where the input does not decay.
    Leak { tau: R, decay_input: bool },
    /// The same with a factor `q = 1 / tau` that is learned.
    Gate { q: R, decay_input: bool },
}

impl Charge<f64> {
    pub(super) fn of<R: Real>(self) -> Charge<R> {
        match self {
            Charge::Integrate => Charge::Integrate,
            Charge::Leak { tau, decay_input } => Charge::Leak { tau: R::from_f64(tau), decay_input },
            Charge::Gate { q, decay_input } => Charge::Gate { q: R::from_f64(q), decay_input },
        }
    }
}

impl<R: Real> Charge<R> {
    /// `h` of a block of neurons. The operations and their order are SpikingJelly's, so that spikes are too.
    #[inline(always)]
    pub(super) fn forward<E: Element<Real = R>>(&self, rest: R, v: &[R], x: &[E], h: &mut [R]) {
        match *self {
            Charge::Integrate => set(h, v, x, |v, x| v + x),
            Charge::Leak { tau, decay_input: true } => set(h, v, x, |v, x| v + (x - (v - rest)) / tau),
            Charge::Leak { tau, decay_input: false } => set(h, v, x, |v, x| v - (v - rest) / tau + x),
            Charge::Gate { q, decay_input: true } => set(h, v, x, |v, x| v + (x - (v - rest)) * q),
            Charge::Gate { q, decay_input: false } => set(h, v, x, |v, x| v - (v - rest) * q + x),
        }
    }

    /// From `dL/dh` to `dL/dx`, written to a block of the rows at `(t, from)`, and `dL/dv`.
    #[inline(always)]
    pub(super) fn backward<E: Element<Real = R>>(
        &self,
        dh: &[R],
        dv: &mut [R],
        rows: &mut impl Rows<E>,
        at: (usize, usize),
    ) {
        match *self {
            Charge::Integrate => split(dh, dv, rows, at, |dh| (dh, dh)),
            Charge::Leak { tau, decay_input: true } => {
                split(dh, dv, rows, at, |dh| (dh / tau, dh - dh / tau))
            }
            Charge::Leak { tau, decay_input: false } => split(dh, dv, rows, at, |dh| (dh, dh - dh / tau)),
            Charge::Gate { q, decay_input: true } => split(dh, dv, rows, at, |dh| (dh * q, dh - dh * q)),
            Charge::Gate { q, decay_input: false } => split(dh, dv, rows, at, |dh| (dh, dh - dh * q)),
        }
    }

    /// The block's part of `dL/dq`, in f64; zero where there is no `q`.
    #[inline(always)]
    pub(super) fn factor_gradient<E: Element<Real = R>>(&self, rest: R, dh: &[R], v: &[R], x: &[E]) -> f64 {
        match *self {
            Charge::Gate { decay_input: true, .. } => {
                sum(dh.len(), |i| dh[i].to_f64() * (x[i].load() - (v[i] - rest)).to_f64())
            }
            Charge::Gate { decay_input: false, .. } => {
                sum(dh.len(), |i| dh[i].to_f64() * (rest - v[i]).to_f64())
            }
            _ => 0.,
        }
    }
}

#[inline(always)]
fn set<E: Element>(h: &mut [E::Real], v: &[E::Real], x: &[E], f: impl Fn(E::Real, E::Real) -> E::Real) {
    for ((h, v), x) in h.iter_mut().zip(v).zip(x) {
        *h = f(*v, x.load());
    }
}

#[inline(always)]
fn split<E: Element>(
    dh: &[E::Real],
    dv: &mut [E::Real],
    rows: &mut impl Rows<E>,
    (t, from): (usize, usize),
    f: impl Fn(E::Real) -> (E::Real, E::Real),
) {
    let parts = dh.iter().zip(dv);
    rows.write(
        t,
        from,
        parts.map(|(dh, dv)| {
            let (to_x, to_v) = f(*dh);
            *dv = to_v;
            E::store(to_x)
        }),
    );
}
