//! Differentiable functions over Candle: any number of inputs and outputs, one backward closure, and a graph that keeps
//! alive only what the closure owns. They run under Candle's unmodified `loss.backward()`.
//!
//! Candle's own `CustomOp` takes one to three inputs, gives one output, keeps its inputs' storage alive, and cannot
//! return gradients for weights that it captured. [`apply`] removes these limits:
//!
//! ```
//! use candle_core::{CpuStorage, Device, Var};
//! use memopt_runtime::autograd::{apply, Edge, Gradient, Output};
//!
//! // (x + y, x * y) as one function that keeps x and y, and nothing else
//! let (x, y) = (Var::new(3f64, &Device::Cpu)?, Var::new(5f64, &Device::Cpu)?);
//! let (a, b) = (x.to_scalar::<f64>()?, y.to_scalar::<f64>()?);
//! let outputs = vec![
//!     Output::new(CpuStorage::F64(vec![a + b]), ()),
//!     Output::new(CpuStorage::F64(vec![a * b]), ()),
//! ];
//! let z = apply("sum and product", vec![Edge::to(&x), Edge::to(&y)], outputs, move |gradients| {
//!     let mut parts = (0., 0.);
//!     for (gradient, partial) in gradients.into_iter().zip([(1., 1.), (b, a)]) {
//!         if let Some(g) = gradient {
//!             let g = g.into_tensor().to_scalar::<f64>()?;
//!             parts = (parts.0 + g * partial.0, parts.1 + g * partial.1);
//!         }
//!     }
//!     Ok(vec![
//!         Some(Gradient::new(CpuStorage::F64(vec![parts.0]), ())),
//!         Some(Gradient::new(CpuStorage::F64(vec![parts.1]), ())),
//!     ])
//! })?;
//! let gradients = (&z[0] * &z[1])?.backward()?;           // d/dx (x + y) x y = 2 x y + y^2
//! assert_eq!(gradients.get(&x).unwrap().to_scalar::<f64>()?, 55.);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! # How it works
//!
//! *Edges are scalars.* A function is three kinds of Candle nodes: `Join`s fold the inputs into a scalar, `Run` turns that
//! into the function's scalar *token*, and each output is made from the token by an op that hands over an owned
//! buffer. Candle's backward meets them in the reverse order: the outputs' ops put their gradients into the function's
//! *cell*, `Run` calls the closure once, the `Join`s hand its answers on. An input that another function made is found in
//! a registry by its tensor id and enters as that function's token, so that the graph does not hold the activation, and
//! its gradient goes from cell to cell by value: one gradient alive at an edge, where Candle's own edges have three.
//!
//! # What may be relied on
//!
//! - The closure is called at most once, after the gradients of all outputs that the loss depends on are in; outputs that
//!   nobody used are `None`. It is not called when none got a gradient. It is dropped, with all it saved, before the
//!   backward of any function that it takes its gradient to.
//! - An input that is not tracked by Candle gets no edge, and its gradient, if given, is dropped. If none is tracked, the
//!   outputs are plain tensors and the closure is dropped at once.
//! - What a closure owns lives until its backward is done, or until the graph is dropped: the loss and all outputs.
//! - A tracked input for which the closure gives `None`: a variable has no gradient then, as in plain Candle; a computed
//!   tensor gets zeros of its shape, since Candle wants one.
//! - Contributions to one gradient are added in the order in which backward meets them. Two of them give the same bits in
//!   any order; three or more uses of one tensor may be added in another grouping than in plain Candle.
//! - After an error or a panic in a closure nothing is poisoned; the next forward and backward work.
//! - Chains of 1,000 functions pass on a 2 MiB stack ([`set_depth_limit`]).

mod age;
mod cell;
mod depth;
mod edge;
mod function;
mod gradient;
mod join;
mod leaf;
mod live;
mod output;
mod registry;
mod run;
mod seed;
mod token;
mod trace;
mod view;

pub use depth::{depth_limit, set_depth_limit};
pub use edge::Edge;
pub use function::apply;
pub use gradient::Gradient;
pub use output::Output;
pub use seed::backward_from;
pub use trace::variables_reached;

pub(crate) use age::Age;
pub(crate) use leaf::{leaf, Caught};
pub(crate) use trace::{reached, Reached, Stranger};
pub(crate) use view::view;

/// Number of tensors in the registry of function outputs: those of live functions, and no others.
pub fn registered_outputs() -> usize {
    registry::len()
}
