//! A norm over the window and neurons in the buffer of the layer before them: a few channels at a time, which stay in the
//! cache for all that is done with them.

use super::leaves::Leaf;
use crate::module::{Context, NormStatistics, WindowNeuron, WindowNorm};
use crate::storage::{self, checksum};
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Elements over the window of the channels that are done together, about.
pub(crate) const BLOCK: usize = 1 << 14;

/// A norm, and neurons without weights behind it.
#[derive(Clone, Copy)]
pub(super) struct NormNeurons<'a> {
    norm: &'a Leaf,
    neurons: &'a Leaf,
}

/// The same for some channels.
pub(super) struct Block {
    norm: Leaf,
    neurons: Leaf,
}

/// What the first pass over some channels gave.
struct Fired {
    statistics: NormStatistics,
    /// The potentials after the window.
    v: Tensor,
    checksum: Option<u64>,
}

/// The channels of a range that are done together, where each has so many elements.
pub(super) fn blocks(channels: &Range<usize>, elements: usize) -> Vec<Range<usize>> {
    let width = (BLOCK / elements.max(1)).max(1);
    let end = channels.end;
    channels.clone().step_by(width).map(|first| first..(first + width).min(end)).collect()
}

/// The dimensions of some channels of a window.
pub(super) fn dims_of(dims: &[usize], channels: &Range<usize>) -> Vec<usize> {
    let mut dims = dims.to_vec();
    if let Some(third) = dims.get_mut(2) {
        *third = channels.len();
    }
    dims
}

/// The states of some channels of `[N, C, ...]`.
pub(super) fn states_of(states: Option<&Tensor>, channels: &Range<usize>) -> Result<Option<Tensor>> {
    let narrow = |states: &Tensor| states.narrow(1, channels.start, channels.len())?.contiguous();
    Ok(states.map(narrow).transpose()?)
}

pub(super) fn lost() -> Error {
    candle_core::Error::Msg("a layer lost its channels".into()).into()
}

fn slice_of(leaf: &Leaf, channels: &Range<usize>) -> Result<Leaf> {
    leaf.for_channels(channels.clone())?.ok_or_else(lost)
}

impl<'a> NormNeurons<'a> {
    /// Both, if they are such layers and can be run for some of their channels.
    pub(super) fn of(norm: &'a Leaf, neurons: &'a Leaf) -> Option<Self> {
        let can_be_cut = |leaf: &Leaf| matches!(leaf.for_channels(0..1), Ok(Some(_)));
        let fits = norm.window_norm().is_some() && neurons.window_neuron().is_some();
        (fits && can_be_cut(norm) && can_be_cut(neurons)).then_some(NormNeurons { norm, neurons })
    }

    /// The context of the neurons, in a segment whose contexts are like `context`.
    pub(super) fn at_neurons(&self, context: &mut Context) -> Context {
        self.neurons.context(context)
    }

    pub(super) fn block(&self, channels: &Range<usize>) -> Result<Block> {
        Ok(Block { norm: slice_of(self.norm, channels)?, neurons: slice_of(self.neurons, channels)? })
    }

