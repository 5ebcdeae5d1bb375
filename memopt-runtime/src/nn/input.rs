//! What comes into a layer: checked, contiguous, with its edge.

use super::element::Element;
use crate::autograd::Edge;
use crate::module::{Context, Signal};
use crate::{storage, Error, Result};
use candle_core::{CpuStorage, DType, Tensor};

/// The error for an input or an option that does not fit the layer called `part`.
pub(crate) fn wrong(part: &str, what: impl Into<String>) -> Error {
    Error::LayerInput { part: part.to_owned(), what: what.into() }
}

/// The error for a dtype that is not computed with.
pub(crate) fn not_float(part: &str, dtype: DType) -> Error {
    let given = dtype.as_str();
    wrong(part, format!("f32, f64, bf16 or f16 expected, {given} given; convert it with `to_dtype`"))
}

/// An error of `part` unless a weight `[out, in, ...kernel]` has elements, and not more than can be had.
pub(crate) fn weight_fits(part: &str, shape: &[usize]) -> Result<()> {
    let (channels, kernel) = shape.split_at(shape.len().min(2));
    if channels.contains(&0) {
        return Err(wrong(
            part,
            format!("at least one channel or feature on each side expected, a weight of {shape:?} given"),
        ));
    }
    if kernel.contains(&0) {
        return Err(wrong(part, format!("a kernel of at least 1 expected, {kernel:?} given")));
    }
    let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    // Initial values are made in f64.
    match len.filter(|&len| Vec::<f64>::new().try_reserve_exact(len).is_ok()) {
        Some(_) => Ok(()),
        None => Err(wrong(part, format!("there is not enough memory for a weight of {shape:?}"))),
    }
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

/// A tensor's values in row-major order, out of its graph: the tensor's own buffer if it is contiguous, else a copy.
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
    same_dtypes(part, x.dtype(), weight)
}

/// An error unless a layer's weight has the dtype `x` of its input.
pub(crate) fn same_dtypes(part: &str, x: DType, weight: &Tensor) -> Result<()> {
    if x == weight.dtype() {
        return Ok(());
    }
    let (x, weight) = (x.as_str(), weight.dtype().as_str());
    Err(wrong(part, format!("the input is {x} and the weight {weight}; convert one with `to_dtype`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn elements<E: Element>(tensor: &Tensor) -> Result<Vec<E>> {
        read("x", tensor, |values: &[E]| Ok(values.to_vec()))
    }

    #[test]
    fn elements_are_read_in_row_major_order_from_any_layout() {
        let x = Tensor::arange(0f32, 12., &Device::Cpu).unwrap().reshape((3, 4)).unwrap();
        let view = x.narrow(1, 1, 2).unwrap().t().unwrap();
        assert_eq!(elements::<f32>(&contiguous("x", &view).unwrap()).unwrap(), [1., 5., 9., 2., 6., 10.]);
        let row = x.get(2).unwrap();
        assert_eq!(elements::<f32>(&contiguous("x", &row).unwrap()).unwrap()[0], 8.);
        let empty = x.narrow(0, 3, 0).unwrap();
        assert!(elements::<f32>(&contiguous("x", &empty).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn another_dtype_is_an_error_not_a_reinterpretation() {
        assert!(elements::<f64>(&Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap()).is_err());
    }
}
