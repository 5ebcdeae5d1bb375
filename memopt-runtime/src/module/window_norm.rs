//! Normalization over the whole window, in pieces.

use super::context::Context;
use super::record::NormStatistics;
use super::weight::{Weight, WeightGradient};
use crate::autograd::Gradient;
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor};
use std::ops::Range;

/// A norm whose statistics are taken over the whole window, offered in pieces, so that the window can come in chunks of
/// time steps and the bits are those of the whole.
///
/// ```text
/// let mut statistics = norm.no_statistics();
/// for z in chunks, first to last            { norm.add_statistics(&mut statistics, z) }
/// norm.check_statistics(path, &statistics)
/// norm.move_running(&statistics)            // once, in the first pass of training, when the forward has succeeded
/// for z in chunks                           { norm.normalize(z, shape, &statistics) -> y }
///
/// let mut sums = norm.no_sums();
/// for (z, dy) in chunks, last to first      { norm.add_sums(&mut sums, z, dy, &statistics) }
/// norm.parameter_gradients(&[sums], gradients)
/// for (z, dy) in chunks                     { norm.input_gradient(z, dy, &statistics, &sums) -> dz }
/// ```
///
/// The whole window is the case of one chunk: a norm's forward is made of these methods. Sums are formed for each time
/// step and merged in this order, in f64. A norm in evaluation is the case of sums that stay zero, and of
/// [`running_statistics`](Self::running_statistics).
///
/// Tensors are contiguous, `[T, N, C, ...]`, and on the CPU; buffers are row-major.
pub trait WindowNorm: Send + Sync {
    /// Number of channels.
    fn channels(&self) -> usize;

    /// The statistics of no time steps.
    fn no_statistics(&self) -> NormStatistics {
        let channels = self.channels();
        NormStatistics { mean: vec![0.; channels], squares: vec![0.; channels], count: 0. }
    }

    /// The sums of no time steps.
    fn no_sums(&self) -> NormSums {
        let channels = self.channels();
        NormSums { dy: vec![0.; channels], dy_normalized: vec![0.; channels] }
    }

    /// Goes on with the next time steps.
    ///
    /// # Errors
    /// If `z` does not fit.
    fn add_statistics(&self, statistics: &mut NormStatistics, z: &Tensor) -> Result<()>;

    /// The output for `z`, `[T, N, C, ...]`, in `z`'s buffer.
    ///
    /// # Errors
    /// If `z` does not fit.
    fn normalize(&self, z: CpuStorage, dims: &[usize], statistics: &NormStatistics) -> Result<CpuStorage>;

    /// Goes on with the time steps before: `dy` is the gradient of the output for `z`.
    ///
    /// # Errors
    /// If `z` or `dy` does not fit.
    fn add_sums(
        &self,
        sums: &mut NormSums,
        z: &Tensor,
        dy: &CpuStorage,
        statistics: &NormStatistics,
    ) -> Result<()>;

    /// The gradient of `z`, in `dy`'s buffer; `sums` are those of the whole window.
    ///
    /// # Errors
    /// If `z` or `dy` does not fit.
    fn input_gradient(
        &self,
        z: &Tensor,
        dy: CpuStorage,
        statistics: &NormStatistics,
        sums: &NormSums,
    ) -> Result<CpuStorage>;

    /// The trained weights, as a function uses them.
    fn weights(&self, context: &Context) -> Vec<Weight>;

    /// Adds the sums, one after the other, to the gradients of [`weights`](Self::weights), and answers for them: in
    /// training the one of the window; in evaluation those of each time step, the last one first.
    ///
    /// # Errors
    /// If there are not as many gradients as weights.
    fn parameter_gradients(
        &self,
        sums: &[NormSums],
        gradients: &[WeightGradient],
    ) -> Result<Vec<Option<Gradient>>>;

    /// Whether training can go by statistics of so few elements; `part` is the norm's path, for the error.
    ///
    /// # Errors
    /// If the window has fewer than two elements of a channel.
    fn check_statistics(&self, part: &str, statistics: &NormStatistics) -> Result<()> {
        match statistics.count < 2. {
            false => Ok(()),
            true => Err(Error::LayerInput {
                part: part.to_owned(),
                what: format!(
                    "training needs at least two elements of a channel in the window, {} given",
                    statistics.count
                ),
            }),
        }
    }

    /// Moves the running statistics; once for each training forward, in its first pass.
    ///
    /// # Errors
    /// If the window has fewer than two elements of a channel.
    fn move_running(&self, statistics: &NormStatistics) -> Result<()>;

    /// The running statistics, as evaluation uses them.
    ///
    /// # Errors
    /// Those of Candle.
    fn running_statistics(&self) -> Result<NormStatistics>;
}

/// The two sums over the window that the backward of a norm needs, by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct NormSums {
    /// Sum of the output's gradient.
    pub dy: Vec<f64>,
    /// Sum of the output's gradient times the normalized input.
    pub dy_normalized: Vec<f64>,
}

impl NormSums {
    /// Those of some channels.
    pub(crate) fn for_channels(&self, channels: &Range<usize>) -> Self {
        NormSums {
            dy: self.dy[channels.clone()].to_vec(),
            dy_normalized: self.dy_normalized[channels.clone()].to_vec(),
        }
    }
}
