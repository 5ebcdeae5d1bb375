//! How the neurons of a window are shared out: each tile is some neurons, with all their time steps.
//!
//! Tiles depend on the number of neurons only, so that neither threads nor time chunks change what is summed with what.

use rayon::prelude::*;

/// Neurons of a tile.
pub(super) const TILE: usize = 1024;

/// Fewer elements than this are not worth waking other threads.
const LARGE: usize = 1 << 15;

/// A window `[T, M]` that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'a, E> {
    pub(super) data: &'a [E],
    pub(super) neurons: usize,
}

impl<'a, E> Columns<'a, E> {
    /// `n` neurons from `start` on, at time step `t`.
    #[inline(always)]
    pub(super) fn at(&self, t: usize, start: usize, n: usize) -> &'a [E] {
        &self.data[t * self.neurons + start..][..n]
    }
}

/// Some neurons of a window that is written.
#[derive(Debug)]
pub(super) struct Tile<'a, E, V> {
    /// Their elements at each time step.
    pub(super) rows: Vec<&'a mut [E]>,
    /// What there is once for each: potentials, or their gradients.
    pub(super) v: &'a mut [V],
    /// The first of them.
    pub(super) start: usize,
}

/// The window `data`, `[T, M]`, in tiles of `width` neurons; `v` has one element for each of the M neurons.
pub(super) fn tiles<'a, E, V>(data: &'a mut [E], v: &'a mut [V], width: usize) -> Vec<Tile<'a, E, V>> {
    let neurons = v.len();
    let tile = |(index, v)| Tile { rows: Vec::new(), v, start: index * width };
    let mut tiles: Vec<_> = v.chunks_mut(width).enumerate().map(tile).collect();
    if neurons > 0 {
        for row in data.chunks_exact_mut(neurons) {
            for (tile, part) in tiles.iter_mut().zip(row.chunks_mut(width)) {
                tile.rows.push(part);
            }
        }
    }
    tiles
}

/// Runs `f` on each tile, on several threads if there is much to do; the answers are in the order of the tiles.
pub(super) fn for_each<T: Send, O: Send>(
    tiles: Vec<T>,
    elements: usize,
    f: impl Fn(T) -> O + Send + Sync,
) -> Vec<O> {
    match elements >= LARGE && tiles.len() > 1 {
        true => tiles.into_par_iter().map(f).collect(),
        false => tiles.into_iter().map(f).collect(),
    }
}
