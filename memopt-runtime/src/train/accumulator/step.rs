//! What is said of a step.

use serde::Serialize;
use std::fmt;

/// A step that was made, or skipped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Steps made so far, this one included unless it was skipped.
    pub number: u64,
    /// The mean loss over all samples of the step, `sum count loss / sum count`, never scaled.
    pub loss: f64,
    /// The global norm of the gradient of that loss, before clipping.
    pub gradient_norm: f64,
    /// Whether the gradient was clipped.
    pub clipped: bool,
    /// Why no parameter moved; `None`: the step was made.
    pub skipped: Option<Skipped>,
    /// Samples of the step, over all processes.
    pub samples: u64,
    /// Micro-batches of the step, over all processes.
    pub micro_batches: u64,
    /// The learning rate.
    pub learning_rate: f64,
    /// What the losses were multiplied by for backward; 1 without scaling.
    pub loss_scale: f64,
    /// Parameters that no micro-batch had a gradient for; they stay as they are, and so do their states.
    pub without_gradient: Vec<String>,
}

/// Why a step was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Skipped {
    /// The loss of a micro-batch was NaN or infinite; it was not gone back from.
    LossNotFinite,
    /// An element of the gradient was NaN or infinite, as by overflow under a large loss scale.
    GradientNotFinite,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skipped::LossNotFinite => "the loss is not finite",
            Skipped::GradientNotFinite => "the gradient is not finite",
        })
    }
}

/// One line for a log.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: loss {:.6}, gradient norm {:.4}", self.number, self.loss, self.gradient_norm)?;
        if self.clipped {
            f.write_str(" (clipped)")?;
        }
        write!(f, ", learning rate {:.3e}, {} samples", self.learning_rate, self.samples)?;
        if self.loss_scale != 1. {
            write!(f, ", loss scale {}", self.loss_scale)?;
        }
        match self.skipped {
            Some(why) => write!(f, "; skipped: {why}"),
            None => Ok(()),
        }
    }
}

/// What an accumulator did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Steps made.
    pub steps: u64,
    /// Their samples, over all processes.
    pub samples: u64,
    /// Steps skipped.
    pub skipped_steps: u64,
    /// Their samples, over all processes: no parameter has seen them.
    pub skipped_samples: u64,
}

impl Totals {
    pub(super) fn add(&mut self, samples: u64, skipped: Option<Skipped>) {
        let (steps, seen) = match skipped {
            None => (&mut self.steps, &mut self.samples),
            Some(_) => (&mut self.skipped_steps, &mut self.skipped_samples),
        };
        *steps += 1;
        *seen = seen.saturating_add(samples);
    }
}
