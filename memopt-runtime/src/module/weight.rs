//! A weight as a layer's function uses it.

use super::accumulators::Accumulators;
use crate::autograd::{Edge, Gradient};
use candle_core::{CpuStorage, DType, Tensor};
use std::sync::Arc;

/// A weight's values, its edge in the graph, and where its gradient goes.
///
/// ```text
/// let weight = context.weight("weight", &self.weight);
/// let (value, edge, gradient) = weight.into_parts();
/// apply("layer", vec![Edge::to(&x), edge], outputs, move |g| {
///     let mut sum = gradient.begin();                 // zeros, or the sum of the later time chunks
///     // for t descending, images descending: add to `sum`
///     Ok(vec![dx, gradient.finish(sum)])
/// })
/// ```
#[derive(Debug)]
pub struct Weight {
    value: Tensor,
    edge: Edge,
    gradient: WeightGradient,
}

/// Where the gradient of one weight goes.
#[derive(Debug, Clone)]
pub struct WeightGradient {
    path: String,
    name: &'static str,
    variable: Tensor,
    wanted: bool,
    accumulators: Option<Arc<Accumulators>>,
}

impl Weight {
    pub(super) fn new(
        path: &str,
        name: &'static str,
        tensor: &Tensor,
        accumulators: Option<Arc<Accumulators>>,
    ) -> Self {
        let own = Edge::to(tensor);
        // Only variables have sums; a computed weight is an input like any other.
        let accumulators = accumulators.filter(|_| tensor.is_variable());
        let wanted = own.is_tracked();
        let edge = match &accumulators {
            Some(accumulators) => Edge::to(accumulators.ghost()),
            None => own,
        };
        let variable = tensor.clone();
        let gradient = WeightGradient { path: path.to_owned(), name, variable, wanted, accumulators };
        Weight { value: tensor.detach(), edge, gradient }
    }

    /// The values (untracked), the edge for the function's inputs, and where the gradient goes.
    pub fn into_parts(self) -> (Tensor, Edge, WeightGradient) {
        (self.value, self.edge, self.gradient)
    }
}

impl WeightGradient {
    /// Whether a gradient is wanted at all.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The buffer to add to, in row-major order: zeros, or the sum of the later time chunks.
    ///
    /// It has the weight's dtype, but for bf16 and f16 it is f32: sums are rounded once, when all is in.
    pub fn begin(&self) -> CpuStorage {
        if let Some(sum) =
            self.accumulators.as_ref().and_then(|a| a.take(&self.path, self.name, &self.variable))
        {
            return sum;
        }
        let n = self.variable.elem_count();
        match self.variable.dtype() {
            DType::F64 => CpuStorage::F64(vec![0.; n]),
            _ => CpuStorage::F32(vec![0.; n]),
        }
    }

    /// What the function's backward answers for this weight: the gradient, or nothing where it is kept for other chunks.
    pub fn finish(&self, sum: CpuStorage) -> Option<Gradient> {
        if !self.wanted {
            return None;
        }
        match &self.accumulators {
            Some(accumulators) => {
                accumulators.put(&self.path, self.name, &self.variable, sum);
                None
            }
            None => Some(Gradient::new(rounded(sum, self.variable.dtype()), self.variable.shape())),
        }
    }
}

/// A sum in the dtype of its weight.
pub(super) fn rounded(sum: CpuStorage, dtype: DType) -> CpuStorage {
    match (sum, dtype) {
        (CpuStorage::F32(sum), DType::BF16) => {
            CpuStorage::BF16(sum.into_iter().map(half::bf16::from_f32).collect())
        }
        (CpuStorage::F32(sum), DType::F16) => {
            CpuStorage::F16(sum.into_iter().map(half::f16::from_f32).collect())
        }
        (sum, _) => sum,
    }
}
