//! What packing did, by segment: nothing falls back silently.

use super::packed::Packed;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How the inputs of one segment were kept, since the process began or [`reset_counts`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentCounts {
    /// Path of the segment.
    pub segment: String,
    /// Tensors packed, by encoding ("none": kept as they are).
    pub encodings: BTreeMap<String, u64>,
    /// Tensors that their compressor could not keep exactly, so that they were kept as they are.
    pub fallbacks: u64,
    /// Bytes of the tensors' elements.
    pub raw_bytes: u64,
    /// Bytes kept for them.
    pub kept_bytes: u64,
}

static COUNTS: LazyLock<Mutex<BTreeMap<String, SegmentCounts>>> = LazyLock::new(Mutex::default);

/// How the inputs of each segment were kept, by path.
pub fn counts() -> Vec<SegmentCounts> {
    COUNTS.lock().values().cloned().collect()
}

/// Starts counting anew.
pub fn reset_counts() {
    COUNTS.lock().clear();
}

/// Counts one packed input. The first fallback of a segment is also reported as an event.
pub(crate) fn record(segment: &str, input: usize, compressor: &str, packed: &Packed) {
    // A user's encoding and whoever listens to events may come back here: neither runs under the lock.
    let (encoding, raw_bytes, kept_bytes) =
        (packed.encoding().to_owned(), packed.raw_bytes(), packed.bytes());
    let fallback = packed.is_fallback();
    let first_fallback = {
        let mut counts = COUNTS.lock();
        let entry = counts
            .entry(segment.to_owned())
            .or_insert_with(|| SegmentCounts { segment: segment.to_owned(), ..Default::default() });
        *entry.encodings.entry(encoding).or_default() += 1;
        entry.raw_bytes += raw_bytes as u64;
        entry.kept_bytes = entry.kept_bytes.saturating_add(kept_bytes as u64);
        entry.fallbacks += u64::from(fallback);
        fallback && entry.fallbacks == 1
    };
    if first_fallback {
        tracing::warn!(
            segment,
            input,
            compressor,
            "input does not fit its compressor and is kept uncompressed; later ones are only counted"
        );
    }
}
