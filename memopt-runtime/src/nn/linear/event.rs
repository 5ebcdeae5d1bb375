//! Rows of spikes, event by event; all others by dense products.
//!
//! The choice is a function of a row's values and the weights of one group of output channels for the output, and of a time
//! step's values for the gradient of the weight: the same under every plan. A product of a time step's rows takes all of them
//! where one is dense, so that its bits do not depend on which others are.

use super::dense::Sizes;
use crate::compress::kernels::{self, SimdLevel};
use crate::module::Incoming;
use crate::nn::element::Element;
use crate::nn::lanes::LANES;
use crate::nn::parallel::least_items;
use crate::nn::spikes::{self, add_products, rounds, wide_blocks, SpikeRows, SpikeSizes, WeightTables};
use crate::Result;
use candle_core::DType;
use rayon::prelude::*;
use std::ops::Range;

/// A row is computed event by event if there are at most this many ones among 100 features. Where both ways take the same time:
/// one row above it makes a product of the rows around it, so that a lower bound costs more than it saves.
const OUTPUT_PERCENT: usize = 40;
/// The same of the rows of a time step, for the gradient of the weight.
const WEIGHT_PERCENT: usize = 30;
/// Input features from which looking for spikes pays.
const INPUTS: usize = 32;
/// Rows of one task, at most and at least.
const ROWS: [usize; 2] = [64, 8];

/// Sizes of the products of rows of spikes, if there may be such rows in a window of which that is known.
fn spike_sizes(sizes: Sizes, x: &Incoming, percent: usize) -> Option<SpikeSizes> {
    let Sizes { steps, rows, inputs, outputs } = sizes;
    let are_few = x.densities.is_some_and(|found| found.least * 100. <= percent as f64);
    (are_few && rows > 0 && inputs >= INPUTS && wide_blocks(outputs) > 0).then_some(())?;
    let real = if x.dtype == DType::F64 { 8 } else { 4 };
    Some(SpikeSizes { units: steps, rows, inputs, outputs, real, threads: x.threads })
}

/// Bytes that [`forward`] takes beside input and output.
pub(super) fn forward_scratch(sizes: Sizes, x: &Incoming) -> usize {
    let task = (sizes.steps * sizes.rows / (2 * x.threads)).clamp(ROWS[1], ROWS[0]);
    let spikes = spike_sizes(sizes, x, OUTPUT_PERCENT).map_or(0, |spikes| spikes.forward(task));
    spikes + sizes.forward_scratch(x)
}

/// Bytes that [`add_weight_gradient`] takes beside the gradients.
pub(super) fn backward_scratch(sizes: Sizes, x: &Incoming) -> usize {
    let spikes = spike_sizes(sizes, x, WEIGHT_PERCENT);
    let of_weight = spikes.map_or(0, |spikes| spikes.weight_gradient().max(spikes.looking()));
    of_weight.max(sizes.weight_gradient_scratch(x))
}

/// The rows of spikes among some rows.
struct Found {
    /// Which they are, in ascending order.
    which: Vec<usize>,
    spikes: SpikeRows,
}

/// `y = x weight^T + bias`
pub(super) fn forward<E: Element + kernels::Element>(
    level: SimdLevel,
    sizes: Sizes,
    x: &[E],
    weight: &[E::Real],
    bias: Option<&[E::Real]>,
    y: &mut [E],
) -> Result<()> {
    let Sizes { steps, rows, inputs, outputs } = sizes;
    if inputs < INPUTS || wide_blocks(outputs) == 0 {
        return sizes.forward(x, weight, bias, y, |_, _| true);
    }
    for round in rounds(steps, [rows, inputs]) {
        let x = &x[round.start * rows * inputs..round.end * rows * inputs];
        let y = &mut y[round.start * rows * outputs..round.end * rows * outputs];
        forward_steps(level, Sizes { steps: round.len(), ..sizes }, x, weight, bias, y)?;
    }
    Ok(())
}

