//! The first pass over a window in time chunks.

use super::chunked::{check_steps, chunk, no_steps, Chunked};
use super::in_place;
use crate::checkpoint::leaves::{run_leaves, Leaf};
use crate::checkpoint::norm_neurons::NormNeurons;
use crate::checkpoint::window::WindowBuffer;
use crate::module::{Context, NormStatistics, States, WindowNorm};
use crate::storage::{self, checksum};
use crate::{Error, Result};
use candle_core::{CpuStorage, Tensor};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// What a first pass leaves for the way back.
#[derive(Default)]
pub(super) struct Ran {
    /// Whether layers before the norm leave states.
    pub(super) before_has_states: bool,
    /// Whether those behind it do, or any if there is none.
    pub(super) after_has_states: bool,
    /// Checksums of the output, if the recompute is verified: of each chunk, or as `in_place` compares them.
    pub(super) outputs: Option<Vec<u64>>,
}

/// A first pass while it runs.
pub(super) struct FirstPass<'a> {
    pub(super) chunked: &'a Chunked,
    pub(super) name: &'a str,
    pub(super) verify: bool,
    /// What a chunk's context is made from.
    pub(super) first: &'a Context,
    /// The same behind the layers that ran.
    behind: Context,
    states: Arc<Mutex<States>>,
    ranges: Vec<Range<usize>>,
    steps: usize,
}

impl<'a> FirstPass<'a> {
    pub(super) fn new(
        chunked: &'a Chunked,
        first: &'a Context,
        (name, verify): (&'a str, bool),
        steps: usize,
    ) -> Self {
        let (ranges, behind) = (chunked.ranges(steps), first.clone());
        FirstPass { chunked, name, verify, first, behind, states: Arc::default(), ranges, steps }
    }

    /// The output over the window.
    pub(super) fn run(mut self, x: &Tensor, outer: &mut Context) -> Result<(Tensor, Ran)> {
        let chunked = self.chunked;
        let mut ran = Ran::default();
        let y = match chunked.norm() {
            None => self.layers(chunked.after(), x)?,
            Some((leaf, norm)) => {
                let z = self.layers(chunked.before(), x)?;
                ran.before_has_states = self.has_states();
                let channels = z.shape().dims().get(2).copied();
                match chunked.norm_neurons().filter(|_| channels == Some(norm.channels())) {
                    Some(layers) => self.in_place(layers, z, &mut ran)?,
                    None => self.through_norm(leaf, norm, z, outer)?,
                }
            }
        };
        // In place they leave none in `states`, and have some.
        ran.after_has_states = self.has_states() || chunked.norm_neurons().is_some();
        let y = y.into_tensor();
        if self.verify && ran.outputs.is_none() {
            let of_chunk = |range: &Range<usize>| Ok(checksum(&chunk(&y, range.clone())?)?);
            ran.outputs = Some(self.ranges.iter().map(of_chunk).collect::<Result<_>>()?);
        }
        outer.go_on_behind(&self.behind);
        if let Some(carried) = outer.carried_states() {
            carried.lock().extend(&self.states.lock());
        }
        Ok((y, ran))
    }

    fn has_states(&self) -> bool {
        self.states.lock().iter().next().is_some()
    }

    /// Runs layers on a chunk.
    fn chunk(&mut self, leaves: &[Leaf], x: Tensor, range: &Range<usize>) -> Result<Tensor> {
        let mut context = self.first.chunk(range.start, self.states.clone());
        let y = run_leaves(leaves, x, &mut context)?;
        self.behind.go_on_behind(&context);
        check_steps(&y, range, self.name)?;
        match y.track_op() {
            true => Err(Error::HiddenParameter { segment: self.name.to_owned() }),
            false => Ok(y),
        }
    }

    /// Runs layers on the window.
    fn layers(&mut self, leaves: &[Leaf], x: &Tensor) -> Result<WindowBuffer> {
        let mut output: Option<WindowBuffer> = None;
        for range in self.ranges.clone() {
            let y = self.chunk(leaves, chunk(x, range.clone())?, &range)?;
            match &mut output {
                Some(output) => output.push(&y)?,
                None => output.insert(WindowBuffer::like(&y, self.steps)?).push(&y)?,
            }
        }
        output.ok_or_else(|| no_steps(self.name))
    }

    /// The norm and the layers behind it: their output takes the place of the norm's input, where it has the same form.
    fn through_norm(
        &mut self,
        leaf: &Leaf,
        norm: &dyn WindowNorm,
        mut z: WindowBuffer,
        outer: &mut Context,
    ) -> Result<WindowBuffer> {
        let mut behind_norm = self.first.clone();
        let at_norm = leaf.context(&mut behind_norm);
        self.behind.go_on_behind(&behind_norm);
        let (statistics, is_first) = at_norm.statistics(|| {
            let mut statistics = norm.no_statistics();
            for range in &self.ranges {
                let added = norm.add_statistics(&mut statistics, &z.chunk(range.clone()));
                added.map_err(|error| error.of_part(at_norm.path()))?;
            }
            norm.check_statistics(at_norm.path(), &statistics)?;
            Ok(statistics)
        })?;
        if is_first {
            let (leaf, statistics) = (leaf.clone(), statistics.clone());
            outer.when_done(move || leaf.window_norm().map_or(Ok(()), |n| n.move_running(&statistics)))?;
        }
        let mut beside: Option<WindowBuffer> = None;
        for range in self.ranges.clone() {
            let chunk = z.chunk(range.clone());
            let dims = chunk.dims().to_vec();
            let n = normalized(norm, storage::taken(chunk)?, &dims, &statistics)?;
            let y = self.chunk(self.chunked.after(), n, &range)?;
            match &mut beside {
                None if z.fits(&y) => z.write(range.start, &y)?,
                None => beside.insert(WindowBuffer::like(&y, self.steps)?).push(&y)?,
                Some(beside) => beside.push(&y)?,
            }
        }
        Ok(beside.unwrap_or(z))
    }

    /// The norm and neurons behind it in the buffer of the norm's input.
    fn in_place(&mut self, layers: NormNeurons<'_>, z: WindowBuffer, ran: &mut Ran) -> Result<WindowBuffer> {
        let mut behind = self.first.clone();
        let y = in_place::forward(layers, z, &mut behind)?;
        self.behind.go_on_behind(&behind);
        if self.verify {
            let ranges = self.chunked.ranges_in_place(self.steps, ran.before_has_states);
            ran.outputs = Some(in_place::checksums(&y, &ranges)?);
        }
        Ok(y)
    }
}

/// The norm's output for a chunk of its input, in that buffer.
pub(super) fn normalized(
    norm: &dyn WindowNorm,
    z: CpuStorage,
    dims: &[usize],
    statistics: &NormStatistics,
) -> Result<Tensor> {
    Ok(storage::into_tensor(norm.normalize(z, dims, statistics)?, dims, false))
}
