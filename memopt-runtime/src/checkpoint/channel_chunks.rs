//! Segments that are recomputed and gone back through in groups of output channels, exactly.
//!
//! For layers F (a pool, say), a convolution or linear layer, a norm over the window, and neurons that work each by
//! itself.
//! Statistics and neurons are by channel, so that the recompute of a group of channels over the whole window finishes the
//! neurons' backward, the norm's two sums and the norm's backward for them in one pass: no states at borders, and no
//! second pass. The gradient at the layer's output takes the place of the incoming one, group by group; then one backward
//! of the layer, and of F.

use super::leaves::{leaves_of, run_leaves, Leaf};
use super::options::Options;
use super::replay::{in_chunks, in_recompute, Chunks};
use super::segment::Segment;
use crate::autograd::{backward_from, Gradient};
use crate::module::{ChannelLayer, Context, NormStatistics, NormSums, Signal, States, Step, WindowNorm};
use crate::storage::{self, checksum, Channels};
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor, Var};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Runs steps as a segment of `chunks` groups of channels. In evaluation, whose norm is no sum over the window, they are
/// recomputed as a whole.
pub(super) fn in_channel_chunks(
    steps: &[Step],
    chunks: usize,
    options: Options,
    x: Signal,
    context: &mut Context,
) -> Result<Signal> {
    let name = options.segment.clone();
    // A view that repeats elements has a gradient for each of them here.
    let x = x.into_dense(&name)?.contiguous()?;
    let sliced = Sliced::of(leaves_of(steps), chunks, &name)?;
    let segment = Segment::new(&[&x], options)?;
    drop(x);
    let (mut first, record) = context.first_pass();
    let twin: Vec<Leaf> = sliced.leaves.iter().map(Leaf::detached).collect();
    let mut outputs = None;
    let mut ran = segment.run(|x| -> candle_core::Result<Tensor> {
        let y = sliced.first_pass(&twin, x[0].clone(), &mut first, &name)?.contiguous()?;
        if segment.verifies() {
            outputs = Some(sliced.checksums(&y)?);
        }
        Ok(y)
    })?;
    segment.adopt(&mut ran, sliced.leaves.iter().flat_map(Leaf::parameters), context)?;
    let again = context.recompute(record, ran.weights.accumulators());
    context.go_on_behind(&first);
    let backward = Backward { sliced, context: again, outputs, name };
    let back = move |kept, gradients| in_chunks(kept, gradients, |chunks| backward.back(chunks));
    let y: Tensor = segment.seal_with(ran, back)?;
    Ok(y.into())
}

/// Whether layers can be run in channel chunks.
pub(super) fn check(leaves: Vec<Leaf>, segment: &str) -> Result<()> {
    Sliced::of(leaves, 1, segment).map(|_| ())
}

/// The layers of such a segment: F, a layer with weights, a norm, neurons.
struct Sliced {
    leaves: Vec<Leaf>,
    /// Which is the layer with weights; the norm follows it.
    layer: usize,
    chunks: usize,
}

impl Sliced {
    fn of(leaves: Vec<Leaf>, chunks: usize, segment: &str) -> Result<Self> {
        let wrong =
            |what: &str| Error::NotChannelChunkable { segment: segment.to_owned(), what: what.to_owned() };
        let layer = leaves
            .windows(2)
            .position(|pair| pair[0].channel_layer().is_some() && pair[1].window_norm().is_some())
            .ok_or_else(|| {
                wrong("it has no convolution of one group and no linear layer with a norm behind it")
            })?;
        for leaf in &leaves[layer + 2..] {
            let mixes = leaf.channel_layer().is_some() || leaf.window_norm().is_some();
            if mixes || leaf.for_channels(0..1)?.is_none() {
                return Err(wrong(&format!("`{}` needs all channels at once", leaf.path())));
            }
        }
        if leaves[..layer].iter().any(|leaf| leaf.window_norm().is_some()) {
            return Err(wrong("it has several norms over the window; split in space first"));
        }
        Ok(Sliced { leaves, layer, chunks })
    }