/// The same of some time steps, all of whose bits exist.
fn forward_steps<E: Element + kernels::Element>(
    level: SimdLevel,
    sizes: Sizes,
    x: &[E],
    weight: &[E::Real],
    bias: Option<&[E::Real]>,
    y: &mut [E],
) -> Result<()> {
    let Sizes { steps, rows, inputs, outputs } = sizes;
    let task = (steps * rows / (2 * rayon::current_num_threads())).clamp(ROWS[1], ROWS[0]);
    let most = inputs * OUTPUT_PERCENT / 100;
    let found = x.par_chunks(task * inputs).with_min_len(least_items(task * inputs)).map(|x| {
        let mut found = Found { which: Vec::new(), spikes: SpikeRows::new(inputs) };
        for (row, x) in x.chunks_exact(inputs).enumerate() {
            if found.spikes.push(level, x, most) {
                found.which.push(row);
            }
        }
        found
    });
    let found: Vec<Found> = found.collect();
    if found.iter().all(|found| found.which.is_empty()) {
        return sizes.forward(x, weight, bias, y, |_, _| true);
    }
    let tables = WeightTables::new(weight, inputs);
    let mut dense = vec![true; steps * rows];
    for (dense, found) in dense.chunks_mut(task).zip(&found) {
        found.which.iter().for_each(|&row| dense[row] = false);
    }
    let wanted = |rows: Range<usize>, group| !tables.has(group) || dense[rows].contains(&true);
    sizes.forward(x, weight, bias, y, wanted)?;
    for blocks in tables.groups() {
        let first = blocks.start;
        let tables = tables.of(level, blocks);
        let tasks = y.par_chunks_mut(task * outputs).zip(&found);
        // About a tenth of a dense product.
        let least = least_items(task * inputs * outputs.min(tables.len() * LANES) / 10);
        tasks.with_min_len(least).for_each_init(Vec::new, |sums, (y, found)| {
            for (block, table) in tables.iter().enumerate() {
                let Some(table) = table else { continue };
                let bias = bias.map(|bias| &bias[(first + block) * LANES..]);
                found.write(level, table, bias, (y, outputs, (first + block) * LANES), sums);
            }
        });
    }
    Ok(())
}

impl Found {
    /// Writes a block of output channels of these rows, from `first` on of `outputs`.
    fn write<E: Element>(
        &self,
        level: SimdLevel,
        table: &[E::Real],
        bias: Option<&[E::Real]>,
        (y, outputs, first): (&mut [E], usize, usize),
        sums: &mut Vec<E::Real>,
    ) {
        sums.clear();
        sums.resize(self.which.len() * LANES, E::Real::ZERO);
        add_products(level, (self.spikes.words(0..self.which.len()), self.spikes.per_row()), table, sums);
        for (sums, row) in sums.as_chunks::<LANES>().0.iter().zip(&self.which) {
            let y = &mut y[row * outputs + first..][..LANES.min(outputs - first)];
            match bias {
                Some(bias) => {
                    let sums = sums.iter().zip(bias).map(|(sum, bias)| *sum + *bias);
                    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = E::store(sum));
                }
                None => y.iter_mut().zip(sums).for_each(|(y, sum)| *y = E::store(*sum)),
            }
        }
    }
}

/// Adds the gradient of the weight to `to`, one time step after the other, the last first.
pub(super) fn add_weight_gradient<E: Element + kernels::Element>(
    level: SimdLevel,
    sizes: Sizes,
    x: &[E],
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let Sizes { rows, inputs, outputs, .. } = sizes;
    if rows == 0 || inputs < INPUTS || wide_blocks(outputs) == 0 {
        return sizes.add_weight_gradient(x, dy, 0, to);
    }
    for round in rounds(sizes.steps, [rows, inputs]).rev() {
        let x = &x[round.start * rows * inputs..round.end * rows * inputs];
        let dy = &dy[round.start * rows * outputs..round.end * rows * outputs];
        add_weight_gradient_of_steps(level, Sizes { steps: round.len(), ..sizes }, x, dy, to)?;
    }
    Ok(())
}

/// The same of some time steps, all of whose bits exist.
fn add_weight_gradient_of_steps<E: Element + kernels::Element>(
    level: SimdLevel,
    sizes: Sizes,
    x: &[E],
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let Sizes { rows, inputs, outputs, .. } = sizes;
    // Blocks of few output channels are left to products.
    let wide = (wide_blocks(outputs) * LANES).min(outputs);
    let most = rows * inputs * WEIGHT_PERCENT / 100;
    let steps = x.par_chunks_exact(rows * inputs).with_min_len(least_items(rows * inputs));
    let steps: Vec<Option<SpikeRows>> =
        steps.map(|x| SpikeRows::of_floats(level, x, inputs, most).map(|rows| rows.transposed())).collect();
    let mut end = steps.len();
    for run in steps.chunk_by(|a, b| a.is_some() == b.is_some()).rev() {
        let start = end - run.len();
        let dy = &dy[start * rows * outputs..end * rows * outputs];
        let x = &x[start * rows * inputs..end * rows * inputs];
        let spikes: Vec<&SpikeRows> = run.iter().flatten().collect();
        if spikes.is_empty() {
            sizes.add_weight_gradient(x, dy, 0, to)?;
        } else {
            let lanes = |step: usize, block: usize, table: &mut Vec<E::Real>| {
                table.clear();
                table.resize(rows * LANES, E::Real::ZERO);
                let dy = dy[step * rows * outputs..][..rows * outputs].chunks_exact(outputs);
                for (to, dy) in table.as_chunks_mut::<LANES>().0.iter_mut().zip(dy) {
                    to.iter_mut().zip(&dy[block * LANES..]).for_each(|(to, dy)| *to = dy.load());
                }
            };
            let (to, narrow) = to.split_at_mut(wide * inputs);
            spikes::add_weight_gradient(level, &spikes, lanes, to);
            sizes.add_weight_gradient(x, dy, wide, narrow)?;
        }
        end = start;
    }
    Ok(())
}
