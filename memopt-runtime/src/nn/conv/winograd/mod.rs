//! Convolutions with 3x3 kernels by Winograd's `F(2x2, 3x3)`: 16 products for four outputs of a channel pair, not 36.
//!
//! The image is cut into tiles of 4x4 that overlap by two, one for each 2x2 of the output. Tiles and kernels are
//! transformed ([`input`], [`weights`]), which makes 16 matrix products over the channels of what was a convolution; their
//! results are transformed back ([`output`]). The gradient of the weight comes from the same tiles ([`weight_gradient`]).
//!
//! # Bits
//!
//! An output depends on its tile, its channel's weights and the number of input channels, and on nothing else: a product
//! of at most [`DEPTH`] input channels gives each element the same bits whatever the other tiles and output channels of
//! the call, as long as there are at least 16 tiles and 32 channels (a test shows it for the machine that it runs on; the
//! operands are padded to that). So tiles of any images may share a product.
//!
//! # Memory
//!
//! Weights take 16/9 of the layer's. A thread works on about [`TILES`] tiles at a time, for [`OUTPUTS`] output channels.

mod input;
mod output;
mod weight_gradient;
mod weights;

use super::buffers::grow;
use super::geometry::Geometry;
use super::lanes::{from_lanes, to_lanes, Span, LANES};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::product::{multiply, Matrix};
use crate::Result;
use std::ops::Range;
pub(super) use weight_gradient::{add_weight_gradient, has_short_rows, scratch as weight_gradient_scratch};
pub(super) use weights::Weights;

/// Input channels of one product. With more, `gemm`'s own blocks would depend on the other sizes.
const DEPTH: usize = 512;
/// Tiles of one product, about: a multiple of what the microkernels take.
const TILES: usize = 144;
/// Transformed input elements of one of the 16 products, about; fewer tiles are taken if there are many channels.
const TRANSFORMED: usize = 1 << 16;
/// Output channels of one product: its operands stay in the second-level cache.
const OUTPUTS: usize = 128;
/// Products.
const PRODUCTS: usize = 16;

/// Sizes of a convolution in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    pub inputs: usize,
    pub outputs: usize,
    from: [usize; 2],
    to: [usize; 2],
    padding: [usize; 2],
    /// Whether this is the convolution that gives the gradient of the input: of the output's gradient, with flipped and
    /// transposed weights.
    backward: bool,
}

impl Tiles {
    /// Of the convolution itself, if it is one of 3x3, stride and dilation 1, one group, and no more padding than 2.
    pub fn forward(geometry: &Geometry) -> Option<Self> {
        let Geometry { inputs, outputs, from, to, padding, .. } = *geometry;
        geometry.is_plain_3x3().then_some(Tiles { inputs, outputs, from, to, padding, backward: false })
    }

    /// Of the gradient of such a convolution's input.
    pub fn backward(geometry: &Geometry) -> Option<Self> {
        let Tiles { inputs, outputs, from, to, padding, .. } = Tiles::forward(geometry)?;
        let padding = padding.map(|padding| 2 - padding);
        Some(Tiles { inputs: outputs, outputs: inputs, from: to, to: from, padding, backward: true })
    }

    /// Tiles in each direction.
    fn count(&self) -> [usize; 2] {
        self.to.map(|size| size.div_ceil(2))
    }

    /// For another number of output channels.
    pub fn with_outputs(self, outputs: usize) -> Self {
        Tiles { outputs, ..self }
    }

    /// Elements of an image that comes in.
    pub fn input_image(&self) -> usize {
        self.inputs * self.input_plane()
    }

    /// Elements of an image that goes out.
    pub fn output_image(&self) -> usize {
        self.outputs * self.output_plane()
    }

    fn input_plane(&self) -> usize {
        self.from[0] * self.from[1]
    }

    fn output_plane(&self) -> usize {
        self.to[0] * self.to[1]
    }

    /// Rows of tiles that are worked on at a time.
    fn rows_at_a_time(&self) -> usize {
        let tiles = (TRANSFORMED / self.inputs).next_multiple_of(LANES).min(TILES);
        (tiles / self.count()[1]).max(1)
    }

    /// Images that fill the products of one task.
    pub fn images_at_a_time(&self) -> usize {
        (self.rows_at_a_time() / self.count()[0]).max(1)
    }

    /// Elements of the buffers of a thread, in a task of so many images.
    pub fn scratch(&self, images: usize) -> usize {
        let rows = self.rows_at_a_time().min(images * self.count()[0]);
        let count = (rows * self.count()[1]).next_multiple_of(16);
        let pixels = (2 * rows.min(self.count()[0]) + 2) * self.from[1].max(self.to[1]) * LANES;
        Layout::new(count, self.inputs).len() + Layout::new(count, OUTPUTS.min(self.outputs)).len() + pixels
    }

    /// Tiles of an image.
    pub fn of_image(&self) -> usize {
        self.count()[0] * self.count()[1]
    }

    /// Whether a row of tiles is short enough to be worked on as a whole.
    pub fn is_narrow(&self) -> bool {
        self.count()[1] <= 2 * TILES
    }
}

