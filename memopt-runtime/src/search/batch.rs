//! Batches of other sizes than the sample's.

use super::budget::Choice;
use super::cost::CostTable;
use super::optimize::resident;
use super::options::{wrong, Options};
use super::outline::{leaves, Body, Size};
use super::sample::Sample;
use super::summary::Resident;
use super::trace::Traced;
use crate::module::Checkpointable;
use crate::plan::Plan;
use crate::{Error, Result};

/// The largest batch that [`max_batch`] gives.
pub const LARGEST_BATCH: usize = 1 << 24;

/// The largest batch whose step fits in so many bytes, and the fastest plan for it; the sample's batch may be of any size.
/// Nothing larger than the sample is run. `None`: not even one image fits. No more than [`LARGEST_BATCH`] is given.
///
/// It is a prediction, and no step is run: leave a margin of some percent, and more where parts do not say what they take
/// (the notes of [`optimize`](super::optimize) name them). The bytes are all that is resident: weights, gradients,
/// optimizer, batch and step. Of the options, those count that go with a memory budget.
///
/// # Errors
/// If the sample does not fit the model, or there is none; if the options name what the model does not have.
pub fn max_batch<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    budget: usize,
) -> Result<Option<(usize, Plan)>> {
    let sample = sample.into();
    let costs = options.costs();
    let batches = Batches::of(model, &sample, options, &costs, "max_batch")?;
    Ok(batches.largest(budget))
}

/// The fastest plan whose step fits in so many bytes with a batch of `batch` images, all that is resident counted, as
/// [`max_batch`](super::max_batch) counts it. Nothing larger than the sample is run.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, Linear};
/// use memopt_runtime::search::{plan_for_batch, Options};
/// use memopt_runtime::Error;
///
/// let net = vec![Linear::new(64, 64, Default::default(), seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu))?];
/// let sample = Tensor::ones((4, 2, 64), DType::F32, &Device::Cpu)?; // [T, N, C]
/// assert!(plan_for_batch(&net, &sample, &Options::default(), 32, 10_000_000)?.is_empty()); // nothing need be recomputed
/// let error = plan_for_batch(&net, &sample, &Options::default(), 32, 1_000).unwrap_err();
/// assert!(matches!(error, Error::Budget { budget: 1_000, .. }));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// If the sample does not fit the model, or there is none; if the options name what the model does not have; if no plan
/// fits.
pub fn plan_for_batch<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    batch: usize,
    budget: usize,
) -> Result<Plan> {
    let sample = sample.into();
    let costs = options.costs();
    Batches::of(model, &sample, options, &costs, "plan_for_batch")?.plan_for(batch, budget)
}

/// A model whose steps are predicted for batches of any size.
pub(crate) struct Batches<'a> {
    traced: Traced,
    choice: Choice<'a>,
    costs: &'a CostTable,
    before: Resident,
}

impl<'a> Batches<'a> {
    /// What a sample shows of a model; `what` asks for it, for the error that there is none.
    ///
    /// # Errors
    /// Those of [`max_batch`].
    pub(crate) fn of<M: Checkpointable>(
        model: &M,
        sample: &Sample,
        options: &'a Options,
        costs: &'a CostTable,
        what: &str,
    ) -> Result<Self> {
        options.check()?;
        options.check_for(model)?;
        let traced = sample.must_look(model, options, costs, what)?;
        let choice = Choice::of(model, &traced, options, costs)?;
        let before = resident(model, sample, options);
        Ok(Batches { traced, choice, costs, before })
    }

    /// The largest batch that fits, and its plan: [`max_batch`].
    pub(crate) fn largest(&self, budget: usize) -> Option<(usize, Plan)> {
        let fitting = |batch: usize| self.fitting(&self.resized(batch), budget);
        let mut plan = fitting(1)?;
        let (mut fits, mut fails) = (1, LARGEST_BATCH + 1);
        while fails - fits > 1 {
            // Doubled until one fails, then halved.
            let next =
                if fails > LARGEST_BATCH { (2 * fits).min(LARGEST_BATCH) } else { fits + (fails - fits) / 2 };
            match fitting(next) {
                Some(larger) => (plan, fits) = (larger, next),
                None => fails = next,
            }
        }
        Some((fits, plan))
    }

    /// The fastest plan for a batch: [`plan_for_batch`].
    ///
    /// # Errors
    /// If there cannot be such a batch, or no plan fits.
    pub(crate) fn plan_for(&self, batch: usize, budget: usize) -> Result<Plan> {
        if !(1..=LARGEST_BATCH).contains(&batch) {
            return Err(wrong(format!("a batch of {batch} images; give 1 to {LARGEST_BATCH}")));
        }
        let sized = self.resized(batch);
        self.fitting(&sized, budget).ok_or_else(|| {
            let resident = self.resident(&sized);
            let smallest = resident + self.choice.smallest_peak(&sized);
            Error::Budget { budget, smallest, resident }
        })
    }

    /// The number of images a time step of the sample: layers that say what they take give `[T, N, ...]`.
    fn traced_batch(&self) -> usize {
        let leaves = leaves(&self.traced.nodes);
        let known = leaves.iter().find(|node| matches!(node.body, Body::Layer { is_guess: false, .. }));
        let output = known.map_or(&self.traced.output, |node| &node.output);
        output.dims.get(1).copied().unwrap_or(1).max(1)
    }

    fn resized(&self, to: usize) -> Traced {
        let size = Size { from: self.traced_batch(), to, threads: self.costs.threads() };
        Traced {
            nodes: self.traced.nodes.iter().map(|node| node.resized(size)).collect(),
            input: size.of(&self.traced.input),
            output: size.of(&self.traced.output),
            ..self.traced.clone()
        }
    }

    /// What is there before a step of such a batch.
    fn resident(&self, sized: &Traced) -> usize {
        self.before.weights + self.before.optimizer + sized.input.bytes()
    }

    fn fitting(&self, sized: &Traced, budget: usize) -> Option<Plan> {
        self.choice.fastest_within(sized, budget.checked_sub(self.resident(sized))?)
    }
}
