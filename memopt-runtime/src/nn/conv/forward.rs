//! The convolution of a window.

use super::buffers::Pool;
use super::direct;
use super::dispatch::{are_ordinary, ordinary_groups, Dispatch, Purpose};
use super::geometry::Geometry;
use super::images::Images;
use super::pointwise;
use super::spikes::{self, Blocks, SpikeMasks};
use super::split::{place, ranges};
use super::winograd::{self, Tiles, Weights};
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::{Element, Real};
use crate::nn::parallel::least_items;
use crate::nn::product::OUTPUT_GROUP;
use crate::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Buffers of a thread.
struct Scratch<E: Element> {
    /// Images that came in as bits.
    unpacked: Vec<E>,
    /// Images as they are computed with.
    images: Vec<E::Real>,
    output: Vec<E::Real>,
    /// Unfolded images, or rows of lanes.
    rows: Vec<E::Real>,
    tiles: winograd::Scratch<E::Real>,
}

impl<E: Element> Default for Scratch<E> {
    fn default() -> Self {
        Scratch {
            unpacked: Vec::new(),
            images: Vec::new(),
            output: Vec::new(),
            rows: Vec::new(),
            tiles: winograd::Scratch::default(),
        }
    }
}

/// `y`: the convolution of every image of `x`, plus the bias.
pub(super) fn forward<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    weight: &[E::Real],
    bias: Option<&[E::Real]>,
    y: &mut [E],
) -> Result<()> {
    let to = geometry.output_image();
    let dispatch = Dispatch::new(geometry);
    if dispatch.pointwise {
        return pointwise::forward(level, geometry, x, weight, bias, y);
    }
    let ordinary = match dispatch.spikes || dispatch.forward.is_some() {
        true => ordinary_groups(geometry, weight),
        false => Vec::new(),
    };
    let mut layer = Layer { level, geometry, weight, bias, ordinary, tiles: None, blocks: None };
    let pool = Pool::default();
    for round in dispatch.rounds(geometry, x.count()) {
        let (x, y) = (x.range(round.clone()), &mut y[round.start * to..round.end * to]);
        let spikes = dispatch.spikes_of(level, geometry, x, Purpose::Output);
        let most = images_at_a_time(dispatch.forward.as_ref());
        let work = spikes.len().saturating_mul(geometry.work());
        let ranges = ranges(spikes.len().div_ceil(most), geometry.outputs, work);
        if let (Some(ranges), true) = (ranges, dispatch.spikes) {
            layer.run_in_parts::<E>(&ranges, x, &spikes, y, &pool)?;
            continue;
        }
        layer.prepare(&dispatch, &spikes);
        let together = together(spikes.len(), dispatch.forward.as_ref());
        let groups = y.par_chunks_mut(to * together).zip(spikes.par_chunks(together)).enumerate();
        let least = least_items(together.saturating_mul(geometry.work()));
        groups.with_min_len(least).try_for_each(|(group, (y, spikes))| {
            let first = group * together;
            let x = x.range(first..first + spikes.len());
            pool.with(|scratch| layer.run(x, spikes, y, scratch))
        })?;
    }
    Ok(())
}

/// Images that fill a product.
pub(super) fn images_at_a_time(tiles: Option<&Tiles>) -> usize {
    tiles.map_or(1, Tiles::images_at_a_time)
}

/// Images of one task: as many as fill a product, if there are enough for all threads.
pub(super) fn together(images: usize, tiles: Option<&Tiles>) -> usize {
    (images / (2 * rayon::current_num_threads())).clamp(1, images_at_a_time(tiles))
}

/// The weights, in the forms that are needed.
struct Layer<'a, R> {
    level: SimdLevel,
    geometry: &'a Geometry,
    weight: &'a [R],
    bias: Option<&'a [R]>,
    /// Whether the weights of each group of output channels are ordinary; empty if only products are made.
    ordinary: Vec<bool>,
    tiles: Option<(Tiles, Weights<R>)>,
    blocks: Option<Blocks<R>>,
}

