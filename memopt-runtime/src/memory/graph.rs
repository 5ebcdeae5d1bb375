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
    let nodes: Vec<&Tensor> = roots.iter().flat_map(Tensor::sorted_nodes).collect();
    let key = |node: &Tensor| match buffer_of(node).0 {
        // Buffers without an address are told apart by their tensor.
        0 => (0, Some(node.id())),
        address => (address, None),
    };
    // Views of a variable keep alive what is alive anyway.
    let (variables, others): (Vec<&Tensor>, Vec<&Tensor>) = nodes.into_iter().partition(|n| n.is_variable());
    let mut seen: HashSet<_> = variables.into_iter().map(key).collect();
    let bytes = others.into_iter().filter(|node| seen.insert(key(node))).map(|node| buffer_of(node).1).sum();
    LowerBound { bytes }
}
