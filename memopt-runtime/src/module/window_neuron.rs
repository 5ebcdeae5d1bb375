//! Neurons over the whole window, on raw buffers.

use crate::Result;
use candle_core::{CpuStorage, Tensor};

/// Neurons without weights, offered as plain functions of row-major buffers: for executors that run a norm and the neurons
/// behind it, chunk by chunk, and write over their buffers.
///
/// ```text
/// neuron.fire(x, dims, v0) -> (spikes, v)        // spikes in x's buffer
/// neuron.back(x, dy, dims, v0, dv) -> (dx, dv0)  // in the buffers of dy and dv
/// ```
///
/// The bits are those of the layer's forward and of its backward. A window may come in chunks of time steps: forward, first
/// to last, each with the potential that the one before it left; backward, last to first, each with the gradient of the
/// potential that the one after it gave. `dims` is `[T, N, ...]`; a potential and its gradient are `[N, ...]`, in f32 for
/// bf16 and f16, on the CPU.
pub trait WindowNeuron: Send + Sync {
    /// The spikes of the window `x`, in its buffer, and the potential after the last time step; `v0` is the one before the
    /// first, `None` where the neurons rest.
    ///
    /// # Errors
    /// If `x` is not a window of floats of these dimensions, or `v0` does not fit it.
    fn fire(&self, x: CpuStorage, dims: &[usize], v0: Option<&Tensor>) -> Result<(CpuStorage, Tensor)>;

    /// The gradient of `x` from that of the spikes, `dy`, in the buffer of `dy`; the potentials are computed again. `dv` is
    /// the gradient of the potential after the last time step, and becomes that of the one before the first; `None`: there is
    /// none, and none is wanted.
    ///
    /// # Errors
    /// If `x` or `dy` is not a window of floats of these dimensions, or `v0` or `dv` does not fit it.
    fn back(
        &self,
        x: &CpuStorage,
        dy: CpuStorage,
        dims: &[usize],
        v0: Option<&Tensor>,
        dv: Option<CpuStorage>,
    ) -> Result<(CpuStorage, Option<CpuStorage>)>;
}
