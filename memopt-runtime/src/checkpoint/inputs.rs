//! What a checkpointed closure may take.

use candle_core::{Tensor, Var};

/// A tensor or a variable, or a reference to one.
pub trait Input {
    /// The tensor.
    fn tensor(&self) -> &Tensor;
}

impl Input for Tensor {
    fn tensor(&self) -> &Tensor {
        self
    }
}

impl Input for Var {
    fn tensor(&self) -> &Tensor {
        self.as_tensor()
    }
}

impl<I: Input + ?Sized> Input for &I {
    fn tensor(&self) -> &Tensor {
        (**self).tensor()
    }
}
