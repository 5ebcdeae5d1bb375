//! What comes into a layer: checked, contiguous, with its edge.

use super::element::Element;
use crate::autograd::Edge;
use crate::module::{Context, Signal};
use crate::{storage, Error, Result};
use candle_core::{CpuStorage, Tensor};

/// A layer was given what does not fit it.
pub(crate) fn wrong(part: &str, what: impl Into<String>) -> Error {
    Error::LayerInput { part: part.to_owned(), what: what.into() }
}

/// An input of a function.
pub(crate) struct Input {
    /// Untracked and contiguous; the input's own storage where that is contiguous.
    pub values: Tensor,
    pub edge: Edge,
}

impl Input {
    pub fn new(x: Signal, context: &Context) -> Result<Self> {
        let part = context.path();
        let x = x.into_dense(part)?;
        Ok(Input { edge: Edge::to(&x), values: contiguous(part, &x)? })
    }
}

/// The tensor's values without its graph, in row-major order.
pub(crate) fn contiguous(part: &str, tensor: &Tensor) -> Result<Tensor> {
    if !tensor.device().is_cpu() {
        return Err(Error::UnsupportedDevice { function: part.to_owned(), what: "this layer".into() });
    }
    // Candle cannot copy a view without elements that begins beyond the end of its buffer.
    if tensor.elem_count() == 0 {
        return Ok(Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())?);
    }
    Ok(tensor.detach().contiguous()?)
}

/// Runs `f` on the elements of a contiguous tensor.
pub(crate) fn read<E: Element, T>(
    part: &str,
    tensor: &Tensor,
    f: impl FnOnce(&[E]) -> Result<T>,
) -> Result<T> {
    let result = storage::with_cpu(tensor, |storage, layout| {
        let values = &E::slice(storage)?[storage::range(layout)?];
        Some(f(values))
    });
    result.flatten().unwrap_or_else(|| {
        let (got, ty) = (tensor.dtype().as_str(), std::any::type_name::<E>());
        Err(wrong(part, format!("a contiguous tensor of {ty} on the CPU expected, {got} given")))
    })
}

/// Runs `f` on the elements of a contiguous tensor, in the type that is computed in.
pub(crate) fn read_reals<E: Element, T>(
    part: &str,
    tensor: &Tensor,
    f: impl FnOnce(&[E::Real]) -> Result<T>,
) -> Result<T> {
    read::<E, _>(part, tensor, |values| f(E::reals(values, &mut Vec::new())))
}

/// A copy of the elements of a small weight, in the type that is computed in.
pub(crate) fn reals<E: Element>(part: &str, tensor: &Tensor) -> Result<Vec<E::Real>> {
    read_reals::<E, _>(part, &contiguous(part, tensor)?, |values| Ok(values.to_vec()))
}

/// The elements of a buffer, by value.
pub(crate) fn take<E: Element>(part: &str, buffer: CpuStorage) -> Result<Vec<E>> {
    E::vec(buffer).ok_or_else(|| {
        wrong(part, format!("the gradient has another dtype than the output, {}", std::any::type_name::<E>()))
    })
}

/// An error unless the tensors of a layer have one dtype.
pub(crate) fn same_dtype(part: &str, x: &Tensor, weight: &Tensor) -> Result<()> {
    if x.dtype() == weight.dtype() {
        return Ok(());
    }
    let (x, weight) = (x.dtype().as_str(), weight.dtype().as_str());
    Err(wrong(part, format!("the input is {x} and the weight {weight}; convert one with `to_dtype`")))
}
