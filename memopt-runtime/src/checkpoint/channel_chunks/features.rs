//! What goes into the layer with weights, as a recompute has it, and the way back from there.

use crate::autograd::Gradient;
use crate::checkpoint::leaves::{run_leaves, Leaf};
use crate::checkpoint::norm_neurons::lost;
use crate::checkpoint::replay::{in_recompute, KeptInput};
use crate::checkpoint::window::{cut, WindowBuffer};
use crate::module::{Context, LinearMap, Signal, States};
use crate::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes of the input that are unpacked at a time, about.
const UNPACKED: usize = 4 << 20;

/// What the layers `before` give for the input, out of any graph: without layers the input as it is kept, so that spikes
/// are not unpacked; else a tensor, from a large input some time steps at a time.
pub(super) fn features(
    before: &[Leaf],
    input: &KeptInput,
    segment: &str,
    context: &mut Context,
) -> Result<Signal> {
    if before.is_empty() {
        return input.signal();
    }
    let twin: Vec<Leaf> = before.iter().map(Leaf::detached).collect();
    let steps = input.dims().first().copied().unwrap_or_default();
    let ranges = cut(steps, input.bytes().div_ceil(UNPACKED));
    let can_be_cut = ranges.len() > 1 && before.iter().all(Leaf::is_time_chunkable);
    if !(can_be_cut && input.unpack_steps(0..1)?.is_some()) {
        let x = input.unpack()?;
        let features = in_recompute(segment, || run_leaves(&twin, x, context))?;
        return Ok(features.contiguous()?.into());
    }
    let states = Arc::new(Mutex::new(States::default()));
    let mut whole: Option<WindowBuffer> = None;
    let behind = context.clone();
    for range in ranges {
        let Some(x) = input.unpack_steps(range.clone())? else { return Err(lost()) };
        let mut chunk = behind.chunk(range.start, states.clone());
        let part = in_recompute(segment, || run_leaves(&twin, x, &mut chunk))?;
        context.go_on_behind(&chunk);
        match &mut whole {
            Some(whole) => whole.push(&part)?,
            None => whole.insert(WindowBuffer::like(&part, steps)?).push(&part)?,
        }
    }
    Ok(whole.ok_or_else(lost)?.into_tensor().into())
}

/// The gradient of an input of these dimensions from that of the features, if the layers `before` are such as need no
/// values for it; else the gradient as it came.
pub(super) fn without_values(
    before: &[Leaf],
    input: &[usize],
    gradient: Gradient,
) -> Result<Result<Gradient, Gradient>> {
    let maps: Option<Vec<&dyn LinearMap>> = before.iter().map(Leaf::linear_map).collect();
    let Some(maps) = maps else { return Ok(Err(gradient)) };
    let mut inputs = Vec::with_capacity(maps.len());
    let mut dims = input.to_vec();
    for map in &maps {
        let output = map.output_dims(&dims)?;
        inputs.push(std::mem::replace(&mut dims, output));
    }
    let back = |gradient, (map, input): (&&dyn LinearMap, &Vec<usize>)| map.transposed(gradient, input);
    maps.iter().zip(&inputs).rev().try_fold(gradient, back).map(Ok)
}
