//! What can go wrong between a data set and a batch.

use super::Order;

/// An error of a data set, an augmentation or a collate function: any type, by `?`.
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// A `Result` with any error.
pub type SampleResult<T> = Result<T, SampleError>;

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A sample cannot be had.
    #[error("sample {index} in epoch {epoch}: {source}")]
    Sample {
        /// Its index in the data set.
        index: usize,
        /// The epoch.
        epoch: u64,
        /// What the data set or an augmentation gave; [`Panicked`] if it panicked.
        source: SampleError,
    },

    /// A batch cannot be made from its samples.
    #[error("batch {batch} of epoch {epoch}, samples {indices:?}: {source}")]
    Batch {
        /// Its number in the epoch.
        batch: u64,
        /// The epoch.
        epoch: u64,
        /// The indices of its samples.
        indices: Vec<usize>,
        /// What the collate function gave; [`Panicked`] if it panicked.
        source: SampleError,
    },

    /// What a loader was given makes no sense.
    #[error("loader: {what}")]
    Options {
        /// What is wrong, and what is valid.
        what: String,
    },

    /// A position is of another order of samples: going on from it would repeat some and leave out others.
    #[error("the position is of another order of samples ({}); resume with the loader that it came from", position.differences(loader))]
    OtherOrder {
        /// The order of the position.
        position: Order,
        /// The order of the loader.
        loader: Order,
    },

    /// There is no such batch.
    #[error(
        "the position is at batch {batch} of an epoch of {batches}; it was changed since the loader gave it"
    )]
    NoSuchBatch {
        /// The batch.
        batch: u64,
        /// Batches of an epoch.
        batches: u64,
    },

    /// A thread could not be started.
    #[error("a thread for loading cannot be started: {source}; take fewer threads")]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },

    /// A thread ended by a panic that could not be caught with a sample.
    #[error("a thread for loading panicked outside of the data set, as in the `drop` of a sample; its message is on standard error")]
    ThreadPanicked,
}

/// A panic of a data set, an augmentation or a collate function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {message}")]
pub struct Panicked {
    /// Its message.
    pub message: String,
}
