//! A layer with weights, the norm and neurons without a graph: norm and neurons in one buffer over the window.
//!
//! Back through the neurons, the time steps are cut for the least memory, not as the chunks are: what is held besides the
//! gradient over the window is what goes into the norm in one range, and the potentials before all ranges that are to come.

use super::backward::{giving_way, Backward, OfNorm, Way};
use super::chunked::no_steps;
use crate::autograd::Gradient;
use crate::checkpoint::leaves::{run_leaves, Leaf};
use crate::checkpoint::norm_neurons::{blocks, dims_of, lost, states_of, Block, NormNeurons};
use crate::checkpoint::replay::{in_recompute, InputSteps};
use crate::checkpoint::window::{GivingWay, WindowBuffer};
use crate::module::{ChannelLayer, Context, NormStatistics, NormSums, States};
use crate::storage::{self, checksum};
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use parking_lot::Mutex;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// The norm and the neurons over the window of the norm's input, in its buffer.
pub(super) fn forward(layers: NormNeurons<'_>, z: WindowBuffer, first: &mut Context) -> Result<WindowBuffer> {
    let dims = z.shape().into_dims();
    let mut window = z.into_storage();
    let blocks = blocks_of(&dims, dims.first().copied().unwrap_or_default());
    layers.forward(&mut window, &dims, &blocks, first, false)?;
    Ok(WindowBuffer::new(window, &dims))
}

/// Checksums of the blocks of channels of each range.
pub(super) fn checksums(y: &WindowBuffer, ranges: &[Range<usize>]) -> Result<Vec<u64>> {
    let blocks = blocks_of(y.shape().dims(), longest(ranges));
    let mut checksums = Vec::with_capacity(ranges.len() * blocks.len());
    for range in ranges {
        let chunk = y.chunk(range.clone());
        for block in &blocks {
            checksums.push(checksum(&chunk.narrow(2, block.start, block.len())?)?);
        }
    }
    Ok(checksums)
}

/// The channels of `[T, N, C, ...]` that are done together in so many time steps.
fn blocks_of(dims: &[usize], steps: usize) -> Vec<Range<usize>> {
    let channels = dims.get(2).copied().unwrap_or_default();
    let of_step: usize = dims.iter().skip(1).product();
    blocks(&(0..channels), of_step * steps / channels.max(1))
}

fn longest(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).max().unwrap_or_default()
}

/// Some channels on the way through all ranges.
struct Lane {
    channels: Range<usize>,
    block: Block,
    statistics: NormStatistics,
    /// The potentials on the way forward; `None`: they rest.
    v: Option<Tensor>,
    /// Those before each range that the way back has not come to.
    potentials: Vec<Option<Tensor>>,
    /// The gradient of the potentials before the range that was gone through last.
    dv: Option<CpuStorage>,
    sums: NormSums,
}

impl Lane {
    /// A chunk of the norm's input for these channels, and the norm's output.
    fn normalized(&self, z: &CpuStorage, dims: &[usize]) -> Result<(Tensor, CpuStorage, Vec<usize>)> {
        let (norm, _) = self.block.layers()?;
        let z = storage::gather(z, dims, self.channels.clone()).ok_or_else(lost)?;
        let dims = dims_of(dims, &self.channels);
        let z = storage::into_tensor(z, dims.as_slice(), false);
        let n = norm.normalize(storage::owned(&z)?, &dims, &self.statistics)?;
        Ok((z, n, dims))
    }

    /// Goes on with a chunk.
    fn fire(&mut self, z: &CpuStorage, dims: &[usize]) -> Result<()> {
        let (_, n, dims) = self.normalized(z, dims)?;
        let (_, neurons) = self.block.layers()?;
        let (_, v) = neurons.fire(n, &dims, self.v.as_ref())?;
        self.v = Some(v);
        Ok(())
    }

