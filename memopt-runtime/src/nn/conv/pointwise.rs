//! Convolutions of images of spikes with kernels of 1x1, event by event: pixels are rows, channels features.
//!
//! Threads share images and blocks of output channels out. Images that are not of few spikes, and blocks of output channels
//! whose weights are not finite, are left to [`direct`].

use super::backward::add_dense;
use super::direct;
use super::geometry::Geometry;
use super::images::Images;
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::{Element, Real};
use crate::nn::lanes::{from_lanes, to_lanes, Span, LANES};
use crate::nn::parallel::least_items;
use crate::nn::spikes::{self, add_products, wide_blocks, SpikeRows, WeightTable};
use crate::Result;
use rayon::prelude::*;

/// An output is computed from spikes if there are at most this many ones among 100 pixels.
const OUTPUT_PERCENT: usize = 30;
/// The same for the gradient of the weight.
const WEIGHT_PERCENT: usize = 30;
/// Pixels whose sums exist at a time.
const PIXELS: usize = 128;

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
    let mut unpacked = Vec::new();
    let image = x.range(index..index + 1).floats(level, |_| true, &mut unpacked);
    SpikeRows::of_floats(level, image, geometry.input_plane(), image.len() * percent / 100)
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
    let images = (0..x.count()).into_par_iter().with_min_len(least_items(geometry.input_image()));
    let pixels = |index| Some(of_image(level, geometry, (x, index), OUTPUT_PERCENT)?.transposed());
    let spikes: Vec<Option<SpikeRows>> = images.map(pixels).collect();
    let any = spikes.iter().any(Option::is_some);
    let table = any.then(|| WeightTable::new(level, weight, geometry.inputs));
    let plane = geometry.output_plane();
    let images = spikes.par_iter().zip(y.par_chunks_exact_mut(geometry.output_image())).enumerate();
    let work = geometry.inputs * geometry.output_image();
    images.with_min_len(least_items(work)).try_for_each(|(index, (spikes, y))| {
        let floats = x.range(index..index + 1);
        let Some((spikes, table)) = spikes.as_ref().zip(table.as_ref()) else {
            let (mut reals, mut output, mut rows) = (Vec::new(), Vec::new(), Vec::new());
            let mut unpacked = Vec::new();
            let x = E::reals(floats.floats(level, |_| true, &mut unpacked), &mut reals);
            return E::fill(y, &mut output, |y| {
                direct::forward_image(geometry, x, weight, bias, y, |_| true, &mut rows)
            });
        };
        let blocks = y.par_chunks_mut(LANES * plane).enumerate();
        // About a tenth of a dense product.
        blocks.with_min_len(least_items(geometry.inputs * plane * LANES / 10)).try_for_each_init(
            || (Vec::new(), Vec::new()),
            |(output, scratch), (block, y)| {
                let (first, lanes) = (block * LANES, y.len() / plane);
                let bias = bias.map(|bias| &bias[first..first + lanes]);
                E::fill(y, output, |y| {
                    if let Some(table) = table.block(block) {
                        image_of_spikes(level, spikes, table, bias, y, scratch);
                        return Ok(());
                    }
                    let geometry = Geometry { outputs: lanes, ..*geometry };
                    let weight = &weight[first * geometry.inputs..];
                    let mut unpacked = Vec::new();
                    let x = E::reals(floats.floats(level, |_| true, &mut unpacked), scratch);
                    direct::forward_image(&geometry, x, weight, bias, y, |_| true, &mut Vec::new())
                })
            },
        )
    })
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
