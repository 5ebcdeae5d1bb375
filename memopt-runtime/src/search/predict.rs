//! What a step would take on a machine with other costs.

use super::cost::CostTable;
use super::simulate::{predict, Prediction};
use super::trace::trace;
use crate::module::{Checkpointable, Signal};
use crate::plan::Plan;
use crate::Result;

/// [`predict_plan`](super::predict_plan) with costs of one's own: of a machine with more threads, each of which has a
/// workspace.
///
/// # Errors
/// If the sample does not fit the model, or the plan does not fit the model.
pub fn predict_plan_with<M: Checkpointable>(
    model: &M,
    sample: impl Into<Signal>,
    plan: &Plan,
    costs: &CostTable,
) -> Result<Prediction> {
    crate::checkpoint::check_plan(model, plan)?;
    let traced = trace(model, &sample.into(), costs.threads())?;
    Ok(predict(&traced, plan, costs))
}
