//! A weight as tables of lanes.

use super::{are_finite, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::lanes::{to_lanes, Span};
use rayon::prelude::*;

/// A weight `[outputs, inputs]` as `[outputs / LANES, inputs, LANES]`; lanes without an output channel are zero.
pub(crate) struct WeightTable<R> {
    lanes: Vec<R>,
    /// Elements of a block.
    block: usize,
    finite: Vec<bool>,
}

impl<R: Real> WeightTable<R> {
    /// That of a weight, row-major.
    pub fn new(level: SimdLevel, weight: &[R], inputs: usize) -> Self {
        let block = inputs * LANES;
        let mut lanes = vec![R::ZERO; weight.len().div_ceil(block) * block];
        let blocks = lanes.par_chunks_mut(block).zip(weight.par_chunks(block));
        let finite = blocks.map(|(to, weight)| {
            let span = Span { lanes: weight.len() / inputs, plane: inputs, start: 0, len: inputs };
            to_lanes(level, weight, span, to);
            are_finite(weight)
        });
        let finite = finite.collect();
        WeightTable { lanes, block, finite }
    }

    /// The table of a block of output channels; `None` if a weight is not finite: zero times it would be no number.
    pub fn block(&self, block: usize) -> Option<&[R]> {
        self.finite[block].then(|| &self.lanes[block * self.block..][..self.block])
    }

    /// Whether all weights are finite.
    pub fn is_finite(&self) -> bool {
        !self.finite.contains(&false)
    }
}
