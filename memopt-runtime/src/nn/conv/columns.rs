//! The unfolded image: a convolution as a matrix product.

use super::geometry::Geometry;
use crate::nn::element::Real;
use crate::nn::product::Matrix;
use std::ops::Range;

/// One row for each channel and kernel element, one column for each output pixel of `rows`: what that kernel element
/// is multiplied by there. Written to `scratch`, unless the image itself serves.
pub(super) fn unfold<'a, R: Real>(
    geometry: &Geometry,
    image: &'a [R],
    channels: Range<usize>,
    rows: Range<usize>,
    scratch: &'a mut Vec<R>,
) -> Matrix<'a, R> {
    let (plane, width) = (geometry.input_plane(), geometry.to[1]);
    if geometry.is_pointwise() {
        let values = &image[channels.start * plane + rows.start * width..];
        return Matrix { values, row: plane, column: 1 };
    }
    let pixels = rows.len() * width;
    scratch.resize(channels.len() * geometry.area() * pixels, R::ZERO);
    let step = geometry.column_step();
    walk(geometry, channels, |row, channel, ky, columns, first| {
        let to = &mut scratch[row * pixels..][..pixels];
        for (to, y) in to.chunks_exact_mut(width).zip(rows.clone()) {
            let Some(source) = geometry.source_row(y, ky) else {
                to.fill(R::ZERO);
                continue;
            };
            to[..columns.start].fill(R::ZERO);
            to[columns.end..].fill(R::ZERO);
            let to = &mut to[columns.clone()];
            if to.is_empty() {
                continue;
            }
            let from = &image[channel * plane + source * geometry.from[1] + first..];
            match step {
                1 => to.copy_from_slice(&from[..to.len()]),
                _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
            }
        }
    });
    Matrix { values: scratch, row: pixels, column: 1 }
}

/// Adds unfolded gradients to where their elements came from: the transpose of [`unfold`].
pub(super) fn fold<R: Real>(
    geometry: &Geometry,
    columns: &[R],
    channels: Range<usize>,
    rows: Range<usize>,
    image: &mut [R],
) {
    let (plane, width) = (geometry.input_plane(), geometry.to[1]);
    let pixels = rows.len() * width;
    let step = geometry.column_step();
    walk(geometry, channels, |row, channel, ky, span, first| {
        let from = &columns[row * pixels..][..pixels];
        for (from, y) in from.chunks_exact(width).zip(rows.clone()) {
            let from = &from[span.clone()];
            let (Some(source), false) = (geometry.source_row(y, ky), from.is_empty()) else { continue };
            let to = &mut image[channel * plane + source * geometry.from[1] + first..];
            match step {
                1 => to.iter_mut().zip(from).for_each(|(to, from)| *to += *from),
                _ => to.iter_mut().step_by(step).zip(from).for_each(|(to, from)| *to += *from),
            }
        }
    });
}

/// Visits the rows of the unfolded image: row, channel, kernel row, output columns that see the image, and the first
/// input column that they see.
fn walk(
    geometry: &Geometry,
    channels: Range<usize>,
    mut visit: impl FnMut(usize, usize, usize, Range<usize>, usize),
) {
    let mut row = 0;
    for channel in channels {
        for ky in 0..geometry.kernel[0] {
            for kx in 0..geometry.kernel[1] {
                let (columns, first) = geometry.source_columns(kx);
                visit(row, channel, ky, columns, first);
                row += 1;
            }
        }
    }
}
