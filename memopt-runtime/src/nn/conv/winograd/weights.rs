//! Kernels, transformed: `G g G^T`.

use super::{to_lanes, Span, Tiles, LANES, PRODUCTS};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::buffers::zeros;
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;
use crate::nn::product::Matrix;
use rayon::prelude::*;
use std::ops::Range;

/// Elements of a kernel.
const AREA: usize = 9;

/// The kernels of a layer, transformed: 16 matrices, a row for each of the layer's output channels, a column for each of
/// its input channels. What the products see as output channels is padded with zeros to a multiple of
/// [`LANES`].
pub(in crate::nn::conv) struct Weights<R> {
    values: Vec<R>,
    row: usize,
    plane: usize,
    backward: bool,
}

impl<R: Real> Weights<R> {
    /// Those of a weight `[outputs, inputs, 3, 3]`; of its input channels from `first` on, for the gradient of some of them.
    pub fn new(level: SimdLevel, tiles: &Tiles, weight: &[R], first: usize) -> Self {
        let padded = tiles.outputs.next_multiple_of(LANES);
        let (rows, columns, row, height) = match tiles.backward {
            false => (tiles.outputs, tiles.inputs, tiles.inputs, padded),
            true => (tiles.inputs, tiles.outputs, padded, tiles.inputs),
        };
        let plane = height * row;
        let mut values: Vec<R> = zeros(PRODUCTS * plane);
        let mut planes: Vec<_> = values.chunks_exact_mut(plane).map(|plane| plane.chunks_mut(row)).collect();
        let tasks: Vec<Vec<&mut [R]>> =
            (0..rows).map(|_| planes.iter_mut().filter_map(Iterator::next).collect()).collect();
        tasks.into_par_iter().zip(weight.par_chunks(weight.len() / rows)).with_min_len(4).for_each(
            |(mut to, weight)| {
                let weight = &weight[first * AREA..(first + columns) * AREA];
                transform(level, weight, tiles.backward, &mut to);
            },
        );
        Weights { values, row, plane, backward: tiles.backward }
    }

    /// The matrix of a product from an input channel and an output channel on: input channels by output channels.
    pub fn matrix(&self, product: usize, input: usize, output: usize) -> Matrix<'_, R> {
        let (row, column) = if self.backward { (self.row, 1) } else { (1, self.row) };
        Matrix { values: &self.values[product * self.plane + input * row + output * column..], row, column }
    }
}

/// The kernels of one row; `flipped` if they are to be turned by half a turn.
fn transform<R: Real>(level: SimdLevel, weight: &[R], flipped: bool, to: &mut [&mut [R]]) {
    let mut taps = [[R::ZERO; LANES]; AREA];
    for (block, kernels) in weight.chunks(LANES * AREA).enumerate() {
        // Kernels are planes of nine elements here, and channels of input the lanes.
        let span = Span { lanes: kernels.len() / AREA, plane: AREA, start: 0, len: AREA };
        to_lanes(level, kernels, span, taps.as_flattened_mut());
        if flipped {
            taps.reverse();
        }
        transform_block(level, &taps, block * LANES..block * LANES + span.lanes, to);
    }
}

for_each_level! {
    /// The kernels of a block of lanes, in these columns of the matrices.
    fn transform_block(taps: &[[R; LANES]; AREA], columns: Range<usize>, to: &mut [&mut [R]]) = loops
}

#[inline(always)]
fn loops<R: Real>(taps: &[[R; LANES]; AREA], columns: Range<usize>, to: &mut [&mut [R]]) {
    let half = R::from_f64(0.5);
    let mut result = [[R::ZERO; LANES]; PRODUCTS];
    for lane in 0..LANES {
        let column = |a: R, b: R, c: R| [a, half * ((a + c) + b), half * ((a + c) - b), c];
        let tap = |index: usize| taps[index][lane];
        let left = column(tap(0), tap(3), tap(6));
        let middle = column(tap(1), tap(4), tap(7));
        let right = column(tap(2), tap(5), tap(8));
        for i in 0..4 {
            let row = column(left[i], middle[i], right[i]);
            for j in 0..4 {
                result[4 * i + j][lane] = row[j];
            }
        }
    }
    for (to, result) in to.iter_mut().zip(&result) {
        to[columns.clone()].copy_from_slice(&result[..columns.len()]);
    }
}
