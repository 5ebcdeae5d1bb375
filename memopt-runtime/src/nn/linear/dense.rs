//! Products of dense rows.

use crate::module::Incoming;
use crate::nn::element::Element;
use crate::nn::parallel::{least_items, running};
use crate::nn::product::{multiply, packed, Matrix, OUTPUT_GROUP};
use crate::nn::reduce::Planes;
use crate::Result;
use candle_core::DType;
use rayon::prelude::*;
use std::ops::Range;

/// Rows of the input, or of the weight's gradient, that one product takes.
const ROWS: usize = 64;

/// Sizes of the products; `rows` of each time step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub steps: usize,
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

impl Sizes {
    /// The output as planes of one element.
    pub fn planes(&self) -> Planes {
        Planes { steps: self.steps, images: self.rows, channels: self.outputs, size: 1 }
    }

    /// Bytes of copies in f32 of the rows of half precision that are read and written at a time.
    fn halves(&self, x: &Incoming) -> usize {
        match x.dtype {
            DType::BF16 | DType::F16 => {
                x.threads * ROWS.min(self.rows) * (self.inputs + self.outputs) * size_of::<f32>()
            }
            _ => 0,
        }
    }

    /// Bytes that the output takes besides, in products.
    pub fn forward_scratch(&self, x: &Incoming) -> usize {
        let product = (ROWS.min(self.rows), OUTPUT_GROUP.min(self.outputs), self.inputs);
        self.halves(x)
            + self.running(x, self.steps * self.rows.div_ceil(ROWS)) * self.packed(x, product, [true, false])
    }

    /// Bytes that one product takes.
    fn packed(&self, x: &Incoming, product: (usize, usize, usize), are_rows: [bool; 2]) -> usize {
        packed(product, are_rows) * if x.dtype == DType::F64 { 8 } else { 4 }
    }

    /// Threads that work at once on so many blocks of rows.
    fn running(&self, x: &Incoming, blocks: usize) -> usize {
        running(x.threads, blocks, ROWS * self.inputs * self.outputs)
    }

    /// Bytes that the gradient of the weight takes besides, in products: a time step of half precision is in f32 in each
    /// thread.
    pub fn weight_gradient_scratch(&self, x: &Incoming) -> usize {
        let halves = match x.dtype {
            DType::BF16 | DType::F16 => self.rows * (self.inputs + self.outputs) * size_of::<f32>(),
            _ => 0,
        };
        let product = (ROWS.min(self.outputs), self.inputs, self.rows);
        let work = self.steps * self.rows * self.inputs * ROWS;
        let at_once = running(x.threads, self.outputs.div_ceil(ROWS), work);
        at_once * (halves + self.packed(x, product, [false, true]))
    }

    /// Bytes that the gradient of the input takes besides.
    pub fn input_scratch(&self, x: &Incoming) -> usize {
        let product = (ROWS.min(self.rows), self.inputs, self.outputs);
        self.halves(x)
            + self.running(x, self.steps * self.rows.div_ceil(ROWS)) * self.packed(x, product, [true, true])
    }

