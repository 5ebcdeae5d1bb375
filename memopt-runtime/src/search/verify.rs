//! One real step of a plan, of which nothing is left.

use crate::autograd::{backward_from, Gradient};
use crate::checkpoint::Planned;
use crate::memory::{is_counting, Curve, Scope, Timeline};
use crate::module::{Checkpointable, Signal};
use crate::Result;
use std::time::{Duration, Instant};

/// What a step took.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Peak of counted bytes beyond those before the step; `None` without the counting allocator.
    pub(super) peak: Option<usize>,
    pub(super) time: Duration,
    /// The memory curve, if bytes are counted and nobody else records one on this thread.
    pub(super) curve: Option<Curve>,
}

/// Runs forward and backward; the gradient of every output element is one.
pub(super) fn step<M: Checkpointable>(model: &Planned<M>, sample: &Signal) -> Result<Measured> {
    let start = Instant::now();
    let scope = if is_counting() { Scope::enter("optimize").ok() } else { None };
    let timeline = Timeline::start().ok();
    let outputs = model.rehearse(sample.clone())?.into_tensors()?;
    let mut roots = Vec::with_capacity(outputs.len());
    for y in outputs {
        if y.track_op() && y.dtype().is_float() {
            let gradient = Gradient::from(y.ones_like()?);
            roots.push((y, gradient));
        }
    }
    let store = backward_from(roots)?;
    let time = start.elapsed();
    let peak = scope.map(|scope| scope.finish().peak_above_start());
    let curve = timeline.map(Timeline::finish);
    drop(store);
    Ok(Measured { peak, time, curve })
}
