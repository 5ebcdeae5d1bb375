//! How the neurons of a window are shared out: each tile is some neurons, with all their time steps.
//!
//! Tiles depend on the number of neurons only, so that neither threads nor time chunks change what is summed with what.

use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Neurons of a tile.
pub(super) const TILE: usize = 2048;

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

/// A tile of a window that is read and then written, element by element.
pub(super) trait Rows<E> {
    /// Time steps.
    fn steps(&self) -> usize;

    /// `n` neurons from the tile's `from`-th on, at time step `t`.
    fn read(&self, t: usize, from: usize, n: usize) -> &[E];

    /// Writes as many neurons as there are values.
    fn write(&mut self, t: usize, from: usize, values: impl ExactSizeIterator<Item = E>);
}

/// What is read is written over.
pub(super) struct Over<'a, E>(pub(super) Vec<&'a mut [E]>);

impl<E: Copy> Rows<E> for Over<'_, E> {
    #[inline(always)]
    fn steps(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn read(&self, t: usize, from: usize, n: usize) -> &[E] {
        &self.0[t][from..][..n]
    }

    #[inline(always)]
    fn write(&mut self, t: usize, from: usize, values: impl ExactSizeIterator<Item = E>) {
        let to = &mut self.0[t][from..][..values.len()];
        for (to, value) in to.iter_mut().zip(values) {
            *to = value;
        }
    }
}

/// What is written is fresh memory.
pub(super) struct Beside<'a, E> {
    pub(super) from: Columns<'a, E>,
    pub(super) to: Vec<&'a mut [MaybeUninit<E>]>,
    /// The tile's first neuron.
    pub(super) start: usize,
}

impl<E: Copy> Rows<E> for Beside<'_, E> {
    #[inline(always)]
    fn steps(&self) -> usize {
        self.to.len()
    }

    #[inline(always)]
    fn read(&self, t: usize, from: usize, n: usize) -> &[E] {
        self.from.at(t, self.start + from, n)
    }

    #[inline(always)]
    fn write(&mut self, t: usize, from: usize, values: impl ExactSizeIterator<Item = E>) {
        let to = &mut self.to[t][from..][..values.len()];
        for (to, value) in to.iter_mut().zip(values) {
            to.write(value);
        }
    }
}

/// A window `[T, M]` in tiles of `width` neurons, each as its rows: the elements of its neurons at each time step.
pub(super) fn tiles<T>(data: &mut [T], neurons: usize, width: usize) -> Vec<Vec<&mut [T]>> {
    let steps = data.len().checked_div(neurons).unwrap_or(0);
    let tile = || Vec::with_capacity(steps);
    let mut tiles: Vec<_> = std::iter::repeat_with(tile).take(neurons.div_ceil(width)).collect();
    if neurons > 0 {
        for row in data.chunks_exact_mut(neurons) {
            tiles.iter_mut().zip(row.chunks_mut(width)).for_each(|(tile, part)| tile.push(part));
        }
    }
    tiles
}

/// The tiles of a window that is written over.
pub(super) fn over<E>(data: &mut [E], neurons: usize) -> impl Iterator<Item = Over<'_, E>> {
    tiles(data, neurons, TILE).into_iter().map(Over)
}

/// The tiles of a window that is read, and of the fresh one that is written.
pub(super) fn beside<'a, E: Copy>(
    from: Columns<'a, E>,
    to: &'a mut [MaybeUninit<E>],
) -> impl Iterator<Item = Beside<'a, E>> {
    let tile = move |(index, to)| Beside { from, to, start: index * TILE };
    tiles(to, from.neurons, TILE).into_iter().enumerate().map(tile)
}

/// Runs `f` on each tile, on several threads if there is much to do; the answers are in the order of the tiles. `f` also
/// gets scratch memory, which a thread goes on using.
pub(super) fn for_each<T: Send, O: Send, S: Default>(
    tiles: impl Iterator<Item = T>,
    elements: usize,
    f: impl Fn(&mut S, T) -> O + Send + Sync,
) -> Vec<O> {
    if elements < LARGE {
        let mut scratch = S::default();
        return tiles.map(|tile| f(&mut scratch, tile)).collect();
    }
    let tiles: Vec<T> = tiles.collect();
    tiles.into_par_iter().map_init(S::default, f).collect()
}
