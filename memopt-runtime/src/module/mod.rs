//! Models: what a layer is, how layers compose, and what a forward carries along.
//!
//! - [`Checkpointable`] is what every layer and every model implements (models derive it).
//! - [`Signal`] is what flows between them, [`Context`] what a forward knows and a recompute must repeat exactly.
//! - [`Composition`] says how a model is made of [`Part`]s; running it *is* the model's forward, so that the two cannot
//!   disagree.
//! - [`Session`] owns what outlives a forward: the random key, the call counter, neuron states that are carried on.
//!
//! A layer's function never sums over time on its own terms: every reduction over the window goes one time step after
//! the other in a fixed order (statistics ascending, gradients descending), and weights are added up in a buffer that
//! time chunks share ([`Context::weight`]). That is what makes every plan give the same bits.

mod accumulators;
mod channels;
mod checkpointable;
mod composition;
mod containers;
mod context;
mod executor;
mod footprint;
mod forward;
mod join;
mod join_functions;
mod linear_map;
mod norm_group;
mod notes;
mod part;
mod record;
mod session;
mod signal;
mod states;
mod time_chunkable;
mod weight;
mod window_neuron;
mod window_norm;

pub use accumulators::Accumulators;
pub(crate) use channels::rows;
pub use channels::ChannelLayer;
pub use checkpointable::Checkpointable;
pub(crate) use composition::run_plainly;
pub use composition::{Composition, Step};
pub use context::{Context, RandomKey};
pub use executor::Executor;
pub use footprint::{Densities, Footprint, Incoming, Work};
pub use forward::forward_t;
pub(crate) use join::Handing;
pub use join::{JoinMethod, JoinOp, MethodJoin};
pub use linear_map::LinearMap;
pub use norm_group::NormGroup;
pub use part::Part;
pub use record::{NormStatistics, Record};
pub use session::{FrozenNorms, Session};
pub(crate) use signal::Form;
pub use signal::Signal;
pub use states::States;
pub use time_chunkable::TimeChunkable;
pub use weight::{Weight, WeightGradient};
pub use window_neuron::WindowNeuron;
pub use window_norm::{NormSums, WindowNorm};
