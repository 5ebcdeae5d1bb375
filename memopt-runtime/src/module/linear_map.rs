//! Layers that can be gone back through without their input.

use crate::autograd::Gradient;
use crate::Result;

/// A layer without weights that is a linear function of its input, computed by a function of memopt's: the way back takes
/// the dimensions of the input and none of its values, so that executors need not run the layer again for it.
pub trait LinearMap: Send + Sync {
    /// The dimensions of the output for an input of these.
    ///
    /// # Errors
    /// If the layer does not take such an input.
    fn output_dims(&self, input: &[usize]) -> Result<Vec<usize>>;

    /// The gradient of an input of these dimensions from that of the output, with the bits of the layer's own backward.
    ///
    /// # Errors
    /// If the two do not fit each other.
    fn transposed(&self, dy: Gradient, input: &[usize]) -> Result<Gradient>;
}
