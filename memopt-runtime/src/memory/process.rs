//! Bytes of the whole process, if they are counted.
//!
//! Everything here answers `None` in a program that has not installed
//! [`CountingAllocator`](super::CountingAllocator): "not measured" is never zero.

use std::hint::black_box;
use std::sync::OnceLock;

use super::{counter, thread};

/// Whether [`CountingAllocator`](super::CountingAllocator) is the global allocator of this program.
///
/// ```
/// // This example has not installed it.
/// assert!(!memopt_runtime::memory::is_counting());
/// assert_eq!(memopt_runtime::memory::live(), None);
/// ```
pub fn is_counting() -> bool {
    static COUNTING: OnceLock<bool> = OnceLock::new();
    // Asked once, by allocating a byte: an allocator that exists but is not installed would fool a flag.
    *COUNTING.get_or_init(|| {
        let before = thread::live();
        let probe = black_box(Box::new(0_u8));
        let counted = thread::live() != before;
        drop(probe);
        counted
    })
}

/// Bytes that all threads have allocated and not freed, now; `None` if they are not counted.
pub fn live() -> Option<usize> {
    is_counting().then(counter::live)
}

/// The highest number of live bytes since the process started, or since the last [`reset_peak`]; `None` if they
/// are not counted.
///
/// [`reset_peak`] is for programs with one thing to measure. A [`Scope`](super::Scope) has a peak of its own that
/// nobody else can reset.
pub fn peak() -> Option<usize> {
    is_counting().then(counter::process_peak)
}

/// Sets [`peak`] to the bytes that are live now. Scopes and timelines do not notice.
pub fn reset_peak() {
    if is_counting() {
        counter::restart_process_peak();
    }
}

/// Bytes that this thread has allocated less those that it has freed; `None` if they are not counted.
///
/// Negative in a thread that frees what others allocated.
pub fn thread_live() -> Option<isize> {
    is_counting().then(thread::live)
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryError, Scope, ThreadScope, Timeline};

    #[test]
    fn nothing_is_measured_where_nothing_counts() {
        assert_eq!([super::live(), super::peak()], [None, None]);
        assert_eq!(super::thread_live(), None);
        super::reset_peak();
        assert_eq!(Scope::enter("scope").err(), Some(MemoryError::NotCounting));
        assert_eq!(ThreadScope::enter("scope").err(), Some(MemoryError::NotCounting));
        assert_eq!(Timeline::start().err(), Some(MemoryError::NotCounting));
    }
}
