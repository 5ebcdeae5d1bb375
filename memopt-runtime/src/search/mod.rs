//! A plan for a model, in a few step-times.
//!
//! ```text
//! trace     one forward without a graph: what flows into each part, which encodings hold it
//! simulate  a step under any plan, on a heap that counts and holds nothing: microseconds
//! levels    the presets that people know, on that model instead of by running each trial
//! budget    the fastest plan that fits in so many bytes, exactly
//! verify    one real step of the plan that was found; where it takes more than the budget, searched again
//! ```
//!
//! The layers say what they take by formulas ([`Footprint`](crate::module::Footprint)), so that nothing need be measured and a
//! batch that does not fit can be planned. Times come from a [`CostTable`] with a version: the same plan on every run; or they
//! are measured, on request.
//!
//! Searching leaves nothing behind: running statistics, random numbers, states and gradients are as before, bit for bit.

mod account;
mod batch;
mod budget;
mod cost;
mod front;
mod heap;
mod levels;
mod locate;
mod measure;
mod optimize;
mod optimized;
mod options;
mod outline;
mod predict;
mod presets;
mod sample;
mod simulate;
mod summary;
mod trace;
mod verify;
mod words;

pub use crate::dist::Agreement;
pub(crate) use batch::Batches;
pub use batch::{max_batch, plan_for_batch, LARGEST_BATCH};
pub use cost::CostTable;
pub use front::{front, FrontPoint};
pub use heap::Mark;
pub use optimize::optimize;
pub use optimized::{EvalView, Optimized};
pub use options::Options;
pub use predict::{predict_plan, predict_plan_with};
pub use presets::{CheckpointBudget, Level, Prefer, Profile};
pub use sample::Sample;
pub use simulate::{Prediction, SegmentPrediction};
pub use summary::{Resident, SegmentSummary, Summary};

#[cfg(test)]
mod tests;
