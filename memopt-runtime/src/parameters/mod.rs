//! The tensors that a model trains, by name, and the model's detached twin.
//!
//! A model is plain structs that hold tensors and other models. [`Parameters`] makes such a struct transparent: every
//! trained tensor can be visited with its path (`features.1.conv.weight`), and the same model can be had a second time
//! over the same storage but outside the graph ([`Parameters::detached`]). `#[derive(Parameters)]` writes the trait.
//!
//! # What implements it
//!
//! - [`Tensor`], the leaf.
//! - `Vec<M>`, `[M; N]`, tuples of one to eight (each item's index is a step of the path), `Option<M>` and `Box<M>`
//!   (no step).
//! - Layers of `candle_nn`: `Linear`, `Conv1d`, `Conv2d`, `Embedding`, `Activation` (which has no parameters), `LayerNorm`
//!   and `BatchNorm`. The twin of a `BatchNorm` shares its running statistics. With `remove_mean` off there is no way to
//!   build another one: its clone stands for the twin, and as a part of a model it is refused.
//!
//! # What does not
//!
//! - `candle_nn::Dropout`, which draws another mask at every forward: a recompute through it would silently differ from the
//!   first pass. Use `nn::Dropout`.
//! - `candle_core::Var`: hold `var.as_tensor().clone()`, which is the same variable (same id, same storage, same
//!   gradient), and keep the `Var` itself where the optimizer is. A `Var` has no untracked form, so it could have no
//!   twin.

// Implementations that only lengthen the compiler's list of "other types that implement `Parameters`" (tuples, layers)
// carry `#[diagnostic::do_not_recommend]`, which leaves them out of it.
mod containers;
mod layers;
mod norms;
mod visitor;

#[cfg(test)]
mod tests;

pub(crate) use norms::removes_mean;
pub use visitor::Visitor;

use candle_core::Tensor;
use std::collections::HashSet;

/// A model whose trained tensors can be visited and whose twin can be detached.
///
/// Derive it: `#[derive(Clone, Parameters)]`. Fields that hold no parameters (sizes, names, configuration) are marked
/// `#[checkpoint(skip)]`: they are cloned into the twin and not visited.
///
/// # Writing it by hand
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use memopt_runtime::parameters::{parameters, Parameters, Visitor};
///
/// #[derive(Clone)]
/// struct Scale {
///     factor: Tensor,
///     name: String,
/// }
///
/// impl Parameters for Scale {
///     fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
///         visitor.field("factor", &self.factor);
///     }
///
///     fn detached(&self) -> Self {
///         Self { factor: self.factor.detached(), name: self.name.clone() }
///     }
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let factor = Var::ones(3, DType::F32, &Device::Cpu)?;
/// let scale = Scale { factor: factor.as_tensor().clone(), name: "gain".into() };
/// assert_eq!(parameters(&scale)[0].0, "factor");
///
/// let twin = scale.detached();
/// assert!(!twin.factor.track_op());
/// factor.set(&Tensor::new(&[1f32, 2., 3.], &Device::Cpu)?)?; // the twin sees it: one storage
/// assert_eq!(twin.factor.to_vec1::<f32>()?, [1., 2., 3.]);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which parameters it holds",
    label = "does not implement `Parameters`",
    note = "a struct or enum of yours that holds parameters: `#[derive(Clone, Parameters)]` on it",
    note = "a field that holds none: `#[checkpoint(skip)]` on the field, to clone it into the twin and not visit it"
)]
pub trait Parameters: Clone {
    /// Calls the visitor with every tensor that is trained, in the order of declaration, with its path: field names
    /// and indices joined by dots.
    fn visit_parameters(&self, visitor: &mut Visitor<'_>);

    /// The detached twin: the same model over the same storage, whose tensors are not tracked.
    ///
    /// A forward through it gives the same values and builds no graph. Nothing is copied: what an optimizer writes
    /// into a variable later is seen by the twin.
    #[must_use]
    fn detached(&self) -> Self;
}

/// The trained tensors of a model, each once, whatever the number of its names.
pub(crate) fn distinct<M: Parameters>(model: &M) -> Vec<Tensor> {
    let mut seen = HashSet::new();
    let mut all: Vec<Tensor> = parameters(model).into_iter().map(|(_, tensor)| tensor).collect();
    all.retain(|tensor| seen.insert(tensor.id()));
    all
}

/// Every trained tensor of `model` with its path, in the order of declaration.
///
/// The tensors are handles: they are the model's own variables, not copies.
pub fn parameters<M: Parameters>(model: &M) -> Vec<(String, Tensor)> {
    let mut found = Vec::new();
    let mut collect = |path: &str, tensor: &Tensor| found.push((path.to_owned(), tensor.clone()));
    model.visit_parameters(&mut Visitor::new(&mut collect));
    found
}
