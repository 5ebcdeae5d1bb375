//! The plan that makes a segment of every block that is marked as one.

use crate::module::{Checkpointable, Composition, Step};
use crate::plan::{Plan, Segment};

/// Every part of the model that is marked `#[checkpoint(segment)]`, outermost first, kept in the same way.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::VarMap;
/// use memopt_runtime::checkpoint::plan_for_targets;
/// use memopt_runtime::nn::{init::seeded, Linear};
/// use memopt_runtime::plan::{Keep, Plan};
///
/// // Nothing is marked here.
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let model = vec![Linear::new(3, 3, Default::default(), vb)?];
/// assert_eq!(plan_for_targets(&model, Keep::Recompute), Plan::new());
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub fn plan_for_targets<M: Checkpointable>(model: &M, how: impl Into<Segment>) -> Plan {
    let mut targets = Vec::new();
    if let Some(composition) = model.composition() {
        collect(&composition, "", &mut targets);
    }
    let how = how.into();
    targets.into_iter().fold(Plan::new(), |plan, path| plan.with(path, how))
}

fn collect(composition: &Composition, parent: &str, targets: &mut Vec<String>) {
    for step in composition.steps() {
        match step {
            Step::Part { name, part, .. } => {
                let path = if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") };
                if part.is_target() {
                    targets.push(path);
                } else if let Some(inside) = part.composition() {
                    collect(&inside, &path, targets);
                }
            }
            Step::Join { branches, .. } => {
                branches.iter().for_each(|branch| collect(branch, parent, targets))
            }
        }
    }
}