    /// Runs `f` on every block of rows of every time step: its rows, as a range over the window, of `from` and of `to`, whose
    /// widths are given.
    fn blocks<E: Element>(
        &self,
        (from, from_width): (&[E], usize),
        (to, to_width): (&mut [E], usize),
        wanted: impl Fn(Range<usize>) -> bool + Sync,
        f: impl Fn(Range<usize>, &[E::Real], &mut [E::Real]) -> Result<()> + Sync,
    ) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let steps = to.par_chunks_mut(self.rows * to_width).zip(from.par_chunks(self.rows * from_width));
        let work = self.inputs * self.outputs;
        steps.enumerate().with_min_len(least_items(self.rows * work)).try_for_each(|(step, (to, from))| {
            let blocks = to.par_chunks_mut(ROWS * to_width).zip(from.par_chunks(ROWS * from_width));
            blocks.enumerate().with_min_len(least_items(ROWS * work)).try_for_each_init(
                || (Vec::new(), Vec::new()),
                |(read, written), (block, (to, from))| {
                    let (first, rows) = (step * self.rows + block * ROWS, from.len() / from_width);
                    let rows = first..first + rows;
                    if !wanted(rows.clone()) {
                        return Ok(());
                    }
                    let from = E::reals(from, read);
                    E::fill(to, written, |to| f(rows, from, to))
                },
            )
        })
    }

    /// The output: of the blocks of rows and groups of output channels for which `wanted` is true; what else is in these
    /// rows is undefined. Rows are a range over the window, a group is given by its number.
    pub fn forward<E: Element>(
        &self,
        x: &[E],
        weight: &[E::Real],
        bias: Option<&[E::Real]>,
        y: &mut [E],
        wanted: impl Fn(Range<usize>, usize) -> bool + Sync,
    ) -> Result<()> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let any =
            |rows: Range<usize>| (0..outputs.div_ceil(OUTPUT_GROUP)).any(|group| wanted(rows.clone(), group));
        self.blocks((x, inputs), (y, outputs), any, |rows, x, y| {
            let x = Matrix { values: x, row: inputs, column: 1 };
            for first in (0..outputs).step_by(OUTPUT_GROUP) {
                if !wanted(rows.clone(), first / OUTPUT_GROUP) {
                    continue;
                }
                let columns = OUTPUT_GROUP.min(outputs - first);
                let weight = Matrix { values: &weight[first * inputs..], row: 1, column: inputs };
                multiply((rows.len(), columns, inputs), (&mut y[first..], outputs), false, x, weight)?;
            }
            if let Some(bias) = bias {
                y.chunks_exact_mut(outputs)
                    .for_each(|y| y.iter_mut().zip(bias).for_each(|(y, bias)| *y += *bias));
            }
            Ok(())
        })
    }

    /// The gradient of the input.
    pub fn input_gradient<E: Element>(&self, weight: &[E::Real], dy: &[E]) -> Result<Vec<E>> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let mut dx = vec![E::ZERO; self.steps * self.rows * inputs];
        let weight = Matrix { values: weight, row: inputs, column: 1 };
        self.blocks(
            (dy, outputs),
            (&mut dx, inputs),
            |_| true,
            |rows, dy, dx| {
                let dy = Matrix { values: dy, row: outputs, column: 1 };
                multiply((rows.len(), inputs, outputs), (dx, inputs), false, dy, weight)
            },
        )?;
        Ok(dx)
    }

    /// Adds the gradient of the weight of some output channels, from the `first` on, to `to`, one time step after the other,
    /// the last first.
    pub fn add_weight_gradient<E: Element>(
        &self,
        x: &[E],
        dy: &[E],
        first: usize,
        to: &mut [E::Real],
    ) -> Result<()> {
        let (rows, inputs, outputs) = (self.rows, self.inputs, self.outputs);
        if rows == 0 {
            return Ok(());
        }
        let work = x.len() * ROWS;
        to.par_chunks_mut(ROWS * inputs).enumerate().with_min_len(least_items(work)).try_for_each_init(
            || (Vec::new(), Vec::new()),
            |(x_scratch, dy_scratch), (block, to)| {
                for (x, dy) in x.chunks_exact(rows * inputs).zip(dy.chunks_exact(rows * outputs)).rev() {
                    let (x, dy) = (E::reals(x, x_scratch), E::reals(dy, dy_scratch));
                    let dy = Matrix { values: &dy[first + block * ROWS..], row: 1, column: outputs };
                    let x = Matrix { values: x, row: inputs, column: 1 };
                    multiply((to.len() / inputs, inputs, rows), (&mut *to, inputs), true, dy, x)?;
                }
                Ok(())
            },
        )
    }
}
