//! How a closure is checkpointed.

use crate::compress::{Auto, SpikeCompressor};
use crate::{Error, Result};
use std::sync::Arc;

/// Name, compressors and checks of a checkpointed closure. A string is the same as [`Options::new`] with it.
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) segment: String,
    compressors: Compressors,
    pub(super) verify: bool,
}

#[derive(Debug, Clone)]
enum Compressors {
    ForAll(Arc<dyn SpikeCompressor>),
    Each(Vec<Arc<dyn SpikeCompressor>>),
}

impl Options {
    /// Options for a segment with this path, as it appears in errors, reports and curves: inputs are kept in the smallest
    /// exact encoding ([`Auto`]); the recompute's values are verified in builds with debug assertions.
    pub fn new(segment: impl Into<String>) -> Self {
        Options {
            segment: segment.into(),
            compressors: Compressors::ForAll(Arc::new(Auto)),
            verify: cfg!(debug_assertions),
        }
    }

    /// One compressor for all inputs.
    pub fn compressor(mut self, compressor: impl SpikeCompressor + 'static) -> Self {
        self.compressors = Compressors::ForAll(Arc::new(compressor));
        self
    }

    /// A compressor for each input, in order.
    pub fn compressors(mut self, each: impl IntoIterator<Item = Arc<dyn SpikeCompressor>>) -> Self {
        self.compressors = Compressors::Each(each.into_iter().collect());
        self
    }

    /// Whether the recompute is verified by checksums: the weights that it reads and the outputs that it gives must be
    /// those of the first pass, bit for bit. Costs a pass over both.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The path of the segment.
    pub(super) fn segment(&self) -> &str {
        &self.segment
    }

    /// The same for a segment with another path.
    pub(super) fn renamed(mut self, segment: String) -> Self {
        self.segment = segment;
        self
    }

    /// The compressor of each of `inputs` inputs.
    pub(super) fn compressors_for(&self, inputs: usize) -> Result<Vec<Arc<dyn SpikeCompressor>>> {
        match &self.compressors {
            Compressors::ForAll(one) => Ok(vec![one.clone(); inputs]),
            Compressors::Each(each) if each.len() == inputs => Ok(each.clone()),
            Compressors::Each(each) => {
                Err(Error::CompressorCount { segment: self.segment.clone(), inputs, compressors: each.len() })
            }
        }
    }
}

impl Default for Options {
    /// A segment without a name of its own.
    fn default() -> Self {
        Options::new("closure")
    }
}

impl From<&str> for Options {
    fn from(segment: &str) -> Self {
        Options::new(segment)
    }
}

impl From<String> for Options {
    fn from(segment: String) -> Self {
        Options::new(segment)
    }
}

impl From<&Options> for Options {
    fn from(options: &Options) -> Self {
        options.clone()
    }
}
