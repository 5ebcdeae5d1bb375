//! The outputs of a function: an owned buffer becomes a tensor that leads to the function's token.

use super::cell::Cell;
use super::gradient::Gradient;
use super::registry::Registration;
use super::token;
use crate::{storage, Result};
use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// What a function gives: a row-major buffer and its shape. The buffer becomes the tensor's; it is not copied.
#[derive(Debug)]
pub struct Output {
    pub(super) storage: CpuStorage,
    pub(super) shape: Shape,
}

impl Output {
    /// An output in a buffer of its own. [`apply`](super::apply) checks the length against the shape.
    pub fn new(storage: CpuStorage, shape: impl Into<Shape>) -> Self {
        Output { storage, shape: shape.into() }
    }

    /// An output with a copy of a tensor's elements, whoever else has them.
    ///
    /// # Errors
    /// If the tensor is not on the CPU.
    pub fn copy_of(tensor: &Tensor) -> Result<Self> {
        match storage::copy_of(tensor)? {
            Some(storage) => Ok(Output { storage, shape: tensor.shape().clone() }),
            None => Err(crate::Error::UnsupportedDevice {
                function: "Output::copy_of".into(),
                what: "an output of a function".into(),
            }),
        }
    }

    pub(super) fn dtype(&self) -> DType {
        storage::dtype(&self.storage)
    }

    /// The output as a tensor without a graph.
    pub(super) fn into_plain(self) -> Tensor {
        storage::into_tensor(self.storage, self.shape, false)
    }
}

/// The graph node of one output.
pub(super) struct OutputNode {
    /// Taken when Candle runs the forward, which is once.
    pub(super) output: Mutex<Option<Output>>,
    pub(super) cell: Arc<Cell>,
    pub(super) index: usize,
    /// The entry in the registry; it goes when the tensor goes.
    pub(super) _registration: Arc<OnceLock<Registration>>,
}

impl CustomOp1 for OutputNode {
    fn name(&self) -> &'static str {
        "memopt output"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        match self.output.lock().take() {
            Some(output) => Ok((output.storage, output.shape)),
            None => candle_core::bail!("the output of a function was made twice"),
        }
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        self.cell.deposit(self.index, Gradient::from(gradient.clone()))?;
        Ok(Some(token::deliveries(1, token.device())?))
    }
}
