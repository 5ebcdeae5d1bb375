//! Micro-batches that were gone back from and never stepped on.

use parking_lot::Mutex;

/// What was accumulated and lost, since the process began or [`reset_lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Micro-batches.
    pub micro_batches: u64,
    /// Their samples.
    pub samples: u64,
}

static LOST: Mutex<Lost> = Mutex::new(Lost { micro_batches: 0, samples: 0 });

/// Micro-batches that no step was made of: their accumulator was dropped, or told to discard them, or the step failed. (Those
/// of skipped steps are in [`Totals`](super::Totals).)
pub fn lost() -> Lost {
    *LOST.lock()
}

/// Starts counting anew.
pub fn reset_lost() {
    *LOST.lock() = Lost::default();
}

/// Counts lost micro-batches, and reports them as an event.
pub(super) fn count(micro_batches: u64, samples: u64, why: &str) {
    if micro_batches == 0 {
        return;
    }
    {
        let mut lost = LOST.lock();
        lost.micro_batches = lost.micro_batches.saturating_add(micro_batches);
        lost.samples = lost.samples.saturating_add(samples);
    }
    // Whoever listens to events may ask for the counts.
    tracing::warn!(micro_batches, samples, why, "accumulated micro-batches are lost");
}
