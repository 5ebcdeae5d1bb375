//! Scopes: bytes of the whole process between two moments.
//!
//! Scopes may be nested, overlap and run in several threads; each has its own peak. All threads count: a scope
//! around a call also sees what an unrelated thread allocates meanwhile. [`ThreadScope`](super::ThreadScope) sees
//! its own thread alone, but misses work that is handed to a pool.

use std::borrow::Cow;
use std::fmt;

use super::counter::{Watch, WATCHES};
use super::megabytes::Megabytes;
use super::{is_counting, MemoryError};

/// A running measurement of the live bytes of the process; [`finish`](Self::finish) reports.
///
/// ```
/// use memopt_runtime::memory::{CountingAllocator, Scope};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
///
/// fn main() -> Result<(), memopt_runtime::memory::MemoryError> {
///     let scope = Scope::enter("forward")?;
///     drop(vec![0_u8; 3_000_000]);
///     let kept = vec![0_u8; 1_000_000];
///     let bytes = scope.finish();
///     assert_eq!(bytes.peak_above_start(), 3_000_000);
///     assert_eq!(bytes.retained(), 1_000_000);
///     assert_eq!(bytes.to_string(), "forward: peak 3.000 MB above its start, 1.000 MB retained");
///     drop(kept);
///     Ok(())
/// }
/// ```
///
/// Dropped without `finish`, it ends and reports nothing. It may be finished in another thread than it began in.
/// Each active scope makes an allocation about a nanosecond slower.
#[derive(Debug)]
#[must_use = "a scope ends when it is dropped; `finish` it to learn what it measured"]
pub struct Scope {
    name: Cow<'static, str>,
    watch: Watch,
    start: usize,
}

impl Scope {
    /// How many scopes and timelines may be active at the same time in the process.
    pub const LIMIT: usize = WATCHES;

    /// Begins a scope. The name is for the report and need not be unique.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotCounting`] if the counting allocator is not installed, and
    /// [`MemoryError::TooManyScopes`] if [`LIMIT`](Self::LIMIT) are active.
    pub fn enter(name: impl Into<Cow<'static, str>>) -> Result<Self, MemoryError> {
        // Before the start, in case that it allocates.
        let name = name.into();
        if !is_counting() {
            return Err(MemoryError::NotCounting);
        }
        let (watch, start) = Watch::begin().ok_or(MemoryError::TooManyScopes { limit: Self::LIMIT })?;
        Ok(Self { name, watch, start })
    }

    /// The highest number of live bytes so far.
    pub fn peak(&self) -> usize {
        self.watch.read().peak
    }

    /// Ends the scope and reports.
    pub fn finish(self) -> ScopeBytes {
        let reading = self.watch.read();
        ScopeBytes { name: self.name, start: self.start, end: reading.live, peak: reading.peak }
    }
}

/// What a [`Scope`] measured: live bytes of the whole process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeBytes {
    /// The name that the scope was given.
    pub name: Cow<'static, str>,
    /// Live bytes when it began.
    pub start: usize,
    /// Live bytes when it was finished.
    pub end: usize,
    /// The highest number of live bytes in between; at least `start` and `end`.
    pub peak: usize,
}

impl ScopeBytes {
    /// Bytes that had to be available beyond those that were in use when the scope began.
    pub fn peak_above_start(&self) -> usize {
        self.peak.saturating_sub(self.start)
    }

    /// Bytes that the scope left behind; negative if it freed more than it allocated.
    pub fn retained(&self) -> isize {
        self.end as isize - self.start as isize
    }
}

impl fmt::Display for ScopeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peak = Megabytes(self.peak_above_start() as isize);
        let retained = Megabytes(self.retained());
        write!(f, "{}: peak {peak} MB above its start, {retained} MB retained", self.name)
    }
}
