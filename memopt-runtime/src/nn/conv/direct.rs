//! A convolution and its gradients as products of the unfolded image, one image at a time: for all sizes and values.

use super::columns::{fold, unfold};
use super::geometry::Geometry;
use crate::nn::element::{Element, Real};
use crate::nn::parallel::least_items;
use crate::nn::product::{multiply, Matrix, OUTPUT_GROUP};
use crate::Result;
use parking_lot::Mutex;
use rayon::prelude::*;

/// Buffers of one task.
struct Scratch<R> {
    image: Vec<R>,
    gradient: Vec<R>,
    columns: Vec<R>,
    block: Vec<R>,
}

impl<R> Scratch<R> {
    fn new() -> Self {
        Scratch { image: Vec::new(), gradient: Vec::new(), columns: Vec::new(), block: Vec::new() }
    }
}

/// The convolution of one image, plus the bias. Only the groups of output channels for which `wanted` is true are written.
pub(super) fn forward_image<R: Real>(
    geometry: &Geometry,
    x: &[R],
    weight: &[R],
    bias: Option<&[R]>,
    y: &mut [R],
    wanted: impl Fn(usize) -> bool,
    scratch: &mut Vec<R>,
) -> Result<()> {
    let (inputs, outputs, plane, width) =
        (geometry.inputs, geometry.outputs, geometry.output_plane(), geometry.to[1]);
    let k = inputs * geometry.area();
    for group in 0..geometry.groups {
        for rows in geometry.bands(inputs) {
            let channels = group * inputs..(group + 1) * inputs;
            let columns = unfold(geometry, x, channels, rows.clone(), scratch);
            for first in (0..outputs).step_by(OUTPUT_GROUP) {
                let (m, output) = (OUTPUT_GROUP.min(outputs - first), group * outputs + first);
                if !wanted(output / OUTPUT_GROUP) {
                    continue;
                }
                let weight = Matrix { values: &weight[output * k..], row: k, column: 1 };
                let to = &mut y[output * plane + rows.start * width..];
                multiply((m, rows.len() * width, k), (to, plane), false, weight, columns)?;
            }
        }
    }
    for (output, (y, &bias)) in y.chunks_exact_mut(plane).zip(bias.unwrap_or_default()).enumerate() {
        if wanted(output / OUTPUT_GROUP) {
            y.iter_mut().for_each(|y| *y += bias);
        }
    }
    Ok(())
}

/// Adds the gradient of the weight to `to`, the last image first.
///
/// Tasks share the weight's elements out among them, so that the additions to one element stay in order.
pub(super) fn add_weight_gradient<E: Element>(
    geometry: &Geometry,
    x: &[E],
    dy: &[E],
    to: &mut [E::Real],
) -> Result<()> {
    let (area, plane, width) = (geometry.area(), geometry.output_plane(), geometry.to[1]);
    let (input_image, output_image) = (geometry.input_image(), geometry.output_image());
    let k = geometry.inputs * area;
    let to = Mutex::new(to);
    let blocks = geometry.weight_blocks();
    let least = least_items((x.len() / input_image).saturating_mul(geometry.work()) / blocks.len().max(1));
    blocks.into_par_iter().with_min_len(least).try_for_each_init(Scratch::new, |scratch, block| {
        let Scratch { image, gradient, columns, block: sum } = scratch;
        let n = block.inputs.len() * area;
        // Where the block's part of an output channel's row is.
        let place = |output: usize| output * k + (block.inputs.start % geometry.inputs) * area;
        sum.clear();
        {
            let to = to.lock();
            block.outputs.clone().for_each(|output| sum.extend_from_slice(&to[place(output)..][..n]));
        }
        for (x, dy) in x.chunks_exact(input_image).zip(dy.chunks_exact(output_image)).rev() {
            let (x, dy) = (E::reals(x, image), E::reals(dy, gradient));
            for rows in geometry.bands(block.inputs.len()) {
                let columns = unfold(geometry, x, block.inputs.clone(), rows.clone(), columns);
                let columns = Matrix { values: columns.values, row: 1, column: columns.row };
                let pixels = &dy[block.outputs.start * plane + rows.start * width..];
                let dy = Matrix { values: pixels, row: plane, column: 1 };
                multiply((block.outputs.len(), n, rows.len() * width), (sum, n), true, dy, columns)?;
            }
        }
        let mut to = to.lock();
        for (output, sum) in block.outputs.zip(sum.chunks_exact(n)) {
            to[place(output)..][..n].copy_from_slice(sum);
        }
        Ok(())
    })
}

/// The gradient of the input of one image.
pub(super) fn input_gradient_image<R: Real>(
    geometry: &Geometry,
    weight: &[R],
    dy: &[R],
    dx: &mut [R],
    columns: &mut Vec<R>,
) -> Result<()> {
    let (inputs, outputs, plane, width) =
        (geometry.inputs, geometry.outputs, geometry.output_plane(), geometry.to[1]);
    let k = inputs * geometry.area();
    dx.fill(R::ZERO);
    for group in 0..geometry.groups {
        let weight = Matrix { values: &weight[group * outputs * k..], row: 1, column: k };
        for rows in geometry.bands(inputs) {
            let pixels = rows.len() * width;
            let first = rows.start * width;
            let dy = Matrix { values: &dy[group * outputs * plane + first..], row: plane, column: 1 };
            if geometry.is_pointwise() {
                let to = &mut dx[group * inputs * plane + first..];
                multiply((k, pixels, outputs), (to, plane), false, weight, dy)?;
                continue;
            }
            columns.resize(k * pixels, R::ZERO);
            multiply((k, pixels, outputs), (columns, pixels), false, weight, dy)?;
            fold(geometry, columns, group * inputs..(group + 1) * inputs, rows, dx);
        }
    }
    Ok(())
}
