//! What a convolution takes, by the kernels that its sizes and the shares of ones in its input choose.

use super::dispatch::{Dispatch, OUTPUT_PERCENT, WEIGHT_PERCENT};
use super::geometry::Geometry;
use super::images::UNPACKED;
use super::lanes::LANES;
use super::pointwise;
use super::spikes::SpikeMasks;
use super::split::ranges_for;
use super::winograd::{self, Tiles};
use crate::module::{Footprint, Incoming, Work};
use crate::nn::parallel::running;
use crate::nn::product::packed;
use candle_core::DType;

/// Time of a product in a kernel, in those of a dense product of matrices in the cache.
mod cost {
    /// By tiles: fewer products, and the transforms.
    pub const TILES: f64 = 0.75;
    /// The same for the gradient of the weight.
    pub const WEIGHT_TILES: f64 = 0.9;
    /// Of the unfolded image.
    pub const UNFOLDED: f64 = 1.4;
    /// An addition, event by event, to an output.
    pub const EVENT: f64 = 4.4;
    /// An addition to a gradient of the weight.
    pub const WEIGHT_EVENT: f64 = 2.6;
}

/// How many images of a window go which way.
#[derive(Debug, Clone, Copy)]
struct Ways {
    any_spikes: bool,
    any_dense: bool,
    /// Share of ones, if there are only ones and zeros.
    ones: f64,
}

impl Ways {
    fn of(x: &Incoming, has_spikes: bool, percent: usize) -> Self {
        let limit = percent as f64 / 100.;
        match x.densities.filter(|_| has_spikes) {
            Some(found) => {
                Ways { any_spikes: found.least <= limit, any_dense: found.most > limit, ones: found.mean }
            }
            None => Ways { any_spikes: false, any_dense: true, ones: 1. },
        }
    }
}

/// What the convolution of a window takes; `output` are the dimensions of what it gives.
pub(super) fn footprint(geometry: &Geometry, x: &Incoming, output: Vec<usize>) -> Footprint {
    let sizes = Sizes { geometry, dispatch: Dispatch::new(geometry), x, images: x.images() };
    let y = x.with_dims(output);
    let forward = sizes.forward().with_scratch(sizes.forward_scratch()).unpacking(sizes.unpacks());
    let backward = sizes.backward().with_scratch(sizes.weight_gradient_scratch());
    let backward = backward.unpacking(sizes.unpacks_for_weight());
    Footprint {
        output: y.dims,
        keeps_input: true,
        is_in_place: geometry.input_image() <= geometry.output_image(),
        forward,
        backward,
        input_scratch: sizes.input_gradient_scratch(),
        ..Footprint::default()
    }
}

struct Sizes<'a> {
    geometry: &'a Geometry,
    dispatch: Dispatch,
    x: &'a Incoming,
    images: usize,
}

