//! Output vectors that are not written twice.
//!
//! A large output is fresh memory, whose page faults cost more than the writes. So it is never zeroed first, and the
//! system is asked for huge pages: these made unpacking 236 MB four to five times as fast. Writing past the caches
//! was no faster on top of that, probably because the system has just brought the page into the cache by clearing it.
#![allow(unsafe_code)]

use rayon::prelude::*;
use std::mem::MaybeUninit;

use super::parallel::PARALLEL_BYTES;

/// Size of a huge page on the systems that have them for 4 KiB base pages; only whole ones are asked for.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// Output bytes from which huge pages are asked for; at least one whole one lies inside then. The allocator tends to
/// reuse smaller outputs, which have no page faults.
#[cfg(target_os = "linux")]
const HUGE_PAGES_BYTES: usize = 4 << 20;

/// A vector of `length` elements as written by `write`; `None` if that returns `false`.
///
/// # Safety
///
/// When `write` returns `true`, it has written every element of the slice.
pub unsafe fn written<T>(length: usize, write: impl FnOnce(&mut [MaybeUninit<T>]) -> bool) -> Option<Vec<T>> {
    let mut vector = Vec::with_capacity(length);
    let spare = &mut vector.spare_capacity_mut()[..length];
    advise_huge_pages(spare);
    if !write(spare) {
        return None;
    }
    // SAFETY: the capacity is at least `length`, and the caller vouches that all of them are written.
    unsafe { vector.set_len(length) };
    Some(vector)
}

/// A copy of a slice; a large one by several threads, each of which brings its pages into memory.
pub fn copied<T: Copy + Send + Sync>(from: &[T]) -> Vec<T> {
    /// Elements that one task copies.
    const TASK: usize = 1 << 17;
    if size_of_val(from) < PARALLEL_BYTES {
        return from.to_vec();
    }
    // SAFETY: the tasks cover the whole slice, and each writes all of its part.
    let copy = unsafe {
        written(from.len(), |to| {
            to.par_chunks_mut(TASK).zip(from.par_chunks(TASK)).for_each(|(to, from)| {
                for (to, from) in to.iter_mut().zip(from) {
                    to.write(*from);
                }
            });
            true
        })
    };
    copy.unwrap_or_default()
}

/// Asks for huge pages behind a large slice, which should not have been written yet. A hint: errors are ignored.
#[cfg(target_os = "linux")]
pub(crate) fn advise_huge_pages<T>(slice: &mut [T]) {
    let bytes = size_of_val(slice);
    if bytes < HUGE_PAGES_BYTES {
        return;
    }
    let start = slice.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE_PAGE);
    let inner = bytes.saturating_sub(skipped) & !(HUGE_PAGE - 1);
    if inner > 0 {
        // SAFETY: the range lies inside the slice, which we own; the advice changes no contents.
        unsafe { libc::madvise(start.add(skipped).cast(), inner, libc::MADV_HUGEPAGE) };
    }
}

/// Only Linux has this advice.
#[cfg(not(target_os = "linux"))]
pub(crate) fn advise_huge_pages<T>(_slice: &mut [T]) {}
