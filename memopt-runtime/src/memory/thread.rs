//! Bytes of one thread: what it allocates and frees itself, whoever did the other half.
//!
//! Work that a thread hands to a pool is not in its numbers; [`Scope`](super::Scope) sees all threads.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use super::megabytes::Megabytes;
use super::{is_counting, MemoryError};

const PEAKS: usize = u32::BITS as usize;

struct Counter {
    live: Cell<isize>,
    /// Which of `peaks` are in use.
    active: Cell<u32>,
    peaks: [Cell<isize>; PEAKS],
}

thread_local! {
    // Constant and without a destructor: usable from the first to the last instruction of a thread.
    static COUNTER: Counter = const {
        Counter { live: Cell::new(0), active: Cell::new(0), peaks: [const { Cell::new(0) }; PEAKS] }
    };
}

impl Counter {
    #[inline]
    fn grow(&self, bytes: usize) {
        let live = self.live.get().wrapping_add(bytes as isize);
        self.live.set(live);
        let mut active = self.active.get();
        while active != 0 {
            let peak = &self.peaks[active.trailing_zeros() as usize];
            peak.set(peak.get().max(live));
            active &= active - 1;
        }
    }
}

/// Counts bytes that this thread allocated.
#[inline]
pub(super) fn grow(bytes: usize) {
    // Where a thread has no counter any more, its bytes are in the count of the process alone.
    let _ = COUNTER.try_with(|counter| counter.grow(bytes));
}

/// Counts bytes that this thread frees.
#[inline]
pub(super) fn shrink(bytes: usize) {
    let _ = COUNTER.try_with(|counter| counter.live.set(counter.live.get().wrapping_sub(bytes as isize)));
}

/// Bytes that this thread allocated less those that it freed.
pub(super) fn live() -> isize {
    COUNTER.try_with(|counter| counter.live.get()).unwrap_or(0)
}

/// A running measurement of the bytes of this thread; [`finish`](Self::finish) reports.
///
/// ```
/// use memopt_runtime::memory::{CountingAllocator, ThreadScope};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
///
/// fn main() -> Result<(), memopt_runtime::memory::MemoryError> {
///     let scope = ThreadScope::enter("pack")?;
///     let packed = vec![0_u8; 1000];
///     std::thread::spawn(|| drop(vec![0_u8; 500_000])).join().unwrap();
///     drop(packed);
///     let bytes = scope.finish();
///     // Starting a thread takes a few hundred bytes; what it allocated itself is not here.
///     assert!((1000..10_000).contains(&bytes.peak_above_start()));
///     Ok(())
/// }
/// ```
///
/// Scopes may be nested and may overlap. Dropped without `finish`, one ends and reports nothing. It cannot leave
/// its thread.
#[derive(Debug)]
#[must_use = "a scope ends when it is dropped; `finish` it to learn what it measured"]
pub struct ThreadScope {
    name: Cow<'static, str>,
    index: usize,
    start: isize,
    of_this_thread: PhantomData<*const ()>,
}

impl ThreadScope {
    /// How many may be active at the same time on one thread.
    pub const LIMIT: usize = PEAKS;

    /// Begins a scope. The name is for the report and need not be unique.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotCounting`] if the counting allocator is not installed, and
    /// [`MemoryError::TooManyThreadScopes`] if [`LIMIT`](Self::LIMIT) are active on this thread.
    pub fn enter(name: impl Into<Cow<'static, str>>) -> Result<Self, MemoryError> {
        let name = name.into();
        if !is_counting() {
            return Err(MemoryError::NotCounting);
        }
        let begin = |counter: &Counter| {
            let active = counter.active.get();
            let index = active.trailing_ones();
            counter.active.set(active | 1_u32.checked_shl(index)?);
            let start = counter.live.get();
            counter.peaks[index as usize].set(start);
            Some((index as usize, start))
        };
        let begun = COUNTER.try_with(begin).ok().flatten();
        let (index, start) = begun.ok_or(MemoryError::TooManyThreadScopes { limit: Self::LIMIT })?;
        Ok(Self { name, index, start, of_this_thread: PhantomData })
    }

    /// Ends the scope and reports.
    pub fn finish(mut self) -> ThreadScopeBytes {
        let end = live();
        let peak = COUNTER.try_with(|counter| counter.peaks[self.index].get()).unwrap_or(end);
        let name = std::mem::take(&mut self.name);
        ThreadScopeBytes { name, start: self.start, end, peak }
    }
}

impl Drop for ThreadScope {
    fn drop(&mut self) {
        let release = |counter: &Counter| counter.active.set(counter.active.get() & !(1 << self.index));
        let _ = COUNTER.try_with(release);
    }
}

/// What a [`ThreadScope`] measured: bytes that its thread had allocated less those that it had freed. Each may be
/// negative, as threads free what others allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadScopeBytes {
    /// The name that the scope was given.
    pub name: Cow<'static, str>,
    /// Bytes of the thread when it began.
    pub start: isize,
    /// Bytes of the thread when it was finished.
    pub end: isize,
    /// The highest number of bytes in between; at least `start` and `end`.
    pub peak: isize,
}

impl ThreadScopeBytes {
    /// The most bytes that the thread added to those it had when the scope began.
    pub fn peak_above_start(&self) -> usize {
        self.peak.wrapping_sub(self.start).unsigned_abs()
    }

    /// Bytes that the scope left behind; negative if it freed more than it allocated.
    pub fn retained(&self) -> isize {
        self.end.wrapping_sub(self.start)
    }
}

impl fmt::Display for ThreadScopeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peak = Megabytes(self.peak_above_start() as isize);
        let retained = Megabytes(self.retained());
        write!(f, "{}: peak {peak} MB above its start, {retained} MB retained, in its thread", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, PEAKS};
    use std::cell::Cell;

    #[test]
    fn only_active_peaks_rise() {
        let counter = Counter {
            live: Cell::new(-5),
            active: Cell::new(0b101),
            peaks: [const { Cell::new(-5) }; PEAKS],
        };
        counter.grow(3);
        assert_eq!(counter.live.get(), -2);
        assert_eq!([0, 1, 2].map(|index| counter.peaks[index].get()), [-2, -5, -2]);
    }
}
