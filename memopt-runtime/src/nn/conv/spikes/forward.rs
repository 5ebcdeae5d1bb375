//! The convolution of images of spikes.

use super::scatter::scatter;
use super::{Cut, SpikeMasks, Walk, AREA, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::geometry::Geometry;
use crate::nn::conv::lanes::{from_lanes, to_lanes, Span};
use crate::nn::element::Real;
use crate::nn::parallel::least_items;
use rayon::prelude::*;

/// A layer's weight, `[outputs / LANES, inputs, 9, LANES]`; lanes without an output channel are zero.
pub(in crate::nn::conv) struct Blocks<R>(Vec<R>);

impl<R: Real> Blocks<R> {
    /// Those of a weight `[outputs, inputs, 3, 3]`.
    pub fn new(level: SimdLevel, geometry: &Geometry, weight: &[R]) -> Self {
        let len = geometry.inputs * AREA;
        let mut blocks = vec![R::ZERO; geometry.outputs.div_ceil(LANES) * len * LANES];
        let all = blocks.par_chunks_mut(len * LANES).zip(weight.par_chunks(len * LANES));
        // An element takes as long as some multiplications.
        all.with_min_len(least_items(8 * len * LANES)).for_each(|(to, weight)| {
            let span = Span { lanes: weight.len() / len, plane: len, start: 0, len };
            to_lanes(level, weight, span, to);
        });
        Blocks(blocks)
    }
}

/// A convolution of images of spikes.
pub(in crate::nn::conv) struct Convolution<'a, R> {
    pub level: SimdLevel,
    pub geometry: &'a Geometry,
    pub blocks: &'a Blocks<R>,
    pub bias: Option<&'a [R]>,
    /// Which blocks of output channels are written.
    pub wanted: &'a [bool],
}

impl<R: Real> Convolution<'_, R> {
    /// The convolution of images of spikes, each given with its number; the output of image `i` is the `i`-th of `y`.
    pub fn convolve(&self, images: &[(usize, &SpikeMasks)], y: &mut [R], scratch: &mut Vec<R>) {
        let Convolution { level, geometry, blocks, bias, wanted } = *self;
        let cut = Cut::new(geometry);
        let (outputs, plane, wide) = (geometry.outputs, geometry.output_plane(), geometry.to[1]);
        let rows = (cut.tile + 2) * cut.row;
        for images in images.chunks(cut.together) {
            let masks: Vec<&SpikeMasks> = images.iter().map(|(_, masks)| *masks).collect();
            scratch.clear();
            scratch.resize(images.len() * rows, R::ZERO);
            let blocks = blocks.0.chunks_exact(geometry.inputs * AREA * LANES).zip(wanted).enumerate();
            for (block, (weights, _)) in blocks.filter(|(_, (_, wanted))| **wanted) {
                let lanes = LANES.min(outputs - block * LANES);
                let mut add = [R::ZERO; LANES];
                let bias = bias.map(|bias| {
                    add[..lanes].copy_from_slice(&bias[block * LANES..][..lanes]);
                    &add
                });
                for tile in cut.tiles() {
                    let walk = Walk { masks: &masks, channel: 0, rows: tile.clone(), cut };
                    scatter(level, &walk, weights, scratch, rows);
                    // Later spikes add to the last two rows. After the last tile, all rows are zero again.
                    let done = if tile.end == cut.height { tile.len() + 2 } else { tile.len() };
                    for ((image, _), sums) in images.iter().zip(scratch.chunks_exact_mut(rows)) {
                        let y = &mut y[(image * outputs + block * LANES) * plane..];
                        for (row, sums) in sums.chunks_exact(cut.row).take(done).enumerate() {
                            let at = (tile.start + row).checked_sub(cut.border[0]);
                            if let Some(at) = at.filter(|&at| at < geometry.to[0]) {
                                let span = Span { lanes, plane, start: at * wide, len: wide };
                                from_lanes(level, &sums[cut.border[1] * LANES..], bias, y, span);
                            }
                        }
                        sums.copy_within(done * cut.row..(tile.len() + 2) * cut.row, 0);
                        sums[(tile.len() + 2 - done) * cut.row..].fill(R::ZERO);
                    }
                }
            }
        }
    }
}
