//! The layers of a segment of time chunks.

use super::Norms;
use crate::checkpoint::leaves::Leaf;
use crate::checkpoint::norm_neurons::NormNeurons;
use crate::checkpoint::window::{cut, cut_for_states};
use crate::module::{ChannelLayer, WindowNorm};
use crate::{Error, Result};
use candle_core::Tensor;
use std::ops::Range;

/// The layers of one segment: A, a norm, B.
#[derive(Clone)]
pub(super) struct Chunked {
    pub(super) leaves: Vec<Leaf>,
    pub(super) norms: Norms,
    /// Which of them is a norm over the window, in training.
    pub(super) norm: Option<usize>,
    chunks: usize,
}

impl Chunked {
    pub(super) fn new(leaves: Vec<Leaf>, chunks: usize, norms: Norms, coupled: bool) -> Self {
        let norm = leaves.iter().position(|leaf| coupled && leaf.window_norm().is_some());
        Chunked { leaves, norms, norm, chunks }
    }

    pub(super) fn before(&self) -> &[Leaf] {
        &self.leaves[..self.norm.unwrap_or(0)]
    }

    pub(super) fn after(&self) -> &[Leaf] {
        &self.leaves[self.norm.map_or(0, |norm| norm + 1)..]
    }

    pub(super) fn norm(&self) -> Option<(&Leaf, &dyn WindowNorm)> {
        let leaf = self.leaves.get(self.norm?)?;
        leaf.window_norm().map(|norm| (leaf, norm))
    }

    /// The layer in front of the norm, if it and the norm can be gone back through without a graph.
    pub(super) fn layer(&self) -> Option<(&Leaf, &dyn ChannelLayer)> {
        let (norm, _) = self.norm()?;
        let leaf = self.before().last()?;
        matches!(norm.for_channels(0..1), Ok(Some(_))).then_some((leaf, leaf.channel_layer()?))
    }

    /// The layers before the norm that are gone back through by a graph; all, if there is no norm.
    pub(super) fn in_graph(&self) -> &[Leaf] {
        match (self.norm, self.layer()) {
            (None, _) => self.after(),
            (Some(_), None) => self.before(),
            (Some(norm), Some(_)) => &self.leaves[..norm - 1],
        }
    }

    /// The norm and what follows it, if that can be run without a graph.
    pub(super) fn norm_neurons(&self) -> Option<NormNeurons<'_>> {
        match self.after() {
            [neurons] => NormNeurons::of(self.leaves.get(self.norm?)?, neurons),
            _ => None,
        }
    }

    pub(super) fn detached(&self) -> Self {
        Chunked { leaves: self.leaves.iter().map(Leaf::detached).collect(), ..self.clone() }
    }

    /// The time steps of each chunk: as equal as can be; no more chunks than steps.
    pub(super) fn ranges(&self, steps: usize) -> Vec<Range<usize>> {
        cut(steps, self.chunks)
    }

    /// The time steps that norm and neurons go back through together, without a graph: no more ranges than chunks. Where
    /// the layers before have states too, they are the chunks.
    pub(super) fn ranges_in_place(&self, steps: usize, layers_have_states: bool) -> Vec<Range<usize>> {
        match layers_have_states {
            true => self.ranges(steps),
            false => cut_for_states(steps, self.chunks),
        }
    }

    /// A range in pieces that are no longer than a chunk.
    pub(super) fn pieces(&self, range: &Range<usize>, steps: usize) -> Vec<Range<usize>> {
        let longest = steps.div_ceil(self.chunks.clamp(1, steps.max(1))).max(1);
        let pieces = cut(range.len(), range.len().div_ceil(longest)).into_iter();
        pieces.map(|piece| range.start + piece.start..range.start + piece.end).collect()
    }
}

/// Whether a chunk has as many time steps as went in.
pub(super) fn check_steps(y: &Tensor, range: &Range<usize>, segment: &str) -> Result<()> {
    match y.dims().first() == Some(&range.len()) {
        true => Ok(()),
        false => Err(Error::LayerInput {
            part: segment.to_owned(),
            what: format!(
                "a time chunk of {} steps gave {:?}; recompute it as a whole",
                range.len(),
                y.shape()
            ),
        }),
    }
}

/// Some time steps of a window; a view.
pub(super) fn chunk(x: &Tensor, range: Range<usize>) -> Result<Tensor> {
    Ok(x.narrow(0, range.start, range.len())?.contiguous()?)
}

pub(super) fn no_steps(segment: &str) -> Error {
    Error::LayerInput { part: segment.to_owned(), what: "a window has one time step at least".into() }
}
