//! Checkpoint files: tensors and the state beside them in one file, whole or not at all.
//!
//! ```text
//! Snapshot   named tensors and named sections of state; knows nothing of models and optimizers
//!   save     one file, replaced atomically
//!   load     the same bits, or an error that says what is wrong with the file
//! Store      a folder of numbered snapshots: the latest good one, and no more than so many
//! ```
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use memopt_runtime::snapshot::{Snapshot, Store};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Progress { epoch: u64, best: Option<f64> }
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let store = Store::open(folder, 3)?; // keeps three
//! let mut snapshot = Snapshot::new();
//! snapshot.tensors.insert("weight".into(), Tensor::new(&[1f32, -0., f32::NAN], &Device::Cpu)?);
//! snapshot.set("progress", &Progress { epoch: 7, best: Some(0.1) })?;
//! store.save(123, &snapshot)?; // step-00000123.memopt
//!
//! let latest = store.latest()?;
//! assert!(latest.skipped.is_empty()); // damaged ones would be named here
//! let (step, snapshot) = latest.found.ok_or("no checkpoint yet")?;
//! let progress: Progress = snapshot.get("progress")?;
//! assert_eq!((step, progress.epoch, progress.best), (123, 7, Some(0.1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The file
//!
//! A [safetensors](https://github.com/huggingface/safetensors) file, which other tools read too. Its `__metadata__` has one
//! entry, `memopt`: JSON with the format's name and version, the state, and the SHA-256 of the whole file (taken with zeros
//! for its own digits). The same snapshot gives the same bytes. SHA-256 and not a CRC: a CRC of 32 bits misses one large
//! damage in 4e9 and means nothing by itself; equal SHA-256 sums of two runs say that their states are equal to the bit.
//!
//! What Candle packs below a byte (`F4`, `F6E2M3`, `F6E3M2`) is stored as the bytes of its buffer, of dtype `U8`; its dtype and
//! shape are in the JSON. Tensors are read to the CPU; those on other devices are copied there, one after the other.
//!
//! # What may happen to it
//!
//! A file is written under another name (`.memopt-*.part`), brought to the disk, and renamed: at any moment, also when the
//! process is killed or the machine goes down, the old file or the new one is there as a whole. What killed writers left is
//! removed by the next save in the folder. Several writers of one path do not mix: the last to rename wins.
//!
//! A file that is cut off, changed in any byte, written by a later version or by something else is refused by a
//! [`SnapshotError`] that says which.

mod atomic;
mod contents;
mod elements;
mod error;
mod header;
mod read;
mod store;
mod write;

pub use contents::Snapshot;
pub use error::{Damage, SnapshotError};
pub use store::{Latest, Saved, Skipped, Store};

#[cfg(test)]
mod tests;
