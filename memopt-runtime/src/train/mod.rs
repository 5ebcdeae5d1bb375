//! Training: from micro-batches' losses to steps.
//!
//! An [`Accumulator`] owns the step. Each micro-batch's loss goes in with the number of samples that it is a mean over; at the
//! last micro-batch of a window the optimizer steps by what the whole batch's gradient is, however it was split.
//!
//! ```
//! use candle_core::{DType, Device, Tensor, Var};
//! use memopt_runtime::train::{Accumulator, AccumulatorConfig, Clip, NamedParameters, Schedule, Sgd, SgdConfig};
//!
//! let w = Var::new(&[1f32, -2.], &Device::Cpu)?;
//! let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
//! let sgd = Sgd::new(&parameters, SgdConfig { momentum: 0.9, ..SgdConfig::new(0.1) })?;
//! let config = AccumulatorConfig {
//!     steps: 2,
//!     clip: Clip::GlobalNorm(10.),
//!     schedule: Some(Schedule::cosine(0.1, 0., 100)?.after_warm_up(10, 0.1)?),
//!     ..Default::default()
//! };
//! let mut accumulator = Accumulator::new(sgd, config)?;
//!
//! for samples in [3, 1, 2] {
//!     let x = Tensor::ones((samples, 2), DType::F32, &Device::Cpu)?;
//!     let loss = x.broadcast_mul(&w)?.sum(1)?.sqr()?.mean_all()?; // a mean over the samples, not scaled by anything
//!     if let Some(step) = accumulator.backward(&loss, samples)? {
//!         assert_eq!((step.samples, step.micro_batches), (4, 2));
//!         println!("{step}");
//!     }
//! }
//! let tail = accumulator.finish()?; // the epoch's end: the two samples that are left
//! assert_eq!(tail.map(|step| step.samples), Some(2));
//! # Ok::<(), memopt_runtime::Error>(())
//! ```
//!
//! # What is where
//!
//! ```text
//! trainer         epochs, evaluations, snapshots, resumption, a log: for those who do not write their own loop
//! accumulator     the window, and the step's stages in their one order: reduce, unscale, check, clip, step, rescale
//!   optimizer     SGD and AdamW in one pass over each parameter, with states that can be saved; Candle's optimizers
//!   scaler        the dynamic loss scale
//!   clip          by global norm, by value
//!   schedule      learning rates as functions of the step; scaling with the batch
//!   gradients     buffers by parameter
//!   parameters    what is trained, by name
//!   group         sums over the processes that train together; `ranks`: by their communicator
//! suggest         micro-batch and number of micro-batches that fit a memory budget
//! ```
//!
//! Sums are formed in a fixed order, and an element's update depends on nothing but its own numbers: any number of threads
//! gives the same bits.

mod accumulator;
mod clip;
mod gradients;
mod group;
mod optimizer;
mod parameters;
mod piece;
mod ranks;
mod scaler;
mod schedule;
mod state;
mod suggest;
mod trainer;

pub use accumulator::{lost, reset_lost, Accumulator, AccumulatorConfig, Lost, Norms, Skipped, Step, Totals};
pub use clip::{clip_by_global_norm, clip_by_value, global_norm, Clip, Clipped};
pub use gradients::Gradients;
pub use optimizer::{AdamW, AdamWConfig, CandleOptimizer, Optimizer, ParameterGroup, Sgd, SgdConfig};
pub use parameters::{NamedParameters, Parameter};
pub use ranks::synchronized_norms;
pub use scaler::{Scaler, ScalerConfig};
pub use schedule::{effective_batch, RateScaling, Schedule};
pub use suggest::{suggest, Suggestion};
pub use trainer::{
    load_training, save_training, Bare, Evaluation, Metrics, NormMode, Pending, Progress, Resumed, Settings,
    StepReport, Trainable, Trainer, TrainerConfig, Training, TrainingSummary,
};

// A parameter is computed in the type in which ranks add up its gradients.
use crate::dist::sum_type as real_dtype;
