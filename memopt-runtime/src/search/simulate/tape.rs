//! What a forward leaves for its backward.

use crate::checkpoint::{TimeChunks, Way};
use crate::search::heap::Buffer;
use crate::search::outline::Node;

/// What ran, from the first to the last.
#[derive(Debug, Default)]
pub(super) struct Tape<'n>(Vec<Entry<'n>>);

/// Something that ran.
#[derive(Debug)]
pub(super) enum Entry<'n> {
    /// A layer, with its input if it keeps that.
    Layer { node: &'n Node, input: Option<Buffer>, besides: Buffer, wants_input: bool },
    /// Branches over one input, with those outputs that their join keeps.
    Join { node: &'n Node, branches: Vec<Branch<'n>>, outputs: Vec<Option<Buffer>> },
    /// A segment, with its input as it is kept.
    Segment(Segment<'n>),
}

/// A branch of a join.
#[derive(Debug)]
pub(super) struct Branch<'n> {
    pub(super) tape: Tape<'n>,
    /// Bytes of its output.
    pub(super) output: usize,
    /// Whether a gradient of its output is wanted.
    pub(super) tracked: bool,
}

/// A segment that has run forward.
#[derive(Debug)]
pub(super) struct Segment<'n> {
    pub(super) key: String,
    pub(super) parts: Parts<'n>,
    pub(super) kept: Kept,
    pub(super) wants_input: bool,
}

/// What runs in a segment, and how.
#[derive(Debug)]
pub(super) enum Parts<'n> {
    /// Nodes of one chain, as a whole.
    Whole { nodes: &'n [Node], way: Way },
    /// Layers, in time chunks.
    InTime { leaves: Vec<&'n Node>, chunks: TimeChunks },
}

/// What a segment keeps.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) input: Buffer,
    /// Whether the input is packed: else it is the tensor itself.
    pub(super) is_packed: bool,
}

impl<'n> Tape<'n> {
    pub(super) fn push(&mut self, entry: Entry<'n>) {
        self.0.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'n> IntoIterator for Tape<'n> {
    type Item = Entry<'n>;
    type IntoIter = std::vec::IntoIter<Entry<'n>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
