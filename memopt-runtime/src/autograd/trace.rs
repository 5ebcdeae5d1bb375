//! Which variables a computation reached, read off its graph: no list of parameters is needed.

use super::age::Age;
use super::live::output_of;
use candle_core::{DType, Shape, Tensor};
use std::collections::HashSet;

/// The leaves and the strangers of a graph.
#[derive(Default)]
pub(crate) struct Reached {
    /// The variables, each once, in the order in which backward meets them.
    pub(crate) variables: Vec<Tensor>,
    /// A tensor that was computed from variables before `since`, if one is there.
    pub(crate) older: Option<Stranger>,
}

/// A tensor from outside of a closure.
pub(crate) struct Stranger {
    pub(crate) age: Age,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

impl Stranger {
    fn of(node: &Tensor) -> Self {
        // The edge to a function's output is a scalar; name what the function gave.
        let (shape, dtype) = output_of(node.id()).unwrap_or((node.shape().clone(), node.dtype()));
        Stranger { age: Age::of(node.id()), shape, dtype }
    }
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
                reached.older = Some(Stranger::of(node));
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
