//! Convolutions of images of spikes, event by event: 3x3 kernels with stride 1.
//!
//! An image of zeros and ones needs no multiplications: each one adds the kernel's nine elements, for a block of
//! [`LANES`] output channels at once, to the outputs around it ([`forward`]); and for the weight's gradient, the output's
//! gradients around it to nine sums ([`weight`]). Both take time in proportion to the ones.
//!
//! [`masks`] says where they are. The two inner loops, [`scatter`] and [`gather`], exist as plain loops and in AVX-512
//! with the nine elements in registers; both do the same additions in the same order.
//!
//! # Bits
//!
//! An output is the sum over input channels, then the rows, then the columns of its spikes. A gradient of a weight is, for
//! each image and each tile of its rows, a sum over rows and columns, added to what came in: the last image first, the
//! first tile first. Tiles are a function of the sizes of one image.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod forward;
mod gather;
mod masks;
mod scatter;
mod weight;

pub(super) use forward::{Blocks, Convolution};
pub(super) use masks::SpikeMasks;
pub(super) use weight::add_weight_gradient;

use super::geometry::Geometry;
use super::lanes::LANES;
use std::ops::Range;

/// Elements of the kernel.
const AREA: usize = 9;
/// Elements of the rows that are added to at a time, about: they stay in the first-level cache.
const TILE: usize = 7168;

/// How images are cut for these kernels; outputs and their gradients are kept as rows of lanes with room at the borders,
/// `height + 2` by `width + 2`, so that no spike needs a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    height: usize,
    width: usize,
    /// Elements of a row of lanes.
    row: usize,
    /// Rows of the image that are worked on at a time.
    tile: usize,
    /// Images that are worked on at a time.
    together: usize,
    /// Where an output is among the rows, and within a row.
    border: [usize; 2],
}

impl Cut {
    fn new(geometry: &Geometry) -> Self {
        let [height, width] = geometry.from;
        let row = (width + 2) * LANES;
        let tile = (TILE / row).saturating_sub(2).clamp(1, height);
        let together = if tile == height { (TILE / ((height + 2) * row)).max(1) } else { 1 };
        Cut { height, width, row, tile, together, border: geometry.padding.map(|padding| 2 - padding) }
    }

    fn tiles(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.height).step_by(self.tile).map(move |start| start..(start + self.tile).min(self.height))
    }
}

/// Some rows of some images of spikes.
#[derive(Clone)]
struct Walk<'a> {
    masks: &'a [&'a SpikeMasks],
    /// The first input channel.
    channel: usize,
    rows: Range<usize>,
    cut: Cut,
}

impl<'a> Walk<'a> {
    /// The masks of the rows of a channel, [`Walk::words`] of each.
    #[inline(always)]
    fn of(&self, image: &'a SpikeMasks, channel: usize) -> &'a [u64] {
        let first = (self.channel + channel) * self.cut.height;
        image.rows(first + self.rows.start..first + self.rows.end)
    }

    #[inline(always)]
    fn words(&self) -> usize {
        SpikeMasks::words_of(self.cut.width)
    }
}

/// Visits the set bits of the words of a row.
#[inline(always)]
fn for_each_spike(words: &[u64], mut visit: impl FnMut(usize)) {
    for (index, &word) in words.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            visit(index * 64 + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}
