//! Products of rows of spikes and a matrix, event by event.
//!
//! A row of zeros and ones times a matrix is the sum of the matrix's rows at the ones: additions only, in proportion to the
//! spikes. [`SpikeRows`] are such rows as bits, made from floats here; [`add_products`] is the product with a table of
//! [`LANES`] columns, whose sums stay in registers. Linear layers and pointwise convolutions are made of it:
//!
//! - an output is a row's spikes times the weight, a block of [`LANES`] output channels at a time ([`WeightTable`]);
//! - the gradient of the weight is, for each time step or image, the spikes of each input feature, over positions, times the
//!   gradients at these ([`add_weight_gradient`]).
//!
//! # Bits
//!
//! A product is the sum, tile by tile of [`TILE`] words, of sums in ascending order from zero: what else is computed, in which
//! blocks, and with which instructions, does not show.

mod gradient;
mod product;
mod rows;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use gradient::add_weight_gradient;
pub(crate) use product::add_products;
pub(crate) use rows::SpikeRows;
pub(crate) use table::WeightTable;

use super::element::Real;
use super::lanes::LANES;

/// Words of a row whose spikes make one sum: 16 KB of a table, which stay in the first-level cache.
const TILE: usize = 2;

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
