//! The process-wide count of bytes and its watermarks; everything public is built on it.
//!
//! The count and an epoch share one word, so that one atomic instruction both changes the count and dates the
//! change. A watermark (the highest count since some moment) remembers the epoch it began in and refuses older
//! counts: a thread that was interrupted between counting its bytes and reporting them cannot put a count of
//! long ago into a watermark that has been handed to somebody else meanwhile.
//!
//! Each change of the count is reported to each watermark by the thread that made it, and the count it replaced
//! once more by a thread that frees. So a watermark is never below a count that a finished call left behind or
//! came across.
//!
//! The paths that an allocation takes ([`grow`], [`shrink`]) neither lock nor allocate.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use super::thread;

/// Low bits of a word, the bytes: up to 16 TiB. The epoch has the 20 bits above.
const BYTES: u64 = (1 << 44) - 1;
const ONE_EPOCH: u64 = BYTES + 1;
/// Watermarks older than this (in epochs) are made younger, as epochs wrap and compare by their difference.
const OLD: u64 = ONE_EPOCH << 17;

/// How many watches may be active at a time: a bit each in [`ACTIVE`].
pub(super) const WATCHES: usize = u64::BITS as usize;

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Of the process since its start or the last reset.
static PROCESS: Watermark = Watermark::new();
static WATCHED: [Watermark; WATCHES] = [const { Watermark::new() }; WATCHES];
/// Which of [`WATCHED`] are in use.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// Held to begin or restart a watermark; allocations never wait for it.
static BEGINNING: Mutex<()> = Mutex::new(());

/// A number of bytes and the epoch it is from.
#[derive(Clone, Copy)]
struct Dated(u64);

impl Dated {
    fn now() -> Self {
        Self(COUNT.load(SeqCst))
    }

    fn bytes(self) -> u64 {
        self.0 & BYTES
    }

    fn epoch(self) -> u64 {
        self.0 & !BYTES
    }

    fn is_older_than(self, other: Self) -> bool {
        // The epoch is in the uppermost bits: the sign of the wrapped difference is the order.
        (self.epoch().wrapping_sub(other.epoch()) as i64) < 0
    }
}

/// The highest count since the epoch in which it began.
struct Watermark(AtomicU64);

impl Watermark {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    fn raise(&self, seen: Dated) {
        let mut held = Dated(self.0.load(SeqCst));
        while seen.bytes() > held.bytes() && !seen.is_older_than(held) {
            let raised = held.epoch() | seen.bytes();
            match self.0.compare_exchange_weak(held.0, raised, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(changed) => held = Dated(changed),
            }
        }
    }

    fn bytes(&self) -> u64 {
        Dated(self.0.load(SeqCst)).bytes()
    }

    /// Ends one period and begins the next: the count between them, and the peak of the one that ends.
    ///
    /// What other threads do during this call is in either period, or in both; nothing is lost between them.
    fn restart(&self) -> Reading {
        let _turn = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
        let boundary = Dated(COUNT.fetch_add(ONE_EPOCH, SeqCst));
        observe(boundary);
        let next = boundary.0.wrapping_add(ONE_EPOCH);
        // A count after the boundary may be reported to the period that ends here. If it still stands, whoever
        // replaces it (with a higher count, or by freeing) or reads it reports one as high to the next.
        let ended = Dated(self.0.swap(next, SeqCst));
        if next & (OLD - 1) & !BYTES == 0 {
            rejuvenate(Dated(next));
        }
        Reading::new(boundary.bytes(), ended.bytes())
    }
}

/// Keeps long-lived watermarks within half the range of epochs, where their order is known.
fn rejuvenate(now: Dated) {
    for mark in WATCHED.iter().chain([&PROCESS]) {
        let mut held = Dated(mark.0.load(SeqCst));
        while now.epoch().wrapping_sub(held.epoch()) > OLD {
            let younger = now.epoch().wrapping_sub(OLD) | held.bytes();
            match mark.0.compare_exchange_weak(held.0, younger, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(changed) => held = Dated(changed),
            }
        }
    }
}

#[inline]
fn observe(seen: Dated) {
    PROCESS.raise(seen);
    let mut active = ACTIVE.load(SeqCst);
    while active != 0 {
        WATCHED[active.trailing_zeros() as usize].raise(seen);
        active &= active - 1;
    }
}

