//! What a step would take under a plan.

use super::cost::CostTable;
use super::options::Options;
use super::sample::Sample;
use super::simulate::{predict, Prediction};
use crate::module::Checkpointable;
use crate::plan::Plan;
use crate::Result;

/// What a step of a model would take under a plan.
///
/// # Errors
/// If the sample does not fit the model, there is none, or the plan does not fit the model.
pub fn predict_plan<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    plan: &Plan,
) -> Result<Prediction> {
    predict_plan_with(model, sample, plan, &CostTable::default())
}

/// [`predict_plan`] with costs of one's own: of a machine with more threads, each of which has a workspace.
///
/// # Errors
/// Those of [`predict_plan`].
pub fn predict_plan_with<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    plan: &Plan,
    costs: &CostTable,
) -> Result<Prediction> {
    crate::checkpoint::check_plan(model, plan)?;
    let traced = sample.into().must_look(model, &Options::default(), costs, "a prediction")?;
    Ok(predict(&traced, plan, costs))
}
