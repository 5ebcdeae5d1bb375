//! The gradient of the weight by tiles: `G^T [sum over tiles of (A dy A^T) * (B^T d B)] G`, `F(3x3, 2x2)`.
//!
//! The derivative of the convolution by tiles by its kernels: the tiles of the image are transformed as there, those of the
//! output's gradient by the transpose of what transforms the output back ([`gradients`]). The sums over tiles are 16 matrix
//! products, `[inputs x tiles] [tiles x outputs]`, whose results are transformed to kernels and added ([`kernels`]): 16
//! multiplications for the 36 of a tile and a channel pair.
//!
//! # Bits
//!
//! An image is cut into bands of rows of tiles, by its sizes and the number of channels. The products of a band, transformed, are
//! added to what came in, the last image first and in it the last band. Their sizes follow from the layer's, so that neither
//! the number of images nor that of threads shows.
//!
//! # Exactness
//!
//! Tiles take differences of neighbouring pixels and sums of neighbouring gradients before they multiply, and the kernels'
//! transform takes differences again: the rounding error is a small multiple of that of products, which is asserted by a test
//! against f64. Halves are exact.
//!
//! # Memory
//!
//! A copy of the gradient in rows of lanes, and for each thread about [`TRANSFORMED`] elements of tiles and the products
//! of one block of channels. Transformed tiles serve all blocks.

mod gradients;
mod kernels;

use super::super::buffers::{grow, zeros, Pool};
use super::super::lanes::{from_lanes, to_lanes, Span, LANES};
use super::{input, output, Layout, Tiles, PRODUCTS};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::{Element, Real};
use crate::nn::product::{multiply, Matrix};
use crate::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Elements of a kernel.
const AREA: usize = 9;
/// Elements of one of the 16 products' operands of a band, about: more tiles make the kernels' transform cheaper.
const BAND: usize = 1 << 15;
/// Tiles of a band, at least, where the image has as many: with fewer the kernels' transform costs too much.
const DEPTH_LEAST: usize = 36;
/// The same, at most, where one row is not longer: `gemm` does not cut so deep a product.
const DEPTH: usize = 512;
/// Elements of one of the 16 products' operands of a row of tiles, at most.
const ROW: usize = 1 << 17;
/// Channels of a block: the products of two blocks stay in the second-level cache.
const WIDTH: usize = 2 * LANES;
/// Tasks that are aimed at, with narrower blocks if need be. Fixed, because the bits of a product may depend on its size.
const TASKS: usize = 8;
/// Elements of transformed tiles that exist at a time for each thread, about.
const TRANSFORMED: usize = 1 << 19;

/// How images and channels are cut; a function of the layer's sizes.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Rows of tiles of a band.
    rows: usize,
    /// Bands of an image.
    bands: usize,
    /// Channels of a block.
    width: usize,
    /// Blocks of input channels, and of output channels.
    blocks: [usize; 2],
}

impl Cut {
    fn new(tiles: &Tiles) -> Self {
        let [high, wide] = tiles.count();
        let channels = [tiles.inputs, tiles.outputs];
        let most = (BAND / (tiles.inputs + tiles.outputs)).clamp(DEPTH_LEAST, DEPTH);
        // About as many rows in each band.
        let rows = high.div_ceil(high.div_ceil((most / wide).max(1)));
        let blocks = |width: usize| channels.map(|channels| channels.div_ceil(width));
        let width = if blocks(WIDTH).iter().product::<usize>() < TASKS { LANES } else { WIDTH };
        Cut { rows, bands: high.div_ceil(rows), width, blocks: blocks(width) }
    }

    /// Blocks of transformed tiles of a band.
    fn slots(&self) -> usize {
        self.blocks[0] + self.blocks[1]
    }

    /// The layout of the transformed tiles of a block.
    fn layout(&self, tiles: &Tiles) -> Layout {
        Layout::new(self.rows * tiles.count()[1], self.width)
    }

    /// A band: its image and its rows of tiles.
    fn band(&self, tiles: &Tiles, band: usize) -> (usize, Range<usize>) {
        let high = tiles.count()[0];
        let first = band % self.bands * self.rows;
        (band / self.bands, first..(first + self.rows).min(high))
    }

    /// The channels of a block.
    fn channels(&self, block: usize, all: usize) -> Range<usize> {
        block * self.width..((block + 1) * self.width).min(all)
    }
}

