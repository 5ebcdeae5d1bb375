//! Products, transformed back to 2x2 of the output: `A^T m A`.

use super::{Layout, Tiles, LANES, PRODUCTS};
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;
use std::ops::Range;

/// The rows of the output that rows of tiles make.
pub(super) fn rows(tiles: &Tiles, rows: &Range<usize>) -> Range<usize> {
    2 * rows.start..(2 * rows.end).min(tiles.to[0])
}

for_each_level! {
    /// Transforms rows of tiles to rows of lanes, one for each pixel of the output.
    pub(super) fn transform(
        tiles: &Tiles, rows: &Range<usize>, from: &[R], layout: Layout, pixels: &mut [R],
    ) = loops
}

#[inline(always)]
fn loops<R: Real>(tiles: &Tiles, rows: &Range<usize>, from: &[R], layout: Layout, pixels: &mut [R]) {
    let pixels = pixels.as_chunks_mut::<LANES>().0;
    let [height, width] = tiles.to;
    let zero = [R::ZERO; LANES];
    let mut tile = 0;
    for ty in rows.clone() {
        for tx in 0..tiles.count()[1] {
            let m: [&[R; LANES]; PRODUCTS] = std::array::from_fn(|product| {
                from[product * layout.plane + tile * layout.row..].first_chunk().unwrap_or(&zero)
            });
            let mut result = [[R::ZERO; LANES]; 4];
            for lane in 0..LANES {
                let columns: [[R; 2]; 4] = std::array::from_fn(|j| {
                    let [a, b, c, d] = [m[j][lane], m[4 + j][lane], m[8 + j][lane], m[12 + j][lane]];
                    [(a + b) + c, (b - c) - d]
                });
                for i in 0..2 {
                    let [a, b, c, d] = [columns[0][i], columns[1][i], columns[2][i], columns[3][i]];
                    result[2 * i][lane] = (a + b) + c;
                    result[2 * i + 1][lane] = (b - c) - d;
                }
            }
            for (index, result) in result.iter().enumerate() {
                let (y, x) = (2 * ty + index / 2, 2 * tx + index % 2);
                if y < height && x < width {
                    pixels[(y - 2 * rows.start) * width + x] = *result;
                }
            }
            tile += 1;
        }
    }
}
