//! The passes over a window's elements: tiles on threads, loops on vector units, outputs in place or in fresh memory.
//!
//! Unsafe: fresh memory that is written for the first time by the pass.
#![allow(unsafe_code)]

use super::step::{Backward, Dynamics, Forward};
use super::tiles::{beside, for_each, over, Columns, Rows, TILE};
use crate::compress::kernels::{written, SimdLevel};
use crate::nn::element::Element;
use crate::nn::simd;

/// The neurons of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passes<'a, E: Element> {
    pub(super) dynamics: Dynamics<E::Real>,
    pub(super) neurons: usize,
    /// The potentials before the first step; `None`: they rest.
    pub(super) v0: Option<&'a [E::Real]>,
    pub(super) level: SimdLevel,
}

/// For each tile, in order, the sums of its time steps for the learned factor.
pub(super) type Sums = Vec<Vec<f64>>;

impl<E: Element> Passes<'_, E> {
    /// `x` becomes the spikes; gives the last potentials.
    pub(super) fn fire_over(&self, x: &mut [E]) -> Vec<E::Real> {
        let elements = x.len();
        self.fire(over(x, self.neurons), elements)
    }

    /// The spikes and the last potentials.
    pub(super) fn fire_beside(&self, x: &[E]) -> (Vec<E>, Vec<E::Real>) {
        let from = Columns { data: x, neurons: self.neurons };
        let mut last = Vec::new();
        // SAFETY: the tiles cover every neuron at every step, and the pass writes all of each.
        let spikes = unsafe {
            written(x.len(), |to| {
                last = self.fire(beside(from, to), x.len());
                true
            })
        };
        (spikes.unwrap_or_default(), last)
    }

    /// The gradient of the spikes, `dy`, becomes that of `x`, and the one of the last potential that of the first.
    pub(super) fn back_over(&self, x: &[E], dy: &mut [E], dv: Option<&mut [E::Real]>) -> Sums {
        self.back(x, over(dy, self.neurons), dv)
    }

    /// The same where `dy` stays as it is.
    pub(super) fn back_beside(&self, x: &[E], dy: &[E], dv: Option<&mut [E::Real]>) -> (Vec<E>, Sums) {
        let from = Columns { data: dy, neurons: self.neurons };
        let mut sums = Vec::new();
        // SAFETY: the tiles cover every neuron at every step, and the pass writes all of each.
        let dx = unsafe {
            written(dy.len(), |to| {
                sums = self.back(x, beside(from, to), dv);
                true
            })
        };
        (dx.unwrap_or_default(), sums)
    }

    fn fire(&self, tiles: impl Iterator<Item = impl Rows<E> + Send>, elements: usize) -> Vec<E::Real> {
        let Passes { dynamics, neurons, v0, level } = *self;
        // SAFETY: there is a tile for every `TILE` neurons, and the pass writes all of each.
        let last = unsafe {
            written(neurons, |last| {
                let tiles = tiles.zip(last.chunks_mut(TILE)).enumerate();
                for_each(tiles, elements, |(): &mut (), (index, (rows, last))| {
                    let first = v0.map(|v0| &v0[index * TILE..][..last.len()]);
                    simd::run(level, Forward { dynamics, rows, first, last });
                });
                true
            })
        };
        last.unwrap_or_default()
    }

    fn back(
        &self,
        x: &[E],
        tiles: impl Iterator<Item = impl Rows<E> + Send>,
        dv: Option<&mut [E::Real]>,
    ) -> Sums {
        let Passes { dynamics, neurons, v0, level } = *self;
        let columns = Columns { data: x, neurons };
        let mut dv = dv.map(|dv| dv.chunks_mut(TILE));
        let tiles = tiles.enumerate().map(|(index, rows)| {
            let start = index * TILE;
            (rows, start, TILE.min(neurons - start), dv.as_mut().and_then(Iterator::next))
        });
        for_each(tiles, x.len(), |scratch: &mut Vec<E::Real>, (rows, start, neurons, dv)| {
            let first = v0.map(|v0| &v0[start..][..neurons]);
            let loops = Backward { dynamics, x: columns, rows, start, neurons, first, dv, scratch };
            simd::run(level, loops)
        })
    }
}
