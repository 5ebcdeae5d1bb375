//! The leaky integrate-and-fire neuron.

use super::charge::Charge;
use super::firing::{firing_options, Firing};
use super::fixed::fixed_neuron;
use super::window::Window;
use crate::nn::input::wrong;
use crate::Result;
use candle_core::Tensor;

/// Leaky integrate-and-fire:
///
/// ```text
/// h[t] = v[t-1] + (x[t] - (v[t-1] - v_reset)) / tau      decay_input (default)
/// h[t] = v[t-1] - (v[t-1] - v_reset) / tau + x[t]        otherwise
/// s[t] = 1 if h[t] >= v_threshold, else 0
/// v[t] = v_reset if s[t] = 1, else h[t]                  hard reset (default)
/// v[t] = h[t] - v_threshold s[t]                         soft reset; v_reset is 0 above
/// ```
///
/// `x` and `s` are `[T, N, ...]` of any float dtype, `v` is `[N, ...]`, in f32 for bf16 and f16. `tau` is in time steps. `v`
/// starts at the context's state, else at `v_reset`. Backward puts the [`Surrogate`](crate::nn::Surrogate)'s derivative
/// for `ds/dh`. Equations, defaults and gradients are those of SpikingJelly's `LIFNode`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::nn::Lif;
///
/// let lif = Lif::new(2.)?;
/// let x = Tensor::new(&[[1.5f32], [1.5], [1.5]], &Device::Cpu)?; // T = 3, one neuron: h = 0.75, 1.125, 0.75
/// let (spikes, v) = lif.window(&x, None)?;
/// assert_eq!(spikes.to_vec2::<f32>()?, [[0.], [1.], [0.]]);
/// assert_eq!(v.to_vec1::<f32>()?, [0.75]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Lif {
    tau: f64,
    decay_input: bool,
    firing: Firing,
}

impl Default for Lif {
    /// `tau` 2.
    fn default() -> Self {
        Lif { tau: 2., decay_input: true, firing: Firing::default() }
    }
}

impl Lif {
    /// Neurons with the membrane time constant `tau`.
    ///
    /// # Errors
    /// If `tau` is not a finite number of at least 1 (at 1 nothing of the potential is left after a step).
    pub fn new(tau: f64) -> Result<Self> {
        if !(tau.is_finite() && tau >= 1.) {
            return Err(wrong("Lif", format!("tau is {tau}; give a finite one of at least 1")));
        }
        Ok(Lif { tau, ..Self::default() })
    }

    firing_options!();

    /// Whether the input is divided by `tau` too; true if not set.
    #[must_use]
    pub fn decay_input(mut self, decay_input: bool) -> Self {
        self.decay_input = decay_input;
        self
    }

    /// Spikes of the window `x`, `[T, N, ...]`, and the potential after its last step, `[N, ...]`; `v` is the one before
    /// its first. Differentiable through all of them.
    ///
    /// # Errors
    /// If `x` is not a window of floats on the CPU, or `v` does not fit it.
    pub fn window(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("Lif", x, v, false)
    }

    /// Spikes and potential after one time step `x`, `[N, ...]`; `v` is the potential before it. Differentiable through all
    /// of them.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    pub fn step(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("Lif", x, v, true)
    }

    fn charge(&self) -> Charge<f64> {
        Charge::Leak { tau: self.tau, decay_input: self.decay_input }
    }

    fn run(&self, part: &str, x: &Tensor, v: Option<&Tensor>, is_step: bool) -> Result<(Tensor, Tensor)> {
        Window { part, x, is_step, v, charge: self.charge(), firing: self.firing, factor: None }.run()
    }
}

fixed_neuron!(Lif);
