//! What plans there are between the fastest and the smallest, and how large a batch may be.

use super::budget::Choice;
use super::optimize::resident;
use super::options::Options;
use super::outline::{leaves, Body, Size};
use super::sample::Sample;
use super::simulate::{predict, Prediction};
use super::trace::Traced;
use crate::module::Checkpointable;
use crate::plan::Plan;
use crate::Result;

/// A point of the front of a model: no plan that is searched takes fewer bytes and less time.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontPoint {
    /// Predicted peak of a step, in bytes beyond those before it.
    pub peak: usize,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// The plan.
    pub plan: Plan,
}

/// The front of time and memory of a model: from the fastest plan to the smallest, in at most `points` points (2 to 1000).
///
/// Of the options, those count that go with a memory budget: `targets`, `compress`, `compressor`, `threads`,
/// `measure_costs`.
///
/// # Errors
/// If the sample does not fit the model, or there is none; if the options name what the model does not have.
pub fn front<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    points: usize,
) -> Result<Vec<FrontPoint>> {
    options.check()?;
    options.check_for(model)?;
    let costs = options.costs();
    let traced = sample.into().must_look(model, options, &costs, "the front of a model")?;
    let choice = Choice::of(model, &traced, options, &costs)?;
    let plain = predict(&traced, &Plan::new(), &costs);
    let least = choice.smallest_peak(&traced);
    let mut front: Vec<FrontPoint> = Vec::new();
    let steps = points.clamp(2, 1000) - 1;
    for step in 0..=steps {
        let limit = plain.peak - (plain.peak - least) * step / steps;
        let Some(plan) = choice.fastest_within(&traced, limit) else { continue };
        let Prediction { peak, seconds, .. } = predict(&traced, &plan, &costs);
        if front.last().is_none_or(|last| peak < last.peak) {
            front.push(FrontPoint { peak, seconds, plan });
        }
    }
    Ok(front)
}

/// The largest batch that [`max_batch`] gives.
pub const LARGEST_BATCH: usize = 1 << 24;

/// The largest batch whose step fits in so many bytes, and the fastest plan for it; the sample's batch may be of any size.
/// Nothing larger than the sample is run. `None`: not even one image fits. No more than [`LARGEST_BATCH`] is given.
///
/// The bytes are all that is resident: weights, gradients, optimizer, batch and step. Of the options, those count that go
/// with a memory budget.
///
/// # Errors
/// If the sample does not fit the model, or there is none; if the options name what the model does not have.
pub fn max_batch<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    budget: usize,
) -> Result<Option<(usize, Plan)>> {
    options.check()?;
    options.check_for(model)?;
    let sample = sample.into();
    let costs = options.costs();
    let traced = sample.must_look(model, options, &costs, "max_batch")?;
    let choice = Choice::of(model, &traced, options, &costs)?;
    let batch = batch_of(&traced);
    let before = resident(model, &sample, options);
    let fitting = |to: usize| {
        let sized = resized(&traced, Size { from: batch, to, threads: costs.threads() });
        let limit = budget.checked_sub(before.weights + before.optimizer + sized.input.bytes())?;
        choice.fastest_within(&sized, limit)
    };
    let Some(mut plan) = fitting(1) else { return Ok(None) };
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
    Ok(Some((fits, plan)))
}

/// The number of images a time step: layers that say what they take give `[T, N, ...]`.
fn batch_of(traced: &Traced) -> usize {
    let leaves = leaves(&traced.nodes);
    let known = leaves.iter().find(|node| matches!(node.body, Body::Layer { is_guess: false, .. }));
    known.map_or(&traced.output, |node| &node.output).dims.get(1).copied().unwrap_or(1).max(1)
}

fn resized(traced: &Traced, size: Size) -> Traced {
    Traced {
        nodes: traced.nodes.iter().map(|node| node.resized(size)).collect(),
        input: size.of(&traced.input),
        output: size.of(&traced.output),
        ..traced.clone()
    }
}
