//! The gradient of the weight for images of spikes.

use super::gather::{gather, taint};
use super::{Cut, SpikeMasks, Walk, AREA, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::buffers::Pool;
use crate::nn::conv::geometry::Geometry;
use crate::nn::conv::lanes::{from_lanes, to_lanes, Span};
use crate::nn::element::{Element, Real};
use crate::nn::parallel::least_items;
use rayon::prelude::*;

/// Buffers of a thread.
struct Scratch<R> {
    /// Gradients as they are computed with.
    reals: Vec<R>,
    /// Gradients as rows of lanes.
    rows: Vec<R>,
    /// For each image and lane, zero, or NaN if the gradient is not finite.
    taint: Vec<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Scratch { reals: Vec::new(), rows: Vec::new(), taint: Vec::new() }
    }
}

/// Adds the gradient of the weight to `to`, the last image first. `dy` are the gradients of the outputs of the images.
///
/// A gradient that is not finite gives NaN for all elements of its output channel, also where there is no spike.
pub(in crate::nn::conv) fn add_weight_gradient<E: Element>(
    level: SimdLevel,
    geometry: &Geometry,
    images: &[&SpikeMasks],
    dy: &[E],
    to: &mut [E::Real],
) {
    let (inputs, zero) = (geometry.inputs, <E::Real as Element>::ZERO);
    let blocks = geometry.outputs.div_ceil(LANES);
    // Tasks for all threads: blocks of output channels, and if they are too few, of input channels.
    let parts = (2 * rayon::current_num_threads()).div_ceil(blocks).min(inputs);
    let channels = inputs.div_ceil(parts);
    let len = inputs * AREA;
    let pool = Pool::default();
    // About a tenth of a dense product.
    let work = images.len() * geometry.output_plane() * AREA * LANES / 10;
    let all = to.par_chunks_mut(len * LANES).enumerate().with_min_len(least_items(inputs * work));
    all.for_each_init(Vec::new, |sums, (block, to)| {
        let span = Span { lanes: to.len() / len, plane: len, start: 0, len };
        sums.resize(len * LANES, zero);
        to_lanes(level, to, span, sums);
        let parts = sums.par_chunks_mut(channels * AREA * LANES).enumerate();
        parts.with_min_len(least_items(channels * work)).for_each(|(part, sums)| {
            pool.with(|scratch: &mut Scratch<E::Real>| {
                let channel = part * channels;
                add_block(level, geometry, images, dy, (block, span.lanes, channel), sums, scratch);
            });
        });
        from_lanes(level, sums, None, to, span);
    });
}

/// A block of output channels, and some input channels.
fn add_block<E: Element>(
    level: SimdLevel,
    geometry: &Geometry,
    images: &[&SpikeMasks],
    dy: &[E],
    (block, lanes, channel): (usize, usize, usize),
    sums: &mut [E::Real],
    scratch: &mut Scratch<E::Real>,
) {
    let cut = Cut::new(geometry);
    let (plane, zero) = (geometry.output_plane(), <E::Real as Element>::ZERO);
    let image = (cut.height + 2) * cut.row;
    let Scratch { reals, rows, taint } = scratch;
    rows.clear();
    rows.resize(cut.together.min(images.len()) * image, zero);
    let mut end = images.len();
    while end > 0 {
        let start = end.saturating_sub(cut.together);
        let masks = &images[start..end];
        taint.resize(masks.len() * LANES, zero);
        for (index, (rows, taint)) in rows.chunks_mut(image).zip(taint.chunks_mut(LANES)).enumerate() {
            if index < masks.len() {
                let first = (start + index) * geometry.output_image() + block * LANES * plane;
                let dy = E::reals(&dy[first..][..lanes * plane], reals);
                spread(level, geometry, cut, dy, lanes, rows);
                self::taint(level, rows, taint);
            }
        }
        for tile in cut.tiles() {
            let first = tile.start * cut.row;
            if first > 0 {
                taint.fill(zero);
            }
            let walk = Walk { masks, channel, rows: tile, cut };
            gather_from(level, &walk, rows, image, first, taint, sums);
        }
        end = start;
    }
}

/// The planes of an image's gradient as rows of lanes with a border.
fn spread<R: Real>(level: SimdLevel, geometry: &Geometry, cut: Cut, dy: &[R], lanes: usize, rows: &mut [R]) {
    let (plane, wide) = (geometry.output_plane(), geometry.to[1]);
    for row in 0..geometry.to[0] {
        let span = Span { lanes, plane, start: row * wide, len: wide };
        let to = (row + cut.border[0]) * cut.row + cut.border[1] * LANES;
        to_lanes(level, dy, span, &mut rows[to..]);
    }
}

/// [`gather`] from a tile that begins at `first` of each image's rows.
fn gather_from<R: Real>(
    level: SimdLevel,
    walk: &Walk<'_>,
    rows: &[R],
    image: usize,
    first: usize,
    taint: &[R],
    sums: &mut [R],
) {
    // A tile that is not the whole image is of one image, so that the rest of its rows will do.
    let (rows, image) = if first == 0 { (rows, image) } else { (&rows[first..image], image - first) };
    gather(level, walk, (rows, image), taint, sums);
}
