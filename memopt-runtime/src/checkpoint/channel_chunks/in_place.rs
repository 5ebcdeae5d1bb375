//! A layer with weights, a norm and neurons without a graph: norm and neurons run in the layer's own buffer, a few channels
//! at a time, which stay in the cache for all that is done with them.

use super::features::{features, without_values};
use super::sliced::Sliced;
use crate::autograd::{backward_from, Gradient};
use crate::checkpoint::leaves::{add_norm_gradients, run_leaves, Leaf};
use crate::checkpoint::norm_neurons::{blocks, dims_of, lost, states_of};
use crate::checkpoint::options::Options;
use crate::checkpoint::replay::{in_chunks, in_recompute, Chunks};
use crate::checkpoint::segment::Segment;
use crate::module::{Context, NormStatistics, NormSums, Signal, WindowNeuron};
use crate::storage::{self, checksum};
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Runs the layers as a segment.
pub(super) fn run(sliced: Sliced, options: Options, x: Tensor, context: &mut Context) -> Result<Tensor> {
    let name = options.segment().to_owned();
    let segment = Segment::new(&[&x], options)?;
    drop(x);
    let before = context.clone();
    let (mut first, record) = before.first_pass();
    let twin: Vec<Leaf> = sliced.leaves[..=sliced.layer].iter().map(Leaf::detached).collect();
    let mut checksums = Vec::new();
    let mut ran = segment.run(|x| -> candle_core::Result<Tensor> {
        let z = run_leaves(&twin, x[0].clone(), &mut first)?;
        sliced.check_channels(&z, &name)?;
        if z.track_op() {
            return Err(Error::HiddenParameter { segment: name.clone() }.into());
        }
        let dims = z.dims().to_vec();
        let mut window = storage::taken(z)?;
        let in_groups = groups(&sliced, &window, &dims, first.couples_ranks())?;
        let blocks: Vec<_> = in_groups.into_iter().flat_map(|(_, blocks)| blocks).collect();
        let layers = sliced.norm_neurons().ok_or_else(lost)?;
        checksums = layers.forward(&mut window, &dims, &blocks, &mut first, segment.verifies())?;
        Ok(storage::into_tensor(window, dims, false))
    })?;
    ran.fresh = true;
    segment.adopt(&mut ran, sliced.leaves.iter().flat_map(Leaf::parameters), context)?;
    let again = before.recompute(record, ran.weights.accumulators());
    context.go_on_behind(&first);
    let backward = Backward { sliced, context: again, checksums, name };
    segment.seal_with(ran, move |kept, gradients| in_chunks(kept, gradients, |chunks| backward.back(chunks)))
}

/// Channels that are recomputed at a time, and in them those that are done together.
type Group = (Range<usize>, Vec<Range<usize>>);

/// Images for which groups are cut where ranks have batches of their own sizes: all must ask for the sums of the same groups.
const IMAGES_OF_RANKS: usize = 16;

/// The groups of channels that are recomputed at a time, and in each the channels that are done together.
fn groups(sliced: &Sliced, window: &CpuStorage, dims: &[usize], couples_ranks: bool) -> Result<Vec<Group>> {
    let (_, layer, ..) = sliced.middle().ok_or_else(lost)?;
    let mut bytes = storage::len(window) * storage::dtype(window).size_in_bytes();
    if couples_ranks {
        let images = dims.get(1).copied().unwrap_or(1).max(1);
        bytes = (bytes / images).saturating_mul(IMAGES_OF_RANKS);
    }
    let of_channel = storage::len(window) / layer.channels().max(1);
    let in_blocks = |group: Range<usize>| {
        let blocks = blocks(&group, of_channel);
        (group, blocks)
    };
    Ok(sliced.ranges(layer, bytes).into_iter().map(in_blocks).collect())
}

/// The recompute and the way back.
struct Backward {
    sliced: Sliced,
    context: Context,
    /// Of the spikes of each block of channels, if the recompute is verified.
    checksums: Vec<u64>,
    name: String,
}

/// What the way back runs in.
struct At {
    /// Before the layer with weights.
    layer: Context,
    norm: Context,
    neurons: Context,
}

impl Backward {
    /// The gradient of the input, and what the layers F have in the graph.
    fn back(&self, chunks: Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)> {
        let Chunks { input, gradient, is_tracked, variables } = chunks;
        let (layer_leaf, layer, norm_leaf, _) = self.sliced.middle().ok_or_else(lost)?;
        let layers = self.sliced.norm_neurons().ok_or_else(lost)?;
        let before = self.sliced.before();
        let mut context = self.context.clone();
        let features = features(before, &input, &self.name, &mut context)?;
        let at_layer = layer_leaf.context(&mut context.clone());
        let at = At {
            layer: context.clone(),
            norm: norm_leaf.context(&mut context.clone()),
            neurons: layers.at_neurons(&mut context),
        };
        let at_output = self.through_channels(&features, gradient, &at)?;
        let wants_input = is_tracked || before.iter().any(|leaf| !leaf.parameters().is_empty());
        let at_features = layer.back(features, at_output, wants_input, &at_layer)?;
        let none = || variables.iter().map(|_| None).collect();
        let Some(gradient) = at_features else { return Ok((None, none())) };
        match without_values(before, input.dims(), gradient)? {
            Ok(dx) => Ok((is_tracked.then_some(dx), none())),
            Err(gradient) => {
                let (x, leaf) = match is_tracked {
                    true => input.into_leaf().map(|(x, leaf)| (x, Some(leaf)))?,
                    false => (input.unpack()?, None),
                };
                let again = || run_leaves(before, x, &mut self.context.clone());
                let features = in_recompute(&self.name, again)?;
                let mut store = backward_from(vec![(features, gradient)])?;
                let in_graph = variables.iter().map(|v| store.remove(v).map(Gradient::from)).collect();
                Ok((leaf.map_or(Ok(None), |leaf| leaf.gradient())?, in_graph))
            }
        }
    }

