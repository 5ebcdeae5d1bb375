//! The gradient of the weight.

use super::{add_products, are_finite, SpikeRows, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::lanes::{from_lanes, to_lanes, Span};
use crate::nn::parallel::least_items;
use rayon::prelude::*;

/// Input features of one task at most: their sums stay in the second-level cache.
const FEATURES: usize = 256;

/// `to[o, i] += sum over the spikes p of feature i of dy[p, o]`, one unit (time step or image) after the other, the last first.
///
/// Each unit of `spikes` has a row for each input feature and a column for each position. `lanes` writes the gradients of a
/// unit at a block of [`LANES`] output channels, `[positions, LANES]`. A gradient that is not finite gives NaN for all weights
/// of its output channel, also where there is no spike.
pub(crate) fn add_weight_gradient<R: Real>(
    level: SimdLevel,
    spikes: &[&SpikeRows],
    lanes: impl Fn(usize, usize, &mut Vec<R>) + Sync,
    to: &mut [R],
) {
    let Some(inputs) = spikes.first().map(|spikes| spikes.len()) else { return };
    let blocks = to.len().div_ceil(inputs * LANES);
    // Tasks for all threads: blocks of output channels, and if they are too few, of input features.
    let parts = (2 * rayon::current_num_threads()).div_ceil(blocks);
    let features = inputs.div_ceil(parts).min(FEATURES);
    // About a tenth of a dense product.
    let work = spikes.iter().map(|spikes| spikes.width()).sum::<usize>() * LANES / 10;
    let all = to.par_chunks_mut(inputs * LANES).enumerate().with_min_len(least_items(inputs * work));
    all.for_each_init(Vec::new, |sums, (block, to)| {
        let span = Span { lanes: to.len() / inputs, plane: inputs, start: 0, len: inputs };
        sums.clear();
        sums.resize(inputs * LANES, R::ZERO);
        to_lanes(level, to, span, sums);
        let parts = sums.par_chunks_mut(features * LANES).enumerate();
        parts.with_min_len(least_items(features * work)).for_each_init(Vec::new, |table, (part, sums)| {
            let range = part * features..part * features + sums.len() / LANES;
            for (unit, spikes) in spikes.iter().enumerate().rev() {
                lanes(unit, block, table);
                add_products(level, (spikes.words(range.clone()), spikes.per_row()), table, sums);
                if !are_finite(table) {
                    spoil(table, sums);
                }
            }
        });
        from_lanes(level, sums, None, to, span);
    });
}

/// Makes NaN of the sums of lanes in which not all of `table` is finite.
fn spoil<R: Real>(table: &[R], sums: &mut [R]) {
    let mut taint = [R::ZERO; LANES];
    for row in table.as_chunks::<LANES>().0 {
        taint.iter_mut().zip(row).for_each(|(taint, value)| *taint += *value * R::ZERO);
    }
    for sums in sums.as_chunks_mut::<LANES>().0 {
        sums.iter_mut().zip(taint).for_each(|(sum, taint)| *sum += taint);
    }
}
