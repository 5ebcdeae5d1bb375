//! What the derive macros' output refers to; not part of the interface.

pub use candle_core::{ModuleT, Result as CandleResult, Tensor};
pub use memopt_runtime::compress::{Auto, Bit, Byte, Null, Sparse};
pub use memopt_runtime::module::Part as AnyPart;
pub use memopt_runtime::module::{
    forward_t, ChannelLayer, Checkpointable, Composition, Context, Footprint, Incoming, JoinOp, Signal,
    TimeChunkable, WindowNeuron, WindowNorm,
};
pub use memopt_runtime::parameters::{Parameters, Visitor};
pub use memopt_runtime::Result;

use memopt_runtime::compress::SpikeCompressor;
use memopt_runtime::module::{self, Step};
use std::any::TypeId;
use std::ops::Range;
use std::sync::Arc;

/// What the macro does with a field that runs: the methods of [`Checkpointable`] and of [`Parameters`] in one trait
/// without supertraits, so that the compiler reports a type that is not `Checkpointable` once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run in parts",
    label = "does not implement `Checkpointable`",
    note = "a struct or enum of yours: `#[derive(Clone, Checkpointable)]` on it",
    note = "configuration: `#[checkpoint(skip)]` on the field",
    note = "`candle_nn::Dropout` cannot be run again exactly: use `memopt::nn::Dropout`"
)]
pub trait Part: Sized {
    /// [`Parameters::visit_parameters`].
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// [`Parameters::detached`].
    fn twin(&self) -> Self;

    /// The step called `name` of a composition.
    fn step(&self, name: &'static str) -> Step;

    /// The step called `name` of a composition, with a compressor for its input.
    fn step_with<C: NamedCompressor>(&self, name: &'static str) -> Step;

    /// [`Checkpointable::forward`].
    ///
    /// # Errors
    /// Those of the part.
    fn feed(&self, x: Signal, context: &mut Context) -> Result<Signal>;

    /// [`Checkpointable::composition`].
    fn parts(&self) -> Option<Composition>;

    /// [`Checkpointable::for_channels`].
    ///
    /// # Errors
    /// Those of the part.
    fn slice(&self, channels: Range<usize>) -> Result<Option<AnyPart>>;

    /// [`Checkpointable::channel_layer`].
    fn layer(&self) -> Option<&dyn ChannelLayer>;

    /// [`Checkpointable::window_norm`].
    fn norm(&self) -> Option<&dyn WindowNorm>;

    /// [`Checkpointable::window_neuron`].
    fn neuron(&self) -> Option<&dyn WindowNeuron>;

    /// [`Checkpointable::footprint`].
    fn takes(&self, x: &Incoming) -> Option<Footprint>;

    /// [`Checkpointable::is_target`].
    fn target(&self) -> bool;

    /// [`Checkpointable::is_a`].
    fn kind(&self, ty: TypeId) -> bool;

    /// [`Checkpointable::is_time_chunkable`].
    fn chunkable(&self) -> bool;
}

impl<M: Checkpointable> Part for M {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.visit_parameters(visitor);
    }

    fn twin(&self) -> Self {
        self.detached()
    }

    fn step(&self, name: &'static str) -> Step {
        Step::Part { name: name.into(), part: module::Part::of(self), compressor: None }
    }

    fn step_with<C: NamedCompressor>(&self, name: &'static str) -> Step {
        let compressor = Some(Arc::new(C::default()) as Arc<dyn SpikeCompressor>);
        Step::Part { name: name.into(), part: module::Part::of(self), compressor }
    }

    fn feed(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        self.forward(x, context)
    }

    fn parts(&self) -> Option<Composition> {
        self.composition()
    }

    fn slice(&self, channels: Range<usize>) -> Result<Option<AnyPart>> {
        self.for_channels(channels)
    }

    fn layer(&self) -> Option<&dyn ChannelLayer> {
        self.channel_layer()
    }

    fn norm(&self) -> Option<&dyn WindowNorm> {
        self.window_norm()
    }

    fn neuron(&self) -> Option<&dyn WindowNeuron> {
        self.window_neuron()
    }

    fn takes(&self, x: &Incoming) -> Option<Footprint> {
        self.footprint(x)
    }

    fn target(&self) -> bool {
        self.is_target()
    }

    fn kind(&self, ty: TypeId) -> bool {
        self.is_a(ty)
    }

    fn chunkable(&self) -> bool {
        self.is_time_chunkable()
    }
}

/// The forward of a model that has a composition: to run it.
///
/// # Errors
/// Those of the parts.
pub fn run<M: Checkpointable>(model: &M, x: Signal, context: &mut Context) -> Result<Signal> {
    match model.composition() {
        Some(composition) => composition.run(x, context),
        None => Ok(x),
    }
}

/// A method of a model that is its forward.
pub type Forward<M> = fn(&M, Signal, &mut Context) -> Result<Signal>;

/// The forward of a model that is a method.
///
/// # Errors
/// Those of the method.
pub fn run_method<M>(model: &M, method: Forward<M>, x: Signal, context: &mut Context) -> Result<Signal> {
    method(model, x, context)
}

/// A method of a model that joins branches.
pub type Join<M> = fn(&M, &[Signal], &mut Context) -> Result<Signal>;

/// The operation `self.name` of a join.
pub fn join_method<M: Checkpointable>(name: &'static str, model: &M, method: Join<M>) -> JoinOp {
    JoinOp::method(name, model, method)
}

/// [`Checkpointable::is_time_chunkable`] of a part that must be.
pub fn is_time_chunkable<M: TimeChunkable>(part: &M) -> bool {
    part.is_time_chunkable()
}

/// What `#[checkpoint(compressor = "path::Type")]` can name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be named in `#[checkpoint(compressor = \"...\")]`",
    label = "not a compressor that can be made from its name",
    note = "it needs `memopt::compress::SpikeCompressor` and `Default`"
)]
pub trait NamedCompressor: SpikeCompressor + Default + 'static {}

#[diagnostic::do_not_recommend]
impl<C: SpikeCompressor + Default + 'static> NamedCompressor for C {}