    /// Norm and neurons in the buffer of the layer's output, `window`, block by block; gives checksums of the spikes of each,
    /// if they are wanted.
    pub(super) fn forward(
        &self,
        window: &mut CpuStorage,
        dims: &[usize],
        blocks: &[Range<usize>],
        first: &mut Context,
        verify: bool,
    ) -> Result<Vec<u64>> {
        let (at_norm, at_neurons) = (self.norm.context(first), self.neurons.context(first));
        let v0 = at_neurons.initial_state()?;
        let recorded = at_norm.recorded_statistics().ok();
        let recorded = match recorded {
            // What other ranks see is to be known before the first block is normalized.
            None if at_norm.couples_ranks() => Some(self.statistics(window, dims, blocks, &at_norm)?),
            recorded => recorded,
        };
        let parts = storage::split(window, dims, blocks).ok_or_else(lost)?;
        let fire = |(range, mut part): (&Range<usize>, storage::ChannelsMut<'_>)| -> Result<Fired> {
            let dims = dims_of(dims, range);
            let block = self.block(range)?;
            let (norm, neurons) = block.layers()?;
            let z = storage::into_tensor(part.read(), dims.as_slice(), false);
            let of_norm = |error: Error| error.of_part(at_norm.path());
            let statistics = match &recorded {
                Some(statistics) => statistics.for_channels(range),
                None => {
                    let mut statistics = norm.no_statistics();
                    norm.add_statistics(&mut statistics, &z).map_err(of_norm)?;
                    statistics
                }
            };
            let n = norm.normalize(storage::taken(z)?, &dims, &statistics).map_err(of_norm)?;
            let v0 = states_of(v0.as_ref(), range)?;
            let fired = neurons.fire(n, &dims, v0.as_ref()).map_err(|error| error.of_part(at_neurons.path()));
            let (spikes, v) = fired?;
            if !part.write(&spikes) {
                return Err(lost());
            }
            let checksum = match verify {
                true => Some(checksum(&storage::into_tensor(spikes, dims, false))?),
                false => None,
            };
            Ok(Fired { statistics, v, checksum })
        };
        let fired: Vec<Fired> = blocks.par_iter().zip(parts).map(fire).collect::<Result<_>>()?;

        if recorded.is_none() {
            self.found(fired.iter().map(|part| &part.statistics), &at_norm)?;
        }
        if at_neurons.wants_final_state() {
            let states: Vec<&Tensor> = fired.iter().map(|part| &part.v).collect();
            at_neurons.set_final_state(Tensor::cat(&states, 1)?);
        }
        Ok(fired.into_iter().filter_map(|part| part.checksum).collect())
    }
}

impl NormNeurons<'_> {
    /// The statistics of the window, in which blocks follow each other; moves the running ones.
    fn found<'s>(
        &self,
        blocks: impl Iterator<Item = &'s NormStatistics>,
        at_norm: &Context,
    ) -> Result<Arc<NormStatistics>> {
        let norm = self.norm.window_norm().ok_or_else(lost)?;
        let (found, is_first) = at_norm.statistics(|| {
            let mut all = NormStatistics { mean: vec![], squares: vec![], count: 0. };
            for block in blocks {
                all.mean.extend(&block.mean);
                all.squares.extend(&block.squares);
                all.count = block.count;
            }
            norm.check_statistics(at_norm.path(), &all)?;
            Ok(all)
        })?;
        if is_first {
            let (leaf, found) = (self.norm.clone(), found.clone());
            at_norm.when_done(move || leaf.window_norm().map_or(Ok(()), |n| n.move_running(&found)))?;
        }
        Ok(found)
    }

    /// The statistics of the window, before any of it is normalized.
    fn statistics(
        &self,
        window: &CpuStorage,
        dims: &[usize],
        blocks: &[Range<usize>],
        at_norm: &Context,
    ) -> Result<Arc<NormStatistics>> {
        let of = |range: &Range<usize>| -> Result<NormStatistics> {
            let norm = slice_of(self.norm, range)?;
            let norm = norm.window_norm().ok_or_else(lost)?;
            let z = storage::gather(window, dims, range.clone()).ok_or_else(lost)?;
            let z = storage::into_tensor(z, dims_of(dims, range), false);
            let mut statistics = norm.no_statistics();
            norm.add_statistics(&mut statistics, &z).map_err(|error| error.of_part(at_norm.path()))?;
            Ok(statistics)
        };
        let all: Vec<NormStatistics> = blocks.par_iter().map(of).collect::<Result<_>>()?;
        self.found(all.iter(), at_norm)
    }
}

impl Block {
    pub(super) fn layers(&self) -> Result<(&dyn WindowNorm, &dyn WindowNeuron)> {
        self.norm.window_norm().zip(self.neurons.window_neuron()).ok_or_else(lost)
    }
}
