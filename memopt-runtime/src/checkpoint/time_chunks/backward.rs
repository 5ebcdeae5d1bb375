//! The recompute of a window in time chunks, and the way back through it.

use super::chunked::{check_steps, Chunked};
use super::first_pass::Ran;
use crate::autograd::Gradient;
use crate::checkpoint::leaves::{add_norm_gradients, run_leaves, Leaf};
use crate::checkpoint::replay::{in_recompute, Chunks, InputSteps};
use crate::checkpoint::window::GivingWay;
use crate::module::{Context, NormStatistics, NormSums, States, WindowNorm};
use crate::{Error, Result};
use candle_core::Tensor;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The recompute and the way back.
pub(super) struct Backward {
    pub(super) chunked: Chunked,
    pub(super) ran: Ran,
    pub(super) context: Context,
    pub(super) name: String,
}

/// What the ways back of one backward share.
pub(super) struct Way<'a> {
    pub(super) input: InputSteps,
    pub(super) ranges: Vec<Range<usize>>,
    pub(super) variables: &'a [Tensor],
    /// What Candle's own layers have in the graph.
    pub(super) foreign: Vec<Option<Gradient>>,
}

/// What a norm's backward needs for a chunk of its input, when all is known of the window.
pub(super) struct OfNorm<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) norm: &'a dyn WindowNorm,
    pub(super) statistics: &'a NormStatistics,
    pub(super) sums: NormSums,
}

impl Backward {
    /// The gradient of the input, and those of variables that the layers did not add up themselves.
    pub(super) fn back(&self, chunks: Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)> {
        let Chunks { input, gradient, is_tracked, variables } = chunks;
        let input = input.in_steps()?;
        let ranges = self.chunked.ranges(input.steps());
        let no_states = vec![States::default(); ranges.len()];
        let foreign = variables.iter().map(|_| None).collect();
        let mut way = Way { input, ranges, variables, foreign };
        let in_graph = self.chunked.in_graph();
        let dx = match self.chunked.norm() {
            None => {
                let borders = self.borders(&way.input, &way.ranges, None)?.after;
                self.through_layers(&mut way, gradient, in_graph, &borders, None, is_tracked)?
            }
            Some((leaf, norm)) => {
                let at_norm = leaf.context(&mut self.context.clone());
                let statistics = at_norm.recorded_statistics()?;
                let (gradient, sums, borders) = match self.chunked.norm_neurons() {
                    Some(layers) => self.through_neurons(&way, gradient, layers, &statistics)?,
                    None => self.through_norm(&mut way, gradient, norm, &statistics)?,
                };
                // Without states the neurons' ranges need not be the chunks.
                let borders = if self.ran.before_has_states { borders } else { no_states };
                add_norm_gradients(norm, &sums, &at_norm)?;
                let sums = at_norm.sums_of_ranks(sums)?;
                let of_norm = OfNorm { leaf, norm, statistics: &statistics, sums };
                match self.chunked.layer() {
                    None => {
                        let of_norm = Some(&of_norm);
                        self.through_layers(&mut way, gradient, in_graph, &borders, of_norm, is_tracked)?
                    }
                    Some(layer) => {
                        let goes_on = in_graph.iter().any(|leaf| !leaf.parameters().is_empty());
                        let wanted = is_tracked || goes_on;
                        let at_layer =
                            self.through_layer(&way, gradient, layer, &of_norm, &borders, wanted)?;
                        match at_layer {
                            Some(gradient) if !in_graph.is_empty() => {
                                self.through_layers(&mut way, gradient, in_graph, &borders, None, is_tracked)?
                            }
                            other => other,
                        }
                    }
                }
            }
        };
        let Way { ranges, foreign, .. } = way;
        if ranges.len() > 1 && foreign.iter().any(Option::is_some) {
            self.context.note(format!(
                "`{}`: some gradients of weights are added up chunk by chunk, within rounding of the unoptimized \
                 model's: the weights do not go through `Context::weight`",
                self.name
            ));
        }
        Ok((dx, foreign))
    }

    /// What goes into the norm for a chunk: the layers before it, which are a detached twin.
    pub(super) fn before_norm(
        &self,
        twin: &[Leaf],
        x: Tensor,
        range: &Range<usize>,
        states: Arc<Mutex<States>>,
    ) -> Result<Tensor> {
        let mut context = self.context.chunk(range.start, states);
        let z = in_recompute(&self.name, || run_leaves(twin, x, &mut context))?;
        check_steps(&z, range, &self.name)?;
        Ok(z.contiguous()?)
    }

    /// The error for a recompute that is another one.
    pub(super) fn differs(&self, what: String) -> Error {
        Error::RecomputeDiffers { segment: self.name.clone(), what }
    }
}

/// The gradient over the window as a buffer that gives way to the one before it.
pub(super) fn giving_way(gradient: Gradient) -> Result<GivingWay> {
    let dims = gradient.shape().dims().to_vec();
    Ok(GivingWay::new(gradient.into_storage()?, &dims))
}
