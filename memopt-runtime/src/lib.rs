//! The runtime of memopt: what the derive macros and the facade crate `memopt` stand on.
//!
//! Modules depend downwards only:
//!
//! ```text
//! train         optimizers, gradient accumulation, loss scaling, clipping, schedules
//! data          batches of a data set: shuffled, shared out to ranks, made ahead, resumable
//! snapshot      checkpoint files
//! search        a plan for a model: what a step would take, presets, a memory budget
//! nn            layers, neurons, losses
//! dist          process groups: ranks that add up their gradients
//! checkpoint    segments: closures and parts of models whose inner state is recomputed in backward instead of kept
//!   module      layers and models, how they compose, what a forward carries along
//!   plan        how each part of a model is kept: data
//!   parameters  the tensors that a struct trains, and its detached twin
//!   compress    lossless spike compression of what a segment keeps
//!   autograd    N-input, M-output differentiable functions over Candle
//!     memory    counting allocator, bytes held by segments, the memory curve of a step
//! ```
//!
//! Users depend on the facade `memopt`; this crate is public so that other crates can build on the parts.

mod arrangement;
pub mod autograd;
pub mod checkpoint;
pub mod compress;
pub mod data;
pub mod dist;
mod error;
mod fnv;
mod inside;
pub mod memory;
pub mod module;
pub mod nn;
mod panics;
pub mod parameters;
mod path;
pub mod plan;
pub mod search;
pub mod snapshot;
mod storage;
pub mod train;

pub use error::{Error, Phase, Result};
