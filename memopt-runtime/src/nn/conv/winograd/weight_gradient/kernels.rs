//! Products, transformed to 3x3 of the weight's gradient: `G^T m G`, but for the halves, which the tiles have had.

use super::super::{Layout, PRODUCTS};
use super::{AREA, LANES};
use crate::nn::conv::simd::for_each_level;
use crate::nn::element::Real;

for_each_level! {
    /// Adds the kernels of some input channels to rows of lanes, nine for each.
    pub(super) fn add(from: &[R], layout: Layout, sums: &mut [R]) = loops
}

#[inline(always)]
fn loops<R: Real>(from: &[R], layout: Layout, sums: &mut [R]) {
    let zero = [R::ZERO; LANES];
    for (input, sums) in sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<AREA>().0.iter_mut().enumerate() {
        let m: [&[R; LANES]; PRODUCTS] = std::array::from_fn(|product| {
            from[product * layout.plane + input * layout.row..].first_chunk().unwrap_or(&zero)
        });
        for lane in 0..LANES {
            let kernel = |[a, b, c, d]: [R; 4]| [a + (b + c), b - c, (b + c) + d];
            let columns: [[R; 3]; 4] =
                std::array::from_fn(|j| kernel([0, 4, 8, 12].map(|row| m[row + j][lane])));
            for i in 0..3 {
                let row = kernel(columns.map(|column| column[i]));
                for j in 0..3 {
                    sums[3 * i + j][lane] += row[j];
                }
            }
        }
    }
}
