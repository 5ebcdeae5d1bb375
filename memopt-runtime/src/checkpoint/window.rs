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
    pub(super) fn new(storage: CpuStorage, shape: &Shape) -> Self {
        let (steps, step) = shape.dims().split_first().map_or((0, vec![]), |(t, step)| (*t, step.to_vec()));
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
        let zeros = Gradient::from(Tensor::zeros(shape, chunk.dtype(), chunk.device())?);
        Ok(WindowBuffer { storage: zeros.into_storage()?, step, steps })
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

    /// Whether it has the form of `[_, step...]`.
    pub(super) fn fits(&self, step: &[usize]) -> bool {
        self.step == step
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
