//! Samples by index.

use super::SampleResult;
use std::sync::Arc;

/// A data set: so many samples, which any thread can get in any order.
///
/// A `Vec` of samples is one (a clone of a tensor shares its memory), and so is a closure with a length: [`from_fn`].
///
/// ```
/// use candle_core::Tensor;
/// use memopt_runtime::data::{Dataset, SampleResult};
/// use std::path::PathBuf;
///
/// struct Recordings { files: Vec<PathBuf>, labels: Vec<u32> }
///
/// impl Dataset for Recordings {
///     type Sample = (Tensor, u32);
///
///     fn len(&self) -> usize {
///         self.files.len()
///     }
///
///     fn get(&self, index: usize) -> SampleResult<Self::Sample> {
///         let bytes = std::fs::read(&self.files[index])?; // any error goes
///         let frames = Tensor::from_vec(bytes, (10, 2, 34, 34), &candle_core::Device::Cpu)?;
///         Ok((frames, self.labels[index]))
///     }
/// }
/// ```
pub trait Dataset: Send + Sync {
    /// What [`get`](Self::get) gives.
    type Sample: Send;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sample: the same one whenever it is asked for. An index is less than [`len`](Self::len).
    ///
    /// # Errors
    /// Of any type; the loader adds the index.
    fn get(&self, index: usize) -> SampleResult<Self::Sample>;
}

impl<T: Clone + Send + Sync> Dataset for Vec<T> {
    type Sample = T;

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn get(&self, index: usize) -> SampleResult<T> {
        <[T]>::get(self, index).cloned().ok_or_else(|| format!("there are {} samples", Vec::len(self)).into())
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> SampleResult<D::Sample> {
        (**self).get(index)
    }
}

impl<D: Dataset + ?Sized> Dataset for Box<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> SampleResult<D::Sample> {
        (**self).get(index)
    }
}

/// A closure as a data set of `len` samples.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::data::{from_fn, Dataset};
///
/// // All samples in two tensors, [N, T, C, H, W] and [N].
/// let x = Tensor::zeros((6, 4, 2, 3, 3), candle_core::DType::F32, &Device::Cpu)?;
/// let labels = Tensor::arange(0u32, 6, &Device::Cpu)?;
/// let all = from_fn(6, move |i| Ok((x.get(i)?, labels.get(i)?.to_scalar::<u32>()?)));
/// assert_eq!(all.get(5)?.1, 5);
///
/// // Every third one is kept apart.
/// let all = std::sync::Arc::new(all);
/// let (training, indices) = (all.clone(), [0, 1, 3, 4]);
/// let training = from_fn(indices.len(), move |i| training.get(indices[i]));
/// assert_eq!(training.get(2)?.1, 3);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn from_fn<S, F>(len: usize, get: F) -> FromFn<F>
where
    S: Send,
    F: Fn(usize) -> SampleResult<S> + Send + Sync,
{
    FromFn { len, get }
}

/// A data set of [`from_fn`].
#[derive(Debug, Clone)]
pub struct FromFn<F> {
    len: usize,
    get: F,
}

impl<S: Send, F: Fn(usize) -> SampleResult<S> + Send + Sync> Dataset for FromFn<F> {
    type Sample = S;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> SampleResult<S> {
        (self.get)(index)
    }
}
