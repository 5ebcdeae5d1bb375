//! A leaf of a graph whose gradient is caught, instead of looked up in Candle's store.
//!
//! Candle adds a variable's gradient to zeros, so that three buffers of its size are alive at once. This leaf is a
//! function's output: its gradient moves to it like any other between functions.

use super::edge::Edge;
use super::function::build;
use super::gradient::Gradient;
use super::output::Output;
use crate::Result;
use candle_core::{CpuStorage, DType, Device, Shape, Tensor, Var};
use parking_lot::Mutex;
use std::sync::Arc;

/// The gradient of a leaf, once backward has been there.
pub(crate) struct Caught(Arc<Mutex<Option<Gradient>>>);

impl Caught {
    /// The gradient; `None` if nothing that was gone back from depends on the leaf.
    pub(crate) fn take(&self) -> Option<Gradient> {
        self.0.lock().take()
    }
}

/// A tracked tensor over an owned buffer, and where its gradient arrives.
pub(crate) fn leaf(storage: CpuStorage, shape: impl Into<Shape>) -> Result<(Tensor, Caught)> {
    let caught = Arc::new(Mutex::new(None));
    let slot = caught.clone();
    // Something must be tracked for the output to be.
    let root = Var::zeros((), DType::F32, &Device::Cpu)?;
    let catch = move |mut gradients: Vec<Option<Gradient>>| {
        *slot.lock() = gradients.pop().flatten();
        Ok(vec![None])
    };
    let output = vec![Output::new(storage, shape)];
    let outputs = build("leaf".into(), vec![Edge::to(&root)], output, Box::new(catch), true)?;
    match outputs.into_iter().next() {
        Some(tensor) => Ok((tensor, Caught(caught))),
        None => Err(candle_core::Error::Msg("a leaf without a tensor".into()).into()),
    }
}
