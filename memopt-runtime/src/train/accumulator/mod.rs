//! The scope that owns the step.

mod config;
mod lost;
mod saved;
mod stages;
mod step;
#[cfg(test)]
mod tests;
mod window;

pub use config::{AccumulatorConfig, Norms};
pub use lost::{lost, reset_lost, Lost};
pub use step::{Skipped, Step, Totals};

use super::group::{Alone, Group};
use super::ranks::Ranks;
use super::{NamedParameters, Optimizer, Scaler};
use crate::dist::Communicator;
use crate::module::FrozenNorms;
use crate::{Error, Result};
use candle_core::{DType, Tensor};
use std::sync::Arc;
use window::Window;

/// Gradient accumulation: a step of a large batch, one micro-batch at a time.
///
/// Each loss is a mean over `count` samples (or tokens, or pixels: what its mean is over). The step is by
///
/// ```text
/// g = sum_i count_i g_i / sum_i count_i
/// ```
///
/// the gradient of the mean over all samples, however they were split: never a mean of means. (For models without batch norm,
/// or with frozen norms: [`Norms`].) The sums are formed in a fixed order, in one buffer for each parameter; equal
/// micro-batches are added as they are, and one alone is stepped on as it is, so that with `steps: 1` nothing differs from a
/// plain loop by a bit.
///
/// At the `steps`-th micro-batch the step is made, in one order:
///
/// ```text
/// reduce over processes -> unscale -> check that all is finite -> clip -> optimizer's step -> move the loss scale
/// ```
///
/// Behind it the buffers are dropped, not zeroed. Losses are given as they are: neither divided by `steps` nor scaled.
///
/// ```
/// use candle_core::{DType, Device, ModuleT, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{cross_entropy_of_mean, init::seeded, Lif, Linear};
/// use memopt_runtime::train::{Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Clip, NamedParameters};
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let net = (Linear::new(6, 16, Default::default(), vb.pp("a"))?, Lif::default(), Linear::new(16, 3, Default::default(), vb.pp("b"))?);
/// let parameters = NamedParameters::of(&net)?;
/// let config = AccumulatorConfig { steps: 4, clip: Clip::GlobalNorm(1.), ..Default::default() };
/// let mut accumulator = Accumulator::new(AdamW::new(&parameters, AdamWConfig::new(1e-2))?, config)?;
///
/// let x = Tensor::ones((5, 22, 6), DType::F32, &Device::Cpu)?; // [T, N, C]: an epoch of 22 samples
/// let labels = Tensor::ones(22, DType::U32, &Device::Cpu)?;
/// let mut losses = vec![];
/// for start in (0..22).step_by(4) {
///     let n = 4.min(22 - start);
///     let y = memopt_runtime::module::forward_t(&net, &x.narrow(1, start, n)?, true)?;
///     let loss = cross_entropy_of_mean(&y, &labels.narrow(0, start, n)?)?;
///     losses.extend(accumulator.backward(&loss, n)?.map(|step| step.loss)); // at the fourth: 16 samples
/// }
/// losses.extend(accumulator.finish()?.map(|step| step.loss)); // 6 samples are left: 4 and 2
/// assert_eq!(losses.len(), 2);
/// assert!(losses[1] < losses[0]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
///
/// # What is not as it should be
///
/// - A loss that is NaN or infinite is not gone back from. Its window's step is skipped, reported
///   ([`Step::skipped`]) and counted ([`Totals`]), with its samples; so is a step whose gradient is not finite. With a loss
///   scale, the scale falls then.
/// - A parameter that no micro-batch has a gradient for stays as it is, state included, and is named in the report.
/// - An error leaves the window as it was before the micro-batch; the next one works. If the step itself fails, its window is
///   lost: counted ([`lost`]) and reported as an event. So are micro-batches that are accumulated when the accumulator is
///   dropped; [`finish`](Self::finish) steps on them.
#[derive(Debug)]
pub struct Accumulator<O: Optimizer> {
    optimizer: O,
    config: AccumulatorConfig,
    scaler: Option<Scaler>,
    group: Arc<dyn Group>,
    window: Window,
    totals: Totals,
    _frozen: Option<FrozenNorms>,
}

