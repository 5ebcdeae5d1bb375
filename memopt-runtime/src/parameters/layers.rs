//! The layers of candle-nn, but for the norms.
//!
//! Each is rebuilt with its own `new` from the detached weight and bias and its unchanged configuration.

use super::{Parameters, Visitor};
use candle_core::Tensor;
use candle_nn::{Activation, Conv1d, Conv2d, Embedding, Linear};

/// Visits `weight` and, where there is one, `bias`.
fn weight_and_bias(weight: &Tensor, bias: Option<&Tensor>, visitor: &mut Visitor<'_>) {
    visitor.field("weight", weight);
    if let Some(bias) = bias {
        visitor.field("bias", bias);
    }
}

/// Paths: `weight`, `bias`.
#[diagnostic::do_not_recommend]
impl Parameters for Linear {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        weight_and_bias(self.weight(), self.bias(), visitor);
    }

    fn detached(&self) -> Self {
        Self::new(self.weight().detach(), self.bias().map(Tensor::detach))
    }
}

/// Paths: `weight`, `bias`.
#[diagnostic::do_not_recommend]
impl Parameters for Conv1d {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        weight_and_bias(self.weight(), self.bias(), visitor);
    }

    fn detached(&self) -> Self {
        Self::new(self.weight().detach(), self.bias().map(Tensor::detach), *self.config())
    }
}

/// Paths: `weight`, `bias`.
#[diagnostic::do_not_recommend]
impl Parameters for Conv2d {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        weight_and_bias(self.weight(), self.bias(), visitor);
    }

    fn detached(&self) -> Self {
        Self::new(self.weight().detach(), self.bias().map(Tensor::detach), *self.config())
    }
}

/// Path: `weight`, the name under which candle-nn stores it.
#[diagnostic::do_not_recommend]
impl Parameters for Embedding {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", self.embeddings());
    }

    fn detached(&self) -> Self {
        Self::new(self.embeddings().detach(), self.hidden_size())
    }
}

/// No parameters: the slopes are constants.
#[diagnostic::do_not_recommend]
impl Parameters for Activation {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}
