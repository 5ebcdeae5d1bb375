//! Layers that can be run for some of their channels.

use super::context::Context;
use super::signal::Signal;
use crate::autograd::Gradient;
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use std::ops::Range;

/// A layer with weights whose output channels do not depend on each other: a convolution, a linear layer.
///
/// The buffer of its output must be its own: executors write over it.
pub trait ChannelLayer: Send + Sync {
    /// Number of output channels.
    fn channels(&self) -> usize;

    /// Channels that are computed together: groups that begin at a multiple of this give the same bits as all at once.
    fn group(&self) -> usize;

    /// Whether in an output of these dimensions the channels are the third one, `[T, N, C, ...]`.
    fn channels_are_third(&self, dims: &[usize]) -> bool {
        dims.get(2) == Some(&self.channels())
    }

    /// Whether it is certain that channels are the third dimension of the output for an input of these dimensions, if they
    /// are known.
    fn gives_channels_third(&self, input: Option<&[usize]>) -> bool {
        let _ = input;
        false
    }

    /// What the layer's backward does with the gradient `dy` of its output for the input `x` (a tensor or packed spikes),
    /// without running it: adds up the gradients of its weights where `context` says, and gives that of `x`, if it is
    /// wanted.
    ///
    /// # Errors
    /// If `x` or `dy` does not fit.
    fn back(
        &self,
        x: Signal,
        dy: CpuStorage,
        wants_input: bool,
        context: &Context,
    ) -> Result<Option<Gradient>>;
}

/// `range` of the first dimension of a weight.
///
/// # Errors
/// If there are not as many.
pub(crate) fn rows(weight: &Tensor, range: &Range<usize>) -> Result<Tensor> {
    Ok(weight.narrow(0, range.start, range.len())?.contiguous()?)
}
