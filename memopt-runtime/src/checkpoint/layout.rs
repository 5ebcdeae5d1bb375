//! How the engine runs steps as a segment, known before it runs: what a search plans with.

use super::channel_chunks::{self, Arrangement};
use super::time_chunks;
use crate::module::Step;
use crate::plan::Keep;
use std::ops::Range;

pub(crate) use super::norm_neurons::BLOCK as IN_PLACE_BLOCK;

/// How steps are run as a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a graph, as a whole.
    Graph,
    /// Without a graph, in groups of the output channels of the layer with this number.
    InPlace { layer: usize, groups: Vec<Range<usize>> },
    /// The same, with a graph for the neurons.
    ChannelGraph { layer: usize, groups: Vec<Range<usize>> },
    /// In chunks of time steps: one segment behind the other.
    TimeChunks(Vec<TimeChunks>),
}

/// A segment of time chunks, with one norm over the window at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeChunks {
    /// Which of the layers.
    pub(crate) leaves: Range<usize>,
    /// Which of these is the norm.
    pub(crate) norm: Option<usize>,
    /// Whether the layer in front of the norm is gone back through without a graph.
    pub(crate) has_layer: bool,
    /// Whether norm and neurons are.
    pub(crate) in_place: bool,
    /// The chunks.
    pub(crate) ranges: Vec<Range<usize>>,
    /// The time steps that norm and neurons go back through together.
    pub(crate) ranges_in_place: Vec<Range<usize>>,
}

/// How steps are run; `input` are the dimensions of what comes in, `output_bytes` says what the layer of a number gives.
pub(crate) fn chunk_layout(
    steps: &[Step],
    keep: Keep,
    input: &[usize],
    output_bytes: impl Fn(usize) -> usize,
) -> Way {
    let window = input.first().copied().unwrap_or(1);
    let of = |chunks| channel_chunks::arrangement(steps, chunks, input, &output_bytes);
    match keep {
        Keep::Recompute => match of(None) {
            Some(Arrangement { layer, groups, in_place: true }) => Way::InPlace { layer, groups },
            _ => Way::Graph,
        },
        Keep::ChannelChunks(chunks) => match of(Some(chunks)) {
            Some(Arrangement { layer, groups, in_place: true }) => Way::InPlace { layer, groups },
            Some(Arrangement { layer, groups, .. }) => Way::ChannelGraph { layer, groups },
            None => Way::Graph,
        },
        Keep::TimeChunks(chunks) => Way::TimeChunks(time_chunks::layout(steps, chunks, true, window)),
        Keep::InexactTimeChunks(chunks) => Way::TimeChunks(time_chunks::layout(steps, chunks, false, window)),
    }
}
