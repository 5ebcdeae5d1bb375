//! Channel chunks whose neurons are any layers: their graph is built group by group.

use super::sliced::Sliced;
use crate::autograd::{backward_from, Gradient};
use crate::checkpoint::leaves::{add_norm_gradients, run_leaves, Leaf};
use crate::checkpoint::norm_neurons::lost;
use crate::checkpoint::options::Options;
use crate::checkpoint::replay::{in_chunks, in_recompute, Chunks};
use crate::checkpoint::segment::Segment;
use crate::module::{ChannelLayer, Context, NormSums, Signal, States, WindowNorm};
use crate::storage::{self, checksum};
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor, Var};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Runs the layers as a segment.
pub(super) fn run(sliced: Sliced, options: Options, x: Tensor, context: &mut Context) -> Result<Tensor> {
    let name = options.segment().to_owned();
    let segment = Segment::new(&[&x], options)?;
    drop(x);
    let before = context.clone();
    let (mut first, record) = before.first_pass();
    let twin: Vec<Leaf> = sliced.leaves.iter().map(Leaf::detached).collect();
    let (with_weights, others) = twin.split_at(sliced.layer + 1);
    let mut outputs = None;
    let mut ran = segment.run(|x| -> candle_core::Result<Tensor> {
        let z = run_leaves(with_weights, x[0].clone(), &mut first)?;
        sliced.check_channels(&z, &name)?;
        let y = run_leaves(others, z, &mut first)?.contiguous()?;
        if segment.verifies() {
            outputs = Some(checksums(&sliced, &y)?);
        }
        Ok(y)
    })?;
    segment.adopt(&mut ran, sliced.leaves.iter().flat_map(Leaf::parameters), context)?;
    let again = before.recompute(record, ran.weights.accumulators());
    context.go_on_behind(&first);
    let backward = Backward { sliced, context: again, outputs, name };
    segment.seal_with(ran, move |kept, gradients| in_chunks(kept, gradients, |chunks| backward.back(chunks)))
}

/// Checksums of the output of each group.
fn checksums(sliced: &Sliced, y: &Tensor) -> Result<Vec<u64>> {
    let (_, layer, ..) = sliced.middle().ok_or_else(lost)?;
    let of = |range: Range<usize>| Ok(checksum(&y.narrow(2, range.start, range.len())?)?);
    sliced.ranges(layer, 0).into_iter().map(of).collect()
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
        let Chunks { input, gradient, is_tracked, variables } = chunks;
        let (layer_leaf, layer, norm_leaf, norm) = self.sliced.middle().ok_or_else(lost)?;
        let at_layer = layer_leaf.context(&mut self.context.clone());
        if self.sliced.before().is_empty() {
            let x = input.signal()?;
            drop(input);
            let at_output = self.through_channels(&x, gradient, layer, norm_leaf, norm)?;
            let dx = layer.back(x, at_output, is_tracked, &at_layer)?;
            return Ok((dx, variables.iter().map(|_| None).collect()));
        }
        let x = input.unpack()?;
        drop(input);
        let input = if is_tracked { Var::from_tensor(&x)?.into_inner() } else { x };
        let features = self.again(self.sliced.before(), input.clone(), &mut self.context.clone())?;
        let values = Signal::from(features.detach().contiguous()?);
        let at_output = self.through_channels(&values, gradient, layer, norm_leaf, norm)?;
        let at_features = layer.back(values, at_output, features.track_op(), &at_layer)?;
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
        features: &Signal,
        gradient: Gradient,
        layer: &dyn ChannelLayer,
        norm_leaf: &Leaf,
        norm: &dyn WindowNorm,
    ) -> Result<CpuStorage> {
        let shape = gradient.shape().clone();
        let mut window = gradient.into_storage()?;
        let at_norm = norm_leaf.context(&mut self.context.clone());
        let statistics = at_norm.recorded_statistics()?;
        let mut sums = NormSums { dy: Vec::new(), dy_normalized: Vec::new() };
        for (index, range) in self.sliced.ranges(layer, 0).into_iter().enumerate() {
            let slice = self.sliced.for_channels(&range)?;
            let (with_weights, neurons) = slice.split_at(2);
            let Some((producer, norm)) =
                with_weights.first().zip(with_weights.get(1).and_then(Leaf::window_norm))
            else {
                return Err(lost());
            };
            let statistics = statistics.for_channels(&range);
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
            let part = storage::gather(&window, shape.dims(), range.clone()).ok_or_else(lost)?;
            let part = Gradient::new(part, y.shape());
            let mut store = backward_from(vec![(y, part)])?;
            let dn = match store.remove(&n) {
                Some(dn) => Gradient::from(dn.detach()).into_storage()?,
                None => Gradient::from(n.zeros_like()?).into_storage()?,
            };
            drop((store, n));
            let mut of_slice = norm.no_sums();
            norm.add_sums(&mut of_slice, &z, &dn, &statistics)?;
            let of_ranks = at_norm.sums_of_ranks(of_slice.clone())?;
            let dz = norm.input_gradient(&z, dn, &statistics, &of_ranks)?;
            let mut parts =
                storage::split(&mut window, shape.dims(), std::slice::from_ref(&range)).ok_or_else(lost)?;
            if !parts.first_mut().is_some_and(|part| part.write(&dz)) {
                return Err(lost());
            }
            sums.dy.extend(of_slice.dy);
            sums.dy_normalized.extend(of_slice.dy_normalized);
        }
        add_norm_gradients(norm, &sums, &at_norm)?;
        Ok(window)
    }

    /// Runs layers once more.
    fn again(&self, leaves: &[Leaf], x: impl Into<Signal>, context: &mut Context) -> Result<Tensor> {
        in_recompute(&self.name, || run_leaves(leaves, x, context))
    }

    /// The states that the neurons began with, for some channels.
    fn states_of(&self, range: &Range<usize>) -> Result<States> {
        let mut states = States::default();
        for leaf in &self.sliced.leaves[self.sliced.layer + 2..] {
            let at_neurons = leaf.context(&mut self.context.clone());
            if let Some(state) = at_neurons.initial_state()? {
                let path = at_neurons.path().to_owned();
                states.set(&path, state.narrow(1, range.start, range.len())?.contiguous()?);
            }
        }
        Ok(states)
    }
}
