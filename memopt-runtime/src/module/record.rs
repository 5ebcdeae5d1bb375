//! What a first pass finds out and a recompute must use.

use super::states::States;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Mean and squared deviations by channel, over the whole window.
#[derive(Debug, Clone, PartialEq)]
pub struct NormStatistics {
    /// Mean of each channel.
    pub mean: Vec<f64>,
    /// Sum of squared deviations from the mean, of each channel.
    pub squares: Vec<f64>,
    /// Number of elements of a channel.
    pub count: f64,
}

impl NormStatistics {
    /// Those of some channels.
    pub(crate) fn for_channels(&self, channels: &Range<usize>) -> Self {
        NormStatistics {
            mean: self.mean[channels.clone()].to_vec(),
            squares: self.squares[channels.clone()].to_vec(),
            count: self.count,
        }
    }
}

/// Norm statistics and initial neuron states of one forward of a segment, by path.
#[derive(Debug, Default)]
pub struct Record {
    /// By path, and the first time step of the window that they are of.
    pub(super) statistics: BTreeMap<(String, usize), Arc<NormStatistics>>,
    /// The states that the first pass began with.
    pub(super) initial: States,
}
