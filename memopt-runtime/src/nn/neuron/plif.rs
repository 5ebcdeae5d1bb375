//! The leaky integrate-and-fire neuron whose time constant is learned.

use super::charge::Charge;
use super::firing::{firing_options, Firing};
use super::window::{Factor, Window};
use super::{footprint, name_of};
use crate::module::{Checkpointable, Context, Footprint, Incoming, Session, Signal, Weight};
use crate::nn::input::wrong;
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::{DType, Tensor};

/// Parametric leaky integrate-and-fire (Fang et al., ICCV 2021): [`Lif`](crate::nn::Lif) with `1 / tau = sigmoid(w)`,
/// where `w` is one number for all neurons of the layer and is learned:
///
/// ```text
/// h[t] = v[t-1] + (x[t] - (v[t-1] - v_reset)) sigmoid(w)      decay_input (default)
/// h[t] = v[t-1] - (v[t-1] - v_reset) sigmoid(w) + x[t]        otherwise
/// ```
///
/// Firing, reset, shapes, dtypes and states are as for `Lif`. `w` has any float dtype; `sigmoid(w)` is computed in f64 and
/// rounded once. Its gradient is summed in f64 over the neurons of each time step in a fixed order; the steps' sums are
/// rounded to the dtype of `w` and added, the last step first. Equations, defaults and gradients are those of
/// SpikingJelly's `ParametricLIFNode`.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use memopt_runtime::nn::Plif;
///
/// let w = Var::new(Plif::w_of(2.)?, &Device::Cpu)?; // tau = 2
/// let neurons = Plif::new(w.as_tensor().clone())?;
/// let x = Tensor::new(&[[1.5f64], [1.5]], &Device::Cpu)?; // h = 0.75, 1.125
/// let (spikes, v) = neurons.window(&x, None)?;
/// assert_eq!(spikes.to_vec2::<f64>()?, [[0.], [1.]]);
/// let gradients = (spikes.sum_all()? + v.sum_all()?)?.backward()?;
/// assert!(gradients.get(&w).is_some());
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plif {
    w: Tensor,
    decay_input: bool,
    firing: Firing,
}

impl Plif {
    /// Neurons with `1 / tau = sigmoid(w)`; `w` has one element.
    ///
    /// # Errors
    /// If `w` has another number of elements or is not of a float dtype.
    pub fn new(w: Tensor) -> Result<Self> {
        if w.elem_count() != 1 || !matches!(w.dtype(), DType::F32 | DType::F64 | DType::BF16 | DType::F16) {
            let (dims, dtype) = (w.dims(), w.dtype());
            return Err(wrong("Plif", format!("w is {dims:?} of {dtype:?}; give a float with one element")));
        }
        Ok(Plif { w, decay_input: true, firing: Firing::default() })
    }

    /// Neurons that begin with the membrane time constant `init_tau`; `w` is the scalar variable `w` of `vb`.
    ///
    /// # Errors
    /// If `init_tau` is not a finite number above 1.
    pub fn from_builder(init_tau: f64, vb: candle_nn::VarBuilder<'_>) -> Result<Self> {
        Self::new(vb.get_with_hints((), "w", candle_nn::Init::Const(Self::w_of(init_tau)?))?)
    }

    /// `w = -ln(tau - 1)`, so that `sigmoid(w) = 1 / tau`. SpikingJelly's `init_tau` is 2: `w = 0`.
    ///
    /// # Errors
    /// If `tau` is not a finite number above 1.
    pub fn w_of(tau: f64) -> Result<f64> {
        match tau.is_finite() && tau > 1. {
            true => Ok(-(tau - 1.).ln()),
            false => Err(wrong("Plif", format!("tau is {tau}; give a finite one above 1"))),
        }
    }

    firing_options!();

    /// Whether the input is multiplied by `1 / tau` too; true if not set.
    #[must_use]
    pub fn decay_input(mut self, decay_input: bool) -> Self {
        self.decay_input = decay_input;
        self
    }

    /// The membrane time constant as it is now, in time steps.
    ///
    /// # Errors
    /// If `w` cannot be read.
    pub fn tau(&self) -> Result<f64> {
        Ok(1. + (-number(&self.w)?).exp())
    }

    /// Spikes of the window `x`, `[T, N, ...]`, and the potential after its last step, `[N, ...]`; `v` is the one before
    /// its first. Differentiable through all of them and `w`.
    ///
    /// # Errors
    /// If `x` is not a window of floats on the CPU, or `v` does not fit it.
    pub fn window(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("Plif", x, v, false, self.plain_weight())
    }

    /// Spikes and potential after one time step `x`, `[N, ...]`; `v` is the potential before it. Differentiable through all
    /// of them and `w`.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    pub fn step(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("Plif", x, v, true, self.plain_weight())
    }

    /// `w` where no model runs: its gradient goes along its own edge.
    fn plain_weight(&self) -> Weight {
        Context::evaluation(&Session::new(0)).weight("w", &self.w)
    }

    fn run(
        &self,
        part: &str,
        x: &Tensor,
        v: Option<&Tensor>,
        is_step: bool,
        w: Weight,
    ) -> Result<(Tensor, Tensor)> {
        let (w, edge, gradient) = w.into_parts();
        let q = 1. / (1. + (-number(&w)?).exp());
        let factor = Some(Factor { edge, gradient, slope: q * (1. - q) });
        let charge = Charge::Gate { q, decay_input: self.decay_input };
        Window { part, x, is_step, v, charge, firing: self.firing, factor }.run()
    }
}

/// The one element of a tensor.
fn number(w: &Tensor) -> Result<f64> {
    Ok(w.detach().reshape(())?.to_dtype(DType::F64)?.to_scalar()?)
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Plif {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let part = name_of(context, "Plif");
        let v = context.initial_state()?;
        let w = context.weight("w", &self.w);
        let (spikes, v) = self.run(&part, &x.into_dense(&part)?, v.as_ref(), false, w)?;
        context.set_final_state(v);
        Ok(spikes.into())
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        Some(footprint(x))
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

/// Path: `w`, SpikingJelly's name.
#[diagnostic::do_not_recommend]
impl Parameters for Plif {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("w", &self.w);
    }

    fn detached(&self) -> Self {
        Plif { w: self.w.detached(), ..self.clone() }
    }
}
