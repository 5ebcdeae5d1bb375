//! What can go wrong when bytes are measured.

use std::fmt;

/// Why a measurement could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// [`CountingAllocator`](super::CountingAllocator) is not the global allocator of this program.
    NotCounting,
    /// As many [`Scope`](super::Scope)s and [`Timeline`](super::Timeline)s are active as there is room for.
    TooManyScopes {
        /// How many may be active at the same time in the process.
        limit: usize,
    },
    /// As many [`ThreadScope`](super::ThreadScope)s are active on this thread as there is room for.
    TooManyThreadScopes {
        /// How many may be active at the same time on one thread.
        limit: usize,
    },
    /// A [`Timeline`](super::Timeline) is recording on this thread already.
    TimelineRunning,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCounting => f.write_str(
                "memory is not counted in this program; install the allocator in its main file: \
                 `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator::system();`",
            ),
            Self::TooManyScopes { limit } => write!(
                f,
                "{limit} memory scopes and timelines are active, which is all there is room for; \
                 finish or drop one before another begins"
            ),
            Self::TooManyThreadScopes { limit } => write!(
                f,
                "{limit} thread scopes are active on this thread, which is all there is room for; \
                 finish or drop one before another begins"
            ),
            Self::TimelineRunning => f.write_str(
                "a memory timeline is recording on this thread already; finish it first, \
                 or measure a part of it with a `Scope`",
            ),
        }
    }
}

impl std::error::Error for MemoryError {}

#[cfg(test)]
mod tests {
    use super::MemoryError;

    #[test]
    fn messages_say_what_to_do() {
        assert!(MemoryError::NotCounting.to_string().contains("#[global_allocator]"));
        assert_eq!(
            MemoryError::TooManyScopes { limit: 64 }.to_string(),
            "64 memory scopes and timelines are active, which is all there is room for; \
             finish or drop one before another begins"
        );
        assert!(MemoryError::TimelineRunning.to_string().contains("finish it first"));
    }
}