    /// The gradient at the norm's output in the place of that of the spikes. Whether the neurons fire as they did `then`, by
    /// the checksum of their spikes, and leave the potentials that the way forward left.
    fn back(
        &mut self,
        z: &CpuStorage,
        dims: &[usize],
        mut part: storage::ChannelsMut<'_>,
        then: Option<u64>,
    ) -> Result<bool> {
        let (z, n, dims) = self.normalized(z, dims)?;
        let v0 = self.potentials.pop().flatten();
        let (norm, neurons) = self.block.layers()?;
        let mut is_same = true;
        if let Some(then) = then {
            let copy = storage::part(&n, 0..storage::len(&n));
            let (spikes, v) = neurons.fire(copy, &dims, v0.as_ref())?;
            let spikes = storage::into_tensor(spikes, dims.as_slice(), false);
            let left = self.dv.is_none() || self.v.as_ref().is_none_or(|left| storage::same_bits(left, &v));
            is_same = left && checksum(&spikes)? == then;
        }
        // Verified or not, those of later ranges are of no more use.
        self.v = then.and(v0.clone());
        // Nothing is before the first range.
        let dv = match (self.dv.take(), &v0) {
            (None, Some(v0)) if !self.potentials.is_empty() => Some(storage::taken(v0.zeros_like()?)?),
            (dv, _) => dv,
        };
        let (dn, dv) = neurons.back(&n, part.read(), &dims, v0.as_ref(), dv)?;
        self.dv = dv;
        norm.add_sums(&mut self.sums, &z, &dn, &self.statistics)?;
        match part.write(&dn) {
            true => Ok(is_same),
            false => Err(lost()),
        }
    }
}

impl Backward {
    /// Back through the neurons, last range first: the gradient at the norm's output over the window, in the place of the
    /// incoming one, the norm's sums, and the states of the layers before it.
    pub(super) fn through_neurons(
        &self,
        way: &Way<'_>,
        gradient: Gradient,
        layers: NormNeurons<'_>,
        statistics: &NormStatistics,
    ) -> Result<(Gradient, NormSums, Vec<States>)> {
        let dims = gradient.shape().dims().to_vec();
        let mut window = gradient.into_storage()?;
        let ranges = self.chunked.ranges_in_place(way.input.steps(), self.ran.before_has_states);
        let blocks = blocks_of(&dims, longest(&ranges));
        let v0 = layers.at_neurons(&mut self.context.clone()).initial_state()?;
        let lane = |channels: &Range<usize>| {
            let block = layers.block(channels)?;
            let sums = block.layers()?.0.no_sums();
            let statistics = statistics.for_channels(channels);
            let v = states_of(v0.as_ref(), channels)?;
            let channels = channels.clone();
            Ok(Lane { channels, block, statistics, v, potentials: Vec::new(), dv: None, sums })
        };
        let lanes = Mutex::new(blocks.iter().map(lane).collect::<Result<Vec<Lane>>>()?);
        let states = self.sweep(
            &way.input,
            &ranges,
            true,
            || lanes.lock().iter_mut().for_each(|lane| lane.potentials.push(lane.v.clone())),
            |_, z, _| {
                let dims = z.dims().to_vec();
                let z = self.own(z)?;
                lanes.lock().par_iter_mut().try_for_each(|lane| lane.fire(&z, &dims))
            },
        )?;
        let mut lanes = lanes.into_inner();
        for (index, range) in ranges.iter().enumerate().rev() {
            let (z, z_dims) = self.before_norm_of(&way.input, range, states.get(index))?;
            let parts = storage::split_steps(&mut window, &dims, range, &blocks).ok_or_else(lost)?;
            let then = |block: usize| self.ran.outputs.as_ref()?.get(index * blocks.len() + block).copied();
            let back =
                |((block, lane), part): ((usize, &mut Lane), _)| lane.back(&z, &z_dims, part, then(block));
            let same: Vec<bool> =
                lanes.par_iter_mut().enumerate().zip(parts).map(back).collect::<Result<_>>()?;
            if same.contains(&false) {
                return Err(
                    self.differs(format!("in the time steps {range:?} its neurons fire in another way"))
                );
            }
        }
        let mut sums = NormSums { dy: Vec::new(), dy_normalized: Vec::new() };
        for lane in lanes {
            sums.dy.extend(lane.sums.dy);
            sums.dy_normalized.extend(lane.sums.dy_normalized);
        }
        Ok((Gradient::new(window, dims), sums, states))
    }

