//! What can go wrong in a process group.

use std::time::Duration;

/// What can go wrong in a process group.
///
/// Every rank of the group gets the same error, except for [`DType`](GroupError::DType) and
/// [`Unavailable`](GroupError::Unavailable), which a rank finds out before it calls the others, and
/// [`Backend`](GroupError::Backend), of which the others see that the rank failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A rank failed; the group is over.
    #[error("process group: rank {rank} failed: {why}; mend that, and make a new group")]
    RankFailed {
        /// The first rank that failed.
        rank: usize,
        /// What it said.
        why: String,
    },

    /// The ranks called different things. The group goes on: nothing was reduced.
    #[error("process group: rank {rank} called {call} and rank {other} {other_call} at the same time; every rank must make the same calls in the same order, with as many values of the same type")]
    Mismatch {
        /// The first rank.
        rank: usize,
        /// What it called.
        call: String,
        /// The first rank that called something else.
        other: usize,
        /// What that one called.
        other_call: String,
    },

    /// Ranks did not come within the group's timeout; the group is over.
    #[error("process group: rank {rank} waited {} s for ranks {missing:?}, which never called; find out where they hang, or give the group more time", waited.as_secs_f64())]
    TimedOut {
        /// Who waited.
        rank: usize,
        /// How long.
        waited: Duration,
        /// For whom.
        missing: Vec<usize>,
    },

    /// There is no such rank.
    #[error("process group: rank {rank} does not exist; the {size} ranks are counted from 0")]
    NoMember {
        /// The rank asked for.
        rank: usize,
        /// Ranks in the group.
        size: usize,
    },

    /// What a rank gave does not fit; nothing was changed on any rank.
    #[error("process group: rank {rank}: {what}")]
    Refused {
        /// The rank.
        rank: usize,
        /// What does not fit, and what would.
        what: String,
    },

    /// Values of a type that is not reduced.
    #[error("process group: {dtype:?} values are not reduced; convert them to f32 or f64 with `to_dtype`")]
    DType {
        /// The type.
        dtype: candle_core::DType,
    },

    /// A library or device that the group needs is not there.
    #[error("process group: {backend} is not available: {what}")]
    Unavailable {
        /// "MPI" or "NCCL".
        backend: &'static str,
        /// What is missing, and what to do.
        what: String,
    },

    /// A library failed; the group is over.
    #[error("process group: {backend} failed on rank {rank}: {what}; make a new group")]
    Backend {
        /// "MPI" or "NCCL".
        backend: &'static str,
        /// The rank it failed on.
        rank: usize,
        /// What it says.
        what: String,
    },
}
