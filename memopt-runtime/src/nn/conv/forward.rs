//! The convolution of a window.

use super::buffers::Pool;
use super::direct;
use super::dispatch::{are_ordinary, ordinary_groups, Dispatch, Purpose};
use super::geometry::Geometry;
use super::spikes::{self, Blocks, SpikeMasks};
use super::winograd::{self, Tiles, Weights};
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::{Element, Real};
use crate::Result;
use rayon::prelude::*;

/// Buffers of a thread.
struct Scratch<R> {
    image: Vec<R>,
    output: Vec<R>,
    /// Unfolded images, or rows of lanes.
    rows: Vec<R>,
    tiles: winograd::Scratch<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Scratch {
            image: Vec::new(),
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
    x: &[E],
    weight: &[E::Real],
    bias: Option<&[E::Real]>,
    y: &mut [E],
) -> Result<()> {
    let (from, to) = (geometry.input_image(), geometry.output_image());
    let dispatch = Dispatch::new(geometry);
    let ordinary = match dispatch.spikes || dispatch.forward.is_some() {
        true => ordinary_groups(geometry, weight),
        false => Vec::new(),
    };
    let mut layer = Layer { level, geometry, weight, bias, ordinary, tiles: None, blocks: None };
    let pool = Pool::default();
    for round in dispatch.rounds(geometry, x.len() / from) {
        let (x, y) = (&x[round.start * from..round.end * from], &mut y[round.start * to..round.end * to]);
        let spikes = dispatch.spikes_of(level, geometry, x, Purpose::Output);
        layer.prepare(&dispatch, &spikes);
        let together = together(spikes.len(), dispatch.forward.as_ref());
        let groups = y.par_chunks_mut(to * together).zip(x.par_chunks(from * together));
        groups
            .zip(spikes.par_chunks(together))
            .try_for_each(|((y, x), spikes)| pool.with(|scratch| layer.run::<E>(x, spikes, y, scratch)))?;
    }
    Ok(())
}

/// Images of one task: as many as fill a product, if there are enough for all threads.
pub(super) fn together(images: usize, tiles: Option<&Tiles>) -> usize {
    let most = tiles.map_or(1, Tiles::images_at_a_time);
    (images / (2 * rayon::current_num_threads())).clamp(1, most)
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
                self.tiles = Some((tiles, Weights::new(self.level, &tiles, self.weight)));
            }
        }
    }

    /// The convolution of some images.
    fn run<E: Element<Real = R>>(
        &self,
        x: &[E],
        spikes: &[Option<SpikeMasks>],
        y: &mut [E],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        let Layer { level, geometry, weight, bias, .. } = *self;
        let Scratch { image, output, rows, tiles } = scratch;
        let (from, to) = (geometry.input_image(), geometry.output_image());
        let x = E::reals(x, image);
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