    /// The buffer of what goes into the norm: a layer with weights has one of its own, others may give their input.
    fn own(&self, z: Tensor) -> Result<CpuStorage> {
        let is_own = self.chunked.before().last().is_some_and(|leaf| leaf.channel_layer().is_some());
        Ok(if is_own { storage::taken(z)? } else { storage::owned(&z)? })
    }

    /// What goes into the norm in a range, piece by piece.
    fn before_norm_of(
        &self,
        x: &InputSteps,
        range: &Range<usize>,
        border: Option<&States>,
    ) -> Result<(CpuStorage, Vec<usize>)> {
        let twin = self.chunked.detached();
        let states = Arc::new(Mutex::new(border.cloned().unwrap_or_default()));
        let mut z: Option<WindowBuffer> = None;
        for piece in self.chunked.pieces(range, x.steps()) {
            let part = self.before_norm(twin.before(), x.at(&piece)?, &piece, states.clone())?;
            match &mut z {
                // All of it, put together already.
                None if piece == *range => {
                    let dims = part.dims().to_vec();
                    return Ok((self.own(part)?, dims));
                }
                None => z.insert(WindowBuffer::like(&part, range.len())?).push(&part)?,
                Some(z) => z.push(&part)?,
            }
        }
        let z = z.ok_or_else(|| no_steps(&self.name))?;
        let dims = z.shape().into_dims();
        Ok((z.into_storage(), dims))
    }

    /// Back through the norm and the layer before it, last chunk first: the weights are added up, and the gradient of what goes
    /// into the layer is given, if it is wanted, in the place of the incoming one where it is not larger.
    pub(super) fn through_layer(
        &self,
        way: &Way<'_>,
        gradient: Gradient,
        (leaf, layer): (&Leaf, &dyn ChannelLayer),
        of_norm: &OfNorm<'_>,
        borders: &[States],
        is_wanted: bool,
    ) -> Result<Option<Gradient>> {
        let mut window = giving_way(gradient)?;
        let before: Vec<Leaf> = self.chunked.in_graph().iter().map(Leaf::detached).collect();
        let twin = [leaf.detached()];
        let blocks = blocks_of(window.window().1, longest(&way.ranges));
        for (index, range) in way.ranges.iter().enumerate().rev() {
            let states = Arc::new(Mutex::new(borders.get(index).cloned().unwrap_or_default()));
            let mut context = self.context.chunk(range.start, states);
            let x = way.input.at(range)?;
            let again = || run_leaves(&before, x, &mut context);
            let features = in_recompute(&self.name, again)?.contiguous()?;
            let at_layer = leaf.context(&mut context.clone());
            let z = in_recompute(&self.name, || run_leaves(&twin, features.clone(), &mut context))?;
            of_norm.over(&z.contiguous()?, &mut window, range, &blocks)?;
            drop(z);
            if let Some(dx) = layer.back(features.into(), window.part(range), is_wanted, &at_layer)? {
                window.write(range.start, &dx.into_tensor())?;
            }
        }
        Ok(window.finish())
    }
}

impl OfNorm<'_> {
    /// The gradient of the norm's input `z`, a chunk, in the place of that of its output.
    fn over(
        &self,
        z: &Tensor,
        window: &mut GivingWay,
        range: &Range<usize>,
        blocks: &[Range<usize>],
    ) -> Result<()> {
        let (window, dims) = window.window();
        let parts = storage::split_steps(window, dims, range, blocks).ok_or_else(lost)?;
        let back = |(channels, mut part): (&Range<usize>, storage::ChannelsMut<'_>)| {
            let leaf = self.leaf.for_channels(channels.clone())?.ok_or_else(lost)?;
            let norm = leaf.window_norm().ok_or_else(lost)?;
            let z = z.narrow(2, channels.start, channels.len())?.contiguous()?;
            let (statistics, sums) =
                (self.statistics.for_channels(channels), self.sums.for_channels(channels));
            let dz = norm.input_gradient(&z, part.read(), &statistics, &sums)?;
            match part.write(&dz) {
                true => Ok(()),
                false => Err(lost()),
            }
        };
        blocks.par_iter().zip(parts).try_for_each(back)
    }
}
