//! Float elements: what tensors hold and what is computed with.

use crate::storage;
use crate::{Error, Result};
use candle_core::{DType, Tensor, WithDType};
use std::ops::Neg;

/// A number that is computed with: f32 or f64.
pub(crate) trait Real: Element<Real = Self> + Neg<Output = Self> {
    fn exp(self) -> Self;
    fn abs(self) -> Self;
}

/// An element of a float tensor.
///
/// bf16 and f16 are computed in f32: exact when read, rounded to nearest even when written.
pub(crate) trait Element: WithDType {
    type Real: Real;
    fn load(self) -> Self::Real;
    fn store(value: Self::Real) -> Self;
}

macro_rules! real {
    ($($ty:ty)*) => {$(
        impl Real for $ty {
            #[inline(always)]
            fn exp(self) -> Self {
                <$ty>::exp(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$ty>::abs(self)
            }
        }

        impl Element for $ty {
            type Real = $ty;

            #[inline(always)]
            fn load(self) -> $ty {
                self
            }

            #[inline(always)]
            fn store(value: $ty) -> Self {
                value
            }
        }
    )*};
}
real!(f32 f64);

macro_rules! half {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            type Real = f32;

            #[inline(always)]
            fn load(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn store(value: f32) -> Self {
                <$ty>::from_f32(value)
            }
        }
    )*};
}
half!(half::bf16 half::f16);

/// Runs `$body` with `$element` as the type of a tensor's elements; another dtype is an error that names `$part`.
macro_rules! with_element {
    ($dtype:expr, $part:expr, $element:ident => $body:expr) => {
        match $dtype {
            candle_core::DType::F32 => {
                type $element = f32;
                $body
            }
            candle_core::DType::F64 => {
                type $element = f64;
                $body
            }
            candle_core::DType::BF16 => {
                type $element = half::bf16;
                $body
            }
            candle_core::DType::F16 => {
                type $element = half::f16;
                $body
            }
            other => Err($crate::nn::real::not_float($part, other)),
        }
    };
}
pub(crate) use with_element;

pub(crate) fn not_float(part: &str, dtype: DType) -> Error {
    misfit(part, format!("the input is {dtype:?}; convert it to f32, f64, bf16 or f16 with `to_dtype`"))
}

/// The error for an input or an option that does not fit the layer called `part`.
pub(crate) fn misfit(part: &str, what: impl Into<String>) -> Error {
    Error::LayerInput { part: part.to_owned(), what: what.into() }
}

/// A tensor's elements in row-major order, out of its graph: the tensor's own buffer if it is contiguous, else a copy.
pub(crate) fn values(part: &str, tensor: &Tensor) -> Result<Tensor> {
    if !tensor.device().is_cpu() {
        let what = "a layer's function".to_owned();
        return Err(Error::UnsupportedDevice { function: part.to_owned(), what });
    }
    // Candle cannot copy a view without elements that begins beyond the end of its buffer.
    Ok(match tensor.elem_count() {
        0 => Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())?,
        _ => tensor.detach().contiguous()?,
    })
}

/// Runs `f` on the elements of a tensor that [`values`] gave.
pub(crate) fn with_slice<E: WithDType, R>(tensor: &Tensor, f: impl FnOnce(&[E]) -> R) -> Result<R> {
    let result = storage::with_cpu(tensor, |buffer, layout| -> candle_core::Result<Option<R>> {
        let elements = E::cpu_storage_as_slice(buffer)?;
        Ok(storage::range(layout).map(|range| f(&elements[range])))
    });
    match result.transpose()?.flatten() {
        Some(result) => Ok(result),
        None => {
            Err(candle_core::Error::Msg("a contiguous tensor on the CPU was expected".into()).bt().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn elements_are_read_in_row_major_order_from_any_layout() {
        let x = Tensor::arange(0f32, 12., &Device::Cpu).unwrap().reshape((3, 4)).unwrap();
        let view = x.narrow(1, 1, 2).unwrap().t().unwrap();
        let read = with_slice(&values("x", &view).unwrap(), |v: &[f32]| v.to_vec()).unwrap();
        assert_eq!(read, [1., 5., 9., 2., 6., 10.]);
        let row = x.get(2).unwrap();
        assert_eq!(with_slice(&values("x", &row).unwrap(), |v: &[f32]| v[0]).unwrap(), 8.);
        let empty = x.narrow(0, 3, 0).unwrap();
        assert!(with_slice(&values("x", &empty).unwrap(), |v: &[f32]| v.is_empty()).unwrap());
    }

    #[test]
    fn another_dtype_is_an_error_not_a_reinterpretation() {
        let x = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        assert!(with_slice(&x, |_: &[f64]| ()).is_err());
        let float = |dtype| with_element!(dtype, "part", E => Ok(E::DTYPE));
        assert_eq!(float(DType::F16).unwrap(), DType::F16);
        assert!(float(DType::U8).unwrap_err().to_string().starts_with("`part`: the input is U8"));
    }
}
