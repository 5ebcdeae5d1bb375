//! Convolutions of images of spikes with kernels of 1x1, event by event: pixels are rows, channels features.
//!
//! Threads share images and blocks of output channels out. Images that are not of few spikes, and blocks of output channels
//! whose weights are not finite, are left to [`direct`].

use super::backward::add_dense;
use super::direct;
use super::geometry::Geometry;
use super::images::Images;
use crate::compress::kernels::{self, SimdLevel};
use crate::module::Incoming;
use crate::nn::element::{Element, Real};
use crate::nn::lanes::{from_lanes, to_lanes, Span, LANES};
use crate::nn::parallel::least_items;
use crate::nn::spikes::{self, add_products, rounds, wide_blocks, SpikeRows, SpikeSizes, WeightTables};
use crate::Result;
use candle_core::DType;
use rayon::prelude::*;

/// An output is computed from spikes if there are at most this many ones among 100 pixels.
const OUTPUT_PERCENT: usize = 30;
/// The same for the gradient of the weight.
const WEIGHT_PERCENT: usize = 30;
/// Pixels whose sums exist at a time.
const PIXELS: usize = 128;

/// Sizes of the products of pixels of spikes, if there may be such images in a window of which that is known.
fn spike_sizes(geometry: &Geometry, x: &Incoming, percent: usize) -> Option<SpikeSizes> {
    let are_few = x.densities.is_some_and(|found| found.least * 100. <= percent as f64);
    (are_few && wide_blocks(geometry.outputs) > 0).then_some(())?;
    let real = if x.dtype == DType::F64 { 8 } else { 4 };
    let (rows, units) = (geometry.input_plane(), x.images());
    let Geometry { inputs, outputs, .. } = *geometry;
    Some(SpikeSizes { units, rows, inputs, outputs, real, threads: x.threads })
}

/// Bytes that [`forward`] takes beside input and output, for its images of spikes.
pub(super) fn forward_scratch(geometry: &Geometry, x: &Incoming) -> usize {
    spike_sizes(geometry, x, OUTPUT_PERCENT).map_or(0, |spikes| spikes.forward(PIXELS).max(spikes.looking()))
}

/// Bytes that [`add_weight_gradient`] takes besides, for its images of spikes.
pub(super) fn weight_gradient_scratch(geometry: &Geometry, x: &Incoming) -> usize {
    spike_sizes(geometry, x, WEIGHT_PERCENT).map_or(0, |spikes| {
        // The gradients of a last block of few output channels are copied for products.
        let narrow = geometry.outputs.saturating_sub(wide_blocks(geometry.outputs) * LANES);
        let copies = spikes.units * narrow * geometry.output_plane() * x.dtype.size_in_bytes();
        spikes.weight_gradient().max(copies).max(spikes.looking())
    })
}

