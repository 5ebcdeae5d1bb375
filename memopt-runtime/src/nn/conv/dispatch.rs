//! Which kernel computes what.
//!
//! The choice is a function of the sizes of one image and the number of its channels, of one image's values, and of the
//! weights of one group of output channels: never of the number of images, which other channels are computed, or the
//! machine. So every plan chooses the same.
//!
//! | | [`spikes`](super::spikes) | [`winograd`](super::winograd) | [`direct`](super::direct) |
//! |---|---|---|---|
//! | output | few ones, the rest zero | ordinary values | everything else |
//! | gradient of the weight | few ones, the rest zero | ordinary values | everything else |
//! | gradient of the input | | ordinary values | everything else |
//!
//! The first two are for kernels of 3x3 with stride and dilation 1 and one group: `spikes` with at least [`CHANNELS`] input
//! channels; `winograd` with [`TILES_CHANNELS`] and [`TILES`], for the gradient of the weight [`WEIGHT_TILES`], and images
//! that are not too wide for its buffers. For the gradient of the weight, the image and its gradient are ordinary.
//!
//! Kernels of 1x1 have [`pointwise`](super::pointwise), which chooses in the same way.
//!
//! Ordinary values are less than 2^48: others (NaN and infinity among them) would spoil neighbouring outputs in a tile.

use super::geometry::Geometry;
use super::images::Images;
use super::spikes::SpikeMasks;
use super::winograd::{has_short_rows, Tiles};
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::{Element, Real};
use crate::nn::parallel::least_items;
use crate::nn::product::OUTPUT_GROUP;
use rayon::prelude::*;
use std::ops::Range;

/// Input channels from which rows of lanes cost less than they save.
const CHANNELS: usize = 16;
/// The same for kernels of 1x1.
const POINTWISE_CHANNELS: usize = 32;
/// Channels from which the transforms of tiles do.
const TILES_CHANNELS: usize = 32;
/// Tiles of an image from which transformed weights do, with a few images.
const TILES: usize = 4;
/// The same for the gradient of the weight: every image's products are transformed for all pairs of channels.
const WEIGHT_TILES: usize = 16;
/// An output is computed from spikes if there are at most this many ones among 100 pixels: with more, tiles are faster.
pub(super) const OUTPUT_PERCENT: usize = 22;
/// The same for the gradient of the weight.
pub(super) const WEIGHT_PERCENT: usize = 50;
/// Bytes of the masks that exist at a time, about.
const MASKS: usize = 4 << 20;

/// The kernels that a layer's sizes allow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dispatch {
    pub forward: Option<Tiles>,
    pub backward: Option<Tiles>,
    /// For the gradient of the weight.
    pub weight: Option<Tiles>,
    pub spikes: bool,
    /// Kernels of 1x1 of one group: from spikes by [`pointwise`](super::pointwise).
    pub pointwise: bool,
}

/// What is done with an image of spikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Output,
    WeightGradient,
}

impl Dispatch {
    pub fn new(geometry: &Geometry) -> Self {
        let tiles = |tiles: Option<Tiles>| {
            tiles.filter(|tiles| {
                tiles.inputs >= TILES_CHANNELS && tiles.of_image() >= TILES && tiles.is_narrow()
            })
        };
        Dispatch {
            forward: tiles(Tiles::forward(geometry)),
            // All output channels are present here and below.
            backward: tiles(Tiles::backward(geometry)).filter(|tiles| tiles.outputs >= TILES_CHANNELS),
            weight: tiles(Tiles::forward(geometry))
                .filter(|tiles| tiles.outputs >= TILES_CHANNELS && tiles.of_image() >= WEIGHT_TILES)
                .filter(has_short_rows),
            spikes: geometry.is_plain_3x3() && geometry.inputs >= CHANNELS,
            pointwise: geometry.is_pointwise()
                && geometry.groups == 1
                && geometry.inputs >= POINTWISE_CHANNELS,
        }
    }

    /// Images whose masks exist at a time.
    pub fn rounds(
        &self,
        geometry: &Geometry,
        images: usize,
    ) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let masks =
            geometry.inputs * geometry.from[0] * SpikeMasks::words_of(geometry.from[1]) * size_of::<u64>();
        let step = if self.spikes { (MASKS / masks).max(1) } else { images.max(1) };
        (0..images.div_ceil(step)).map(move |round| round * step..((round + 1) * step).min(images))
    }

    /// For each image, where its spikes are, if it is to be computed from them.
    pub fn spikes_of<E: Element + kernels::Element>(
        &self,
        level: SimdLevel,
        geometry: &Geometry,
        x: Images<'_, E>,
        purpose: Purpose,
    ) -> Vec<Option<SpikeMasks>> {
        if !self.spikes {
            return (0..x.count()).map(|_| None).collect();
        }
        let percent = match purpose {
            Purpose::Output => OUTPUT_PERCENT,
            Purpose::WeightGradient => WEIGHT_PERCENT,
        };
        let few = |masks: &SpikeMasks| masks.ones() * 100 <= geometry.input_image() * percent;
        let of = |image| x.masks(level, image, geometry.from[1]).filter(few);
        let least = least_items(geometry.input_image());
        (0..x.count()).into_par_iter().with_min_len(least).map(of).collect()
    }
}

/// Whether all values are ordinary.
pub(super) fn are_ordinary<R: Real>(values: &[R]) -> bool {
    let limit = R::from_f64((1u64 << 48) as f64);
    let below = R::ZERO - limit;
    values.chunks(1024).all(|values| values.iter().fold(true, |all, &v| all & (v < limit) & (v > below)))
}

/// For each group of output channels, whether all its weights are ordinary.
pub(super) fn ordinary_groups<R: Real>(geometry: &Geometry, weight: &[R]) -> Vec<bool> {
    let group = OUTPUT_GROUP * geometry.inputs * geometry.area();
    weight.par_chunks(group).with_min_len(least_items(group)).map(are_ordinary).collect()
}
