//! What a plain Candle graph keeps alive, as far as Candle shows it.

use crate::storage::buffer_of;
use candle_core::Tensor;
use std::collections::HashSet;

/// Bytes that are kept alive at least.
///
/// Candle's walk passes over operands that are not tracked and over what operations hold inside, so the graph may keep
/// more than this, never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowerBound {
    /// Bytes of the distinct buffers that the walk meets, those of variables left out.
    pub bytes: usize,
}

impl std::fmt::Display for LowerBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at least {} bytes", self.bytes)
    }
}

/// What the graph behind some tensors keeps alive, as a lower bound: the buffers of its tracked nodes.
pub fn graph_bytes(roots: &[Tensor]) -> LowerBound {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for root in roots {
        for node in root.sorted_nodes().into_iter().filter(|node| !node.is_variable()) {
            let (address, size) = buffer_of(node);
            // Empty buffers share a dangling address; buffers without one are told apart by their tensor.
            let new = if address == 0 {
                seen.insert((usize::MAX, Some(node.id())))
            } else {
                seen.insert((address, None))
            };
            if new {
                bytes += size;
            }
        }
    }
    LowerBound { bytes }
}
