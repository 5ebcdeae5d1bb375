//! The gradients of a convolution of a window.

use super::buffers::{zeros, Pool};
use super::direct;
use super::dispatch::{are_ordinary, Dispatch, Purpose};
use super::forward::{images_at_a_time, together};
use super::geometry::Geometry;
use super::images::Images;
use super::pointwise;
use super::spikes::{self, SpikeMasks};
use super::split::{place, ranges};
use super::winograd::{self, Tiles, Weights};
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::{Element, Real};
use crate::nn::parallel::least_items;
use crate::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Adds the gradient of the weight to `to`, the last image first.
pub(super) fn add_weight_gradient<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let dispatch = Dispatch::new(geometry);
    if dispatch.pointwise {
        return pointwise::add_weight_gradient(level, geometry, x, dy, to);
    }
    if !dispatch.spikes {
        return add_dense(level, geometry, x, dy, to);
    }
    let output = geometry.output_image();
    for round in dispatch.rounds(geometry, x.count()).rev() {
        let x = x.range(round.clone());
        let dy = &dy[round.start * output..round.end * output];
        let images = dispatch.spikes_of(level, geometry, x, Purpose::WeightGradient);
        let by_tiles = by_tiles(&dispatch, x, dy, &images);
        let kinds: Vec<(bool, bool)> = images.iter().map(Option::is_some).zip(by_tiles).collect();
        let mut end = images.len();
        for run in kinds.chunk_by(|a, b| a == b).rev() {
            let start = end - run.len();
            let (x, dy) = (x.range(start..end), &dy[start * output..end * output]);
            let spikes: Vec<&SpikeMasks> = images[start..end].iter().flatten().collect();
            match (run[0], &dispatch.weight) {
                ((true, _), _) => spikes::add_weight_gradient(level, geometry, &spikes, dy, to),
                ((_, true), Some(tiles)) => in_pieces(level, geometry, x, dy, |x, dy| {
                    winograd::add_weight_gradient(level, tiles, x, dy, to)
                })?,
                _ => add_dense(level, geometry, x, dy, to)?,
            }
            end = start;
        }
    }
    Ok(())
}

/// For each image, whether its share in the gradient of the weight is computed by tiles.
fn by_tiles<E: Element>(
    dispatch: &Dispatch,
    x: Images<'_, E>,
    dy: &[E],
    spikes: &[Option<SpikeMasks>],
) -> Vec<bool> {
    let ordinary = |values: &[E]| are_ordinary(E::reals(values, &mut Vec::new()));
    let output = dy.len() / x.count().max(1);
    let of = |(index, spikes): (usize, &Option<SpikeMasks>)| {
        dispatch.weight.is_some()
            && spikes.is_none()
            // Zeros and ones are ordinary.
            && x.as_floats(index).is_none_or(ordinary)
            && ordinary(&dy[index * output..][..output])
    };
    spikes.par_iter().enumerate().map(of).collect()
}

/// Adds the gradient of the weight by products, the last image first.
pub(super) fn add_dense<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    in_pieces(level, geometry, x, dy, |x, dy| direct::add_weight_gradient(geometry, x, dy, to))
}

/// Runs `f` on as many images at a time as are unpacked, the last ones first.
fn in_pieces<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    dy: &[E],
    mut f: impl FnMut(&[E], &[E]) -> Result<()>,
) -> Result<()> {
    let (output, mut unpacked) = (geometry.output_image(), Vec::new());
    for piece in x.pieces().rev() {
        let dy = &dy[piece.start * output..piece.end * output];
        let x = x.range(piece);
        f(x.floats(level, |_| true, &mut unpacked), dy)?;
    }
    Ok(())
}

/// Buffers of a thread.
struct Scratch<R> {
    image: Vec<R>,
    gradient: Vec<R>,
    columns: Vec<R>,
    tiles: winograd::Scratch<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        let tiles = winograd::Scratch::default();
        Scratch { image: Vec::new(), gradient: Vec::new(), columns: Vec::new(), tiles }
    }
}

