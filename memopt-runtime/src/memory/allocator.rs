//! The allocator that counts: the only part of the memory module that a program has to install.
//!
//! Counted are the bytes that the program asks for ([`Layout::size`]), in each thread, from the start of the
//! process. Not counted are what the inner allocator adds (headers, rounding, free lists), stacks, code, files
//! mapped into memory, what C libraries take from `malloc` themselves, and device memory. A reallocation counts
//! as the difference of its sizes, even where the inner allocator has to copy and holds both for a moment.
//!
//! Counting takes no lock and allocates nothing, and works while threads start and end. It costs a few nanoseconds
//! per call; threads that allocate in the same instant pay more, as they share one count.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

use super::counter;

/// A global allocator that counts the bytes it hands out, for the other items of this module to report.
///
/// ```
/// use memopt_runtime::memory::{self, CountingAllocator};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
///
/// fn main() {
///     let before = memory::live().unwrap();
///     let weights = vec![0_f32; 1000];
///     assert_eq!(memory::live().unwrap() - before, 4000);
///     drop(weights);
/// }
/// ```
///
/// It passes each request on to an inner allocator, [`System`] unless [`new`](Self::new) is given another. All
/// instances add to the same counts, so a program should install one and use no other.
#[derive(Debug, Default)]
pub struct CountingAllocator<A = System> {
    inner: A,
}

impl CountingAllocator {
    /// Counts what the allocator of the operating system hands out.
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> CountingAllocator<A> {
    /// Counts what `inner` hands out.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: each request goes to the inner allocator unchanged and its answer is returned unchanged; the inner
// allocator keeps the contract. Counting does not unwind and does not allocate.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for the inner allocator.
        let block = unsafe { self.inner.alloc(layout) };
        if !block.is_null() {
            counter::grow(layout.size());
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same for the inner allocator.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if !block.is_null() {
            counter::grow(layout.size());
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before the block is free: another thread that gets it next must not find it counted twice.
        counter::shrink(layout.size());
        // SAFETY: the caller passes a block of this allocator, which is one of the inner allocator, and its layout.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let less = layout.size().saturating_sub(new_size);
        // Bytes that go are taken off first: another thread may get them before this one counts.
        counter::shrink(less);
        // The inner allocator may be able to resize in place, which allocating and copying here would give away.
        // SAFETY: as for `dealloc`; the caller also keeps the contract for `new_size`.
        let moved = unsafe { self.inner.realloc(block, layout, new_size) };
        if moved.is_null() {
            counter::grow(less);
        } else {
            counter::grow(new_size.saturating_sub(layout.size()));
        }
        moved
    }
}
