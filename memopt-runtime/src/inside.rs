//! Whether this thread is inside a segment, and there inside a first pass: what a nested segment makes in one is thrown
//! away.

use std::cell::Cell;

thread_local! {
    /// First passes around this.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Recomputes around this.
    static RECOMPUTES: Cell<usize> = const { Cell::new(0) };
}

/// A first pass in this thread, while it lives.
pub(crate) struct FirstPass(());

impl FirstPass {
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        FirstPass(())
    }
}

impl Drop for FirstPass {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether a first pass runs around this.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// A recompute in this thread, while it lives: what is nested in it is not thrown away.
pub(crate) struct Recompute(usize);

impl Recompute {
    pub(crate) fn begin() -> Self {
        RECOMPUTES.set(RECOMPUTES.get() + 1);
        Recompute(DEPTH.replace(0))
    }
}

impl Drop for Recompute {
    fn drop(&mut self) {
        RECOMPUTES.set(RECOMPUTES.get() - 1);
        DEPTH.set(self.0);
    }
}

/// Whether the code that runs in this thread is that of a segment, for the first time or again.
///
/// A model that is run by itself there, with a context of its own, would move its statistics twice.
pub fn is_inside_segment() -> bool {
    is_inside() || RECOMPUTES.get() > 0
}
