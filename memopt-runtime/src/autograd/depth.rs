//! How long a chain of functions may be: Candle's walk over the graph recurses, and so does dropping it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// On a 2 MiB stack (the default of a spawned thread) 4,000 functions in a row pass and 5,000 overflow it; 1,000 pass with
/// up to four plain operations between each two, which Candle's walk recurses through as well. Where Candle is built without
/// optimization, 800 pass and 1,000 do not (measured).
static LIMIT: AtomicUsize = AtomicUsize::new(1_000);

/// The longest chain of functions that [`apply`](super::apply) accepts, with or without plain operations between them.
pub fn depth_limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// Sets the longest chain of functions that [`apply`](super::apply) accepts, for the whole process.
///
/// Raise it only if forward, backward and the drop of the loss all run in a thread with a larger stack; about 1 KiB a
/// function is right. An overflowing stack ends the process.
pub fn set_depth_limit(limit: usize) {
    LIMIT.store(limit, Ordering::Relaxed);
}
