//! A tensor over the whole window that is put together, or read, chunk by chunk.

use crate::autograd::Gradient;
use crate::{storage, Error, Result};
use candle_core::{CpuStorage, Shape, Tensor};
use std::ops::Range;

/// The time steps of each chunk: as equal as can be; no more chunks than steps.
pub(super) fn cut(steps: usize, chunks: usize) -> Vec<Range<usize>> {
    let chunks = chunks.clamp(1, steps.max(1));
    (0..chunks).map(|i| i * steps / chunks..(i + 1) * steps / chunks).collect()
}

/// The time steps of each range for a way back, last range first, that holds the values of one range and the states before
/// all ranges that it has not come to: at most `most` ranges that need the least memory.
///
/// Values of a time step take as much as a state, so that the first range may be the longest, and each next one is a step
/// shorter: with `m` steps in the first, `m (m + 1) / 2` steps are held as `m`, about `sqrt(2 T)` instead of `T`.
pub(super) fn cut_for_states(steps: usize, most: usize) -> Vec<Range<usize>> {
    let most = most.max(1);
    let reached = |m: usize| (0..most.min(m)).map(|i| m - i).sum::<usize>();
    let longest = (1..steps.max(1)).find(|&m| reached(m) >= steps).unwrap_or(steps);
    let mut ranges = Vec::new();
    let mut start = 0;
    for len in (1..=longest).rev() {
        if start < steps {
            ranges.push(start..(start + len).min(steps));
            start += len;
        }
    }
    ranges
}

/// A row-major buffer `[T, ...]`.
pub(super) struct WindowBuffer {
    storage: CpuStorage,
    /// Of one time step.
    step: Vec<usize>,
    /// Number of time steps that are in it.
    steps: usize,
}

impl WindowBuffer {
    /// A buffer with the whole window in it.
    pub(super) fn new(storage: CpuStorage, dims: &[usize]) -> Self {
        let (steps, step) = dims.split_first().map_or((0, vec![]), |(t, step)| (*t, step.to_vec()));
        WindowBuffer { storage, step, steps }
    }

    /// An empty buffer for as many time steps as fit `steps`, like `chunk`'s.
    pub(super) fn like(chunk: &Tensor, steps: usize) -> Result<Self> {
        let step = chunk.dims().get(1..).unwrap_or_default().to_vec();
        let elements: usize = step.iter().product();
        let storage = storage::with_capacity(chunk.dtype(), elements * steps)?;
        Ok(WindowBuffer { storage, step, steps: 0 })
    }

    /// Zeros over `steps` time steps, like `chunk`'s.
    pub(super) fn zeros(chunk: &Tensor, steps: usize) -> Result<Self> {
        let step = chunk.dims().get(1..).unwrap_or_default().to_vec();
        let shape = [&[steps], step.as_slice()].concat();
        let zeros = Tensor::zeros(shape, chunk.dtype(), chunk.device())?;
        Ok(WindowBuffer { storage: storage::taken(zeros)?, step, steps })
    }

    /// Adds the next time steps.
    pub(super) fn push(&mut self, chunk: &Tensor) -> Result<()> {
        if chunk.dims().get(1..) != Some(&self.step) || !storage::extend(&mut self.storage, chunk)? {
            return Err(Error::LayerInput {
                part: "time chunks".into(),
                what: format!("a chunk gave {:?}, the one before it [_, {:?}]", chunk.shape(), self.step),
            });
        }
        self.steps += chunk.dim(0)?;
        Ok(())
    }

    /// A copy of some time steps.
    pub(super) fn chunk(&self, steps: Range<usize>) -> Tensor {
        let elements: usize = self.step.iter().product();
        let copy = storage::part(&self.storage, steps.start * elements..steps.end * elements);
        storage::into_tensor(copy, [&[steps.len()], self.step.as_slice()].concat(), false)
    }

    /// Writes over time steps from `start` on.
    pub(super) fn write(&mut self, start: usize, chunk: &Tensor) -> Result<()> {
        let elements: usize = self.step.iter().product();
        let fits = chunk.dims().get(1..) == Some(&self.step);
        match fits && storage::write(&mut self.storage, start * elements, chunk)? {
            true => Ok(()),
            false => Err(Error::LayerInput {
                part: "time chunks".into(),
                what: format!(
                    "a gradient of {:?} ({:?}) does not fit where [_, {:?}] is",
                    chunk.shape(),
                    chunk.dtype(),
                    self.step
                ),
            }),
        }
    }

    /// Whether the chunk can be written over others.
    pub(super) fn fits(&self, chunk: &Tensor) -> bool {
        chunk.dims().get(1..) == Some(&self.step) && chunk.dtype() == storage::dtype(&self.storage)
    }

    pub(super) fn shape(&self) -> Shape {
        Shape::from([&[self.steps], self.step.as_slice()].concat())
    }

    pub(super) fn into_tensor(self) -> Tensor {
        let shape = self.shape();
        storage::into_tensor(self.storage, shape, false)
    }

    pub(super) fn into_storage(self) -> CpuStorage {
        self.storage
    }
}

