//! The micro-batches since the last step.

use super::stages::Reduced;
use crate::train::gradients::Gradients;
use crate::train::group::Group;
use crate::train::NamedParameters;
use crate::{Error, Result};
use candle_core::backprop::GradStore;

/// Sums over micro-batches.
///
/// Gradients are summed in units of the first count, `sum c_i / c_1 g_i`, so that equal micro-batches are added as they
/// are and one alone stays as it is; the step divides by `sum c_i / c_1`.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) sums: Gradients,
    /// The first count.
    pub(super) unit: u64,
    pub(super) samples: u64,
    pub(super) micro_batches: u64,
    /// `sum c_i loss_i`
    pub(super) loss: f64,
    /// Whether a loss was not finite.
    pub(super) has_bad_loss: bool,
}

impl Window {
    pub fn new(parameters: &NamedParameters) -> Self {
        Window {
            sums: Gradients::none(parameters),
            unit: 0,
            samples: 0,
            micro_batches: 0,
            loss: 0.,
            has_bad_loss: false,
        }
    }

    /// Adds a micro-batch: `gradients` are those of its mean loss (times the loss scale).
    ///
    /// # Errors
    /// If there is no gradient of any parameter, or one does not fit; then nothing is added.
    pub fn add(&mut self, gradients: GradStore, count: u64, loss: f64) -> Result<()> {
        let unit = if self.unit == 0 { count } else { self.unit };
        self.add_in_units(gradients, (count, unit), count as f64 / unit as f64, loss)
    }

    /// The same, where `gradients` are those of the mean loss times the count.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn add_weighted(&mut self, gradients: GradStore, count: u64, loss: f64) -> Result<()> {
        self.add_in_units(gradients, (count, 1), 1., loss)
    }

    fn add_in_units(
        &mut self,
        gradients: GradStore,
        (count, unit): (u64, u64),
        weight: f64,
        loss: f64,
    ) -> Result<()> {
        let parameters = self.sums.parameters();
        if !parameters.iter().any(|parameter| gradients.get(parameter.tensor()).is_some()) {
            let what = "it depends on none of the optimizer's parameters; was the forward run through a detached model, \
                        or are the parameters another model's?";
            return Err(Error::Loss { what: what.into() });
        }
        self.sums.add(gradients, weight)?;
        self.unit = unit;
        self.count(count, loss);
        Ok(())
    }

    /// Adds a micro-batch whose loss is not finite, so that it has no gradient.
    pub fn add_bad_loss(&mut self, count: u64, loss: f64) {
        self.has_bad_loss = true;
        self.count(count, loss);
    }

    fn count(&mut self, count: u64, loss: f64) {
        self.samples = self.samples.saturating_add(count);
        self.micro_batches += 1;
        self.loss += count as f64 * loss;
    }

    /// The sums over all processes; `None`: there is nothing in any of them.
    ///
    /// This is the one time that gradients go from process to process.
    pub fn reduce(mut self, group: &dyn Group) -> Result<Option<Reduced>> {
        let mut totals = [self.samples, self.micro_batches];
        group.sum_u64(&mut totals)?;
        let [samples, micro_batches] = totals;
        if samples == 0 {
            return Ok(None);
        }
        let mut largest = [self.unit, u64::from(self.has_bad_loss)];
        group.max_u64(&mut largest)?;
        let [unit, bad_loss] = largest;
        if unit != self.unit && unit > 0 {
            self.sums.multiply(self.unit as f64 / unit as f64);
        }
        group.sum_gradients(&mut self.sums)?;
        let mut loss = [self.loss];
        group.sum_f64(&mut loss)?;
        Ok(Some(Reduced {
            sums: self.sums,
            unit,
            samples,
            micro_batches,
            loss: loss[0] / samples as f64,
            has_bad_loss: bad_loss > 0,
        }))
    }
}
