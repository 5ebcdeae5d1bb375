//! A weight as tables of lanes.

use super::{are_finite, wide_blocks, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::lanes::{to_lanes, Span};
use crate::nn::parallel::least_items;
use rayon::prelude::*;

/// A weight `[outputs, inputs]` as `[outputs / LANES, inputs, LANES]`, but for a block of few output channels; lanes without one
/// are zero.
pub(crate) struct WeightTable<R> {
    lanes: Vec<R>,
    /// Elements of a block.
    block: usize,
    /// Of each block.
    finite: Vec<bool>,
}

impl<R: Real> WeightTable<R> {
    /// That of a weight, row-major.
    pub fn new(level: SimdLevel, weight: &[R], inputs: usize) -> Self {
        let block = inputs * LANES;
        let mut lanes = vec![R::ZERO; wide_blocks(weight.len() / inputs.max(1)) * block];
        let blocks = lanes.par_chunks_mut(block).zip(weight.par_chunks(block));
        // An element takes as long as some multiplications.
        let blocks = blocks.with_min_len(least_items(8 * block));
        let finite = blocks.map(|(to, weight)| {
            let span = Span { lanes: weight.len() / inputs, plane: inputs, start: 0, len: inputs };
            to_lanes(level, weight, span, to);
            are_finite(weight)
        });
        let finite = finite.collect();
        WeightTable { lanes, block, finite }
    }

    /// The table of a block of output channels; `None` if these are few, or a weight is not finite: zero times it would be no
    /// number.
    pub fn block(&self, block: usize) -> Option<&[R]> {
        let finite = self.finite.get(block).is_some_and(|finite| *finite);
        finite.then(|| &self.lanes[block * self.block..][..self.block])
    }
}
