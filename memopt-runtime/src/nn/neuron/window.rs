//! The function over all time steps of a window.

use super::charge::Charge;
use super::firing::Firing;
use super::passes::{Passes, Sums};
use super::step::Dynamics;
use crate::autograd::{apply, Edge, Gradient, Output};
use crate::compress::kernels::SimdLevel;
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
            let (dy, dv) = (next(), next());
            let mut dv = match (dv, has_state) {
                (Some(dv), _) => Some(take::<E::Real>(&saved.part, dv.into_storage()?)?),
                (None, true) => Some(vec![E::Real::ZERO; neurons]),
                (None, false) => None,
            };
            let (dx, sums) = saved.backward(dy, dv.as_deref_mut())?;
            let mut answers = vec![gradient(dx, shape)];
            if has_state {
                answers.push(dv.and_then(|dv| gradient(dv, state)));
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
        self.run(|passes, x| Ok(passes.fire_beside(x)))
    }

    /// The gradient of the input, in the buffer of `dy` if nobody else has that, and the tiles' sums for the learned
    /// factor; `dv` goes from the gradient of the last potential to that of the first.
    fn backward(&self, dy: Option<Gradient>, dv: Option<&mut [E::Real]>) -> Result<(Vec<E>, Sums)> {
        let shared = dy.as_ref().and_then(|dy| dy.shared().filter(|dy| dy.is_contiguous())).cloned();
        if let Some(dy) = shared {
            return self.run(|passes, x| read(&self.part, &dy, |dy| Ok(passes.back_beside(x, dy, dv))));
        }
        let mut dx = match dy {
            Some(dy) => take::<E>(&self.part, dy.into_storage()?)?,
            None => vec![E::ZERO; self.x.elem_count()],
        };
        let sums = self.run(|passes, x| Ok(passes.back_over(x, &mut dx, dv)))?;
        Ok((dx, sums))
    }

    fn run<T>(&self, f: impl FnOnce(Passes<'_, E>, &[E]) -> Result<T>) -> Result<T> {
        with_passes(&self.part, self.dynamics, self.neurons, self.v0.as_ref(), |passes| {
            read(&self.part, &self.x, |x: &[E]| f(passes, x))
        })
    }
}

/// Runs `f` with the passes of neurons that start from `v0`.
pub(super) fn with_passes<E: Element, T>(
    part: &str,
    dynamics: Dynamics<E::Real>,
    neurons: usize,
    v0: Option<&Tensor>,
    f: impl FnOnce(Passes<'_, E>) -> Result<T>,
) -> Result<T> {
    let level = SimdLevel::detected();
    match v0 {
        Some(v0) => read(part, v0, |v0: &[E::Real]| f(Passes { dynamics, neurons, v0: Some(v0), level })),
        None => f(Passes { dynamics, neurons, v0: None, level }),
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
