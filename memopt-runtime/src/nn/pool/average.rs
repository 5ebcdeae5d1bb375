//! Means over windows.

use super::windows::Windows;
use crate::module::Signal;
use crate::nn::element::{Element, Real};
use crate::nn::function::{function, gradient};
use crate::nn::input::{read, Input};
use crate::Result;
use rayon::prelude::*;

/// The mean of each window; keeps nothing but sizes.
pub(super) fn average<E: Element>(
    part: &str,
    x: Input,
    windows: Windows,
    shape: Vec<usize>,
) -> Result<Signal> {
    let mut y = vec![E::ZERO; shape.iter().product()];
    read::<E, _>(part, &x.values, |x| {
        y.par_chunks_mut(windows.output_plane())
            .zip(x.par_chunks(windows.input_plane()))
            .for_each(|(y, x)| forward(&windows, x, y));
        Ok(())
    })?;
    let input_shape = x.values.shape().clone();
    drop(x.values);
    function(part, vec![x.edge], y, shape, move |dy: Vec<E>| {
        let mut dx = vec![E::ZERO; input_shape.elem_count()];
        dx.par_chunks_mut(windows.input_plane())
            .zip(dy.par_chunks(windows.output_plane()))
            .for_each_init(Vec::new, |scratch, (dx, dy)| {
                E::fill(dx, scratch, |dx| backward(&windows, dy, dx))
            });
        Ok(vec![gradient(dx, input_shape)])
    })
}

fn forward<E: Element>(windows: &Windows, x: &[E], y: &mut [E]) {
    windows.each(|pixel, rows, columns| {
        let mut sum = <E::Real as Element>::ZERO;
        for row in rows.clone() {
            for value in &x[row * windows.width()..][columns.clone()] {
                sum += value.load();
            }
        }
        y[pixel] = E::store(sum / E::Real::from_f64((rows.len() * columns.len()) as f64));
    });
}

fn backward<E: Element>(windows: &Windows, dy: &[E], dx: &mut [E::Real]) {
    dx.fill(<E::Real as Element>::ZERO);
    windows.each(|pixel, rows, columns| {
        let share = dy[pixel].load() / E::Real::from_f64((rows.len() * columns.len()) as f64);
        for row in rows.clone() {
            dx[row * windows.width()..][columns.clone()].iter_mut().for_each(|dx| *dx += share);
        }
    });
}
