//! How the engine runs steps as a segment, known before it runs: what a search plans with.

use super::channel_chunks::{self, Arrangement};
use super::window::cut;
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
    /// In chunks of time steps.
    TimeChunks { ranges: Vec<Range<usize>>, in_place: bool },
}

/// How steps are run; `input` are the dimensions of what comes in, `output_bytes` says what the layer of a number gives.
pub(crate) fn chunk_layout(
    steps: &[Step],
    keep: Keep,
    input: &[usize],
    output_bytes: impl Fn(usize) -> usize,
) -> Way {
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
        Keep::TimeChunks(chunks) | Keep::InexactTimeChunks(chunks) => {
            let steps = input.first().copied().unwrap_or(1);
            Way::TimeChunks { ranges: cut(steps, chunks), in_place: false }
        }
    }
}
