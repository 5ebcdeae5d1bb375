//! Bytes that the kernels for rows of spikes take while they run.

use super::{rounds, wide_blocks, LANES};
use crate::nn::parallel::{least_items, running};

/// Sizes of a product of rows of spikes and a weight: so many units (time steps or images) of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpikeSizes {
    pub units: usize,
    /// Rows of a unit.
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
    /// Bytes of a number that is computed with.
    pub real: usize,
    pub threads: usize,
}

impl SpikeSizes {
    /// Bytes of `rows` of bits that begin at a word of their own.
    fn bits(rows: usize, width: usize) -> usize {
        rows * width.div_ceil(u64::BITS as usize) * size_of::<u64>()
    }

    /// Units whose bits exist at a time.
    fn in_round(&self) -> usize {
        rounds(self.units, [self.rows, self.inputs]).next().map_or(0, |round| round.len())
    }

    /// Bytes of an output: the bits of a round, a table of the weight for each thread, and the sums of `together` rows there.
    pub fn forward(&self, together: usize) -> usize {
        let blocks = self.threads.min(wide_blocks(self.outputs));
        let tables = blocks * self.inputs * LANES * self.real;
        let tasks = self.in_round() * self.rows.div_ceil(together.max(1)) * blocks;
        let work = together * self.inputs * LANES / 10;
        let sums =
            running(self.threads, tasks, work) * together.min(self.rows * self.units) * LANES * self.real;
        Self::bits(self.in_round() * self.rows, self.inputs) + tables + sums
    }

    /// Bytes of a gradient of the weight: the bits of a round, by input features; for each thread the sums of a block of output
    /// channels, and the gradients that are added to it.
    pub fn weight_gradient(&self) -> usize {
        let units = self.in_round();
        let bits = units * Self::bits(self.inputs, self.rows);
        let work = units * self.rows * LANES / 10;
        let blocks = wide_blocks(self.outputs);
        let at_once = running(self.threads, blocks, self.inputs * work);
        let inside = running(self.threads, self.inputs, work).max(at_once);
        let sums = at_once * self.inputs * LANES;
        bits + (sums + inside * self.rows * LANES) * self.real
    }

    /// Bytes of a unit while its bits are looked for, in each thread: as they lie, in rows, and for the gradient of the weight
    /// in columns.
    pub fn looking(&self) -> usize {
        let unit = self.rows * self.inputs;
        let at_once = self.threads.min(self.units / least_items(unit).max(1)).max(1);
        at_once * (Self::bits(1, unit) + Self::bits(self.rows, self.inputs))
    }
}
