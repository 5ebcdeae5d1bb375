//! Checkpointed closures: what a piece of a model computes inside is not kept for backward but computed again.
//!
//! [`checkpoint`] runs any closure of Candle code, keeps its inputs (compressed where that is exact), and drops the
//! rest. In backward it runs the closure again and goes back through it. Losses and gradients are those of the same code
//! without it, bit for bit, under plain `loss.backward()`.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use memopt_runtime::checkpoint::checkpoint;
//!
//! let w = Var::new(&[[0.5f32, -1.], [2., 0.25]], &Device::Cpu)?;
//! let spikes = Tensor::new(&[[1f32, 0.], [1., 1.]], &Device::Cpu)?;
//! let layer = { let w = w.clone(); move |x: &[Tensor]| x[0].matmul(&w)?.tanh() };
//!
//! let plain = layer(&[spikes.clone()])?.sum_all()?.backward()?;
//! let y = checkpoint(layer, &[&spikes], "layer")?;         // keeps 8 bytes
//! let ours = y.sum_all()?.backward()?;
//! let bits = |g: &Tensor| g.flatten_all()?.to_vec1::<f32>();
//! assert_eq!(bits(ours.get(&w).unwrap())?, bits(plain.get(&w).unwrap())?);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! # What the closure may do
//!
//! - Use any number of inputs (`&[Tensor]`) and give one tensor or several ([`Outputs`]).
//! - Capture weights: the variables that it reaches are found in the graph of the first pass and get their gradients,
//!   whether or not an input needs one.
//! - Contain other checkpointed closures.
//! - It must compute the same again, in the same way: no unseeded randomness, no state that moves (Candle's batch norm in
//!   training would move its statistics twice), nothing kept from one call to the next. A recompute of another shape,
//!   dtype or set of variables is an error; other values are found by checksums, which are on in builds with debug
//!   assertions ([`Options::verify`]). What leaves the values of the outputs as they are, such as moved statistics,
//!   cannot be found.
//! - It must return every tensor that is used: one that leaves it in another way (through a shared list, say) has no
//!   gradient of the inputs.
//! - It must not capture a tensor that was itself computed from variables: that is an error which says to pass it as an
//!   input. Integers and detached tensors may be captured. A closure inside takes what it needs of the outer one's inputs
//!   as inputs too.
//!
//! [`checkpoint_module`] is the same for code that goes through a struct with [`Parameters`](crate::parameters): the
//! first pass runs on the detached twin and builds no graph at all.
//!
//! # What is kept, and until when
//!
//! Until its own backward is done, or its outputs are dropped: the inputs as their compressors keep them, the closure,
//! and scalars. A plain operation between two closures (`reshape`, `+`) keeps its activations in Candle's graph as
//! always: put it inside. [`memory::held`](crate::memory::held) lists it by segment. The first pass of a closure builds its whole
//! graph for a moment; the outputs are copied out of it.
//!
//! # Where the bits may differ
//!
//! - A gradient that is a sum of three contributions or more may be added up in another grouping.
//! - A tensor that repeats elements in memory (`broadcast_as`) and goes into or out of a closure has its gradient summed
//!   over the repetitions at the border, which may be another grouping; its values are the same.
//!
//! - A computed tensor that goes into a closure, no output of which that the loss uses depends on it, gets a gradient of
//!   zeros, where plain Candle gives none, since Candle wants one for each tensor that its walk meets: variables behind it
//!   have zeros (which weight decay moves), and an operation behind it with an infinite derivative makes them NaN. Variables
//!   that go in directly have none, as in plain Candle.
//! - Untracked tensors have no entry in the `GradStore`.
//!
//! Inputs and outputs have the order in memory that plain code gives them, since Candle's roundings depend on it.

mod channel_chunks;
mod closure;
mod compressors;
mod fingerprint;
mod fit;
mod inputs;
mod layout;
mod leaves;
mod norm_neurons;
mod options;
mod outputs;
mod part;
mod planned;
mod replay;
mod saved;
mod segment;
mod targets;
mod time_chunks;
mod versions;
mod weights;
mod window;

pub use crate::inside::is_inside_segment;
pub use closure::{checkpoint, checkpoint_module};
pub(crate) use fit::check_keep;
pub use inputs::Input;
pub(crate) use layout::{chunk_layout, TimeChunks, Way, IN_PLACE_BLOCK};
pub use options::Options;
pub use outputs::Outputs;
pub use part::checkpoint_part;
pub use planned::Planned;
pub(crate) use planned::{check_compressors, check_plan};
pub use saved::{fingerprint, SavedPlan};
pub(crate) use targets::targets_of;
pub use targets::{plan_for, plan_for_targets, Targets};
pub use versions::mark_changed;
