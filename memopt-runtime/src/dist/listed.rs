//! A tensor by what ranks compare of it.

use candle_core::{DType, Tensor};
use std::fmt::{Display, Formatter};

/// Name, shape and dtype.
#[derive(Debug, Hash)]
pub(super) struct Listed<'a> {
    pub(super) name: &'a str,
    pub(super) dims: &'a [usize],
    dtype: &'static str,
}

impl<'a> Listed<'a> {
    pub(super) fn new(name: &'a str, tensor: &'a Tensor) -> Self {
        Self { name, dims: tensor.dims(), dtype: tensor.dtype().as_str() }
    }
}

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` ({} {:?})", self.name, self.dtype, self.dims)
    }
}

/// The type in which values of a dtype are added up; `None` for those that are not.
pub(crate) fn sum_type(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => Some(DType::F32),
        DType::F64 => Some(DType::F64),
        _ => None,
    }
}
