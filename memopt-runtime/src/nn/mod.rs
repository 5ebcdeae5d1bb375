//! Layers and neurons of spiking networks, each with its own forward and backward, and losses over the window.
//!
//! Every layer takes and gives a window `[T, N, ...]`, time first ([`TimeFirst`] makes it so), on the CPU and in any
//! layout, and implements [`Checkpointable`](crate::module::Checkpointable). What does not fit is an
//! [`Error::LayerInput`](crate::Error::LayerInput) that names the layer's path.
//!
//! - With weights: [`Conv1d`], [`Conv2d`], [`Linear`]; [`init`] makes their first values from a seed.
//! - Norms: [`BatchNorm`] over the whole window, [`LayerNorm`].
//! - Without weights: [`AvgPool2d`], [`MaxPool2d`], [`AdaptiveAvgPool2d`], [`AdaptiveMaxPool2d`], [`Flatten`],
//!   [`TimeFirst`], [`Identity`].
//! - Neurons: [`Lif`], [`If`], [`Plif`], [`Psn`], with a [`Surrogate`] for the step function's gradient.
//! - [`Dropout`], whose mask is a pure function of what runs, where and when.
//! - Losses: [`cross_entropy_of_mean`], [`tet`], [`mse_of_rates`].
//! - Layers of candle-nn are parts of models too: `Linear`, `Conv1d`, `Conv2d`, `Embedding`, `Activation`; and `LayerNorm`
//!   and `BatchNorm`, which our functions compute.
//!
//! Each is a `ModuleT` of Candle's too, for layers that stand by themselves: `conv.forward_t(&x, true)`.
//!
//! # The same bits under every plan
//!
//! What a layer gives depends on the layer and its input only, never on how the window is cut, which parts are run again,
//! or how many threads there are:
//!
//! - Every matrix product is made for one image or one time step, on one thread; threads share the images out. Where images
//!   share products (tiles of a [`Conv2d`]), these are of a kind whose elements do not depend on each other.
//! - Every sum over the window goes one time step after the other: statistics from the first to the last, gradients from
//!   the last to the first, and from the last image to the first within a step.
//! - Gradients of weights are added into a buffer that later chunks of time steps began
//!   ([`WeightGradient`](crate::module::WeightGradient)), so that the additions are the same sequence.
//!
//! # Dtypes
//!
//! f32 and f64 are computed as they are. bf16 and f16 are computed in f32 and converted element by element where they are
//! read and written; what is carried over time (the membrane potential and its gradient, the sum that is a weight's
//! gradient) stays in f32, so that a step does not round what the next one needs.

mod batch_norm;
mod candle_layers;
mod candle_norms;
mod cast;
#[cfg(test)]
mod chunk_tests;
mod conv;
mod dropout;
pub(crate) mod element;
mod exp;
mod flatten;
mod function;
mod identity;
pub mod init;
mod input;
mod lanes;
mod layer_norm;
mod linear;
mod loss;
mod module_t;
mod neuron;
mod parallel;
mod pool;
mod product;
mod random;
pub(crate) mod reduce;
pub(crate) mod simd;
mod spikes;
mod surrogate;
mod time_chunks;
mod time_first;

pub use batch_norm::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNormConfig};
pub use conv::{Conv, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvConfig, Sizes};
pub use dropout::Dropout;
pub use flatten::Flatten;
pub use identity::Identity;
pub use layer_norm::{LayerNorm, LayerNormConfig};
pub use linear::{Linear, LinearConfig};
pub use loss::{cross_entropy_of_mean, mse_of_rates, tet};
pub use neuron::{If, Lif, Plif, Psn, Reset};
pub use pool::{AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d};
pub(crate) use random::Stream;
pub use surrogate::Surrogate;
pub use time_first::TimeFirst;
