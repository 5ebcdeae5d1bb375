//! When a neuron fires, and what is left of its potential then.

use crate::nn::input::wrong;
use crate::nn::Surrogate;
use crate::Result;

/// What firing does to the membrane potential.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reset {
    /// `v = v_reset` where it fired; it is also where neurons rest and start.
    Hard(f64),
    /// `v = h - v_threshold` where it fired; neurons rest and start at 0.
    Soft,
}

/// Threshold, reset and surrogate: what all neurons with a membrane potential have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Firing {
    pub(super) threshold: f64,
    pub(super) reset: Reset,
    pub(super) detach_reset: bool,
    pub(super) surrogate: Surrogate,
}

impl Default for Firing {
    fn default() -> Self {
        let surrogate = Surrogate::default();
        Firing { threshold: 1., reset: Reset::Hard(0.), detach_reset: false, surrogate }
    }
}

impl Firing {
    /// Where neurons rest, and where they start.
    pub(super) fn rest(&self) -> f64 {
        match self.reset {
            Reset::Hard(v_reset) => v_reset,
            Reset::Soft => 0.,
        }
    }

    pub(super) fn check(&self, part: &str) -> Result<()> {
        check_surrogate(part, &self.surrogate)?;
        if self.threshold.is_finite() && self.rest().is_finite() {
            return Ok(());
        }
        let what =
            format!("v_threshold is {} and v_reset is {}; give finite ones", self.threshold, self.rest());
        Err(wrong(part, what))
    }
}

pub(super) fn check_surrogate(part: &str, surrogate: &Surrogate) -> Result<()> {
    let alpha = surrogate.alpha();
    if alpha.is_finite() && alpha > 0. {
        return Ok(());
    }
    Err(wrong(part, format!("the surrogate {surrogate:?} has alpha {alpha}; give one above 0")))
}

/// The options of a neuron with a `firing` field.
macro_rules! firing_options {
    () => {
        /// Potential from which on it fires, `h >= v_threshold`; 1 if not set.
        #[must_use]
        pub fn v_threshold(mut self, v_threshold: f64) -> Self {
            self.firing.threshold = v_threshold;
            self
        }

        /// What firing does to the potential; `Reset::Hard(0.)` if not set.
        #[must_use]
        pub fn reset(mut self, reset: $crate::nn::Reset) -> Self {
            self.firing.reset = reset;
            self
        }

        /// Whether backward takes the spike in the reset as a constant; false if not set.
        #[must_use]
        pub fn detach_reset(mut self, detach_reset: bool) -> Self {
            self.firing.detach_reset = detach_reset;
            self
        }

        /// What stands for the step function's derivative; [`Surrogate::sigmoid`](crate::nn::Surrogate::sigmoid) if not
        /// set.
        #[must_use]
        pub fn surrogate(mut self, surrogate: $crate::nn::Surrogate) -> Self {
            self.firing.surrogate = surrogate;
            self
        }
    };
}
pub(super) use firing_options;
