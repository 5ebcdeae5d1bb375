//! Tiles of the image, transformed: `B^T d B`.

use super::{Layout, Tiles, LANES, PRODUCTS};
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;
use std::ops::Range;

/// The rows of the image that rows of tiles see.
pub(super) fn rows(tiles: &Tiles, rows: &Range<usize>) -> Range<usize> {
    let border = |row: usize| row.saturating_sub(tiles.padding[0]).min(tiles.from[0]);
    border(2 * rows.start)..border(2 * rows.end + 2)
}

for_each_level! {
    /// Transforms rows of tiles from rows of lanes, the first of which are those of the first row that they see.
    pub(super) fn transform(
        tiles: &Tiles, rows: &Range<usize>, pixels: &[R], to: &mut [R], layout: Layout,
    ) = loops
}

#[inline(always)]
fn loops<R: Real>(tiles: &Tiles, rows: &Range<usize>, pixels: &[R], to: &mut [R], layout: Layout) {
    let pixels = pixels.as_chunks::<LANES>().0;
    let (first, width) = (self::rows(tiles, rows).start, tiles.from[1]);
    let zero = [R::ZERO; LANES];
    let mut tile = 0;
    for ty in rows.clone() {
        // Rows that are padding have no pixels.
        let rows: [&[[R; LANES]]; 4] = std::array::from_fn(|i| {
            let y = (2 * ty + i).wrapping_sub(tiles.padding[0]);
            if y < tiles.from[0] {
                &pixels[(y - first) * width..][..width]
            } else {
                &[]
            }
        });
        for tx in 0..tiles.count()[1] {
            let x = |j: usize| (2 * tx + j).wrapping_sub(tiles.padding[1]);
            let d: [[&[R; LANES]; 4]; 4] =
                rows.map(|row| std::array::from_fn(|j| row.get(x(j)).unwrap_or(&zero)));
            let mut result = [[R::ZERO; LANES]; PRODUCTS];
            for lane in 0..LANES {
                let rows: [[R; 4]; 4] = std::array::from_fn(|i| {
                    let [a, b, c, d] = [d[i][0][lane], d[i][1][lane], d[i][2][lane], d[i][3][lane]];
                    [a - c, b + c, c - b, b - d]
                });
                for j in 0..4 {
                    let [a, b, c, d] = [rows[0][j], rows[1][j], rows[2][j], rows[3][j]];
                    result[j][lane] = a - c;
                    result[4 + j][lane] = b + c;
                    result[8 + j][lane] = c - b;
                    result[12 + j][lane] = b - d;
                }
            }
            for (product, result) in result.iter().enumerate() {
                to[product * layout.plane + tile * layout.row..][..LANES].copy_from_slice(result);
            }
            tile += 1;
        }
    }
}