impl<O: Optimizer> Accumulator<O> {
    /// An accumulator for the optimizer's parameters.
    ///
    /// # Errors
    /// If a number of the configuration makes no sense.
    pub fn new(optimizer: O, config: AccumulatorConfig) -> Result<Self> {
        Self::in_group(optimizer, config, Arc::new(Alone))
    }

    /// The same for a rank of a group of processes, each with its own micro-batches: a step is of all of them, and all make
    /// the same one. Gradients go from rank to rank once a step.
    ///
    /// All ranks make as many micro-batches a window; at the end of an epoch each calls [`finish`](Self::finish), whether it has
    /// some left or not. (With [`Norms::Synchronized`] all have as many left, since norms wait for each other.) Their parameters are the same before the first step
    /// ([`broadcast_parameters`](crate::dist::broadcast_parameters)) and stay so.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn of_ranks(
        optimizer: O,
        config: AccumulatorConfig,
        communicator: Arc<dyn Communicator>,
    ) -> Result<Self> {
        Self::in_group(optimizer, config, Arc::new(Ranks::new(communicator)))
    }

    /// The same in a group of processes, each with its own micro-batches: a step is of all of them.
    ///
    /// Each process makes the same number of micro-batches a window; at the end of an epoch each calls
    /// [`finish`](Self::finish), whether it has some left or not.
    pub(crate) fn in_group(optimizer: O, config: AccumulatorConfig, group: Arc<dyn Group>) -> Result<Self> {
        config.check()?;
        let scaler = config.scaling.map(Scaler::new).transpose()?;
        let frozen = match &config.norms {
            Norms::PerMicro | Norms::Synchronized(_) => None,
            Norms::Frozen(session) => Some(session.freeze_norms()),
        };
        let window = Window::new(optimizer.parameters());
        let totals = Totals::default();
        Ok(Accumulator { optimizer, config, scaler, group, window, totals, _frozen: frozen })
    }

    /// Goes back from the mean loss of a micro-batch of `count` samples. At the last one of a window it makes the step and
    /// says what came of it; before, `None`.
    ///
    /// # Errors
    /// If the loss is no scalar of floats, `count` is 0, or the loss depends on none of the parameters; those of the
    /// backward, the optimizer and the group.
    pub fn backward(&mut self, loss: &Tensor, count: usize) -> Result<Option<Step>> {
        let value = value_of(loss)?;
        if count == 0 {
            let what = "it is a mean over 0 samples; leave micro-batches without samples out".into();
            return Err(Error::Loss { what });
        }
        match value.is_finite() {
            is_finite if matches!(self.config.norms, Norms::Synchronized(_)) => {
                // The norms of the other ranks wait for this one's sums, whatever the loss is.
                let gradients = self.weighted(loss, count)?.backward()?;
                match is_finite {
                    true => self.window.add_weighted(gradients, count as u64, value)?,
                    false => self.window.add_bad_loss(count as u64, value),
                }
            }
            true => self.window.add(self.scaled(loss)?.backward()?, count as u64, value)?,
            false => self.window.add_bad_loss(count as u64, value),
        }
        match self.window.micro_batches >= self.config.steps as u64 {
            true => self.step(),
            false => Ok(None),
        }
    }

    /// Steps on what is accumulated, weighted by its samples, as at the end of an epoch; `None`: nothing is.
    ///
    /// # Errors
    /// Those of the optimizer and the group.
    pub fn finish(&mut self) -> Result<Option<Step>> {
        self.step()
    }

    /// Drops what is accumulated; it counts as lost.
    pub fn discard(&mut self) {
        let window = self.take_window();
        lost::count(window.micro_batches, window.samples, "discarded");
    }

    /// Micro-batches that are accumulated and not stepped on.
    pub fn pending(&self) -> usize {
        usize::try_from(self.window.micro_batches).unwrap_or(usize::MAX)
    }

    /// Bytes of the buffers that gradients are accumulated in.
    pub fn bytes(&self) -> usize {
        self.window.sums.bytes()
    }

    /// Steps made and skipped so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The parameters.
    pub fn parameters(&self) -> &NamedParameters {
        self.optimizer.parameters()
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// The optimizer, to set its learning rate, say (which a schedule sets again).
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// The loss scale, if there is one.
    pub fn scaler(&self) -> Option<&Scaler> {
        self.scaler.as_ref()
    }

    fn loss_scale(&self) -> f64 {
        self.scaler.as_ref().map_or(1., Scaler::scale)
    }

    fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        Ok(match (&self.scaler, loss.dtype()) {
            (None, _) => loss.clone(),
            // Half precision would not hold the scaled loss itself.
            (Some(scaler), DType::F16 | DType::BF16) => {
                loss.to_dtype(DType::F32)?.affine(scaler.scale(), 0.)?
            }
            (Some(scaler), _) => loss.affine(scaler.scale(), 0.)?,
        })
    }

    /// The scaled loss times its count, in a type that holds the count.
    fn weighted(&self, loss: &Tensor, count: usize) -> Result<Tensor> {
        let scaled = self.scaled(loss)?;
        let wide = match scaled.dtype() {
            DType::F16 | DType::BF16 => scaled.to_dtype(DType::F32)?,
            _ => scaled,
        };
        Ok((wide * count as f64)?)
    }

    fn take_window(&mut self) -> Window {
        let empty = Window::new(self.optimizer.parameters());
        std::mem::replace(&mut self.window, empty)
    }

    fn step(&mut self) -> Result<Option<Step>> {
        let window = self.take_window();
        let (micro_batches, samples) = (window.micro_batches, window.samples);
        let step = self.step_on(window);
        if step.is_err() {
            lost::count(micro_batches, samples, "the step failed");
        }
        step
    }

    fn step_on(&mut self, window: Window) -> Result<Option<Step>> {
        let loss_scale = self.loss_scale();
        let Some(reduced) = window.reduce(&*self.group)? else { return Ok(None) };
        let (loss, samples, micro_batches) = (reduced.loss, reduced.samples, reduced.micro_batches);
        let unscaled = reduced.unscale(loss_scale, &*self.group)?;
        let (gradient_norm, skipped, without_gradient) =
            (unscaled.norm, unscaled.skipped, unscaled.missing());
        if let Some(schedule) = &self.config.schedule {
            self.optimizer.set_learning_rate(schedule.at(self.totals.steps));
        }
        let clipped = match unscaled.clip(self.config.clip) {
            Some(ready) => {
                self.optimizer.step(&ready.gradients)?;
                ready.clipped
            }
            None => {
                let why = skipped.map(|why| why.to_string()).unwrap_or_default();
                tracing::warn!(loss, gradient_norm, samples, why, "a step is skipped");
                false
            }
        };
        if let Some(scaler) = &mut self.scaler {
            scaler.update(skipped.is_none());
        }
        self.totals.add(samples, skipped);
        Ok(Some(Step {
            number: self.totals.steps,
            loss,
            gradient_norm,
            clipped,
            skipped,
            samples,
            micro_batches,
            learning_rate: self.optimizer.learning_rate(),
            loss_scale,
            without_gradient,
        }))
    }
}

impl<O: Optimizer> Drop for Accumulator<O> {
    fn drop(&mut self) {
        let Window { micro_batches, samples, .. } = &self.window;
        lost::count(*micro_batches, *samples, "the accumulator is dropped; `finish` steps on what is left");
    }
}

/// The value of a loss.
fn value_of(loss: &Tensor) -> Result<f64> {
    if !loss.dims().is_empty() || !loss.dtype().is_float() {
        let (dims, dtype) = (loss.dims(), loss.dtype().as_str());
        let what = format!("a scalar of floats expected, {dims:?} of {dtype} given; take the mean over the samples (`mean_all`)");
        return Err(Error::Loss { what });
    }
    Ok(loss.detach().to_dtype(DType::F64)?.to_scalar()?)
}