    /// The output by the twin of all layers; an error before anything moves if channels are not where they are cut.
    fn first_pass(&self, twin: &[Leaf], x: Tensor, context: &mut Context, segment: &str) -> Result<Tensor> {
        let (with_weights, others) = twin.split_at(self.layer + 1);
        let z = run_leaves(with_weights, x, context)?;
        let (leaf, layer, ..) = self.middle().ok_or_else(lost)?;
        if !layer.channels_are_third(z.dims()) {
            let what =
                format!("`{}` gives {:?}, whose channels are not the third dimension", leaf.path(), z.dims());
            return Err(Error::NotChannelChunkable { segment: segment.to_owned(), what });
        }
        run_leaves(others, z, context)
    }

    fn before(&self) -> &[Leaf] {
        &self.leaves[..self.layer]
    }

    /// The layer with weights, and the norm.
    fn middle(&self) -> Option<(&Leaf, &dyn ChannelLayer, &Leaf, &dyn WindowNorm)> {
        let (layer, norm) = (self.leaves.get(self.layer)?, self.leaves.get(self.layer + 1)?);
        Some((layer, layer.channel_layer()?, norm, norm.window_norm()?))
    }

    /// The groups of channels: as equal as can be, and begun where the layer's own groups begin.
    fn ranges(&self, layer: &dyn ChannelLayer) -> Vec<Range<usize>> {
        let (channels, group) = (layer.channels(), layer.group().max(1));
        let groups = channels.div_ceil(group);
        let chunks = self.chunks.clamp(1, groups.max(1));
        let border = |i: usize| (i * groups / chunks * group).min(channels);
        (0..chunks).map(|i| border(i)..border(i + 1)).collect()
    }

    /// Checksums of the output of each group.
    fn checksums(&self, y: &Tensor) -> Result<Vec<u64>> {
        let (_, layer, ..) = self.middle().ok_or_else(lost)?;
        let of = |range: Range<usize>| Ok(checksum(&y.narrow(2, range.start, range.len())?)?);
        self.ranges(layer).into_iter().map(of).collect()
    }

    /// The layers from the one with weights on, for some channels, detached but for the neurons.
    fn for_channels(&self, range: &Range<usize>) -> Result<Vec<Leaf>> {
        let sliced = self.leaves[self.layer..].iter().map(|leaf| leaf.for_channels(range.clone()));
        sliced.map(|leaf| leaf?.ok_or_else(lost)).collect()
    }
}

fn lost() -> Error {
    candle_core::Error::Msg("a layer lost its channels".into()).into()
}

/// The recompute and the way back.
struct Backward {
    sliced: Sliced,
    context: Context,
    /// Checksums of the output of each group, if the recompute is verified.
    outputs: Option<Vec<u64>>,
    name: String,
}

impl Backward {
    /// The gradient of the input, and what the layers F have in the graph.
    fn back(&self, chunks: Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)> {
        let Chunks { x, gradient, is_tracked, variables } = chunks;
        let (layer_leaf, layer, norm_leaf, norm) = self.sliced.middle().ok_or_else(lost)?;
        let input = if is_tracked { Var::from_tensor(&x)?.into_inner() } else { x };
        let features = self.again(self.sliced.before(), input.clone(), &mut self.context.clone())?;
        let values = features.detach().contiguous()?;
        let at_output = self.through_channels(&values, gradient, layer, norm_leaf, norm)?;
        let wants_input = features.track_op();
        let at_features = layer_leaf
            .at(&mut self.context.clone(), |context| layer.back(&values, at_output, wants_input, context))?;
        drop(values);
        let mut store = match at_features {
            Some(gradient) => backward_from(vec![(features, gradient)])?,
            None => Default::default(),
        };
        let dx = if is_tracked { store.remove(&input).map(Gradient::from) } else { None };
        Ok((dx, variables.iter().map(|variable| store.remove(variable).map(Gradient::from)).collect()))
    }