/// Elements of the buffers for so many images, with so many threads.
pub(in crate::nn::conv) fn scratch(tiles: &Tiles, images: usize, threads: usize) -> usize {
    let cut = Cut::new(tiles);
    let (slots, slot) = (cut.slots(), cut.layout(tiles).len());
    let bands = (images * cut.bands).max(1);
    let together = (threads * TRANSFORMED / (slots * slot)).clamp(1, bands);
    let sums = tiles.outputs.next_multiple_of(LANES) * tiles.inputs * AREA;
    // Rows of pixels around those of a band of tiles.
    let pixels =
        (2 * cut.rows + 2).min(tiles.from[0].max(tiles.to[0])) * tiles.from[1].max(tiles.to[1]) * LANES;
    sums + together * slots * slot + threads * (pixels + Layout::new(cut.width, cut.width).len())
}

/// Whether a row of tiles of all channels is short enough to be worked on as a whole.
pub(in crate::nn::conv) fn has_short_rows(tiles: &Tiles) -> bool {
    tiles.count()[1] * (tiles.inputs + tiles.outputs) <= ROW
}

/// Adds the gradient of the weight of images of ordinary values to `to`, the last image first.
///
/// # Errors
/// If a product reaches beyond its matrices.
pub(in crate::nn::conv) fn add_weight_gradient<E: Element>(
    level: SimdLevel,
    tiles: &Tiles,
    x: &[E],
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let cut = Cut::new(tiles);
    let gradient = Gradient { level, tiles, cut, layout: cut.layout(tiles) };
    let len = tiles.inputs * AREA;
    let span = |to: &[E::Real]| Span { lanes: to.len() / len, plane: len, start: 0, len };
    let mut sums: Vec<E::Real> = zeros(to.len().next_multiple_of(len * LANES));
    let blocks = to.par_chunks_mut(len * LANES).zip(sums.par_chunks_mut(len * LANES));
    blocks.for_each(|(to, sums)| to_lanes(level, to, span(to), sums));
    gradient.add(x, dy, &mut sums)?;
    let blocks = to.par_chunks_mut(len * LANES).zip(sums.par_chunks(len * LANES));
    blocks.for_each(|(to, sums)| from_lanes(level, sums, None, to, span(to)));
    Ok(())
}

/// Buffers of a thread.
struct Scratch<R> {
    /// Rows of some channels as they are computed with.
    reals: Vec<R>,
    /// The same as rows of lanes.
    pixels: Vec<R>,
    products: Vec<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Scratch { reals: Vec::new(), pixels: Vec::new(), products: Vec::new() }
    }
}

/// The gradient of a layer's weight.
struct Gradient<'a> {
    level: SimdLevel,
    tiles: &'a Tiles,
    cut: Cut,
    /// Of the transformed tiles of a block.
    layout: Layout,
}

