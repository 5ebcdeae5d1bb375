#![doc = include_str!("../README.md")]

/// ```
/// use candle_core::{DType, Device, Var};
/// use candle_nn::Linear;
/// use memopt::parameters::parameters;
/// use memopt::Parameters;
///
/// #[derive(Clone, Parameters)]
/// struct Net {
///     features: Vec<Stage>, // features.0.weight, features.0.bias, ...
///     classifier: Linear,   // classifier.weight, classifier.bias
///     #[checkpoint(skip)]
///     steps: usize,
/// }
///
/// #[derive(Clone, Parameters)]
/// enum Stage {
///     Dense(Linear),
/// }
///
/// let linear = || -> candle_core::Result<Linear> {
///     let weight = Var::zeros((3, 3), DType::F32, &Device::Cpu)?;
///     Ok(Linear::new(weight.as_tensor().clone(), None))
/// };
/// let net = Net { features: vec![Stage::Dense(linear()?)], classifier: linear()?, steps: 4 };
/// let names: Vec<String> = parameters(&net).into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["features.0.weight", "classifier.weight"]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub use memopt_derive::Parameters;
pub use memopt_runtime::parameters::Parameters;
pub use memopt_runtime::{autograd, checkpoint, compress, memory, parameters, Error, Phase, Result};

/// What most programs need: `use memopt::prelude::*;`.
pub mod prelude {
    pub use crate::checkpoint::{checkpoint, checkpoint_module, Options};
    pub use crate::compress::{Auto, Bit, Byte, Null, Pack, Sparse};
    pub use crate::memory::CountingAllocator;
    pub use crate::parameters::Parameters;
    pub use memopt_derive::Parameters;
}

/// What the derive macros' output refers to; not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use memopt_runtime::parameters::{Parameters, Visitor};
}
