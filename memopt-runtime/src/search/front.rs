//! What plans there are between the fastest and the smallest.

use super::budget::Choice;
use super::options::Options;
use super::sample::Sample;
use super::simulate::{predict, Prediction};
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
