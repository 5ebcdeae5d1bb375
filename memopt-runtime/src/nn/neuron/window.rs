//! The function over all time steps of a window.

use super::charge::Charge;
use super::firing::Firing;
use super::step::Dynamics;
use super::tiles::{for_each, tiles, Columns, TILE};
use crate::autograd::{apply, Edge, Gradient, Output};
use crate::module::WeightGradient;
use crate::nn::element::{with_element, Element};
use crate::nn::function::gradient;
use crate::nn::input::{contiguous, read, take, wrong};
use crate::Result;
use candle_core::{CpuStorage, DType, Shape, Tensor, WithDType};

/// A window and what its neurons do.
pub(super) struct Window<'a> {
    /// How errors call the layer.
    pub(super) part: &'a str,
    /// `[T, N, ...]`, or one step of it.
    pub(super) x: &'a Tensor,
    /// Whether `x` is one time step, without the dimension of time.
    pub(super) is_step: bool,
    /// The potential before the first step.
    pub(super) v: Option<&'a Tensor>,
    pub(super) charge: Charge<f64>,
    pub(super) firing: Firing,
    pub(super) factor: Option<Factor>,
}

/// The learned factor of the charge.
pub(super) struct Factor {
    pub(super) edge: Edge,
    pub(super) gradient: WeightGradient,
    /// `dq/dw`
    pub(super) slope: f64,
}

impl Window<'_> {
    /// Spikes of the shape of `x`, and the potential after the last step; both differentiable.
    ///
    /// Kept for backward: `x` and the first potential. The potentials are computed again, block by block.
    pub(super) fn run(self) -> Result<(Tensor, Tensor)> {
        self.firing.check(self.part)?;
        with_element!(self.part, self.x.dtype(), E => self.run_in::<E>())
    }

    fn run_in<E: Element>(self) -> Result<(Tensor, Tensor)> {
        let state = self.state_shape()?;
        let Window { part, x, v, firing, factor, .. } = self;
        let (shape, neurons) = (x.shape().clone(), state.elem_count());
        let x_edge = Edge::to(x);
        let x = contiguous(part, x)?;
        let v0 = v.map(|v| state_values(part, v, &state, E::Real::DTYPE)).transpose()?;
        let dynamics = Dynamics::new(self.charge, &firing);
        let saved = Saved::<E> { part: part.to_owned(), x, v0, neurons, dynamics };
        let (spikes, last) = saved.forward()?;
        let outputs =
            vec![Output::new(E::storage(spikes), &shape), Output::new(E::Real::storage(last), &state)];

        let v_edge = v.map(Edge::to);
        let has_state = v_edge.is_some();
        let (w_edge, factor) = match factor {
            Some(Factor { edge, gradient, slope }) => (Some(edge), Some((gradient, slope))),
            None => (None, None),
        };
        let edges = [Some(x_edge), v_edge, w_edge].into_iter().flatten().collect();
        let outputs = apply(part, edges, outputs, move |gradients| {
            let mut gradients = gradients.into_iter();
            let mut next = || gradients.next().flatten();
            let mut dx = buffer::<E>(&saved.part, next(), shape.elem_count())?;
            let mut dv = buffer::<E::Real>(&saved.part, next(), neurons)?;
            let sums = saved.backward(&mut dx, &mut dv)?;
            let mut answers = vec![gradient(dx, shape)];
            if has_state {
                answers.push(gradient(dv, state));
            }
            if let Some((of_factor, slope)) = factor {
                answers.push(finish(&of_factor, &sums, slope));
            }
            Ok(answers)
        })?;
        let mut outputs = outputs.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(spikes), Some(v)) => Ok((spikes, v)),
            _ => Err(wrong(part, "its function gave no outputs")),
        }
    }

    fn state_shape(&self) -> Result<Shape> {
        match (self.is_step, self.x.dims().split_first()) {
            (true, _) => Ok(self.x.shape().clone()),
            (false, Some((_, state))) => Ok(state.into()),
            (false, None) => Err(wrong(self.part, "the input is a scalar; give it a window `[T, N, ...]`")),
        }
    }
}

