//! Optimizers.
//!
//! [`Sgd`] and [`AdamW`] go once over each parameter with its gradient and state, and their states are named tensors.
//! [`CandleOptimizer`] takes any of Candle's, whose state nobody sees.

mod adamw;
mod candle;
mod config;
mod groups;
mod sgd;
mod slots;
mod update;

pub use adamw::{AdamW, AdamWConfig};
pub use candle::CandleOptimizer;
pub use groups::ParameterGroup;
pub use sgd::{Sgd, SgdConfig};

use super::gradients::Gradients;
use super::parameters::NamedParameters;
use crate::Result;
use candle_core::Tensor;
use std::fmt::Debug;

/// Moves parameters by their gradients.
pub trait Optimizer: Debug + Send {
    /// The parameters that it moves.
    fn parameters(&self) -> &NamedParameters;

    /// One step. A parameter without a gradient stays as it is, and so does its state.
    ///
    /// # Errors
    /// If the gradients are of other parameters, or a parameter cannot be written. What can be checked is checked before
    /// anything moves.
    fn step(&mut self, gradients: &Gradients) -> Result<()>;

    /// The learning rate.
    fn learning_rate(&self) -> f64;

    /// Sets the learning rate of the next steps.
    fn set_learning_rate(&mut self, rate: f64);

    /// The numbers that must be the same where a saved state goes on, by name; none for an optimizer that does not say.
    fn configuration(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// All that the next step depends on besides parameters, gradients and configuration, as named tensors: the learning
    /// rate, and of each parameter the number of its steps and its buffers. They are copies.
    ///
    /// # Errors
    /// If it cannot be saved.
    fn state(&self) -> Result<Vec<(String, Tensor)>>;

    /// Goes on where an optimizer of the same configuration left this state: the next steps have the same bits. If it
    /// fails, nothing has changed.
    ///
    /// # Errors
    /// If a tensor is missing, is foreign, or has another shape or dtype.
    fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()>;
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn parameters(&self) -> &NamedParameters {
        (**self).parameters()
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        (**self).step(gradients)
    }

    fn learning_rate(&self) -> f64 {
        (**self).learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        (**self).set_learning_rate(rate);
    }

    fn configuration(&self) -> Vec<(String, String)> {
        (**self).configuration()
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        (**self).state()
    }

    fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        (**self).load_state(state)
    }
}
