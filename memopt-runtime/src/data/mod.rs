//! Batches of a data set: in a fixed order, made ahead by threads, shared out to ranks, resumable at any batch.
//!
//! ```text
//! Loader     how batches are made; gives the batches of an epoch, or the rest of one
//!   Dataset    samples by index
//!   augment    changes a sample, with random numbers of its own
//!   Collate    a batch from samples; Stack puts tensors beside each other
//! Order      which samples are in which batch: a pure function, the same on every rank
//! Position   where training stands in it: data
//! ```
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use memopt_runtime::data::{from_fn, Loader, Position};
//!
//! // 10 samples of 4 time steps, with labels. A `Vec` of samples is a data set too.
//! let samples = from_fn(10, |index| {
//!     let frames = Tensor::full(index as f32, (4, 2, 8, 8), &Device::Cpu)?; // [T, C, H, W]
//!     Ok((frames, index as u32 % 3))
//! });
//! let loader = Loader::new(samples)
//!     .batch_size(4)
//!     .shuffle(true)
//!     .seed(7)
//!     .threads(2)
//!     .prefetch(2)
//!     .augment(|(frames, label), random| {
//!         let frames = if random.chance(0.5) { frames.flip(&[3])? } else { frames };
//!         Ok((frames, label))
//!     });
//!
//! let mut position = loader.beginning()?;
//! while position.epoch() < 2 {
//!     for batch in loader.resume(&position)? {
//!         let batch = batch?;
//!         let (x, labels) = batch.data; // [T, N, C, H, W] and [N]
//!         assert_eq!((x.dims()[1], labels.dtype()), (batch.indices.len(), DType::U32));
//!         position = batch.next; // serde reads and writes it
//!     }
//! }
//! let text = serde_json::to_string(&position)?;
//! assert_eq!(position, serde_json::from_str::<Position>(&text)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What depends on what
//!
//! Which samples are in which batch is a function of [`Order`] and the epoch: not of threads, and for the most part not of ranks
//! (see there). The random numbers of a sample are a function of seed, epoch and index. A batch is therefore the same
//! whether training was interrupted before it or not, and with any number of threads.
//!
//! # Memory
//!
//! Besides the batch that the caller has, at most [`prefetch`](Loader::prefetch) are in the making or made; threads wait when
//! there are as many. Threads work on the samples of a batch together, so that one batch ahead keeps all of them busy.
//!
//! # Errors
//!
//! An error or a panic of the data set, of an augmentation or of the collate function is an item in its place, after the
//! batches before it, and names the sample or the batch; the iterator ends with it. The loader is as before: the same position
//! can be tried again. Dropping an iterator stops its threads, and waits for the samples that they are at.

mod batches;
mod collate;
mod dataset;
mod error;
mod loader;
mod order;
mod position;
mod random;
mod stack;
mod work;
mod workers;

pub use batches::{Batch, Batches};
pub use collate::Collate;
pub use dataset::{from_fn, Dataset, FromFn};
pub use error::{DataError, Panicked, SampleError, SampleResult};
pub use loader::Loader;
pub use order::Order;
pub use position::Position;
pub use random::{Random, SampleKey};
pub use stack::{Stack, Stackable};

#[cfg(test)]
mod tests;
