//! The integrate-and-fire neuron.

use super::charge::Charge;
use super::firing::{firing_options, Firing};
use super::fixed::fixed_neuron;
use super::window::Window;
use crate::Result;
use candle_core::Tensor;

/// Integrate-and-fire: nothing leaks.
///
/// ```text
/// h[t] = v[t-1] + x[t]
/// s[t] = 1 if h[t] >= v_threshold, else 0
/// v[t] = v_reset if s[t] = 1, else h[t]      hard reset (default)
/// v[t] = h[t] - v_threshold s[t]             soft reset
/// ```
///
/// Shapes, dtypes, states and gradients are as for [`Lif`](crate::nn::Lif). Equations, defaults and gradients are those of
/// SpikingJelly's `IFNode`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::nn::{If, Reset};
///
/// let neurons = If::new().reset(Reset::Soft);
/// let x = Tensor::new(&[[0.75f32], [0.75], [0.75]], &Device::Cpu)?; // h = 0.75, 1.5, 1.25
/// let (spikes, v) = neurons.window(&x, None)?;
/// assert_eq!(spikes.to_vec2::<f32>()?, [[0.], [1.], [1.]]);
/// assert_eq!(v.to_vec1::<f32>()?, [0.25]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct If {
    firing: Firing,
}

impl If {
    /// Neurons that fire at 1 and are reset to 0.
    pub fn new() -> Self {
        Self::default()
    }

    firing_options!();

    /// Spikes of the window `x`, `[T, N, ...]`, and the potential after its last step, `[N, ...]`; `v` is the one before
    /// its first. Differentiable through all of them.
    ///
    /// # Errors
    /// If `x` is not a window of floats on the CPU, or `v` does not fit it.
    pub fn window(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("If", x, v, false)
    }

    /// Spikes and potential after one time step `x`, `[N, ...]`; `v` is the potential before it. Differentiable through all
    /// of them.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    pub fn step(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.run("If", x, v, true)
    }

    fn charge(&self) -> Charge<f64> {
        Charge::Integrate
    }

    fn run(&self, part: &str, x: &Tensor, v: Option<&Tensor>, is_step: bool) -> Result<(Tensor, Tensor)> {
        Window { part, x, is_step, v, charge: self.charge(), firing: self.firing, factor: None }.run()
    }
}

fixed_neuron!(If);
