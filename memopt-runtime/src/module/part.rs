//! A handle to any part of a model.

use super::channels::ChannelLayer;
use super::checkpointable::Checkpointable;
use super::composition::Composition;
use super::context::Context;
use super::footprint::{Footprint, Incoming};
use super::linear_map::LinearMap;
use super::signal::Signal;
use super::window_neuron::WindowNeuron;
use super::window_norm::WindowNorm;
use crate::parameters::{parameters, Parameters};
use crate::Result;
use candle_core::Tensor;
use std::any::TypeId;
use std::ops::Range;
use std::sync::Arc;

/// A part of a model, whatever its type; cheap to clone.
#[derive(Clone)]
pub struct Part(Arc<dyn Erased>);

impl Part {
    /// A handle to `module`.
    pub fn of<M: Checkpointable>(module: &M) -> Self {
        Part(Arc::new(module.clone()))
    }

    /// The output for the window `x`.
    ///
    /// # Errors
    /// Those of the part.
    pub fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        self.0.forward(x, context)
    }

    /// The detached twin.
    pub fn detached(&self) -> Self {
        self.0.detached()
    }

    /// Its parameters, with their paths inside it.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        self.0.parameters()
    }

    /// How it is made of parts; `None`: it runs as one.
    pub fn composition(&self) -> Option<Composition> {
        self.0.composition()
    }

    /// The same for some of its output channels, if they do not depend on others.
    ///
    /// # Errors
    /// If there are not as many channels.
    pub fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        self.0.for_channels(channels)
    }

    /// Itself, if it is a layer with weights whose output channels do not depend on each other.
    pub fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        self.0.channel_layer()
    }

    /// Its pieces, if it is a norm over the whole window.
    pub fn window_norm(&self) -> Option<&dyn WindowNorm> {
        self.0.window_norm()
    }

    /// Itself, if going back through it takes no values of its input.
    pub fn linear_map(&self) -> Option<&dyn LinearMap> {
        self.0.linear_map()
    }

    /// Itself on raw buffers, if it is a neuron without weights.
    pub fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        self.0.window_neuron()
    }

    /// What running it in training takes, where it says so.
    pub fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        self.0.footprint(x)
    }

    /// Whether it is marked as a good segment.
    pub fn is_target(&self) -> bool {
        self.0.is_target()
    }

    /// Whether it is of this type, or wraps one that is.
    pub fn is_a(&self, ty: TypeId) -> bool {
        self.0.is_a(ty)
    }

    /// Name of its type.
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }

    /// Whether it can be run in time chunks.
    pub fn is_time_chunkable(&self) -> bool {
        self.0.is_time_chunkable()
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({})", self.0.type_name())
    }
}

/// [`Checkpointable`] without its type.
trait Erased: Send + Sync {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal>;
    fn detached(&self) -> Part;
    fn parameters(&self) -> Vec<(String, Tensor)>;
    fn composition(&self) -> Option<Composition>;
    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>>;
    fn channel_layer(&self) -> Option<&dyn ChannelLayer>;
    fn window_norm(&self) -> Option<&dyn WindowNorm>;
    fn linear_map(&self) -> Option<&dyn LinearMap>;
    fn window_neuron(&self) -> Option<&dyn WindowNeuron>;
    fn footprint(&self, x: &Incoming) -> Option<Footprint>;
    fn is_target(&self) -> bool;
    fn is_a(&self, ty: TypeId) -> bool;
    fn is_time_chunkable(&self) -> bool;
    fn type_name(&self) -> &'static str;
}

impl<M: Checkpointable> Erased for M {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        Checkpointable::forward(self, x, context)
    }

    fn detached(&self) -> Part {
        Part(Arc::new(Parameters::detached(self)))
    }

    fn parameters(&self) -> Vec<(String, Tensor)> {
        parameters(self)
    }

    fn composition(&self) -> Option<Composition> {
        Checkpointable::composition(self)
    }

    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        Checkpointable::for_channels(self, channels)
    }

    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        Checkpointable::channel_layer(self)
    }

    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        Checkpointable::window_norm(self)
    }

    fn linear_map(&self) -> Option<&dyn LinearMap> {
        Checkpointable::linear_map(self)
    }

    fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        Checkpointable::window_neuron(self)
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        Checkpointable::footprint(self, x)
    }

    fn is_target(&self) -> bool {
        Checkpointable::is_target(self)
    }

    fn is_a(&self, ty: TypeId) -> bool {
        Checkpointable::is_a(self, ty)
    }

    fn is_time_chunkable(&self) -> bool {
        Checkpointable::is_time_chunkable(self)
    }

    fn type_name(&self) -> &'static str {
        std::any::type_name::<M>()
    }
}
