//! A plan for a model, in a few step-times.
//!
//! ```text
//! trace     one forward without a graph: what flows into each part, which encodings hold it
//! simulate  a step under any plan, on a heap that counts and holds nothing: microseconds
//! levels    the presets that people know, on that model instead of by running each trial
//! budget    the fastest plan that fits in so many bytes, exactly
//! verify    one real step of the plan that was found
//! ```
//!
//! The layers say what they take by formulas ([`Footprint`](crate::module::Footprint)), so that nothing need be measured and a
//! batch that does not fit can be planned. Times come from a [`CostTable`] with a version: the same plan on every run.
//!
//! Searching leaves nothing behind: running statistics, random numbers, states and gradients are as before, bit for bit.

mod budget;
mod cost;
mod heap;
mod levels;
mod locate;
mod optimize;
mod optimized;
mod options;
mod outline;
mod predict;
mod presets;
mod simulate;
mod summary;
mod trace;
mod verify;
mod words;

pub use cost::CostTable;
pub use heap::Mark;
pub use optimize::{front, max_batch, optimize, predict_plan, FrontPoint, Sample};
pub use optimized::{EvalView, Optimized};
pub use options::{Agreement, Options};
pub use predict::predict_plan_with;
pub use presets::{CheckpointBudget, Level, Prefer, Profile};
pub use simulate::{Prediction, SegmentPrediction};
pub use summary::{Resident, SegmentSummary, Summary};

#[cfg(test)]
mod tests;
