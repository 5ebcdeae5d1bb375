//! The processes that train together, as a step sees them.
//!
//! The one seam between training and process groups: an adapter of a communicator implements [`Group`].

use super::gradients::Gradients;
use crate::Result;
use std::fmt::Debug;

/// Sums and maxima over the processes of a group. Each process calls the same methods in the same order, and all get the
/// same bits.
pub(crate) trait Group: Debug + Send + Sync {
    /// Adds up the gradients of all processes, parameter by parameter. One that exists in some process exists in all
    /// afterwards.
    fn sum_gradients(&self, gradients: &mut Gradients) -> Result<()>;

    /// Adds up numbers.
    fn sum_f64(&self, values: &mut [f64]) -> Result<()>;

    /// Adds up counts.
    fn sum_u64(&self, values: &mut [u64]) -> Result<()>;

    /// The largest of each count.
    fn max_u64(&self, values: &mut [u64]) -> Result<()>;
}

/// The group of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alone;

impl Group for Alone {
    fn sum_gradients(&self, _: &mut Gradients) -> Result<()> {
        Ok(())
    }

    fn sum_f64(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn sum_u64(&self, _: &mut [u64]) -> Result<()> {
        Ok(())
    }

    fn max_u64(&self, _: &mut [u64]) -> Result<()> {
        Ok(())
    }
}