/// The channels of an image as rows of spikes, if they are few.
fn of_image<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    (x, index): (Images<'_, E>, usize),
    percent: usize,
) -> Option<SpikeRows> {
    if wide_blocks(geometry.outputs) == 0 {
        return None;
    }
    let (len, plane) = (geometry.input_image(), geometry.input_plane());
    let most = len * percent / 100;
    match x.as_floats(index) {
        Some(image) => SpikeRows::of_floats(level, image, plane, most),
        None => {
            let (words, start) = x.as_bits(index)?;
            Some(SpikeRows::of_bits(words, start, len, plane)).filter(|rows| rows.count_ones() <= most)
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
    let image = geometry.output_image();
    for round in rounds(x.count(), [geometry.inputs, geometry.input_plane()]) {
        let y = &mut y[round.start * image..round.end * image];
        forward_images(level, geometry, x.range(round), weight, bias, y)?;
    }
    Ok(())
}

/// The same of some images, all of whose bits exist.
fn forward_images<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    weight: &[E::Real],
    bias: Option<&[E::Real]>,
    y: &mut [E],
) -> Result<()> {
    let images = (0..x.count()).into_par_iter().with_min_len(least_items(geometry.input_image()));
    let pixels = |index| Some(of_image(level, geometry, (x, index), OUTPUT_PERCENT)?.transposed());
    let spikes: Vec<Option<SpikeRows>> = images.map(pixels).collect();
    let any = spikes.iter().any(Option::is_some);
    let tables = any.then(|| WeightTables::new(weight, geometry.inputs));
    let (image, block) = (geometry.output_image(), LANES * geometry.output_plane());
    // What has no table, and images that are not of spikes.
    let images = spikes.par_iter().zip(y.par_chunks_exact_mut(image)).enumerate();
    images.with_min_len(least_items(geometry.work())).try_for_each(|(index, (spikes, y))| {
        let has = |block| spikes.is_some() && tables.as_ref().is_some_and(|tables| tables.has(block));
        let blocks = 0..geometry.outputs.div_ceil(LANES);
        if blocks.clone().all(has) {
            return Ok(());
        }
        let (mut unpacked, mut reals) = (Vec::new(), Vec::new());
        let (mut output, mut rows) = (Vec::new(), Vec::new());
        let x = E::reals(x.range(index..index + 1).floats(level, |_| true, &mut unpacked), &mut reals);
        if spikes.is_none() {
            return E::fill(y, &mut output, |y| {
                direct::forward_image(geometry, x, weight, bias, y, |_| true, &mut rows)
            });
        }
        for (index, y) in y.chunks_mut(block).enumerate().filter(|(index, _)| !has(*index)) {
            let (first, lanes) = (index * LANES, y.len() / geometry.output_plane());
            let part = Geometry { outputs: lanes, ..*geometry };
            let (weight, bias) =
                (&weight[first * geometry.inputs..], bias.map(|bias| &bias[first..][..lanes]));
            E::fill(y, &mut output, |y| {
                direct::forward_image(&part, x, weight, bias, y, |_| true, &mut rows)
            })?;
        }
        Ok(())
    })?;
    let Some(weights) = tables else { return Ok(()) };
    for blocks in weights.groups() {
        let first = blocks.start;
        let tables = weights.of(level, blocks);
        // About a tenth of a dense product.
        let least = least_items(geometry.inputs * block / 10);
        let images = spikes.par_iter().zip(y.par_chunks_exact_mut(image));
        images.with_min_len(least.div_ceil(tables.len().max(1))).for_each(|(spikes, y)| {
            let Some(spikes) = spikes else { return };
            let y = y[first * block..].par_chunks_mut(block).zip(&tables).enumerate();
            y.with_min_len(least).for_each_init(
                || (Vec::new(), Vec::new()),
                |(output, sums), (index, (y, table))| {
                    let Some(table) = table else { return };
                    let (first, lanes) = ((first + index) * LANES, y.len() / geometry.output_plane());
                    let bias = bias.map(|bias| &bias[first..][..lanes]);
                    E::fill(y, output, |y| image_of_spikes(level, spikes, table, bias, y, sums));
                },
            );
        });
    }
    Ok(())
}

/// A block of output channels of an image; a row of `spikes` is a pixel.
fn image_of_spikes<R: Real>(
    level: SimdLevel,
    spikes: &SpikeRows,
    table: &[R],
    bias: Option<&[R]>,
    y: &mut [R],
    sums: &mut Vec<R>,
) {
    let plane = spikes.len();
    let add = bias.map(|bias| {
        let mut add = [R::ZERO; LANES];
        add[..bias.len()].copy_from_slice(bias);
        add
    });
    for start in (0..plane).step_by(PIXELS) {
        let len = PIXELS.min(plane - start);
        sums.clear();
        sums.resize(len * LANES, R::ZERO);
        let words = spikes.words(start..start + len);
        add_products(level, (words, spikes.per_row()), table, sums);
        let span = Span { lanes: y.len() / plane, plane, start, len };
        from_lanes(level, sums, add.as_ref(), y, span);
    }
}

/// Adds the gradient of the weight to `to`, the last image first.
pub(super) fn add_weight_gradient<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let output = geometry.output_image();
    for round in rounds(x.count(), [geometry.inputs, geometry.input_plane()]).rev() {
        let dy = &dy[round.start * output..round.end * output];
        add_weight_gradient_of_images(level, geometry, x.range(round), dy, to)?;
    }
    Ok(())
}

/// The same of some images, all of whose bits exist.
fn add_weight_gradient_of_images<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let (output, plane) = (geometry.output_image(), geometry.output_plane());
    let images = (0..x.count()).into_par_iter().with_min_len(least_items(geometry.input_image()));
    let of_image = |index| of_image(level, geometry, (x, index), WEIGHT_PERCENT);
    let images: Vec<Option<SpikeRows>> = images.map(of_image).collect();
    let mut end = images.len();
    for run in images.chunk_by(|a, b| a.is_some() == b.is_some()).rev() {
        let start = end - run.len();
        let dy = &dy[start * output..end * output];
        let x = x.range(start..end);
        let spikes: Vec<&SpikeRows> = run.iter().flatten().collect();
        if spikes.is_empty() {
            add_dense(level, geometry, x, dy, to)?;
        } else {
            let lanes = |image: usize, block: usize, table: &mut Vec<E::Real>| {
                table.clear();
                table.resize(plane * LANES, <E::Real as Element>::ZERO);
                let lanes = LANES.min(geometry.outputs - block * LANES);
                let dy = &dy[image * output + block * LANES * plane..][..lanes * plane];
                let span = Span { lanes, plane, start: 0, len: plane };
                to_lanes(level, E::reals(dy, &mut Vec::new()), span, table);
            };
            let wide = (wide_blocks(geometry.outputs) * LANES).min(geometry.outputs);
            let (to, narrow) = to.split_at_mut(wide * geometry.inputs);
            spikes::add_weight_gradient(level, &spikes, lanes, to);
            if !narrow.is_empty() {
                let geometry = Geometry { outputs: geometry.outputs - wide, ..*geometry };
                let dy = dy.chunks_exact(output).flat_map(|dy| &dy[wide * plane..]).copied();
                add_dense(level, &geometry, x, &dy.collect::<Vec<E>>(), narrow)?;
            }
        }
        end = start;
    }
    Ok(())
}
