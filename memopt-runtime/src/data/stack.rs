//! Tensors beside each other.

use super::{Collate, SampleResult};
use candle_core::{Device, Tensor};

/// Puts samples beside each other along a new batch dimension, which is where it says.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use memopt_runtime::data::{Collate, Stack};
///
/// let sample = || Tensor::zeros((4, 2, 8, 8), DType::F32, &Device::Cpu); // [T, C, H, W]
/// let (x, labels) = Stack::TimeFirst.collate(vec![(sample()?, 3u32), (sample()?, 1)])?;
/// assert_eq!(x.dims(), [4, 2, 2, 8, 8]); // [T, N, C, H, W]
/// assert_eq!(labels.to_vec1::<u32>()?, [3, 1]);
/// let x = Stack::BatchFirst.collate(vec![sample()?; 3])?;
/// assert_eq!(x.dims(), [3, 4, 2, 8, 8]); // [N, T, C, H, W]
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stack {
    /// Samples `[T, ...]` become `[T, N, ...]`, which memopt's layers take.
    #[default]
    TimeFirst,
    /// Samples become `[N, ...]`.
    BatchFirst,
}

/// What can be stacked: tensors; numbers, which become a tensor `[N]`; pairs, whose second (the label, the target) is stacked
/// batch first.
pub trait Stackable: Send + Sized {
    /// What becomes of it.
    type Batch: Send;

    /// One or more samples, in their order.
    ///
    /// # Errors
    /// If they do not fit together.
    fn stack(samples: Vec<Self>, along: Stack) -> SampleResult<Self::Batch>;
}

impl<S: Stackable> Collate<S> for Stack {
    type Batch = S::Batch;

    fn collate(&self, samples: Vec<S>) -> SampleResult<S::Batch> {
        S::stack(samples, *self)
    }
}

impl Stackable for Tensor {
    type Batch = Tensor;

    fn stack(samples: Vec<Self>, along: Stack) -> SampleResult<Tensor> {
        let form = |x: &Tensor| format!("{:?} of {:?}", x.dims(), x.dtype());
        let first = samples.first().map(form).unwrap_or_default();
        if let Some(place) = samples.iter().position(|x| form(x) != first) {
            let other = form(&samples[place]);
            return Err(format!(
                "the first sample is {first}, number {} is {other}; bring them to one shape and type, or give a collate \
                 function",
                place + 1
            )
            .into());
        }
        let dim = match along {
            Stack::TimeFirst if samples.iter().any(|x| x.rank() == 0) => {
                return Err("samples without dimensions have no time; stack them batch first".into());
            }
            Stack::TimeFirst => 1,
            Stack::BatchFirst => 0,
        };
        Ok(Tensor::stack(&samples, dim)?.contiguous()?)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Stackable for $number {
            type Batch = Tensor;

            fn stack(samples: Vec<Self>, _: Stack) -> SampleResult<Tensor> {
                let n = samples.len();
                Ok(Tensor::from_vec(samples, n, &Device::Cpu)?)
            }
        }
    )*};
}
numbers!(u8 u32 i64 f32 f64);

impl<A: Stackable, B: Stackable> Stackable for (A, B) {
    type Batch = (A::Batch, B::Batch);

    fn stack(samples: Vec<Self>, along: Stack) -> SampleResult<Self::Batch> {
        let (inputs, targets) = samples.into_iter().unzip();
        Ok((A::stack(inputs, along)?, B::stack(targets, Stack::BatchFirst)?))
    }
}