impl Gradient<'_> {
    /// Adds to `sums`: for each block of lanes of output channels, a row for each input channel and element of the kernel.
    fn add<E: Element>(&self, x: &[E], dy: &[E], sums: &mut [E::Real]) -> Result<()> {
        let Gradient { tiles, cut, layout, .. } = *self;
        let bands = x.len() / tiles.input_image() * cut.bands;
        let (slots, slot) = (cut.slots(), layout.len());
        let together = rayon::current_num_threads() * TRANSFORMED / (slots * slot);
        let together = together.clamp(1, bands.max(1));
        let mut transformed = zeros(together * slots * slot);
        let mut blocks = self.blocks(sums);
        let pool = Pool::default();
        for end in (1..=bands).rev().step_by(together) {
            let bands: Vec<usize> = (end.saturating_sub(together)..end).rev().collect();
            let places = transformed.par_chunks_mut(slot).take(bands.len() * slots).enumerate();
            places.for_each(|(place, to)| {
                pool.with(|scratch| {
                    self.transform((x, dy), bands[place / slots], place % slots, to, scratch)
                });
            });
            blocks.par_iter_mut().enumerate().try_for_each(|(block, sums)| {
                pool.with(|scratch| self.multiply(&bands, &transformed, block, sums, scratch))
            })?;
        }
        Ok(())
    }

    /// The parts of the sums that belong to pairs of blocks, those of an output block after each other: for each, one slice for
    /// each of its blocks of lanes.
    fn blocks<'a, R: Real>(&self, sums: &'a mut [R]) -> Vec<Vec<&'a mut [R]>> {
        let Cut { width, blocks: [inputs, _], .. } = self.cut;
        let lanes = self.tiles.inputs * AREA * LANES;
        let mut blocks = Vec::new();
        for sums in sums.chunks_mut(lanes * (width / LANES)) {
            let mut parts: Vec<_> =
                sums.chunks_mut(lanes).map(|sums| sums.chunks_mut(width * AREA * LANES)).collect();
            blocks.extend((0..inputs).map(|_| parts.iter_mut().filter_map(Iterator::next).collect()));
        }
        blocks
    }

    /// Transforms the tiles of a band and a block of channels: those of the image first, then those of the gradient.
    fn transform<E: Element>(
        &self,
        (x, dy): (&[E], &[E]),
        band: usize,
        slot: usize,
        to: &mut [E::Real],
        scratch: &mut Scratch<E::Real>,
    ) {
        let Gradient { level, tiles, cut, layout } = *self;
        let (image, rows) = cut.band(tiles, band);
        let of_image = slot < cut.blocks[0];
        let (values, block, all, seen, [height, width]) = match of_image {
            true => (x, slot, tiles.inputs, input::rows(tiles, &rows), tiles.from),
            false => (dy, slot - cut.blocks[0], tiles.outputs, output::rows(tiles, &rows), tiles.to),
        };
        let channels = cut.channels(block, all);
        let plane = height * width;
        for (index, channel) in channels.clone().step_by(LANES).enumerate() {
            let lanes = LANES.min(channels.end - channel);
            let span = Span { lanes, plane, start: seen.start * width, len: seen.len() * width };
            let planes = &values[(image * all + channel) * plane..][..lanes * plane];
            grow(&mut scratch.pixels, span.len * LANES);
            let (planes, span) = reals(planes, span, &mut scratch.reals);
            to_lanes(level, planes, span, &mut scratch.pixels);
            let to = &mut to[index * LANES..];
            match of_image {
                true => input::transform(level, tiles, &rows, &scratch.pixels, to, layout),
                false => gradients::transform(level, tiles, &rows, &scratch.pixels, to, layout),
            }
        }
    }

    /// The products of some bands for a pair of blocks, transformed and added.
    fn multiply<R: Real>(
        &self,
        bands: &[usize],
        transformed: &[R],
        block: usize,
        sums: &mut [&mut [R]],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        let Gradient { level, tiles, cut, layout } = *self;
        let (output, input) = (block / cut.blocks[0], block % cut.blocks[0]);
        let m = cut.channels(input, tiles.inputs).len();
        let n = sums.len() * LANES;
        let to = Layout::new(m, n);
        grow(&mut scratch.products, to.len());
        let slot = layout.len();
        for (index, &band) in bands.iter().enumerate() {
            let depth = cut.band(tiles, band).1.len() * tiles.count()[1];
            let of_band = &transformed[index * cut.slots() * slot..];
            let images = &of_band[input * slot..][..slot];
            let gradients = &of_band[(cut.blocks[0] + output) * slot..][..slot];
            for product in 0..PRODUCTS {
                let a = Matrix { values: &images[product * layout.plane..], row: 1, column: layout.row };
                let b = Matrix { values: &gradients[product * layout.plane..], row: layout.row, column: 1 };
                let products = &mut scratch.products[product * to.plane..];
                multiply((m, n, depth), (products, to.row), false, a, b)?;
            }
            for (index, sums) in sums.iter_mut().enumerate() {
                kernels::add(level, &scratch.products[index * LANES..], to, sums);
            }
        }
        Ok(())
    }
}

/// A span of planes to compute with: the planes themselves where possible, else only what the span covers.
fn reals<'a, E: Element>(
    planes: &'a [E],
    span: Span,
    scratch: &'a mut Vec<E::Real>,
) -> (&'a [E::Real], Span) {
    if size_of::<E>() == size_of::<E::Real>() {
        return (E::reals(planes, scratch), span);
    }
    scratch.clear();
    for plane in planes.chunks(span.plane) {
        scratch.extend(plane[span.start..][..span.len].iter().map(|value| value.load()));
    }
    (scratch, Span { plane: span.len, start: 0, ..span })
}