    /// The gradient at the output of the layer with weights, in the place of the incoming one.
    fn through_channels(
        &self,
        features: &Tensor,
        gradient: Gradient,
        layer: &dyn ChannelLayer,
        norm_leaf: &Leaf,
        norm: &dyn WindowNorm,
    ) -> Result<CpuStorage> {
        let shape = gradient.shape().clone();
        let mut window = gradient.into_storage()?;
        let mut at_norm = self.context.clone();
        let statistics = norm_leaf.at(&mut at_norm, |context| context.recorded_statistics())?;
        let mut sums = NormSums { dy: Vec::new(), dy_normalized: Vec::new() };
        for (index, range) in self.sliced.ranges(layer).into_iter().enumerate() {
            let channels = Channels::of(shape.dims(), range.clone()).ok_or_else(lost)?;
            let slice = self.sliced.for_channels(&range)?;
            let (with_weights, neurons) = slice.split_at(2);
            let Some((producer, norm)) =
                with_weights.first().zip(with_weights.get(1).and_then(Leaf::window_norm))
            else {
                return Err(lost());
            };
            let statistics = NormStatistics {
                mean: statistics.mean[range.clone()].to_vec(),
                squares: statistics.squares[range.clone()].to_vec(),
                count: statistics.count,
            };
            let twin = [producer.detached()];
            let z = self.again(&twin, features.clone(), &mut self.context.clone())?.contiguous()?;
            let normalized = norm.normalize(storage::owned(&z)?, z.dims(), &statistics)?;
            let n = storage::into_tensor(normalized, z.shape(), true);
            let states = Arc::new(Mutex::new(self.states_of(&range)?));
            let y = self.again(neurons, n.clone(), &mut self.context.chunk(0, states))?;
            if let Some(then) = &self.outputs {
                if then.get(index) != Some(&checksum(&y.detach())?) {
                    let what = format!("channels {range:?} have other values");
                    return Err(Error::RecomputeDiffers { segment: self.name.clone(), what });
                }
            }
            let part = Gradient::new(storage::gather(&window, &channels), y.shape());
            let mut store = backward_from(vec![(y, part)])?;
            let dn = match store.remove(&n) {
                Some(dn) => Gradient::from(dn.detach()).into_storage()?,
                None => Gradient::from(n.zeros_like()?).into_storage()?,
            };
            drop((store, n));
            let mut of_slice = norm.no_sums();
            norm.add_sums(&mut of_slice, &z, &dn, &statistics)?;
            let dz = norm.input_gradient(&z, dn, &statistics, &of_slice)?;
            storage::scatter(&mut window, &channels, &dz);
            sums.dy.extend(of_slice.dy);
            sums.dy_normalized.extend(of_slice.dy_normalized);
        }
        norm_leaf.add_norm_gradients(norm, &sums, &mut at_norm)?;
        Ok(window)
    }

    /// Runs layers once more.
    fn again(&self, leaves: &[Leaf], x: Tensor, context: &mut Context) -> Result<Tensor> {
        in_recompute(&self.name, || run_leaves(leaves, x, context))
    }

    /// The states that the neurons began with, for some channels.
    fn states_of(&self, range: &Range<usize>) -> Result<States> {
        let mut states = States::default();
        for leaf in &self.sliced.leaves[self.sliced.layer + 2..] {
            let found = leaf.at(&mut self.context.clone(), |context| {
                Ok::<_, Error>(context.initial_state()?.map(|state| (context.path().to_owned(), state)))
            });
            if let Some((path, state)) = found? {
                states.set(&path, state.narrow(1, range.start, range.len())?.contiguous()?);
            }
        }
        Ok(states)
    }
}
