#![doc = include_str!("../README.md")]

// The derive macros name this crate `memopt`, here too.
extern crate self as memopt;

pub mod models;
#[cfg(feature = "report")]
pub mod report;

/// Implements [`Checkpointable`](trait@Checkpointable), [`Parameters`](trait@Parameters) and Candle's `ModuleT` for a
/// struct or an enum.
///
/// `#[spatial_split(...)]` says in which order the fields run. It *is* the forward, so that how a model is cut and what it
/// computes cannot disagree.
///
/// ```
/// # use candle_core::{Device, ModuleT, Tensor};
/// # use memopt::module::{Context, Signal};
/// # use memopt::parameters::Visitor;
/// use memopt::prelude::*;
/// use memopt::Checkpointable;
/// # #[derive(Clone)] struct Scale(f64);
/// # impl Parameters for Scale {
/// #     fn visit_parameters(&self, _: &mut Visitor<'_>) {}
/// #     fn detached(&self) -> Self { self.clone() }
/// # }
/// # impl Checkpointable for Scale {
/// #     fn forward(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
/// #         Ok(x.into_dense(context.path())?.affine(self.0, 0.)?.into())
/// #     }
/// # }
///
/// #[derive(Clone, Checkpointable)]
/// #[spatial_split(first, second)] // second(first(x))
/// struct Chain { first: Scale, second: Scale }
///
/// #[derive(Clone, Checkpointable)]
/// #[spatial_split(join(add; (first, second), shortcut), last)] // last(second(first(x)) + shortcut(x))
/// struct Residual { first: Scale, second: Scale, shortcut: Option<Scale>, last: Scale }
///
/// let double = || Scale(2.);
/// let chain = Chain { first: double(), second: double() };
/// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// assert_eq!(chain.forward_t(&x, true)?.to_vec1::<f32>()?, [4., 8.]);
///
/// let residual = Residual { first: double(), second: double(), shortcut: None, last: double() };
/// assert_eq!(residual.forward_t(&x, true)?.to_vec1::<f32>()?, [10., 20.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Splits
///
/// ```text
/// #[spatial_split(step, step, ...)]
/// step   = field | join(op; branch, branch, ...)
/// branch = step | (step, step, ...)
/// op     = add | mul | and | iand | concat | self.method
/// ```
///
/// - Each field that is not `#[checkpoint(skip)]` is a step exactly once. The fields of a tuple struct are `0`, `1`, ...
/// - A field is of any type that is `Checkpointable`: also lists, arrays, tuples, `Box`, type parameters, and `Option`,
///   whose `None` changes nothing.
/// - The branches of a join are given the same input, and `op` makes one signal of their outputs: `add`, `mul`, `and`
///   (the product of spikes), `iand` (`(1 - first) * second`, two branches), `concat` (along the channels).
/// - `self.method` is a method of the type, `fn(&self, &[Signal], &mut Context) -> Result<Signal>`. It is not part of a path
///   and not cut further.
///
/// ```
/// # use candle_core::{Device, ModuleT, Tensor};
/// # use memopt::parameters::Visitor;
/// use memopt::module::{Context, Signal};
/// use memopt::prelude::*;
/// use memopt::Checkpointable;
/// # #[derive(Clone)] struct Scale(f64);
/// # impl Parameters for Scale {
/// #     fn visit_parameters(&self, _: &mut Visitor<'_>) {}
/// #     fn detached(&self) -> Self { self.clone() }
/// # }
/// # impl Checkpointable for Scale {
/// #     fn forward(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
/// #         Ok(x.into_dense(context.path())?.affine(self.0, 0.)?.into())
/// #     }
/// # }
///
/// #[derive(Clone, Checkpointable)]
/// #[spatial_split(join(self.mix; query, (key, join(mul; left, right))))]
/// struct Mixer<M> {
///     query: M,
///     key: M,
///     left: Scale,
///     right: Scale,
///     #[checkpoint(skip)]
///     rate: f64,
/// }
///
/// impl<M> Mixer<M> {
///     fn mix(&self, branches: &[Signal], context: &mut Context) -> memopt::Result<Signal> {
///         match branches {
///             [Signal::Dense(query), Signal::Dense(key)] => Ok(((query - key)? * self.rate)?.into()),
///             other => Signal::Tuple(other.to_vec()).into_dense(context.path()).map(Signal::from),
///         }
///     }
/// }
///
/// let scale = |factor| Scale(factor);
/// let mixer = Mixer { query: scale(1.), key: scale(2.), left: scale(3.), right: scale(4.), rate: 0.5 };
/// let x = Tensor::new(&[1f32], &Device::Cpu)?;
/// assert_eq!(mixer.forward_t(&x, false)?.to_vec1::<f32>()?, [0.5 * (1. - (2. * 3.) * (2. * 4.))]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Where a split cannot say it
///
/// `#[checkpoint(forward = "run")]` instead of a split: the forward is the method
/// `fn run(&self, x: Signal, context: &mut Context) -> Result<Signal>`, and the type is one part that is not cut. Its
/// fields are visited and need be `Parameters` only, as with `#[derive(Parameters)]`. Where the method uses bounds on
/// type parameters, put them on the type itself.
///
/// ```
/// use candle_core::{Device, ModuleT, Tensor};
/// use memopt::module::{Context, Signal};
/// use memopt::prelude::*;
/// use memopt::Checkpointable;
///
/// #[derive(Clone, Checkpointable)]
/// #[checkpoint(forward = "run")]
/// struct Gain {
///     factor: Tensor,
/// }
///
/// impl Gain {
///     fn run(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
///         Ok(x.into_dense(context.path())?.mul(&self.factor)?.into())
///     }
/// }
///
/// let gain = Gain { factor: Tensor::new(&[2f32, 3.], &Device::Cpu)? };
/// assert_eq!(gain.forward_t(&gain.factor, true)?.to_vec1::<f32>()?, [4., 9.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Enums
///
/// An enum whose variants each hold exactly one unnamed field runs the variant that it is, and adds nothing to the path.
///
/// ```
/// # use candle_core::Tensor;
/// # use memopt::module::{Context, Signal};
/// # use memopt::prelude::*;
/// # #[derive(Clone, Checkpointable)]
/// # #[checkpoint(forward = "run")]
/// # struct Gain { factor: Tensor }
/// # impl Gain {
/// #     fn run(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> { Ok(x) }
/// # }
/// #[derive(Clone, Checkpointable)]
/// enum Layer {
///     Gain(Gain),
///     Stage(Vec<Gain>),
/// }
///
/// #[derive(Clone, Checkpointable)]
/// #[spatial_split(0, 1)]
/// struct Net(Vec<Layer>, #[checkpoint(compressor = "bit")] Gain, #[checkpoint(skip)] usize);
/// ```
///
/// # Attributes
///
/// | on a type | |
/// |---|---|
/// | `#[spatial_split(...)]` | in which order the fields run |
/// | `#[checkpoint(forward = "run")]` | the forward is the method `run`, instead of a split |
/// | `#[checkpoint(segment)]` | a layer-like block that makes a good segment |
/// | `#[checkpoint(time_chunks)]` | it can be run in time chunks: each part must be [`module::TimeChunkable`], and so is the type then |
///
/// | on a field | |
/// |---|---|
/// | `#[checkpoint(skip)]` | holds no parameters and does not run: cloned into the twin |
/// | `#[checkpoint(compressor = "bit")]` | what keeps its input: `null`, `bit`, `byte`, `sparse`, `auto`, or the path of a type that is [`compress::SpikeCompressor`] and `Default` |
///
/// A type with a method (`forward = "..."`, or `self.method` in a join) is run in time chunks only if it is marked
/// `time_chunks`: the macro cannot see what the method does with the window. (Weights that it uses by Candle's own operations,
/// not by [`Context::weight`](module::Context::weight) or by our layers, have gradients within rounding then, not to
/// the bit: [`Session::notes`](module::Session::notes) says so.) With the mark its author says that the
/// output at a time step depends only on that step.
///
/// # What is required
///
/// The type is `Clone`, `Send`, `Sync` and `'static`. Field types that mention a type parameter are required to be
/// `Checkpointable` in the `where` clause (skipped ones: `Clone`).
///
/// `#[derive(Parameters)]` beside it, or an `impl` of Candle's `Module` for the same type, conflicts with what this
/// implements.
pub use memopt_derive::Checkpointable;
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
pub use memopt_runtime::module::Checkpointable;
pub use memopt_runtime::parameters::Parameters;
pub use memopt_runtime::search::optimize;
pub use memopt_runtime::{
    autograd, checkpoint, compress, data, dist, memory, module, nn, parameters, plan, search, snapshot,
    train, Error, Phase, Result,
};

/// What most programs need: `use memopt::prelude::*;`.
pub mod prelude {
    pub use crate::checkpoint::{checkpoint, checkpoint_module, plan_for, Planned, Targets};
    pub use crate::compress::{Auto, Bit, Byte, Null, Pack, Sparse};
    pub use crate::memory::CountingAllocator;
    pub use crate::module::{Context, Session, Signal};
    pub use crate::parameters::Parameters;
    pub use crate::plan::{Keep, Plan};
    pub use crate::search::{optimize, Optimized, Options, Prefer, Profile};
    // The traits' method `forward` would make that of Candle's `Module` ambiguous: only the macro.
    pub use memopt_derive::{Checkpointable, Parameters};
}

/// What the derive macros' output refers to; not part of the interface.
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