impl Sizes<'_> {
    /// Bytes of a number that is computed with.
    fn real(&self) -> usize {
        if self.x.dtype == DType::F64 {
            8
        } else {
            4
        }
    }

    /// Additions of a product in full, over all images.
    fn products(&self) -> f64 {
        let geometry = self.geometry;
        (self.images * geometry.output_image() * geometry.inputs * geometry.area()) as f64
    }

    fn moved(&self) -> usize {
        self.x.bytes() + self.images * self.geometry.output_image() * self.x.dtype.size_in_bytes()
    }

    fn forward(&self) -> Work {
        let ways = Ways::of(self.x, self.dispatch.spikes, OUTPUT_PERCENT);
        let dense = if self.dispatch.forward.is_some() { cost::TILES } else { cost::UNFOLDED };
        let each = if ways.any_dense { dense } else { cost::EVENT * ways.ones };
        Work { products: self.products() * each, ..Work::moving(self.moved()) }
    }

    fn backward(&self) -> Work {
        let ways = Ways::of(self.x, self.dispatch.spikes, WEIGHT_PERCENT);
        let dense = if self.dispatch.weight.is_some() { cost::WEIGHT_TILES } else { cost::UNFOLDED };
        let of_weight = if ways.any_dense { dense } else { cost::WEIGHT_EVENT * ways.ones };
        let of_input = if self.dispatch.backward.is_some() { cost::TILES } else { cost::UNFOLDED };
        Work { products: self.products() * (of_weight + of_input), ..Work::moving(2 * self.moved()) }
    }

    /// Bytes of the masks that exist at a time.
    fn masks(&self) -> usize {
        if !self.dispatch.spikes || self.x.densities.is_none() {
            return 0;
        }
        let geometry = self.geometry;
        let image = geometry.inputs * geometry.from[0] * SpikeMasks::words_of(geometry.from[1]) * 8;
        let round = self.dispatch.rounds(geometry, self.images).next().map_or(0, |round| round.len());
        image * round
    }

    /// Bytes of a thread that works with tiles, or with unfolded images; tasks are of so many images.
    fn of_thread(&self, tiles: Option<Tiles>, images: usize) -> usize {
        let unfolded = || {
            if self.geometry.is_pointwise() {
                // The image itself.
                return 0;
            }
            let band = self.geometry.bands(self.geometry.inputs).next().map_or(0, |rows| rows.len());
            self.geometry.inputs * self.geometry.area() * band * self.geometry.to[1]
        };
        let half = self.real() != self.x.dtype.size_in_bytes();
        let copies = if half { self.geometry.input_image() + self.geometry.output_image() } else { 0 };
        (tiles.map_or_else(unfolded, |tiles| tiles.scratch(images)) + copies) * self.real()
    }

    fn forward_scratch(&self) -> usize {
        let geometry = self.geometry;
        let ways = Ways::of(self.x, self.dispatch.spikes, OUTPUT_PERCENT);
        let lanes = geometry.outputs.next_multiple_of(LANES);
        let blocks = if ways.any_spikes { lanes * geometry.inputs * geometry.area() } else { 0 };
        let tiles = self.dispatch.forward.filter(|_| ways.any_dense);
        let transformed = tiles.map_or(0, |_| 16 * geometry.inputs * lanes);
        let most = self.dispatch.forward.as_ref().map_or(1, Tiles::images_at_a_time);
        let weights = (blocks + transformed) * self.real();
        let parts = if self.dispatch.spikes { self.parts(most, geometry.outputs) } else { None };
        let shared = match parts {
            // Each part has its own weights, and as many are worked on as there are threads.
            Some((parts, _)) => {
                let output = self.images * geometry.output_image() * self.x.dtype.size_in_bytes();
                weights * self.x.threads.min(parts) / parts + output
            }
            None => weights,
        };
        let (task, tiles) = match parts {
            Some((_, outputs)) => (self.images, tiles.map(|tiles| tiles.with_outputs(outputs))),
            None => (self.together(most), tiles),
        };
        let of_thread = if ways.any_dense { self.of_thread(tiles, task) } else { 0 };
        let threads = match parts {
            Some((parts, _)) => self.x.threads.min(parts),
            None => self.running(task),
        };
        let events = if self.dispatch.pointwise { pointwise::forward_scratch(geometry, self.x) } else { 0 };
        self.masks() + shared + (of_thread * threads).max(events)
    }

    /// Threads that work at once on tasks of so many images.
    fn running(&self, task: usize) -> usize {
        let work = task.saturating_mul(self.geometry.work());
        running(self.x.threads, self.images.div_ceil(task.max(1)), work)
    }

    /// Images of one task.
    fn together(&self, most: usize) -> usize {
        (self.images / (2 * self.x.threads)).clamp(1, most)
    }

    /// Where there are so few images that threads share the channels out: in how many parts, and how many channels are in one.
    fn parts(&self, most: usize, outputs: usize) -> Option<(usize, usize)> {
        let work = self.images.saturating_mul(self.geometry.work());
        let ranges = ranges_for(self.x.threads, self.images.div_ceil(most), outputs, work)?;
        Some((ranges.len(), ranges.first().map_or(outputs, |range| range.len())))
    }

    /// Whether some images that come as bits are computed with as floats.
    fn has_floats(&self, percent: usize) -> bool {
        Ways::of(self.x, self.dispatch.spikes || self.dispatch.pointwise, percent).any_dense
    }

    fn image(&self) -> usize {
        self.geometry.input_image() * self.x.dtype.size_in_bytes()
    }

    /// Bytes of the images that the output unpacks at a time, where they come as bits: those of the tasks that run.
    fn unpacks(&self) -> usize {
        let together = match self.dispatch.pointwise {
            true => 1,
            false => self.together(self.dispatch.forward.as_ref().map_or(1, Tiles::images_at_a_time)),
        };
        if self.has_floats(OUTPUT_PERCENT) {
            self.image() * together * self.running(together)
        } else {
            0
        }
    }

    /// The same for the gradient of the weight.
    fn unpacks_for_weight(&self) -> usize {
        let image = self.image();
        if self.has_floats(WEIGHT_PERCENT) {
            image * self.images.min((UNPACKED / image.max(1)).max(1))
        } else {
            0
        }
    }

    fn weight_gradient_scratch(&self) -> usize {
        let geometry = self.geometry;
        let ways = Ways::of(self.x, self.dispatch.spikes, WEIGHT_PERCENT);
        let (mut elements, threads) = (0, self.x.threads);
        if ways.any_spikes {
            let padded = (geometry.from[0] + 2) * (geometry.from[1] + 2);
            elements = (padded + geometry.inputs * geometry.area()) * LANES * threads;
        }
        if ways.any_dense {
            elements = elements.max(match &self.dispatch.weight {
                Some(tiles) => winograd::weight_gradient_scratch(tiles, self.images, threads),
                None => {
                    let blocks = geometry.weight_blocks().len();
                    let work = self.images.saturating_mul(geometry.work()) / blocks.max(1);
                    geometry.weight_gradient_scratch() * running(threads, blocks, work)
                }
            });
        }
        let events = match self.dispatch.pointwise {
            true => pointwise::weight_gradient_scratch(geometry, self.x),
            false => 0,
        };
        (self.masks() + elements * self.real()).max(events)
    }

    fn input_gradient_scratch(&self) -> usize {
        let (geometry, threads) = (self.geometry, self.x.threads);
        let Some(tiles) = self.dispatch.backward else {
            let packed = packed(geometry.input_gradient_product(), [false, true]) * self.real();
            return (self.of_thread(None, 1) + self.copies(1) + packed) * self.running(1);
        };
        let weights = 16 * geometry.outputs * geometry.inputs.next_multiple_of(LANES) * self.real();
        let most = tiles.images_at_a_time();
        match self.parts(most, tiles.outputs) {
            Some((parts, outputs)) => {
                let input = self.images * geometry.input_image() * self.real();
                let of_thread = self.of_thread(Some(tiles.with_outputs(outputs)), self.images);
                weights * threads.min(parts) / parts + input + of_thread * threads.min(parts)
            }
            None => {
                let images = self.together(most);
                weights + (self.of_thread(Some(tiles), images) + self.copies(images)) * self.running(images)
            }
        }
    }

    /// Bytes of the gradients that a task writes over.
    fn copies(&self, images: usize) -> usize {
        let geometry = self.geometry;
        let in_place = geometry.input_image() <= geometry.output_image();
        if in_place {
            images * geometry.output_image() * self.real()
        } else {
            0
        }
    }
}
