//! The stages of a step. Each is made of the one before it only, so that their order cannot be another:
//!
//! ```text
//! Window -> reduce -> Reduced -> unscale and check -> Unscaled -> clip -> Clipped -> the optimizer's step
//! ```

use super::step::Skipped;
use crate::train::clip::global_norm;
use crate::train::gradients::Gradients;
use crate::train::group::Group;
use crate::train::Clip;
use crate::Result;

/// Sums over all micro-batches of all processes.
pub(super) struct Reduced {
    pub sums: Gradients,
    pub unit: u64,
    pub samples: u64,
    pub micro_batches: u64,
    /// The mean over the samples.
    pub loss: f64,
    pub has_bad_loss: bool,
}

impl Reduced {
    /// The gradient of the mean loss: the sums over the samples and the loss scale. The processes agree on whether it is
    /// finite.
    pub fn unscale(mut self, loss_scale: f64, group: &dyn Group) -> Result<Unscaled> {
        self.sums.multiply(self.unit as f64 / (self.samples as f64 * loss_scale));
        let norm = global_norm(&self.sums);
        // The norm of finite gradients can be infinite in f64 only.
        let is_finite = norm.is_finite() || self.sums.is_finite();
        let mut bad = [u64::from(!is_finite)];
        group.max_u64(&mut bad)?;
        let skipped = match (self.has_bad_loss, bad[0] > 0) {
            (true, _) => Some(Skipped::LossNotFinite),
            (_, true) => Some(Skipped::GradientNotFinite),
            _ => None,
        };
        Ok(Unscaled { gradients: self.sums, norm, skipped })
    }
}

/// The gradient of the mean loss.
pub(super) struct Unscaled {
    gradients: Gradients,
    pub norm: f64,
    pub skipped: Option<Skipped>,
}

impl Unscaled {
    /// Names of the parameters that have no gradient.
    pub fn missing(&self) -> Vec<String> {
        self.gradients.missing()
    }

    /// The gradient to step by; `None`: the step is to be skipped.
    pub fn clip(mut self, clip: Clip) -> Option<Clipped> {
        match self.skipped {
            Some(_) => None,
            None => {
                let clipped = clip.apply(&mut self.gradients, self.norm);
                Some(Clipped { gradients: self.gradients, clipped })
            }
        }
    }
}

/// What the optimizer steps by.
pub(super) struct Clipped {
    pub gradients: Gradients,
    pub clipped: bool,
}