/// Buffers of a thread.
pub(super) struct Scratch<R> {
    pixels: Vec<R>,
    tiles: Vec<R>,
    products: Vec<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Scratch { pixels: Vec::new(), tiles: Vec::new(), products: Vec::new() }
    }
}

/// A layout of 16 matrices whose rows are tiles, with some elements between the matrices so that equal elements of all
/// of them do not compete for the same places in the first-level cache.
#[derive(Clone, Copy)]
struct Layout {
    /// Distance between two tiles.
    row: usize,
    /// Distance between two matrices.
    plane: usize,
}

impl Layout {
    fn new(tiles: usize, channels: usize) -> Self {
        let row = channels.next_multiple_of(LANES);
        Layout { row, plane: tiles * row + LANES }
    }

    fn len(&self) -> usize {
        PRODUCTS * self.plane
    }
}

/// Rows of tiles of one image.
struct Segment {
    image: usize,
    rows: Range<usize>,
    /// The first tile among those of the block.
    first: usize,
}

/// A convolution by tiles.
pub(super) struct Convolution<'a, R> {
    pub level: SimdLevel,
    pub tiles: &'a Tiles,
    pub weights: &'a Weights<R>,
    pub bias: Option<&'a [R]>,
}

impl<R: Real> Convolution<'_, R> {
    /// The convolution of the images `which` of `x`; the output of image `i` begins at `i * stride` of `y`.
    pub fn convolve(
        &self,
        x: &[R],
        (y, stride): (&mut [R], usize),
        which: &[usize],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        let [high, wide] = self.tiles.count();
        let step = self.tiles.rows_at_a_time();
        let all = which.len() * high;
        for start in (0..all).step_by(step) {
            let end = (start + step).min(all);
            let mut segments = Vec::new();
            let mut row = start;
            while row < end {
                let (index, ty) = (row / high, row % high);
                let rows = (high - ty).min(end - row);
                segments.push(Segment {
                    image: which[index],
                    rows: ty..ty + rows,
                    first: (row - start) * wide,
                });
                row += rows;
            }
            let count = ((end - start) * wide).next_multiple_of(16);
            self.block(x, (y, stride), (&segments, count), scratch)?;
        }
        Ok(())
    }

    /// Some rows of tiles, all output channels.
    fn block(
        &self,
        x: &[R],
        (y, stride): (&mut [R], usize),
        (segments, count): (&[Segment], usize),
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        let Convolution { level, tiles, weights, bias } = *self;
        let Tiles { inputs, outputs, .. } = *tiles;
        let from = Layout::new(count, inputs);
        let to = Layout::new(count, OUTPUTS.min(outputs));
        grow(&mut scratch.tiles, from.len());
        grow(&mut scratch.products, to.len());
        let plane = tiles.input_plane();
        for channel in (0..inputs).step_by(LANES) {
            for segment in segments {
                let rows = input::rows(tiles, &segment.rows);
                let (width, lanes) = (tiles.from[1], LANES.min(inputs - channel));
                let span = Span { lanes, plane, start: rows.start * width, len: rows.len() * width };
                grow(&mut scratch.pixels, span.len * LANES);
                to_lanes(level, &x[(segment.image * inputs + channel) * plane..], span, &mut scratch.pixels);
                let to = &mut scratch.tiles[segment.first * from.row + channel..];
                input::transform(level, tiles, &segment.rows, &scratch.pixels, to, from);
            }
        }
        let plane = tiles.output_plane();
        for first in (0..outputs).step_by(OUTPUTS) {
            let channels = OUTPUTS.min(outputs - first).next_multiple_of(LANES);
            for product in 0..PRODUCTS {
                let tiles = &scratch.tiles[product * from.plane..];
                let products = &mut scratch.products[product * to.plane..];
                let parts = inputs.div_ceil(DEPTH);
                for part in 0..parts {
                    let depth = part * inputs / parts..(part + 1) * inputs / parts;
                    let a = Matrix { values: &tiles[depth.start..], row: from.row, column: 1 };
                    let b = weights.matrix(product, depth.start, first);
                    multiply((count, channels, depth.len()), (products, to.row), part > 0, a, b)?;
                }
            }
            for channel in (first..outputs.min(first + OUTPUTS)).step_by(LANES) {
                let lanes = LANES.min(outputs - channel);
                let mut add = [R::ZERO; LANES];
                let bias = bias.map(|bias| {
                    add[..lanes].copy_from_slice(&bias[channel..][..lanes]);
                    &add
                });
                for segment in segments {
                    let rows = output::rows(tiles, &segment.rows);
                    let width = tiles.to[1];
                    let span = Span { lanes, plane, start: rows.start * width, len: rows.len() * width };
                    grow(&mut scratch.pixels, span.len * LANES);
                    let from = &scratch.products[segment.first * to.row + channel - first..];
                    output::transform(level, tiles, &segment.rows, from, to, &mut scratch.pixels);
                    let y = &mut y[segment.image * stride + channel * plane..];
                    from_lanes(level, &scratch.pixels, bias, y, span);
                }
            }
        }
        Ok(())
    }
}
