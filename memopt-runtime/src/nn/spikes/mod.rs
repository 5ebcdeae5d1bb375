//! Products of rows of spikes and a matrix, event by event.
//!
//! A row of zeros and ones times a matrix is the sum of the matrix's rows at the ones: additions only, in proportion to the
//! spikes. [`SpikeRows`] are such rows as bits, made from floats here; [`add_products`] is the product with a table of
//! [`LANES`] columns, whose sums stay in registers. Linear layers and pointwise convolutions are made of it:
//!
//! - an output is a row's spikes times the weight, a block of [`LANES`] output channels at a time ([`WeightTables`]);
//! - the gradient of the weight is, for each time step or image, the spikes of each input feature, over positions, times the
//!   gradients at these ([`add_weight_gradient`]).
//!
//! # Bits
//!
//! A product is the sum, tile by tile of [`TILE`] words, of sums in ascending order from zero: what else is computed, in which
//! blocks, and with which instructions, does not show.

mod footprint;
mod gradient;
mod product;
mod rows;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use footprint::SpikeSizes;
pub(crate) use gradient::add_weight_gradient;
pub(crate) use product::add_products;
pub(crate) use rows::SpikeRows;
pub(crate) use table::WeightTables;

use super::element::Real;
use super::lanes::LANES;
use std::ops::Range;

/// Words of a row whose spikes make one sum: 16 KB of a table, which stay in the first-level cache.
const TILE: usize = 2;

/// Bytes of the bits that exist at a time, about.
const ROUND: usize = 4 << 20;

/// Ranges of units (time steps or images) whose bits exist at a time: one unit at least. A unit has so
/// many rows of such a width, which may be turned into columns.
pub(crate) fn rounds(
    units: usize,
    [rows, width]: [usize; 2],
) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let words = |rows: usize, width: usize| rows.saturating_mul(width.div_ceil(u64::BITS as usize));
    let words = words(rows, width).max(words(width, rows)).max(1);
    let step = (ROUND / size_of::<u64>() / words).max(1);
    (0..units.div_ceil(step)).map(move |round| round * step..((round + 1) * step).min(units))
}

/// Blocks of [`LANES`] output channels that are computed event by event, which are the first: all but one of half as many
/// channels or fewer, for which rows of lanes do not pay.
pub(crate) fn wide_blocks(outputs: usize) -> usize {
    (outputs + LANES / 2 - 1) / LANES
}

/// Whether all values are finite.
pub(crate) fn are_finite<R: Real>(values: &[R]) -> bool {
    // Zero times anything else is no number.
    let ordinary = |values: &[R]| values.iter().fold(true, |all, &value| all & (value * R::ZERO == R::ZERO));
    values.chunks(1024).all(ordinary)
}
