//! Whether this thread is inside the first pass of a segment: what a nested segment makes there is thrown away.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A first pass in this thread, while it lives.
pub(super) struct FirstPass(());

impl FirstPass {
    pub(super) fn begin() -> Self {
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
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// A recompute in this thread, while it lives: what is nested in it is not thrown away.
pub(super) struct Recompute(usize);

impl Recompute {
    pub(super) fn begin() -> Self {
        Recompute(DEPTH.replace(0))
    }
}

impl Drop for Recompute {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}
