//! Tiles of the output's gradient, transformed: `A dy A^T`, with the halves of the kernels' transform in it.

use super::super::{output, Layout, Tiles, PRODUCTS};
use super::LANES;
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;
use std::ops::Range;

for_each_level! {
    /// Transforms rows of tiles from rows of lanes, the first of which are those of the first row of the gradient.
    pub(super) fn transform(
        tiles: &Tiles, rows: &Range<usize>, pixels: &[R], to: &mut [R], layout: Layout,
    ) = loops
}

#[inline(always)]
fn loops<R: Real>(tiles: &Tiles, rows: &Range<usize>, pixels: &[R], to: &mut [R], layout: Layout) {
    let pixels = pixels.as_chunks::<LANES>().0;
    let (seen, width) = (output::rows(tiles, rows), tiles.to[1]);
    let (zero, half) = ([R::ZERO; LANES], R::from_f64(0.5));
    let mut tile = 0;
    for ty in rows.clone() {
        // A row and a column beyond the gradient are zero.
        let rows: [&[[R; LANES]]; 2] = std::array::from_fn(|i| match 2 * ty + i < seen.end {
            true => &pixels[(2 * ty + i - seen.start) * width..][..width],
            false => &[],
        });
        for tx in 0..tiles.count()[1] {
            let dy: [[&[R; LANES]; 2]; 2] =
                rows.map(|row| std::array::from_fn(|j| row.get(2 * tx + j).unwrap_or(&zero)));
            let mut result = [[R::ZERO; LANES]; PRODUCTS];
            for lane in 0..LANES {
                let spread = |a: R, b: R| [a, half * (a + b), half * (a - b), -b];
                let left = spread(dy[0][0][lane], dy[1][0][lane]);
                let right = spread(dy[0][1][lane], dy[1][1][lane]);
                for i in 0..4 {
                    let row = spread(left[i], right[i]);
                    for j in 0..4 {
                        result[4 * i + j][lane] = row[j];
                    }
                }
            }
            for (product, result) in result.iter().enumerate() {
                to[product * layout.plane + tile * layout.row..][..LANES].copy_from_slice(result);
            }
            tile += 1;
        }
    }
}