    /// The gradient at the output of the layer with weights, in the place of the incoming one.
    fn through_channels(&self, features: &Signal, gradient: Gradient, at: &At) -> Result<CpuStorage> {
        let (layer_leaf, _, _, norm) = self.sliced.middle().ok_or_else(lost)?;
        let layers = self.sliced.norm_neurons().ok_or_else(lost)?;
        let shape = gradient.shape().clone();
        let dims = shape.dims();
        let mut window = gradient.into_storage()?;
        let statistics = at.norm.recorded_statistics()?;
        // The sums of other ranks come when all blocks of a group have theirs.
        let waits = at.norm.couples_ranks();
        let v0 = at.neurons.initial_state()?;
        let mut sums = NormSums { dy: Vec::new(), dy_normalized: Vec::new() };
        let mut checksums = self.checksums.iter();
        for (range, blocks) in groups(&self.sliced, &window, dims, waits)? {
            let twin = [layer_leaf.for_channels(range.clone())?.ok_or_else(lost)?.detached()];
            let again = || run_leaves(&twin, features.clone(), &mut at.layer.clone());
            let z = in_recompute(&self.name, again)?;
            let z_dims = z.dims().to_vec();
            let z = storage::taken(z)?;
            let then: Vec<Option<&u64>> = blocks.iter().map(|_| checksums.next()).collect();
            let parts = storage::split(&mut window, dims, &blocks).ok_or_else(lost)?;
            let back =
                |((block, then), mut part): ((&Range<usize>, &Option<&u64>), storage::ChannelsMut<'_>)| {
                    let dims = dims_of(dims, block);
                    let of_block = layers.block(block)?;
                    let (norm, neurons) = of_block.layers()?;
                    let statistics = statistics.for_channels(block);
                    let v0 = states_of(v0.as_ref(), block)?;
                    let inside = block.start - range.start..block.end - range.start;
                    let z = storage::gather(&z, &z_dims, inside).ok_or_else(lost)?;
                    let z = storage::into_tensor(z, dims.as_slice(), false);
                    let n = norm.normalize(storage::owned(&z)?, &dims, &statistics)?;
                    if let Some(then) = then {
                        self.verify(**then, &n, &dims, neurons, v0.as_ref())?;
                    }
                    let (dn, _) = neurons.back(&n, part.read(), &dims, v0.as_ref(), None)?;
                    drop(n);
                    let mut sums = norm.no_sums();
                    norm.add_sums(&mut sums, &z, &dn, &statistics)?;
                    let to_write = match waits {
                        true => dn,
                        false => norm.input_gradient(&z, dn, &statistics, &sums)?,
                    };
                    match part.write(&to_write) {
                        true => Ok(sums),
                        false => Err(lost()),
                    }
                };
            let all = blocks.par_iter().zip(&then).zip(parts);
            let of_blocks: Vec<NormSums> = all.map(back).collect::<Result<_>>()?;
            let mut of_group = NormSums { dy: Vec::new(), dy_normalized: Vec::new() };
            for part in of_blocks {
                of_group.dy.extend(part.dy);
                of_group.dy_normalized.extend(part.dy_normalized);
            }
            sums.dy.extend(&of_group.dy);
            sums.dy_normalized.extend(&of_group.dy_normalized);
            if waits {
                let group = (range, blocks.as_slice());
                let of_ranks = at.norm.sums_of_ranks(of_group)?;
                self.through_norm((&z, &z_dims), group, (&mut window, dims), (&statistics, &of_ranks))?;
            }
        }
        add_norm_gradients(norm, &sums, &at.norm)?;
        Ok(window)
    }

    /// Back through the norm for a group of channels: the gradient at its output is in the window, and gives way to that at
    /// its input.
    fn through_norm(
        &self,
        (z, z_dims): (&CpuStorage, &[usize]),
        (range, blocks): (Range<usize>, &[Range<usize>]),
        (window, dims): (&mut CpuStorage, &[usize]),
        (statistics, sums): (&NormStatistics, &NormSums),
    ) -> Result<()> {
        let layers = self.sliced.norm_neurons().ok_or_else(lost)?;
        let parts = storage::split(window, dims, blocks).ok_or_else(lost)?;
        blocks.par_iter().zip(parts).try_for_each(|(block, mut part)| {
            let of_block = layers.block(block)?;
            let (norm, _) = of_block.layers()?;
            let inside = block.start - range.start..block.end - range.start;
            let z = storage::gather(z, z_dims, inside.clone()).ok_or_else(lost)?;
            let z = storage::into_tensor(z, dims_of(dims, block), false);
            let of_channels = (statistics.for_channels(block), sums.for_channels(&inside));
            let dz = norm.input_gradient(&z, part.read(), &of_channels.0, &of_channels.1)?;
            match part.write(&dz) {
                true => Ok(()),
                false => Err(lost()),
            }
        })
    }

    /// Whether a block of channels fires as it did first.
    fn verify(
        &self,
        then: u64,
        n: &CpuStorage,
        dims: &[usize],
        neurons: &dyn WindowNeuron,
        v0: Option<&Tensor>,
    ) -> Result<()> {
        let (spikes, _) = neurons.fire(storage::part(n, 0..storage::len(n)), dims, v0)?;
        match then == checksum(&storage::into_tensor(spikes, dims, false))? {
            true => Ok(()),
            false => Err(Error::RecomputeDiffers {
                segment: self.name.clone(),
                what: "some of its channels fire in another way".into(),
            }),
        }
    }
}
