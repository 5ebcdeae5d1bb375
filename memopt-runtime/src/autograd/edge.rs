//! Where an input's gradient goes.

use super::live::depth_behind;
use super::registry::{producer_of, Producer};
use candle_core::{DType, Device, Shape, Tensor};
use std::sync::Arc;

/// An input of a function, as far as backward needs it.
///
/// If another function made the tensor, the edge does not hold its activation: take the edge, then let the tensor die.
/// A tensor that a plain Candle operation made is held, with its storage, as Candle's own graph does.
pub struct Edge {
    pub(super) target: Target,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    pub(super) device: Device,
}

pub(super) enum Target {
    /// Not tracked: no gradient is wanted.
    Untracked,
    /// Made by another function: its gradient is moved into that function's cell.
    Function(Arc<Producer>),
    /// A variable, or made by a plain operation: its gradient is given to Candle.
    Tensor(Tensor),
}

impl Edge {
    /// The edge to a tensor.
    pub fn to(tensor: &Tensor) -> Self {
        // Candle's backward does not go through integers, whatever made them.
        let target = if !tensor.track_op() || tensor.dtype().is_int() {
            Target::Untracked
        } else {
            match producer_of(tensor) {
                Some(producer) => Target::Function(producer),
                None => Target::Tensor(tensor.clone()),
            }
        };
        Edge { target, shape: tensor.shape().clone(), dtype: tensor.dtype(), device: tensor.device().clone() }
    }

    /// The edge of an input that is no tensor of a graph: no gradient is wanted.
    pub(crate) fn untracked(shape: &Shape, dtype: DType) -> Self {
        Edge { target: Target::Untracked, shape: shape.clone(), dtype, device: Device::Cpu }
    }

    /// Whether a gradient is wanted.
    pub fn is_tracked(&self) -> bool {
        !matches!(self.target, Target::Untracked)
    }

    /// Length of the longest chain of functions behind it.
    pub(super) fn depth(&self) -> usize {
        match &self.target {
            Target::Untracked => 0,
            Target::Function(producer) => depth_behind(&producer.token),
            Target::Tensor(tensor) if tensor.is_variable() => 0,
            Target::Tensor(tensor) => depth_behind(tensor),
        }
    }
}

impl From<&Tensor> for Edge {
    fn from(tensor: &Tensor) -> Self {
        Edge::to(tensor)
    }
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target = match self.target {
            Target::Untracked => "untracked",
            Target::Function(_) => "function",
            Target::Tensor(_) => "tensor",
        };
        write!(f, "Edge({target}, {:?}, {:?})", self.shape, self.dtype)
    }
}
