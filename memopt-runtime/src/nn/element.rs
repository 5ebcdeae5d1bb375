//! Float elements: what tensors hold and what is computed with.

use candle_core::{CpuStorage, DType};
use half::{bf16, f16};
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

/// A number that is computed with: f32 or f64.
pub(crate) trait Real:
    Element<Real = Self>
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    const LOWEST: Self;

    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// `e^self`, of a number that is not above 0.
    fn exp_of_nonpositive(self) -> Self;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn is_finite(self) -> bool;
}

/// An element of a float tensor.
///
/// bf16 and f16 are computed in f32: exact when read, rounded to nearest even when written.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    type Real: Real;
    const DTYPE: DType;
    const ZERO: Self;
    const ONE: Self;

    fn load(self) -> Self::Real;
    fn store(value: Self::Real) -> Self;

    /// The values to compute with: `values` itself where possible, else converted into `scratch`.
    fn reals<'a>(values: &'a [Self], scratch: &'a mut Vec<Self::Real>) -> &'a [Self::Real];

    /// Lets `fill` write all of `to`, through `scratch` where `to` cannot be computed in.
    fn fill<T>(
        to: &mut [Self],
        scratch: &mut Vec<Self::Real>,
        fill: impl FnOnce(&mut [Self::Real]) -> T,
    ) -> T;

    fn slice(storage: &CpuStorage) -> Option<&[Self]>;
    fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
    fn vec(storage: CpuStorage) -> Option<Vec<Self>>;
    fn storage(values: Vec<Self>) -> CpuStorage;
}

macro_rules! storage {
    ($variant:ident) => {
        const DTYPE: DType = DType::$variant;

        fn slice(storage: &CpuStorage) -> Option<&[Self]> {
            match storage {
                CpuStorage::$variant(values) => Some(values),
                _ => None,
            }
        }

        fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]> {
            match storage {
                CpuStorage::$variant(values) => Some(values),
                _ => None,
            }
        }

        fn vec(storage: CpuStorage) -> Option<Vec<Self>> {
            match storage {
                CpuStorage::$variant(values) => Some(values),
                _ => None,
            }
        }

        fn storage(values: Vec<Self>) -> CpuStorage {
            CpuStorage::$variant(values)
        }
    };
}

macro_rules! real {
    ($ty:ident $variant:ident, $exp:path) => {
        impl Real for $ty {
            const LOWEST: Self = $ty::NEG_INFINITY;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $ty
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn exp_of_nonpositive(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$ty>::abs(self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                <$ty>::sqrt(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                <$ty>::is_finite(self)
            }
        }

        impl Element for $ty {
            type Real = $ty;
            const ZERO: Self = 0.;
            const ONE: Self = 1.;

            #[inline(always)]
            fn load(self) -> Self {
                self
            }

            #[inline(always)]
            fn store(value: Self) -> Self {
                value
            }

            fn reals<'a>(values: &'a [Self], _: &'a mut Vec<Self>) -> &'a [Self] {
                values
            }

            fn fill<T>(to: &mut [Self], _: &mut Vec<Self>, fill: impl FnOnce(&mut [Self]) -> T) -> T {
                fill(to)
            }

            storage!($variant);
        }
    };
}
real!(f32 F32, super::exp::exp_of_nonpositive);
real!(f64 F64, f64::exp);

macro_rules! half {
    ($ty:ident $variant:ident) => {
        impl Element for $ty {
            type Real = f32;
            const ZERO: Self = $ty::ZERO;
            const ONE: Self = $ty::ONE;

            #[inline(always)]
            fn load(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn store(value: f32) -> Self {
                $ty::from_f32(value)
            }

            fn reals<'a>(values: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32] {
                scratch.clear();
                scratch.extend(values.iter().map(|value| value.to_f32()));
                scratch
            }

            fn fill<T>(to: &mut [Self], scratch: &mut Vec<f32>, fill: impl FnOnce(&mut [f32]) -> T) -> T {
                scratch.clear();
                scratch.resize(to.len(), 0.);
                let result = fill(scratch);
                to.iter_mut().zip(scratch.iter()).for_each(|(to, &value)| *to = $ty::from_f32(value));
                result
            }

            storage!($variant);
        }
    };
}
half!(bf16 BF16);
half!(f16 F16);

/// Runs an expression with `$element` as the type of a dtype's elements; other dtypes are an error of `$part`.
macro_rules! with_element {
    ($part:expr, $dtype:expr, $element:ident => $body:expr) => {
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
            other => Err($crate::nn::input::not_float($part, other)),
        }
    };
}
pub(crate) use with_element;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_is_its_element_or_an_error() {
        let float = |dtype| with_element!("part", dtype, E => Ok(E::DTYPE));
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            assert_eq!(float(dtype).unwrap(), dtype);
        }
        assert!(float(DType::U8)
            .unwrap_err()
            .to_string()
            .starts_with("`part`: f32, f64, bf16 or f16 expected"));
    }
}
