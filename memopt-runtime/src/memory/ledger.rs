//! The inputs that segments keep for backward, right now, and the states between time chunks: each registers its bytes when it packs and takes them off when it is done.
//!
//! Candle's graph cannot be asked: its walk sees neither untracked operands nor what an operation holds
//! ([`graph_bytes`](super::graph_bytes) gives the lower bound that it can).

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// Bytes that one segment keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBytes {
    /// Path of the segment.
    pub segment: String,
    /// How many times it is held: once for each forward whose backward is not done.
    pub records: usize,
    /// Bytes of packed inputs, which nobody else has, and of inputs on devices that do not show who has them.
    pub packed: usize,
    /// Bytes of inputs kept as they are, and of neuron states at the borders of time chunks. Others may have them too: a buffer that several keep is counted in each.
    pub shared: usize,
}

/// What all segments keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// By path.
    pub segments: Vec<HeldBytes>,
    /// Bytes in all; a buffer that several segments keep is counted once.
    pub total: usize,
}

#[derive(Default)]
struct Ledger {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    segment: String,
    /// Address (0: nobody else has it) and bytes.
    buffers: Vec<(usize, usize)>,
}

static LEDGER: LazyLock<Mutex<Ledger>> = LazyLock::new(Mutex::default);

/// The inputs, and states between time chunks, that segments keep for backward at this moment, in all threads. (Tensors that a closure captures, and what
/// functions of one's own hold, are not in it.)
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use memopt_runtime::{checkpoint::checkpoint, memory::held};
///
/// let w = Var::new(&[2f32; 64], &Device::Cpu)?;
/// let spikes = Tensor::ones(64, candle_core::DType::F32, &Device::Cpu)?;
/// let y = checkpoint(move |x| x[0].mul(&w), &[&spikes], "layer")?;
/// let ours = |held: memopt_runtime::memory::Holdings| {
///     held.segments.into_iter().find(|s| s.segment == "layer").map(|s| s.packed)
/// };
/// assert_eq!(ours(held()), Some(8));          // 64 bits
/// y.sum_all()?.backward()?;
/// assert_eq!(ours(held()), None);             // freed, though `y` lives on
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn held() -> Holdings {
    let ledger = LEDGER.lock();
    let mut segments: BTreeMap<&str, HeldBytes> = BTreeMap::new();
    let mut buffers = HashMap::new();
    let mut total: usize = 0;
    for entry in ledger.entries.values() {
        let held = segments.entry(&entry.segment).or_insert_with(|| HeldBytes {
            segment: entry.segment.clone(),
            records: 0,
            packed: 0,
            shared: 0,
        });
        held.records += 1;
        for &(address, bytes) in &entry.buffers {
            if address == 0 {
                held.packed = held.packed.saturating_add(bytes);
                total = total.saturating_add(bytes);
            } else {
                held.shared = held.shared.saturating_add(bytes);
                if buffers.insert(address, bytes).is_none() {
                    total = total.saturating_add(bytes);
                }
            }
        }
    }
    Holdings { segments: segments.into_values().collect(), total }
}

/// A segment's entry; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Held(u64);

impl Held {
    /// Enters the buffers (address, bytes) that a segment keeps.
    pub(crate) fn new(segment: &str, buffers: impl Iterator<Item = (usize, usize)>) -> Self {
        let entry = Entry { segment: segment.to_owned(), buffers: buffers.collect() };
        let mut ledger = LEDGER.lock();
        ledger.next += 1;
        let key = ledger.next;
        ledger.entries.insert(key, entry);
        Held(key)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        LEDGER.lock().entries.remove(&self.0);
    }
}
