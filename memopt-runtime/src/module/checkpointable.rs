//! What every layer and every model is.

use super::channels::ChannelLayer;
use super::composition::Composition;
use super::context::Context;
use super::footprint::{Footprint, Incoming};
use super::linear_map::LinearMap;
use super::part::Part;
use super::signal::Signal;
use super::window_neuron::WindowNeuron;
use super::window_norm::WindowNorm;
use crate::parameters::Parameters;
use crate::Result;
use std::any::TypeId;
use std::ops::Range;

/// A layer or a model that can be run in parts, and whose parts can be run again.
///
/// The same input, parameters and context must give the same output, bit for bit: whatever else a forward depends on
/// (statistics, random numbers, neuron states) comes through the [`Context`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run in parts",
    label = "does not implement `Checkpointable`",
    note = "a struct or enum of yours: `#[derive(Clone, Checkpointable)]` on it",
    note = "configuration: `#[checkpoint(skip)]` on the field",
    note = "`candle_nn::Dropout` cannot be run again exactly: use `memopt::nn::Dropout`"
)]
pub trait Checkpointable: Parameters + Send + Sync + 'static {
    /// The output for the window `x`, `[T, N, ...]`.
    ///
    /// # Errors
    /// If the input does not fit the layer.
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal>;

    /// How it is made of parts; `None`: it runs as one.
    fn composition(&self) -> Option<Composition> {
        None
    }

    /// Whether it is marked as a layer-like block that makes a good segment: `#[checkpoint(segment)]`.
    fn is_target(&self) -> bool {
        false
    }

    /// Whether it is of this type, or wraps one that is: an option, a box, an enum whose variant runs.
    fn is_a(&self, ty: TypeId) -> bool {
        ty == TypeId::of::<Self>()
    }

    /// The layer for some of its output channels, if they do not depend on others: those of `[T, N, C, ...]`, for a layer
    /// with weights and for one that works on each element or channel by itself.
    ///
    /// # Errors
    /// If there are not as many channels.
    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        let _ = channels;
        Ok(None)
    }

    /// Itself, if it is a layer with weights whose output channels do not depend on each other.
    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        None
    }

    /// Its pieces, if it is a norm whose statistics are taken over the whole window.
    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        None
    }

    /// Itself, if going back through it takes no values of its input.
    fn linear_map(&self) -> Option<&dyn LinearMap> {
        None
    }

    /// Itself on raw buffers, if it is a neuron without weights.
    fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        None
    }

    /// What running it in training takes, from the dimensions of its input; `None`: it does not say, or the input does not
    /// fit. Of a layer without a composition; a search for plans needs it.
    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let _ = x;
        None
    }

    /// Whether the output at a time step depends only on that step and on states that the context carries, so that the
    /// window can be run in chunks (see [`TimeChunkable`](super::TimeChunkable) for its weights). Of a layer without a composition it must be said.
    fn is_time_chunkable(&self) -> bool {
        self.composition().is_some_and(|composition| composition.is_time_chunkable())
    }
}
