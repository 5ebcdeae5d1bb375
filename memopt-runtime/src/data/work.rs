//! What there is to do in an epoch: samples to get, batches to make. Panics become errors here.

use super::{Collate, DataError, Dataset, Order, Panicked, Random, SampleKey, SampleResult};
use crate::panics::caught_message;
use std::ops::Range;
use std::sync::Arc;

/// Samples by index and key, augmented.
pub(super) trait Samples<S>: Send + Sync {
    fn len(&self) -> usize;
    fn get(&self, key: SampleKey) -> SampleResult<S>;
    /// How many augmentations there are.
    fn stages(&self) -> usize;
}

/// The samples of a data set.
pub(super) struct Plain<D>(pub(super) D);

impl<D: Dataset> Samples<D::Sample> for Plain<D> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: SampleKey) -> SampleResult<D::Sample> {
        self.0.get(key.index)
    }

    fn stages(&self) -> usize {
        0
    }
}

/// Samples, changed by a closure.
pub(super) struct Augmented<S, F> {
    pub(super) samples: Arc<dyn Samples<S>>,
    pub(super) change: F,
}

impl<S, A, F> Samples<A> for Augmented<S, F>
where
    F: Fn(S, &mut Random) -> SampleResult<A> + Send + Sync,
{
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn get(&self, key: SampleKey) -> SampleResult<A> {
        (self.change)(self.samples.get(key)?, &mut Random::new(key, self.samples.stages()))
    }

    fn stages(&self) -> usize {
        self.samples.stages() + 1
    }
}

/// An epoch of one rank.
pub(super) struct Work<S, B> {
    pub(super) samples: Arc<dyn Samples<S>>,
    pub(super) collate: Arc<dyn Collate<S, Batch = B>>,
    pub(super) order: Order,
    pub(super) rank: usize,
    pub(super) epoch: u64,
    pub(super) batches: usize,
    pub(super) permutation: Vec<usize>,
}

impl<S, B: Send> Work<S, B> {
    /// Number of samples of all ranks in a batch's step.
    pub(super) fn of_all_ranks(&self, batch: usize) -> usize {
        self.order.step(batch, self.batches).len()
    }

    /// The indices of a batch's samples.
    pub(super) fn indices(&self, batch: usize) -> &[usize] {
        let places: Range<usize> = self.order.share(&self.order.step(batch, self.batches), self.rank);
        &self.permutation[places]
    }

    /// A sample of a batch.
    pub(super) fn sample(&self, batch: usize, place: usize) -> Result<S, DataError> {
        let (seed, epoch, index) = (self.order.seed, self.epoch, self.indices(batch)[place]);
        let got = without_panic(|| self.samples.get(SampleKey { seed, epoch, index }));
        got.map_err(|source| DataError::Sample { index, epoch, source })
    }

    /// A batch from all its samples; the first error among them, if there is one.
    pub(super) fn batch(
        &self,
        batch: usize,
        samples: impl IntoIterator<Item = Result<S, DataError>>,
    ) -> Result<B, DataError> {
        let samples = samples.into_iter().collect::<Result<Vec<S>, _>>()?;
        without_panic(|| self.collate.collate(samples)).map_err(|source| DataError::Batch {
            batch: batch as u64,
            epoch: self.epoch,
            indices: self.indices(batch).to_vec(),
            source,
        })
    }
}

fn without_panic<T>(f: impl FnOnce() -> SampleResult<T>) -> SampleResult<T> {
    caught_message(f).unwrap_or_else(|message| Err(Panicked { message }.into()))
}