/// The gradient of a layer's output over the window, `[T, ...]`, that gives way to that of its input, chunk by chunk, last to
/// first: in its place, where that is not larger.
pub(super) struct GivingWay {
    from: CpuStorage,
    dims: Vec<usize>,
    /// What is written, if it has no place there.
    beside: Option<WindowBuffer>,
    /// The dimensions of a time step of what is written.
    step: Option<Vec<usize>>,
}

impl GivingWay {
    pub(super) fn new(from: CpuStorage, dims: &[usize]) -> Self {
        GivingWay { from, dims: dims.to_vec(), beside: None, step: None }
    }

    fn steps(&self) -> usize {
        self.dims.first().copied().unwrap_or_default()
    }

    /// Elements of a time step of the output.
    fn slot(&self) -> usize {
        storage::len(&self.from) / self.steps().max(1)
    }

    /// The buffer and its dimensions; time steps behind those that were not written yet are of use to nobody.
    pub(super) fn window(&mut self) -> (&mut CpuStorage, &[usize]) {
        (&mut self.from, &self.dims)
    }

    /// A copy of some time steps of the output's gradient.
    pub(super) fn part(&self, steps: &Range<usize>) -> CpuStorage {
        let slot = self.slot();
        storage::part(&self.from, steps.start * slot..steps.end * slot)
    }

    /// Puts the input's gradient from time step `start` on.
    pub(super) fn write(&mut self, start: usize, chunk: &Tensor) -> Result<()> {
        let (len, step) = chunk.dims().split_first().map_or((1, &[][..]), |(len, step)| (*len, step));
        let slot = self.slot();
        let of_step: usize = step.iter().product();
        self.step.get_or_insert_with(|| step.to_vec());
        let fits = of_step <= slot && chunk.dtype() == storage::dtype(&self.from);
        if let (true, None) = (fits, &self.beside) {
            for i in 0..len {
                let one = chunk.narrow(0, i, 1)?.contiguous()?;
                if !storage::write(&mut self.from, (start + i) * slot, &one)? {
                    return Err(candle_core::Error::Msg("a gradient lost its place".into()).into());
                }
            }
            return Ok(());
        }
        let steps = self.steps();
        match &mut self.beside {
            Some(beside) => beside.write(start, chunk),
            None => self.beside.insert(WindowBuffer::zeros(chunk, steps)?).write(start, chunk),
        }
    }

    /// The gradient of the input; `None` if none was put.
    pub(super) fn finish(mut self) -> Option<Gradient> {
        if let Some(beside) = self.beside {
            let shape = beside.shape();
            return Some(Gradient::new(beside.into_storage(), shape));
        }
        let slot = self.slot();
        let dims = [&[self.steps()], self.step.as_deref()?].concat();
        let of_step: usize = dims[1..].iter().product();
        if of_step < slot {
            storage::compact(&mut self.from, slot, of_step);
        }
        Some(Gradient::new(self.from, dims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn ranges_for_states_cover_the_window_and_hold_little() {
        for steps in 1..60 {
            for most in 1..8 {
                let ranges = cut_for_states(steps, most);
                assert!(ranges.len() <= most && ranges.iter().all(|range| !range.is_empty()));
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, steps));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                let held =
                    ranges.iter().enumerate().map(|(before, range)| before + range.len()).max().unwrap();
                // No other cut into as many ranges holds less.
                let reach = |held: usize| (0..most.min(held)).map(|before| held - before).sum::<usize>();
                assert!(reach(held) >= steps && reach(held - 1) < steps, "{steps} steps, {most}: {ranges:?}");
            }
        }
        assert_eq!(cut_for_states(10, 10), [0..4, 4..7, 7..9, 9..10]);
        assert_eq!(cut_for_states(10, 2), [0..6, 6..10]);
    }

    fn written(from: &[f32], dims: &[usize], step: &[usize]) -> Option<(Vec<usize>, Vec<f32>)> {
        let mut giving = GivingWay::new(CpuStorage::F32(from.to_vec()), dims);
        for start in (0..dims[0]).rev() {
            let shape = [&[1], step].concat();
            let chunk = (Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap() * start as f64).unwrap();
            giving.write(start, &chunk).unwrap();
        }
        let gradient = giving.finish()?.into_tensor();
        Some((gradient.dims().to_vec(), gradient.flatten_all().unwrap().to_vec1().unwrap()))
    }

    #[test]
    fn gradients_give_way_to_smaller_equal_and_larger_ones() {
        let from = [9.; 6];
        assert_eq!(written(&from, &[3, 2], &[1]), Some((vec![3, 1], vec![0., 1., 2.])));
        assert_eq!(written(&from, &[3, 2], &[2]), Some((vec![3, 2], vec![0., 0., 1., 1., 2., 2.])));
        let larger = vec![0., 0., 0., 1., 1., 1., 2., 2., 2.];
        assert_eq!(written(&from, &[3, 2], &[1, 3]), Some((vec![3, 1, 3], larger)));
        assert!(GivingWay::new(CpuStorage::F32(vec![1.]), &[1, 1]).finish().is_none());
    }
}
