//! Kernels, transformed: `G g G^T`.

use super::{to_lanes, Span, Tiles, LANES, PRODUCTS};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::buffers::zeros;
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;
use crate::nn::parallel::least_items;
use crate::nn::product::Matrix;
use rayon::prelude::*;

/// Elements of a kernel.
const AREA: usize = 9;

/// Input channels of one task: their kernels are neighbours in the weight's cache lines.
const ROWS: usize = 16;

/// The kernels of a layer, transformed: 16 matrices, a row for each channel that comes in, a column for each that goes out,
/// so that a product needs no copy of them. Columns are padded to a multiple of [`LANES`], with anything.
pub(in crate::nn::conv) struct Weights<R> {
    values: Vec<R>,
    row: usize,
    plane: usize,
}

impl<R: Real> Weights<R> {
    /// Those of a weight `[outputs, inputs, 3, 3]`; of its input channels from `first` on, for the gradient of some of them.
    pub fn new(level: SimdLevel, tiles: &Tiles, weight: &[R], first: usize) -> Self {
        let row = tiles.outputs.next_multiple_of(LANES);
        let plane = tiles.inputs * row;
        let mut values: Vec<R> = zeros(PRODUCTS * plane);
        let mut planes: Vec<_> =
            values.chunks_exact_mut(plane).map(|plane| plane.chunks_mut(ROWS * row)).collect();
        let tasks = tiles.inputs.div_ceil(ROWS);
        let tasks: Vec<Vec<&mut [R]>> =
            (0..tasks).map(|_| planes.iter_mut().filter_map(Iterator::next).collect()).collect();
        // Kernels of neighbouring channels that come in, and that go out.
        let (input, output) = match tiles.backward {
            false => (AREA, tiles.inputs * AREA),
            true => (weight.len() / tiles.inputs, AREA),
        };
        let least = least_items(ROWS * row * PRODUCTS);
        tasks.into_par_iter().enumerate().with_min_len(least).for_each(|(task, mut to)| {
            let mut taps = [[R::ZERO; LANES]; ROWS * AREA];
            for column in (0..tiles.outputs).step_by(LANES) {
                let lanes = LANES.min(tiles.outputs - column);
                let rows = task * ROWS..tiles.inputs.min((task + 1) * ROWS);
                let weight = &weight[first * AREA + rows.start * input + column * output..];
                // Of one output channel's kernels, those of neighbouring input channels are neighbours.
                let (steps, len) = if tiles.backward { (rows.len(), AREA) } else { (1, rows.len() * AREA) };
                for (step, taps) in taps.chunks_mut(len).take(steps).enumerate() {
                    let span = Span { lanes, plane: output, start: step * input, len };
                    to_lanes(level, weight, span, taps.as_flattened_mut());
                }
                for (index, taps) in taps.as_chunks_mut::<AREA>().0.iter_mut().take(rows.len()).enumerate() {
                    if tiles.backward {
                        taps.reverse();
                    }
                    transform(level, taps, index * row + column, &mut to);
                }
            }
        });
        Weights { values, row, plane }
    }

    /// The matrix of a product from an input channel and an output channel on.
    pub fn matrix(&self, product: usize, input: usize, output: usize) -> Matrix<'_, R> {
        let values = &self.values[product * self.plane + input * self.row + output..];
        Matrix { values, row: self.row, column: 1 }
    }
}

for_each_level! {
    /// Kernels, one in each lane, to their place in each matrix.
    fn transform(taps: &[[R; LANES]; AREA], place: usize, to: &mut [&mut [R]]) = loops
}

#[inline(always)]
fn loops<R: Real>(taps: &[[R; LANES]; AREA], place: usize, to: &mut [&mut [R]]) {
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
        to[place..][..LANES].copy_from_slice(result);
    }
}
