//! Slices of a generic type that is f32 after all, for kernels that exist for f32 only.
#![allow(unsafe_code)]

use crate::nn::element::Real;
use std::any::TypeId;

fn is_f32<R: Real>() -> bool {
    TypeId::of::<R>() == TypeId::of::<f32>()
}

/// The same slice, if `R` is f32.
pub(super) fn f32s<R: Real>(values: &[R]) -> Option<&[f32]> {
    // SAFETY: `R` is f32, so that both are the same type.
    is_f32::<R>().then(|| unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) })
}

/// The same slice, if `R` is f32.
pub(super) fn f32s_mut<R: Real>(values: &mut [R]) -> Option<&mut [f32]> {
    // SAFETY: `R` is f32, so that both are the same type; the borrow of `values` lasts as long as the result.
    is_f32::<R>().then(|| unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) })
}