/// The gradient of the input, in `dy`'s own buffer where an input image is not larger than an output image.
pub(super) fn input_gradient<E: Element>(
    level: SimdLevel,
    geometry: &Geometry,
    weight: &[E::Real],
    mut dy: Vec<E>,
) -> Result<Vec<E>> {
    let (from, to) = (geometry.output_image(), geometry.input_image());
    let images = dy.len() / from;
    let tiles = Dispatch::new(geometry).backward.filter(|_| images > 0 && are_ordinary(weight));
    if let Some(tiles) = tiles {
        let tasks = images.div_ceil(images_at_a_time(Some(&tiles)));
        let ranges = ranges(tasks, tiles.outputs, images.saturating_mul(geometry.work()));
        if let Some(parts) = ranges.map(|ranges| input_gradient_in_parts(level, &tiles, &ranges, weight, &dy))
        {
            if let Some(parts) = parts? {
                // Nobody needs the output's gradient any more.
                dy.resize(images * to, E::ZERO);
                dy.shrink_to_fit();
                for (range, part) in parts {
                    place((&mut dy, to), &range, geometry.input_plane(), &part, E::store);
                }
                return Ok(dy);
            }
        }
    }
    let tiles = tiles.map(|tiles| (tiles, Weights::new(level, &tiles, weight, 0)));
    let layer = Layer { level, geometry, weight, tiles };
    let together = together(images, layer.tiles.as_ref().map(|(tiles, _)| tiles));
    let least = least_items(together.saturating_mul(geometry.work()));
    let pool = Pool::default();
    if to > from {
        let mut dx: Vec<E> = zeros(images * to);
        let groups = dx.par_chunks_mut(to * together).zip(dy.par_chunks(from * together));
        groups.with_min_len(least).try_for_each(|(dx, dy)| {
            pool.with(|scratch: &mut Scratch<E::Real>| {
                let Scratch { image, gradient, columns, tiles } = scratch;
                let dy = E::reals(dy, gradient);
                E::fill(dx, image, |dx| layer.run(dy, (dx, to), columns, tiles))
            })
        })?;
        return Ok(dx);
    }
    dy.par_chunks_mut(from * together).with_min_len(least).try_for_each(|slots| {
        pool.with(|scratch: &mut Scratch<E::Real>| {
            let Scratch { image, gradient, columns, tiles } = scratch;
            gradient.clear();
            gradient.extend(slots.iter().map(|value| value.load()));
            E::fill(slots, image, |dx| layer.run(gradient, (dx, from), columns, tiles))
        })
    })?;
    if to < from {
        (1..images).for_each(|image| dy.copy_within(image * from..image * from + to, image * to));
        dy.truncate(images * to);
        dy.shrink_to_fit();
    }
    Ok(dy)
}

/// The channels of some inputs' gradients.
type Parts<R> = Vec<(Range<usize>, Vec<R>)>;

/// The gradient of the input of a few images, in parts of its channels; `None` if not all values are ordinary.
fn input_gradient_in_parts<E: Element>(
    level: SimdLevel,
    tiles: &Tiles,
    ranges: &[Range<usize>],
    weight: &[E::Real],
    dy: &[E],
) -> Result<Option<Parts<E::Real>>> {
    let mut reals = Vec::new();
    let dy = E::reals(dy, &mut reals);
    if !are_ordinary(dy) {
        return Ok(None);
    }
    let which: Vec<usize> = (0..dy.len() / tiles.input_image()).collect();
    let parts = ranges.par_iter().map(|range| {
        let tiles = tiles.with_outputs(range.len());
        let weights = Weights::new(level, &tiles, weight, range.start);
        let image = tiles.output_image();
        let mut dx = vec![<E::Real as Element>::ZERO; which.len() * image];
        let convolution = winograd::Convolution { level, tiles: &tiles, weights: &weights, bias: None };
        convolution.convolve(dy, (&mut dx, image), &which, &mut winograd::Scratch::default())?;
        Ok((range.clone(), dx))
    });
    parts.collect::<Result<_>>().map(Some)
}

/// The weights, in the forms that are needed.
struct Layer<'a, R> {
    level: SimdLevel,
    geometry: &'a Geometry,
    weight: &'a [R],
    tiles: Option<(Tiles, Weights<R>)>,
}

impl<R: Real> Layer<'_, R> {
    /// The gradient of some images; that of image `i` begins at `i * stride` of `dx`.
    fn run(
        &self,
        dy: &[R],
        (dx, stride): (&mut [R], usize),
        columns: &mut Vec<R>,
        scratch: &mut winograd::Scratch<R>,
    ) -> Result<()> {
        let (from, to) = (self.geometry.output_image(), self.geometry.input_image());
        let mut of_tiles = Vec::new();
        for (index, dy) in dy.chunks_exact(from).enumerate() {
            if self.tiles.is_some() && are_ordinary(dy) {
                of_tiles.push(index);
                continue;
            }
            let dx = &mut dx[index * stride..][..to];
            direct::input_gradient_image(self.geometry, self.weight, dy, dx, columns)?;
        }
        let Some((tiles, weights)) = &self.tiles else { return Ok(()) };
        let convolution = winograd::Convolution { level: self.level, tiles, weights, bias: None };
        convolution.convolve(dy, (dx, stride), &of_tiles, scratch)
    }
}
