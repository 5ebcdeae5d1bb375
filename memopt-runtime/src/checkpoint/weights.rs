//! The gradients that the layers of a recompute added up in buffers of their own.

use crate::autograd::Gradient;
use crate::module::Accumulators;
use crate::Result;
use candle_core::Tensor;
use std::sync::Arc;

/// Where the layers of a segment add up the gradients of their weights while it is gone back through.
#[derive(Default)]
pub(super) enum Weights {
    /// They are found in the graph: plain code.
    #[default]
    InGraph,
    /// In the segment's own buffers.
    Own(Arc<Accumulators>),
    /// In those of the segment around it, which hands them on.
    OfOuter(Arc<Accumulators>),
}

impl Weights {
    /// In the buffers of the segment around, if there is one.
    pub(super) fn inside(outer: Option<Arc<Accumulators>>) -> Result<Self> {
        Ok(match outer {
            Some(outer) => Weights::OfOuter(outer),
            None => Weights::Own(Arc::new(Accumulators::new()?)),
        })
    }

    pub(super) fn accumulators(&self) -> Option<Arc<Accumulators>> {
        match self {
            Weights::InGraph => None,
            Weights::Own(accumulators) | Weights::OfOuter(accumulators) => Some(accumulators.clone()),
        }
    }

    /// The variable that stands for all weights with a buffer.
    pub(super) fn ghost(&self) -> Option<&Tensor> {
        match self {
            Weights::InGraph => None,
            Weights::Own(accumulators) | Weights::OfOuter(accumulators) => Some(accumulators.ghost()),
        }
    }

    /// The gradient of a variable: what the graph gave, and what its uses added up here, in the order of their paths.
    pub(super) fn gradient(&self, variable: &Tensor, in_graph: Option<Gradient>) -> Result<Option<Gradient>> {
        let Weights::Own(accumulators) = self else { return Ok(in_graph) };
        let sums = accumulators.of(variable.id()).into_iter().map(|sum| Gradient::new(sum, variable.shape()));
        let mut all = in_graph.into_iter().chain(sums);
        let first = all.next();
        Ok(first.map(|first| all.try_fold(first, Gradient::plus)).transpose()?)
    }
}
