//! The layers of a segment of time chunks.

use super::Norms;
use crate::checkpoint::leaves::Leaf;
use crate::checkpoint::window::cut;
use crate::module::WindowNorm;
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

    pub(super) fn detached(&self) -> Self {
        Chunked { leaves: self.leaves.iter().map(Leaf::detached).collect(), ..self.clone() }
    }

    /// The time steps of each chunk: as equal as can be; no more chunks than steps.
    pub(super) fn ranges(&self, steps: usize) -> Vec<Range<usize>> {
        cut(steps, self.chunks)
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
