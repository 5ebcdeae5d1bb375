//! Batch norms over several processes.

use super::record::NormStatistics;
use super::window_norm::NormSums;
use crate::Result;
use std::fmt::Debug;

/// Puts together what the norms of several ranks saw, so that each normalizes by the statistics of all their batches.
///
/// A norm asks once in its first pass (a recompute uses what that recorded) and once in its backward; in a segment that is gone
/// back through in groups of channels, once for each group, with its channels alone. All ranks ask in the same order if they
/// run the same model under the same plan.
///
/// With shares `(n_r, mean_r, M_r)` of the ranks, the statistics of all are
/// `n = sum n_r`, `mean = sum n_r mean_r / n` and `M = sum (M_r + n_r (mean_r - mean)^2)`.
pub trait NormGroup: Debug + Send + Sync {
    /// The statistics of all ranks, the same on each; `part` is the norm's path.
    ///
    /// # Errors
    /// If a rank cannot be reached, or asks for something else.
    fn statistics(&self, part: &str, own: &NormStatistics) -> Result<NormStatistics>;

    /// The sums over all ranks.
    ///
    /// # Errors
    /// If a rank cannot be reached, or asks for something else.
    fn sums(&self, part: &str, own: &NormSums) -> Result<NormSums>;
}
