//! The batches of an epoch, one after the other.

use super::work::Work;
use super::workers::Workers;
use super::{DataError, Position};
use crate::{Error, Result};
use std::sync::Arc;

/// A batch, and where it stands.
#[derive(Debug, Clone)]
pub struct Batch<B> {
    /// What the collate function made.
    pub data: B,
    /// The indices of its samples in the data set.
    pub indices: Vec<usize>,
    /// Number of samples of all ranks in this step.
    pub of_all_ranks: usize,
    /// The batch behind it: where to go on after this one.
    pub next: Position,
}

impl<B> Batch<B> {
    /// The share of this rank in the step's samples. The sum over the ranks of `share * (mean over the batch)` is the mean over the
    /// step, also where batches are not of one size.
    pub fn share(&self) -> f64 {
        self.indices.len() as f64 / self.of_all_ranks as f64
    }
}

/// The batches of an epoch from some batch on, of [`Loader::epoch`](super::Loader::epoch). It ends after an error.
///
/// Dropping it stops its threads.
pub struct Batches<S, B> {
    work: Arc<Work<S, B>>,
    /// `None`: made by the caller's thread.
    workers: Option<Workers<S, B>>,
    next: usize,
    failed: bool,
}

impl<S: Send + 'static, B: Send + 'static> Batches<S, B> {
    pub(super) fn start(
        work: Work<S, B>,
        first: usize,
        threads: usize,
        prefetch: usize,
    ) -> Result<Self, DataError> {
        let work = Arc::new(work);
        let workers = match threads {
            0 => None,
            threads => Some(Workers::start(work.clone(), first, threads, prefetch)?),
        };
        Ok(Batches { work, workers, next: first, failed: false })
    }
}

impl<S, B: Send> Batches<S, B> {
    /// The batch that is next. After an error, it is the one that failed.
    pub fn next_position(&self) -> Position {
        Position::new(self.work.order, self.work.epoch, self.next, self.work.batches)
    }

    fn made(&self) -> Result<B, DataError> {
        let batch = self.next;
        match &self.workers {
            Some(workers) => workers.next(),
            None => {
                let places = 0..self.work.indices(batch).len();
                self.work.batch(batch, places.map(|place| self.work.sample(batch, place)))
            }
        }
    }
}

impl<S, B: Send> Iterator for Batches<S, B> {
    type Item = Result<Batch<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next;
        if self.failed || batch >= self.work.batches {
            return None;
        }
        match self.made() {
            Ok(data) => {
                self.next += 1;
                Some(Ok(Batch {
                    data,
                    indices: self.work.indices(batch).to_vec(),
                    of_all_ranks: self.work.of_all_ranks(batch),
                    next: self.next_position(),
                }))
            }
            Err(error) => {
                self.failed = true;
                self.workers = None;
                Some(Err(Error::from(error)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = if self.failed { 0 } else { self.work.batches - self.next };
        (usize::from(left > 0), Some(left))
    }
}

impl<S, B: Send> std::iter::FusedIterator for Batches<S, B> {}

impl<S, B: Send> std::fmt::Debug for Batches<S, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("position", &self.next_position()).finish_non_exhaustive()
    }
}