impl<R: Real> Layer<'_, R> {
    /// Makes what these images need.
    fn prepare(&mut self, dispatch: &Dispatch, spikes: &[Option<SpikeMasks>]) {
        let any = self.ordinary.contains(&true);
        if any && self.blocks.is_none() && spikes.iter().any(Option::is_some) {
            self.blocks = Some(Blocks::new(self.level, self.geometry, self.weight));
        }
        if let (true, None, Some(tiles)) = (any, &self.tiles, dispatch.forward) {
            if spikes.iter().any(Option::is_none) {
                self.tiles = Some((tiles, Weights::new(self.level, &tiles, self.weight, 0)));
            }
        }
    }

    /// The convolution of a few images, in parts of the output channels.
    fn run_in_parts<E: Element<Real = R> + kernels::Element>(
        &self,
        ranges: &[Range<usize>],
        x: Images<'_, E>,
        spikes: &[Option<SpikeMasks>],
        y: &mut [E],
        pool: &Pool<Scratch<E>>,
    ) -> Result<()> {
        let inputs = self.geometry.inputs * self.geometry.area();
        let parts = ranges.par_iter().map(|range| {
            let geometry = Geometry { outputs: range.len(), ..*self.geometry };
            let groups = range.start / OUTPUT_GROUP..range.end.div_ceil(OUTPUT_GROUP);
            let mut part = Layer {
                level: self.level,
                geometry: &geometry,
                weight: &self.weight[range.start * inputs..range.end * inputs],
                bias: self.bias.map(|bias| &bias[range.clone()]),
                ordinary: self.ordinary[groups].to_vec(),
                tiles: None,
                blocks: None,
            };
            part.prepare(&Dispatch::new(&geometry), spikes);
            let mut y = vec![<E as Element>::ZERO; spikes.len() * geometry.output_image()];
            pool.with(|scratch| part.run(x, spikes, &mut y, scratch))?;
            Ok(y)
        });
        let parts: Vec<Vec<E>> = parts.collect::<Result<_>>()?;
        let (image, plane) = (self.geometry.output_image(), self.geometry.output_plane());
        ranges
            .iter()
            .zip(parts)
            .for_each(|(range, part)| place((y, image), range, plane, &part, |value| value));
        Ok(())
    }

    /// The convolution of some images.
    fn run<E: Element<Real = R> + kernels::Element>(
        &self,
        x: Images<'_, E>,
        spikes: &[Option<SpikeMasks>],
        y: &mut [E],
        scratch: &mut Scratch<E>,
    ) -> Result<()> {
        let Layer { level, geometry, weight, bias, .. } = *self;
        let Scratch { unpacked, images, output, rows, tiles } = scratch;
        let (from, to) = (geometry.input_image(), geometry.output_image());
        let is_read = |index: usize| spikes[index].is_none() || self.ordinary.contains(&false);
        let x = match (0..spikes.len()).any(is_read) {
            true => E::reals(x.floats(level, is_read, unpacked), images),
            false => &[],
        };
        let image = |index: usize| &x[index * from..][..from];
        E::fill(y, output, |y| {
            let (mut of_tiles, mut of_spikes) = (Vec::new(), Vec::new());
            for (index, spikes) in spikes.iter().enumerate() {
                match spikes {
                    Some(masks) => of_spikes.push((index, masks)),
                    None if self.tiles.is_some() && are_ordinary(image(index)) => of_tiles.push(index),
                    None => {
                        let y = &mut y[index * to..][..to];
                        direct::forward_image(geometry, image(index), weight, bias, y, |_| true, rows)?;
                    }
                }
            }
            if let Some((sizes, weights)) = &self.tiles {
                let convolution = winograd::Convolution { level, tiles: sizes, weights, bias };
                convolution.convolve(x, (y, to), &of_tiles, tiles)?;
            }
            if let Some(blocks) = &self.blocks {
                let wanted = &self.ordinary;
                let convolution = spikes::Convolution { level, geometry, blocks, bias, wanted };
                convolution.convolve(&of_spikes, y, rows);
            }
            if self.ordinary.contains(&false) {
                let images = of_tiles.into_iter().chain(of_spikes.into_iter().map(|(index, _)| index));
                for index in images {
                    let (y, wanted) = (&mut y[index * to..][..to], |group: usize| !self.ordinary[group]);
                    direct::forward_image(geometry, image(index), weight, bias, y, wanted, rows)?;
                }
            }
            Ok(())
        })
    }
}
