//! Process groups: ranks that train one model together and combine their gradients.
//!
//! ```text
//! communicator   what a group can do: the trait, for ranks of any kind
//!   buckets      gradients of all ranks, added up a bucket at a time
//!   parameters   the first rank's parameters for all
//!   agreement    one plan for all
//!   together     what ranks must have in common, and an error on all of them if they have not
//! single, threads, mpi, nccl   the kinds of ranks
//!   exchange     the one algorithm that threads, MPI and NCCL run: reduce by slices in rank order, then gather
//!     wire       what differs between them: who hands bytes to whom
//!     combine    two ranks' values become one
//! ```
//!
//! A reduction is the same on every rank and every run, to the last bit: rank 0's value, then rank 1's combined with it,
//! then rank 2's, `((r0 + r1) + r2) + ...`, whatever the kind of group. Every rank makes the same calls in the same order; before
//! any data moves the ranks compare what they were called with, so that a difference is an error on all of them and
//! not a hang.
//!
//! ```
//! use memopt_runtime::dist::{Communicator, Reduce, Threads, Values};
//!
//! let ranks = Threads::group(3);
//! let sums: Vec<f32> = std::thread::scope(|scope| {
//!     let run = |rank: memopt_runtime::dist::ThreadRank| -> memopt_runtime::Result<f32> {
//!         let mut gradient = [rank.rank() as f32 + 0.5];
//!         rank.all_reduce(Values::F32(&mut gradient), Reduce::Sum)?;
//!         Ok(gradient[0])
//!     };
//!     let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
//!     threads.into_iter().map(|thread| thread.join().unwrap()).collect::<memopt_runtime::Result<_>>()
//! })?;
//! assert_eq!(sums, [4.5, 4.5, 4.5]);
//! # Ok::<(), memopt_runtime::Error>(())
//! ```
//!
//! A new kind of group is a new [`Communicator`]; if it can hand bytes around, it is a `wire` and `exchange` does the rest.

mod agreement;
mod buckets;
mod call;
mod combine;
mod communicator;
mod error;
mod exchange;
mod listed;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod parameters;
mod single;
mod threads;
mod together;
mod wire;
#[cfg(any(feature = "mpi", feature = "nccl"))]
mod worker;

#[cfg(test)]
mod tests;

pub use agreement::{agreement, Agreement, GroupAgreement};
pub use buckets::{Buckets, Gradient, Reduced};
pub use communicator::{Communicator, Reduce, Values};
pub use error::GroupError;
pub(crate) use listed::sum_type;
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
#[cfg(feature = "nccl")]
pub use nccl::Nccl;
pub use parameters::broadcast_parameters;
pub use single::Single;
pub use threads::{ThreadRank, Threads};

pub(crate) use together::in_common;
