//! Spikes that are worked on as bits.

use super::codecs::EncodedBits;
use crate::{storage, Result};
use candle_core::{DType, Shape, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// A tensor of zeros and ones as one bit an element, in row-major order, on the CPU.
///
/// Clones and parts of the first dimension (time) share the bits.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::compress::{Bit, Pack};
///
/// let spikes = Tensor::new(&[[0f32, 1.], [1., 1.], [0., 0.]], &Device::Cpu)?;
/// let packed = Bit.pack(&spikes)?.spikes();
/// let last = packed.and_then(|packed| packed.steps(1..3));
/// let last = last.ok_or_else(|| candle_core::Error::Msg("these are no bits".into()))?;
/// assert_eq!((last.dims(), last.words(), last.start()), (&[2, 2][..], &[0b001110][..], 2));
/// assert_eq!(last.unpack()?.to_vec2::<f32>()?, [[1., 1.], [0., 0.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PackedSpikes {
    bits: Arc<EncodedBits>,
    shape: Shape,
    start: usize,
}

impl PackedSpikes {
    /// Bits of a tensor of this shape.
    pub(super) fn new(bits: Arc<EncodedBits>, shape: Shape) -> Self {
        PackedSpikes { bits, shape, start: 0 }
    }

    /// Some of the first dimension; `None` if there are not as many.
    pub fn steps(&self, steps: Range<usize>) -> Option<Self> {
        let mut dims = self.dims().to_vec();
        let first = dims.first_mut().filter(|first| steps.start <= steps.end && steps.end <= **first)?;
        *first = steps.len();
        let of_step: usize = dims[1..].iter().product();
        let start = self.start + steps.start * of_step;
        Some(PackedSpikes { bits: self.bits.clone(), shape: Shape::from(dims), start })
    }

    /// The tensor of floats.
    ///
    /// # Errors
    /// If the element type is not one that is packed.
    pub fn unpack(&self) -> Result<Tensor> {
        let elements = self.bits.decode_range(self.start..self.start + self.shape.elem_count());
        let unknown = || candle_core::Error::UnsupportedDTypeForOp(self.dtype(), "bit");
        Ok(storage::into_tensor(elements.ok_or_else(unknown)?, self.shape.clone(), false))
    }

    /// The bits, of which element `i` is number [`Self::start`]` + i`: bit `j` of word `k` is number `64k + j`.
    pub fn words(&self) -> &[u64] {
        self.bits.packed().words()
    }

    /// Number of the first element's bit.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Shape of the tensor.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Dimensions of the tensor.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Element type of the tensor.
    pub fn dtype(&self) -> DType {
        self.bits.dtype()
    }
}

impl std::fmt::Debug for PackedSpikes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedSpikes({:?}, {:?}, from bit {})", self.shape, self.dtype(), self.start)
    }
}
