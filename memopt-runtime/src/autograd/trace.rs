//! Which variables a computation reached, read off its graph: no list of parameters is needed.

use super::age::Age;
use candle_core::Tensor;
use std::collections::HashSet;

/// The leaves and the strangers of a graph.
#[derive(Default)]
pub(crate) struct Reached {
    /// The variables, each once, in the order in which backward meets them.
    pub(crate) variables: Vec<Tensor>,
    /// A tensor that was computed from variables before `since`, if one is there.
    pub(crate) older: Option<Tensor>,
}

/// What the outputs were computed from. Tensors made before `since` that are not variables are strangers.
pub(crate) fn reached(outputs: &[Tensor], since: Age) -> Reached {
    let mut reached = Reached::default();
    let mut seen = HashSet::new();
    for output in outputs {
        for node in output.sorted_nodes() {
            if !seen.insert(node.id()) {
                continue;
            }
            if node.is_variable() {
                reached.variables.push(node.clone());
            } else if reached.older.is_none() && Age::of(node.id()) < since {
                reached.older = Some(node.clone());
            }
        }
    }
    reached
}

/// The variables that the outputs depend on, each once.
///
/// ```
/// use candle_core::{Device, Var};
///
/// let (a, b) = (Var::new(1f32, &Device::Cpu)?, Var::new(2f32, &Device::Cpu)?);
/// let found = memopt_runtime::autograd::variables_reached(&[a.mul(&b)?, b.affine(1., 1.)?]);
/// assert_eq!(found.len(), 2);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn variables_reached(outputs: &[Tensor]) -> Vec<Tensor> {
    reached(outputs, Age::START).variables
}
