//! Batch norm over the whole window.

mod config;
mod kernels;
mod layer;
mod loops;
mod pieces;
mod running;
#[cfg(test)]
mod tests;

pub use config::BatchNormConfig;

use super::input::wrong;
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use parking_lot::Mutex;
use running::Running;
use std::sync::Arc;

/// `y = (z - mean) / sqrt(variance + eps) * weight + bias`, by channel
///
/// `[T, N, C, ...]` -> the same shape; `weight` and `bias` are `[C]`. In training, mean and (biased) variance are those
/// of the window: over time, batch and space (Ioffe and Szegedy 2015; over time as in "tdBN", Zheng et al. 2021). The
/// running mean and variance then move by `running = (1 - momentum) running + momentum window` (unbiased variance, as
/// in PyTorch), once, in the first pass. Evaluation uses the running ones.
///
/// The function keeps its input (shared) and two numbers for each channel; the gradient of the input is written over
/// that of the output. Its pieces are public: [`WindowNorm`](crate::module::WindowNorm).
///
/// The running statistics are shared by all clones and twins. They are variables that are not trained: a `VarMap` saves
/// and loads them, and an optimizer finds no gradient for them.
#[derive(Debug, Clone)]
pub struct BatchNorm {
    affine: Option<Affine>,
    running: Arc<Mutex<Running>>,
    channels: usize,
    eps: f64,
    momentum: f64,
}

/// Batch norm over `[T, N, C]` or `[T, N, C, L]`; see [`BatchNorm`].
pub type BatchNorm1d = BatchNorm;
/// Batch norm over `[T, N, C, H, W]`; see [`BatchNorm`].
pub type BatchNorm2d = BatchNorm;

#[derive(Debug, Clone)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl BatchNorm {
    /// A norm with the variables `weight` (ones), `bias` (zeros), `running_mean` (zeros) and `running_var` (ones).
    ///
    /// # Errors
    /// If the variables cannot be had, `eps` is no finite number of at least 0, or `momentum` is not in [0, 1].
    pub fn new(channels: usize, config: BatchNormConfig, vb: VarBuilder<'_>) -> Result<Self> {
        let BatchNormConfig { eps, momentum, .. } = config;
        if !(eps.is_finite() && eps >= 0. && (0. ..=1.).contains(&momentum)) {
            let what = format!(
                "a finite eps of at least 0 and a momentum in [0, 1] expected, {eps} and {momentum} given"
            );
            return Err(wrong(&vb.prefix(), what));
        }
        let affine = match config.affine {
            true => Some(Affine {
                weight: vb.get_with_hints(channels, "weight", Init::Const(1.))?,
                bias: vb.get_with_hints(channels, "bias", Init::Const(0.))?,
            }),
            false => None,
        };
        let running = Arc::new(Mutex::new(Running::new(channels, &vb)?));
        Ok(BatchNorm { affine, running, channels, eps: config.eps, momentum: config.momentum })
    }

    /// The norm that candle-nn's is, over the same variables, if that removes the mean.
    pub(super) fn of_candle(norm: &candle_nn::BatchNorm) -> Result<Self> {
        let (mean, variance) = (norm.running_mean(), norm.running_var());
        Ok(BatchNorm {
            affine: norm
                .weight_and_bias()
                .map(|(weight, bias)| Affine { weight: weight.clone(), bias: bias.clone() }),
            running: Arc::new(Mutex::new(Running::of(mean, variance)?)),
            channels: mean.elem_count(),
            eps: norm.eps(),
            momentum: norm.momentum(),
        })
    }

    /// A copy of the running mean, `[C]`.
    ///
    /// # Errors
    /// Those of Candle.
    pub fn running_mean(&self) -> Result<Tensor> {
        Ok(self.running.lock().get()?.0)
    }

    /// A copy of the running variance, `[C]`.
    ///
    /// # Errors
    /// Those of Candle.
    pub fn running_var(&self) -> Result<Tensor> {
        Ok(self.running.lock().get()?.1)
    }

    /// Sets the running mean and variance, for this norm and all that share them.
    ///
    /// # Errors
    /// If they are not `[C]`, or a variance is negative.
    pub fn set_running(&self, mean: &Tensor, variance: &Tensor) -> Result<()> {
        self.running.lock().set(mean, variance)
    }

    /// The weight, `[C]`.
    pub fn weight(&self) -> Option<&Tensor> {
        self.affine.as_ref().map(|affine| &affine.weight)
    }

    /// The bias, `[C]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.affine.as_ref().map(|affine| &affine.bias)
    }
}

#[diagnostic::do_not_recommend]
impl Parameters for BatchNorm {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        if let Some(Affine { weight, bias }) = &self.affine {
            visitor.field("weight", weight);
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        let detach = |a: &Affine| Affine { weight: a.weight.detach(), bias: a.bias.detach() };
        BatchNorm { affine: self.affine.as_ref().map(detach), ..self.clone() }
    }
}