/// What backward needs.
struct Saved<E: Element> {
    part: String,
    x: Tensor,
    v0: Option<Tensor>,
    neurons: usize,
    dynamics: Dynamics<E::Real>,
}

impl<E: Element> Saved<E> {
    /// Spikes and the last potential.
    fn forward(&self) -> Result<(Vec<E>, Vec<E::Real>)> {
        let mut spikes = vec![E::ZERO; self.x.elem_count()];
        let mut v = match &self.v0 {
            Some(v0) => read(&self.part, v0, |v: &[E::Real]| Ok(v.to_vec()))?,
            None => vec![self.dynamics.rest(); self.neurons],
        };
        read(&self.part, &self.x, |data: &[E]| {
            let x = Columns { data, neurons: self.neurons };
            let tiles = tiles(&mut spikes, &mut v, TILE);
            for_each(tiles, data.len(), |tile| self.dynamics.forward(x, tile));
            Ok(())
        })?;
        Ok((spikes, v))
    }

    /// Gradients of the outputs become those of the inputs, in place; gives the tiles' sums for the learned factor.
    fn backward(&self, dx: &mut [E], dv: &mut [E::Real]) -> Result<Vec<Vec<f64>>> {
        let mut run = |v0: Option<&[E::Real]>| {
            read(&self.part, &self.x, |data: &[E]| {
                let x = Columns { data, neurons: self.neurons };
                Ok(for_each(tiles(dx, dv, TILE), data.len(), |tile| self.dynamics.backward(x, v0, tile)))
            })
        };
        match &self.v0 {
            Some(v0) => read(&self.part, v0, |v0: &[E::Real]| run(Some(v0))),
            None => run(None),
        }
    }
}

/// The first potential, checked: a state of another batch is not used by accident.
pub(super) fn state_values(part: &str, v: &Tensor, shape: &Shape, dtype: DType) -> Result<Tensor> {
    if v.shape() != shape || v.dtype() != dtype {
        let (got, is) = (v.dims(), v.dtype());
        let what = format!(
            "the initial membrane potential is {got:?} of {is:?}, but this input needs {:?} of {dtype:?}; reset the states between batches that do not continue each other (`Session::reset_states`)",
            shape.dims()
        );
        return Err(wrong(part, what));
    }
    contiguous(part, v)
}

/// A gradient's buffer, or zeros.
fn buffer<E: Element>(part: &str, gradient: Option<Gradient>, len: usize) -> Result<Vec<E>> {
    match gradient {
        Some(gradient) => take(part, gradient.into_storage()?),
        None => Ok(vec![E::ZERO; len]),
    }
}

/// Adds the gradient of the learned weight: `sums` are the tiles' sums for each step.
fn finish(gradient: &WeightGradient, sums: &[Vec<f64>], slope: f64) -> Option<Gradient> {
    if !gradient.is_wanted() {
        return None;
    }
    let mut total = gradient.begin();
    let steps = sums.first().map_or(0, Vec::len);
    let step = |t: usize| slope * sums.iter().map(|tile| tile[t]).sum::<f64>();
    add_descending(&mut total, (0..steps).map(step));
    gradient.finish(total)
}

/// Adds one number for each time step, the last step first, each rounded to the buffer's dtype, and so after each
/// addition: a border between time chunks rounds nothing that is not rounded anyway.
pub(super) fn add_descending(total: &mut CpuStorage, steps: impl DoubleEndedIterator<Item = f64>) {
    fn add<E: WithDType>(total: &mut [E], steps: impl DoubleEndedIterator<Item = f64>) {
        for value in steps.rev() {
            total.iter_mut().for_each(|total| *total += E::from_f64(value));
        }
    }
    match total {
        CpuStorage::F32(total) => add(total, steps),
        CpuStorage::F64(total) => add(total, steps),
        CpuStorage::BF16(total) => add(total, steps),
        CpuStorage::F16(total) => add(total, steps),
        // Weights are floats, which their layer checks.
        _ => {}
    }
}