/// Counts bytes that were allocated.
#[inline]
pub(super) fn grow(bytes: usize) {
    let before = COUNT.fetch_add(bytes as u64, SeqCst);
    observe(Dated(before.wrapping_add(bytes as u64)));
    thread::grow(bytes);
}

/// Counts bytes that are freed.
#[inline]
pub(super) fn shrink(bytes: usize) {
    let before = COUNT.fetch_sub(bytes as u64, SeqCst);
    // The thread that left this count behind may not have come to report it.
    observe(Dated(before));
    thread::shrink(bytes);
}

/// Bytes that are allocated now.
pub(super) fn live() -> usize {
    let now = Dated::now();
    // Whoever has seen a count finds it in each peak.
    observe(now);
    now.bytes() as usize
}

/// The peak of the process.
pub(super) fn process_peak() -> usize {
    live();
    PROCESS.bytes() as usize
}

/// Begins a new period for the peak of the process.
pub(super) fn restart_process_peak() {
    PROCESS.restart();
}

/// Bytes at a moment, and the highest number of them in the period up to it.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) live: usize,
    pub(super) peak: usize,
}

impl Reading {
    fn new(live: u64, peak: u64) -> Self {
        Self { live: live as usize, peak: peak.max(live) as usize }
    }
}

/// One of the watermarks, held for as long as this lives.
#[derive(Debug)]
pub(super) struct Watch {
    index: usize,
}

impl Watch {
    /// A watch and the bytes at its beginning; nothing where all are in use.
    pub(super) fn begin() -> Option<(Self, usize)> {
        let watch = Self::claim()?;
        // Also throws away what the previous holder, or a count before the beginning, left in it.
        let start = watch.restart().live;
        Some((watch, start))
    }

    fn claim() -> Option<Self> {
        let free = |active: u64| {
            let index = active.trailing_ones();
            Some(active | 1_u64.checked_shl(index)?)
        };
        let before = ACTIVE.fetch_update(SeqCst, SeqCst, free).ok()?;
        Some(Self { index: before.trailing_ones() as usize })
    }

    /// The state of the period that is running.
    pub(super) fn read(&self) -> Reading {
        let now = live() as u64;
        Reading::new(now, WATCHED[self.index].bytes())
    }

    /// Ends the period that is running and begins another.
    pub(super) fn restart(&self) -> Reading {
        WATCHED[self.index].restart()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ACTIVE.fetch_and(!(1 << self.index), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::{Dated, Watermark, BYTES, ONE_EPOCH};
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn epochs_are_ordered_across_their_wrap() {
        let last = Dated(!BYTES | 5);
        let first = Dated(7);
        assert!(last.is_older_than(first));
        assert!(!first.is_older_than(last));
        assert!(!first.is_older_than(first));
    }

    #[test]
    fn a_watermark_refuses_counts_from_before_it_began() {
        let mark = Watermark::new();
        mark.0.store(3 * ONE_EPOCH + 10, super::SeqCst);
        mark.raise(Dated(2 * ONE_EPOCH + 1000));
        assert_eq!(mark.bytes(), 10);
        mark.raise(Dated(3 * ONE_EPOCH + 20));
        mark.raise(Dated(4 * ONE_EPOCH + 15));
        assert_eq!(mark.bytes(), 20);
        mark.raise(Dated(9 * ONE_EPOCH + 30));
        assert_eq!(mark.bytes(), 30);
    }

    #[test]
    fn a_watermark_raised_by_threads_never_falls() {
        const THREADS: u64 = 4;
        const HIGHEST: u64 = 1_000_000;
        let mark = Watermark::new();
        let together = Barrier::new(THREADS as usize);
        let raise = |first: u64| {
            together.wait();
            for bytes in (first..=HIGHEST).step_by(THREADS as usize) {
                mark.raise(Dated(bytes));
                assert!(mark.bytes() >= bytes);
            }
        };
        let raise = &raise;
        thread::scope(|threads| (0..THREADS).for_each(|first| drop(threads.spawn(move || raise(first)))));
        assert_eq!(mark.bytes(), HIGHEST);
    }
}
