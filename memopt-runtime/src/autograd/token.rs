//! The scalar tensors that edges of the graph are made of.

use candle_core::{CpuStorage, DType, Device, Result, Shape, Tensor};

/// What the forward of a graph node gives: a scalar that nobody reads.
pub(super) fn forward() -> (CpuStorage, Shape) {
    (CpuStorage::F32(vec![0.]), Shape::from(()))
}

/// An untracked scalar, for the unused arguments of a join.
pub(super) fn untracked(device: &Device) -> Result<Tensor> {
    Tensor::zeros((), DType::F32, device)
}

/// The gradient of a token: how many gradients were delivered to its function along this edge.
///
/// Candle adds them up, so that a function learns in its `Run` how many deliveries belong to this backward; others in
/// its cell are left from one that failed.
pub(super) fn deliveries(count: usize, device: &Device) -> Result<Tensor> {
    Tensor::full(count as f32, (), device)
}
