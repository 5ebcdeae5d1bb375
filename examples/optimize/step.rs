//! A training step that is counted and timed.

use candle_core::{Result, Tensor};
use memopt::checkpoint::Planned;
use memopt::memory::Scope;
use memopt::Checkpointable;
use std::time::Instant;

/// What a step took.
#[derive(Clone, Copy)]
pub struct Step {
    /// Bytes beyond those before the step.
    pub peak: usize,
    pub ms: f64,
}

/// A training step without an optimizer.
pub fn step<M: Checkpointable>(net: &Planned<M>, x: &Tensor) -> Result<Step> {
    let scope = Scope::enter("step").map_err(memopt::Error::from)?;
    let start = Instant::now();
    let loss = net.run(x, true)?.into_dense("logits")?.mean_all()?;
    let gradients = loss.backward()?;
    drop((gradients, loss));
    let ms = start.elapsed().as_secs_f64() * 1e3;
    Ok(Step { peak: scope.finish().peak_above_start(), ms })
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
