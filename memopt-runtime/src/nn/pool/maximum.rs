//! Maxima over windows.

use super::windows::Windows;
use crate::module::Signal;
use crate::nn::element::{Element, Real};
use crate::nn::function::{function, gradient};
use crate::nn::input::{read, wrong, Input};
use crate::Result;
use rayon::prelude::*;

/// The maximum of each window; keeps two bytes for each output: where in its window the maximum is.
pub(super) fn maximum<E: Element>(
    part: &str,
    x: Input,
    windows: Windows,
    shape: Vec<usize>,
) -> Result<Signal> {
    if windows.largest() > usize::from(u16::MAX) {
        return Err(wrong(part, format!("windows of at most {} pixels expected", u16::MAX)));
    }
    let n = shape.iter().product();
    let mut y = vec![E::ZERO; n];
    let mut places = if x.edge.is_tracked() { vec![0u16; n] } else { Vec::new() };
    read::<E, _>(part, &x.values, |x| {
        let planes = y.par_chunks_mut(windows.output_plane()).zip(x.par_chunks(windows.input_plane()));
        match places.is_empty() {
            true => planes.for_each(|(y, x)| forward(&windows, x, y, |_, _| ())),
            false => planes
                .zip(places.par_chunks_mut(windows.output_plane()))
                .for_each(|((y, x), places)| forward(&windows, x, y, |pixel, place| places[pixel] = place)),
        }
        Ok(())
    })?;
    let input_shape = x.values.shape().clone();
    drop(x.values);
    function(part, vec![x.edge], y, shape, move |dy: Vec<E>| {
        let mut dx = vec![E::ZERO; input_shape.elem_count()];
        dx.par_chunks_mut(windows.input_plane())
            .zip(dy.par_chunks(windows.output_plane()).zip(places.par_chunks(windows.output_plane())))
            .for_each_init(Vec::new, |scratch, (dx, (dy, places))| {
                E::fill(dx, scratch, |dx| backward(&windows, dy, places, dx))
            });
        Ok(vec![gradient(dx, input_shape)])
    })
}

/// The first of equal values is the maximum; a NaN is greater than all.
fn forward<E: Element>(windows: &Windows, x: &[E], y: &mut [E], mut found: impl FnMut(usize, u16)) {
    windows.each(|pixel, rows, columns| {
        let (mut best, mut best_place, mut place) = (E::Real::LOWEST, 0, 0);
        for row in rows.clone() {
            for value in &x[row * windows.width()..][columns.clone()] {
                let value = value.load();
                let is_nan = value.partial_cmp(&value).is_none();
                if value > best || is_nan {
                    (best, best_place) = (value, place);
                }
                place += 1;
            }
        }
        y[pixel] = E::store(best);
        found(pixel, best_place);
    });
}

fn backward<E: Element>(windows: &Windows, dy: &[E], places: &[u16], dx: &mut [E::Real]) {
    dx.fill(<E::Real as Element>::ZERO);
    windows.each(|pixel, rows, columns| {
        let place = usize::from(places[pixel]);
        let (row, column) = (rows.start + place / columns.len(), columns.start + place % columns.len());
        dx[row * windows.width() + column] += dy[pixel].load();
    });
}
