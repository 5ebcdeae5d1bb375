//! Element types: f32 and f64 are computed in; bf16 and f16 are read and written, and computed in f32.

use candle_core::CpuStorage;
use half::{bf16, f16};
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A type that layers compute in.
pub(crate) trait Real:
    Element<Real = Self>
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
{
    const ONE: Self;
    const LOWEST: Self;

    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

/// A type that tensors hold.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    type Real: Real;
    const ZERO: Self;

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
    fn vec(storage: CpuStorage) -> Option<Vec<Self>>;
    fn storage(values: Vec<Self>) -> CpuStorage;
}

macro_rules! storage {
    ($variant:ident) => {
        fn slice(storage: &CpuStorage) -> Option<&[Self]> {
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
    ($ty:ident $variant:ident) => {
        impl Real for $ty {
            const ONE: Self = 1.;
            const LOWEST: Self = $ty::NEG_INFINITY;

            fn from_f64(value: f64) -> Self {
                value as $ty
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl Element for $ty {
            type Real = $ty;
            const ZERO: Self = 0.;

            fn load(self) -> Self {
                self
            }

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
real!(f32 F32);
real!(f64 F64);

macro_rules! half {
    ($ty:ident $variant:ident) => {
        impl Element for $ty {
            type Real = f32;
            const ZERO: Self = $ty::ZERO;

            fn load(self) -> f32 {
                self.to_f32()
            }

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
            other => Err($crate::nn::input::wrong(
                $part,
                format!(
                    "tensors of f32, f64, bf16 or f16 expected, {} given; convert with `to_dtype`",
                    other.as_str()
                ),
            )),
        }
    };
}
pub(crate) use with_element;
