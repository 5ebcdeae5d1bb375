//! One real step of a plan, of which nothing is left.

use crate::checkpoint::Planned;
use crate::compress::counts;
use crate::memory::{is_counting, Curve, Scope, Timeline};
use crate::module::{Checkpointable, Signal};
use crate::Result;
use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a step took.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Peak of counted bytes beyond those before the step; `None` without the counting allocator.
    pub(super) peak: Option<usize>,
    pub(super) time: Duration,
    /// The memory curve, if bytes are counted and nobody else records one on this thread.
    pub(super) curve: Option<Curve>,
    /// Inputs that were kept as they are since their compressor could not hold them, by segment.
    pub(super) fallbacks: BTreeMap<String, u64>,
}

/// Runs forward and backward, from the sum of all outputs: the loss that predictions assume.
pub(super) fn step<M: Checkpointable>(model: &Planned<M>, sample: &Signal) -> Result<Measured> {
    let before = fallbacks();
    let start = Instant::now();
    let scope = if is_counting() { Scope::enter("optimize").ok() } else { None };
    let timeline = Timeline::start().ok();
    let outputs = model.rehearse(sample.clone())?.into_tensors()?;
    let tracked = outputs.iter().filter(|y| y.track_op() && y.dtype().is_float());
    let sums = tracked.map(|y| y.sum_all()?.to_dtype(DType::F32)).collect::<candle_core::Result<Vec<_>>>()?;
    let store = match sums.is_empty() {
        true => GradStore::default(),
        false => Tensor::stack(&sums, 0)?.sum_all()?.backward()?,
    };
    drop((outputs, sums));
    let time = start.elapsed();
    let peak = scope.map(|scope| scope.finish().peak_above_start());
    let curve = timeline.map(Timeline::finish);
    drop(store);
    Ok(Measured { peak, time, curve, fallbacks: since(&before) })
}

/// Fallbacks of each segment since the process began.
pub(super) fn fallbacks() -> BTreeMap<String, u64> {
    counts().into_iter().map(|counts| (counts.segment, counts.fallbacks)).collect()
}

/// Fallbacks since then, of the segments that have some.
pub(super) fn since(before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let of = |(segment, now): (String, u64)| {
        // Somebody may have begun to count anew.
        let before = before.get(&segment).copied().filter(|&before| before <= now).unwrap_or_default();
        (segment, now - before)
    };
    fallbacks().into_iter().map(of).filter(|(_, count)| *count > 0).collect()
}
