//! What a training step holds, counted in bytes (MB = 10^6 bytes).
//!
//! Four views, each of which says what it counts:
//!
//! - [`CountingAllocator`], opt-in, counts every heap byte of the process: [`live`], [`peak`], by [`Scope`], by thread
//!   ([`ThreadScope`]). Without it the measuring functions give `None` or an error, never a zero that looks measured.
//! - [`Timeline`] is the memory curve of a step: live bytes and peaks at named marks; checkpointed segments mark
//!   themselves, in forward and in backward.
//! - [`held`] lists the bytes that checkpointed segments keep for backward, by path. It needs no allocator.
//! - [`graph_bytes`] is a lower bound of what a plain Candle graph keeps: Candle does not show all of it.
//!
//! ```
//! use memopt_runtime::memory::{self, CountingAllocator, Scope};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator::system();
//!
//! let scope = Scope::enter("example")?;
//! drop(vec![0u8; 1_000_000]);
//! let bytes = scope.finish();
//! assert!(bytes.peak_above_start() >= 1_000_000 && bytes.retained() == 0);
//! # Ok::<(), memory::MemoryError>(())
//! ```
//!
//! Of this module, `unsafe` is in the allocator only.

mod allocator;
mod counter;
mod curve;
mod error;
mod graph;
mod ledger;
mod megabytes;
mod process;
mod scope;
mod thread;
mod timeline;

pub use allocator::CountingAllocator;
pub use curve::{Curve, Mark};
pub use error::MemoryError;
pub use graph::{graph_bytes, LowerBound};
pub use ledger::{held, HeldBytes, Holdings};
pub use process::{is_counting, live, peak, reset_peak, thread_live};
pub use scope::{Scope, ScopeBytes};
pub use thread::{ThreadScope, ThreadScopeBytes};
pub use timeline::{mark, mark_with, Timeline};

pub(crate) use ledger::Held;
