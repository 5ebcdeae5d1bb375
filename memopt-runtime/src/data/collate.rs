//! A batch from samples.

use super::SampleResult;

/// How samples become a batch. Closures do it, and [`Stack`](super::Stack).
///
/// ```
/// use memopt_runtime::data::Loader;
///
/// let loader = Loader::new(vec![3, 1, 2]).batch_size(2).collate(|samples: Vec<i32>| Ok(samples.iter().sum::<i32>()));
/// let sums: Result<Vec<i32>, _> = loader.epoch(0)?.map(|batch| Ok::<_, memopt_runtime::Error>(batch?.data)).collect();
/// assert_eq!(sums?, [4, 2]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub trait Collate<S>: Send + Sync {
    /// What becomes of the samples.
    type Batch: Send;

    /// Makes a batch of one or more samples, in their order.
    ///
    /// # Errors
    /// Of any type; the loader adds which batch it is.
    fn collate(&self, samples: Vec<S>) -> SampleResult<Self::Batch>;
}

impl<S, B: Send, F: Fn(Vec<S>) -> SampleResult<B> + Send + Sync> Collate<S> for F {
    type Batch = B;

    fn collate(&self, samples: Vec<S>) -> SampleResult<B> {
        self(samples)
    }
}
