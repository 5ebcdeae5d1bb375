//! A weight as tables of lanes, some at a time.

use super::{are_finite, wide_blocks, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::lanes::{to_lanes, Span};
use crate::nn::parallel::least_items;
use rayon::prelude::*;
use std::ops::Range;

/// A weight `[outputs, inputs]` in blocks of [`LANES`] output channels, of which tables `[inputs, LANES]` are made.
pub(crate) struct WeightTables<'a, R> {
    weight: &'a [R],
    inputs: usize,
    /// Of each block but one of few output channels.
    finite: Vec<bool>,
}

impl<'a, R: Real> WeightTables<'a, R> {
    /// Those of a weight, row-major. None exists yet.
    pub fn new(weight: &'a [R], inputs: usize) -> Self {
        let (block, count) = (inputs.max(1) * LANES, wide_blocks(weight.len() / inputs.max(1)));
        let blocks = weight.par_chunks(block).take(count).with_min_len(least_items(block));
        WeightTables { weight, inputs, finite: blocks.map(are_finite).collect() }
    }

    /// Whether a block has a table: not if its output channels are few, or a weight is not finite: zero times it would be no
    /// number.
    pub fn has(&self, block: usize) -> bool {
        self.finite.get(block).is_some_and(|finite| *finite)
    }

    /// Blocks whose tables exist at a time: one for each thread, so that the weight is never copied as a whole.
    pub fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let (count, step) = (self.finite.len(), rayon::current_num_threads());
        (0..count).step_by(step).map(move |first| first..(first + step).min(count))
    }

    /// The tables of some blocks; lanes without an output channel are zero.
    pub fn of(&self, level: SimdLevel, blocks: Range<usize>) -> Vec<Option<Vec<R>>> {
        let block = self.inputs * LANES;
        let table = |index: usize| {
            let weight = &self.weight[index * block..self.weight.len().min((index + 1) * block)];
            let span =
                Span { lanes: weight.len() / self.inputs, plane: self.inputs, start: 0, len: self.inputs };
            let mut table = vec![R::ZERO; block];
            to_lanes(level, weight, span, &mut table);
            table
        };
        // An element takes as long as some multiplications.
        let blocks = blocks.into_par_iter().with_min_len(least_items(8 * block));
        blocks.map(|index| self.has(index).then(|| table(index))).collect()
    }
}
