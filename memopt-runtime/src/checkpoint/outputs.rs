//! What a checkpointed closure may give: one tensor or several.

use crate::{Error, Result};
use candle_core::Tensor;

/// One tensor, or a vector, array or tuple of them.
pub trait Outputs: Sized {
    /// The tensors, in order.
    fn into_tensors(self) -> Vec<Tensor>;

    /// The same from tensors, for the segment with this path.
    ///
    /// # Errors
    /// If there are more or fewer than the type holds.
    fn from_tensors(segment: &str, tensors: Vec<Tensor>) -> Result<Self>;
}

impl Outputs for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }

    fn from_tensors(segment: &str, tensors: Vec<Tensor>) -> Result<Self> {
        let [tensor] = exactly(segment, tensors)?;
        Ok(tensor)
    }
}

impl Outputs for Vec<Tensor> {
    fn into_tensors(self) -> Vec<Tensor> {
        self
    }

    fn from_tensors(_: &str, tensors: Vec<Tensor>) -> Result<Self> {
        Ok(tensors)
    }
}

impl<const N: usize> Outputs for [Tensor; N] {
    fn into_tensors(self) -> Vec<Tensor> {
        self.into()
    }

    fn from_tensors(segment: &str, tensors: Vec<Tensor>) -> Result<Self> {
        exactly(segment, tensors)
    }
}

macro_rules! tuple {
    ($($name:ident: $tensor:ty),*) => {
        impl Outputs for ($($tensor,)*) {
            fn into_tensors(self) -> Vec<Tensor> {
                let ($($name,)*) = self;
                vec![$($name),*]
            }

            fn from_tensors(segment: &str, tensors: Vec<Tensor>) -> Result<Self> {
                let [$($name),*] = exactly(segment, tensors)?;
                Ok(($($name,)*))
            }
        }
    };
}
tuple!(a: Tensor);
tuple!(a: Tensor, b: Tensor);
tuple!(a: Tensor, b: Tensor, c: Tensor);
tuple!(a: Tensor, b: Tensor, c: Tensor, d: Tensor);

fn exactly<const N: usize>(segment: &str, tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
    tensors.try_into().map_err(|t: Vec<Tensor>| Error::OutputCount {
        segment: segment.to_owned(),
        expected: N,
        got: t.len(),
    })
}
