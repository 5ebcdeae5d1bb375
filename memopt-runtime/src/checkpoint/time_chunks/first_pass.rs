//! The first pass over a window in time chunks.

use super::chunked::{check_steps, chunk, no_steps, Chunked};
use crate::autograd::Gradient;
use crate::checkpoint::leaves::{run_leaves, Leaf};
use crate::checkpoint::window::WindowBuffer;
use crate::module::{Context, NormStatistics, States, WindowNorm};
use crate::storage::{self, checksum};
use crate::{Error, Result};
use candle_core::Tensor;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// The states of a stage's neurons before each chunk.
pub(super) type Borders = Vec<States>;

/// What a first pass leaves for the way back.
#[derive(Default)]
pub(super) struct Ran {
    /// Of the layers before the norm.
    pub(super) before: Borders,
    /// Of those behind it, or of all if there is none.
    pub(super) after: Borders,
    /// Checksums of the output of each chunk, if the recompute is verified.
    pub(super) outputs: Option<Vec<u64>>,
}

/// The output over the window, and the states at the borders.
pub(super) fn first_pass(
    chunked: &Chunked,
    x: &Tensor,
    first: &Context,
    outer: &mut Context,
    (name, verify): (&str, bool),
) -> Result<(Tensor, Ran)> {
    let steps = x.dim(0)?;
    let ranges = chunked.ranges(steps);
    let states = Arc::new(Mutex::new(States::default()));
    let behind = RefCell::new(first.clone());
    let stage = |leaves: &[Leaf], input: &mut dyn FnMut(Range<usize>) -> Result<Tensor>| {
        let mut output: Option<WindowBuffer> = None;
        let mut borders = Borders::new();
        for range in &ranges {
            borders.push(states.lock().clone());
            let mut context = first.chunk(range.start, states.clone());
            let y = run_leaves(leaves, input(range.clone())?, &mut context)?;
            behind.borrow_mut().go_on_behind(&context);
            check_steps(&y, range, name)?;
            if y.track_op() {
                return Err(Error::HiddenParameter { segment: name.to_owned() });
            }
            match &mut output {
                Some(output) => output.push(&y)?,
                None => output.insert(WindowBuffer::like(&y, steps)?).push(&y)?,
            }
        }
        // The stage's own neurons are those that left another state.
        let after = states.lock().clone();
        if let Some(before) = borders.first().cloned() {
            borders.iter_mut().for_each(|border| border.retain_changed(&before, &after));
        }
        Ok::<_, Error>((output.ok_or_else(|| no_steps(name))?.into_tensor(), borders))
    };
    let mut ran = Ran::default();
    let y = match chunked.norm() {
        None => {
            let (y, borders) = stage(chunked.after(), &mut |range| chunk(x, range))?;
            ran.after = borders;
            y
        }
        Some((leaf, norm)) => {
            let (z, borders) = stage(chunked.before(), &mut |range| chunk(x, range))?;
            ran.before = borders;
            let mut behind_norm = first.clone();
            let at_norm = leaf.context(&mut behind_norm);
            behind.borrow_mut().go_on_behind(&behind_norm);
            let (statistics, is_first) = at_norm.statistics(|| {
                let mut statistics = norm.no_statistics();
                for range in &ranges {
                    let added = norm.add_statistics(&mut statistics, &chunk(&z, range.clone())?);
                    added.map_err(|error| error.of_part(at_norm.path()))?;
                }
                norm.check_statistics(at_norm.path(), &statistics)?;
                Ok(statistics)
            })?;
            if is_first {
                let (leaf, statistics) = (leaf.clone(), statistics.clone());
                outer
                    .when_done(move || leaf.window_norm().map_or(Ok(()), |n| n.move_running(&statistics)))?;
            }
            let mut input = |range| normalized(norm, &chunk(&z, range)?, &statistics);
            let (y, borders) = stage(chunked.after(), &mut input)?;
            ran.after = borders;
            y
        }
    };
    if verify {
        let of_chunk = |range: &Range<usize>| Ok(checksum(&chunk(&y, range.clone())?)?);
        ran.outputs = Some(ranges.iter().map(of_chunk).collect::<Result<_>>()?);
    }
    outer.go_on_behind(&behind.into_inner());
    if let Some(carried) = outer.carried_states() {
        carried.lock().extend(&states.lock());
    }
    Ok((y, ran))
}

/// The norm's output for a chunk of its input.
pub(super) fn normalized(norm: &dyn WindowNorm, z: &Tensor, statistics: &NormStatistics) -> Result<Tensor> {
    let copy = Gradient::from(z.clone()).into_storage()?;
    Ok(storage::into_tensor(norm.normalize(copy, z.dims(), statistics)?, z.shape(), false))
}
