//! A packed tensor: what is kept, and how it becomes the tensor again.

use super::compressor::{Encoded, Encoding, SpikeCompressor};
use super::spikes::PackedSpikes;
use crate::arrangement::Arrangement;
use crate::autograd::{leaf, Caught, Gradient};
use crate::{storage, Error, Result};
use candle_core::{CpuStorage, DType, Shape, Tensor};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// A tensor as a compressor keeps it.
pub struct Packed {
    kept: Kept,
    arrangement: Arrangement,
    dtype: DType,
    fallback: bool,
}

enum Kept {
    Encoded(Arc<dyn Encoded>),
    /// The tensor itself: its buffer is shared with whoever else has it.
    Tensor(Tensor),
}

impl Packed {
    pub(super) fn new<C: SpikeCompressor + ?Sized>(compressor: &C, x: &Tensor) -> Result<Self> {
        let x = x.detach();
        let (arrangement, dtype) = (Arrangement::of(x.layout()), x.dtype());
        let as_is = |fallback| Packed {
            kept: Kept::Tensor(x.clone()),
            arrangement: arrangement.clone(),
            dtype,
            fallback,
        };
        if !x.device().is_cpu() || arrangement.overlaps() {
            return Ok(as_is(!compressor.keeps_anything()));
        }
        let compact = arrangement.compact(&x)?;
        match compressor.encode(&compact)? {
            Encoding::AsIs => Ok(as_is(false)),
            Encoding::DoesNotFit => Ok(as_is(true)),
            Encoding::Encoded(encoded) => {
                let arrangement = arrangement.clone();
                let kept = Kept::Encoded(encoded.into());
                let packed = Packed { kept, arrangement, dtype, fallback: false };
                match compressor.checks_itself() || packed.restores(&compact)? {
                    true => Ok(packed),
                    false => Ok(as_is(true)),
                }
            }
        }
    }

    /// The tensor, with the shape, dtype, device and order in memory that it had.
    ///
    /// # Errors
    /// If a compressor's decoding fails or gives another number or type of elements.
    pub fn unpack(&self) -> Result<Tensor> {
        match &self.kept {
            Kept::Tensor(x) => Ok(x.clone()),
            Kept::Encoded(_) => self.arrangement.expand(&self.decode()?),
        }
    }

    /// Some of the first dimension of the tensor; `None` where there is no way to have them but all of it.
    pub(crate) fn unpack_steps(&self, steps: Range<usize>) -> Result<Option<Tensor>> {
        match &self.kept {
            Kept::Tensor(x) => Ok(Some(x.narrow(0, steps.start, steps.len())?.contiguous()?)),
            Kept::Encoded(_) => {
                let spikes = self.spikes().and_then(|spikes| spikes.steps(steps));
                spikes.map(|spikes| spikes.unpack()).transpose()
            }
        }
    }

    /// The spikes without unpacking them, if they are kept as bits in row-major order.
    pub fn spikes(&self) -> Option<PackedSpikes> {
        let Kept::Encoded(encoded) = &self.kept else { return None };
        let any: Arc<dyn Any + Send + Sync> = encoded.clone();
        let bits = any.downcast().ok().filter(|_| self.is_row_major())?;
        Some(PackedSpikes::new(bits, self.arrangement.shape().clone()))
    }

    /// The tensor as a new leaf of a graph, and what is left of it when the graph does not need its values. What was kept
    /// is freed.
    pub(crate) fn into_leaf(self) -> Result<(Tensor, Leaf)> {
        let elements = match &self.kept {
            Kept::Tensor(x) => storage::owned(&self.arrangement.in_memory_order(x)?)?,
            Kept::Encoded(_) => self.decoded()?,
        };
        let (leaf, caught) = leaf(elements, self.arrangement.compact_shape())?;
        Ok((self.arrangement.expand(&leaf)?, Leaf { caught, arrangement: self.arrangement }))
    }

    /// The encoded form, if it is a `T`: how kernels that work on packed spikes get at them.
    pub fn encoded<T: Encoded>(&self) -> Option<&T> {
        match &self.kept {
            Kept::Encoded(encoded) => {
                let any: &dyn Any = &**encoded;
                any.downcast_ref()
            }
            Kept::Tensor(_) => None,
        }
    }

    /// Name of the encoding: "bit", "byte", "sparse", a user's own, or "none".
    pub fn encoding(&self) -> &str {
        match &self.kept {
            Kept::Encoded(encoded) => encoded.encoding(),
            Kept::Tensor(_) => "none",
        }
    }

    /// Shape of the tensor.
    pub fn shape(&self) -> &Shape {
        self.arrangement.shape()
    }

    /// Element type of the tensor.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the encoded elements are in row-major order; else they are in the order that they had in memory.
    pub fn is_row_major(&self) -> bool {
        self.arrangement.is_contiguous()
    }

    /// Whether the compressor could not keep these values exactly, so that the tensor is kept as it is.
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// Bytes kept alive. For a tensor kept as it is: its whole buffer, also if it is a view of a part.
    pub fn bytes(&self) -> usize {
        self.buffer().1
    }

    /// Bytes of the tensor's elements.
    pub fn raw_bytes(&self) -> usize {
        self.arrangement.shape().elem_count() * self.dtype.size_in_bytes()
    }

    /// Address (0: nobody else has it) and bytes of what is kept.
    pub(crate) fn buffer(&self) -> (usize, usize) {
        match &self.kept {
            Kept::Encoded(encoded) => (0, encoded.bytes()),
            Kept::Tensor(x) => storage::buffer_of(x),
        }
    }

    /// The elements, decoded and counted.
    fn decoded(&self) -> Result<CpuStorage> {
        let Kept::Encoded(encoded) = &self.kept else {
            return Err(candle_core::Error::Msg("a tensor kept as it is needs no decoding".into()).into());
        };
        let elements = encoded.decode()?;
        let (got_len, got_dtype) = (storage::len(&elements), storage::dtype(&elements));
        let expected_len = self.arrangement.compact_shape().elem_count();
        if (got_len, got_dtype) != (expected_len, self.dtype) {
            return Err(Error::Decoded {
                compressor: encoded.encoding().to_owned(),
                expected_len,
                expected_dtype: self.dtype,
                got_len,
                got_dtype,
            });
        }
        Ok(elements)
    }

    /// Decoded into a contiguous tensor of the compact shape, without a copy.
    fn decode(&self) -> Result<Tensor> {
        Ok(storage::into_tensor(self.decoded()?, self.arrangement.compact_shape(), false))
    }

    /// Whether decoding gives these elements, bit for bit.
    fn restores(&self, compact: &Tensor) -> Result<bool> {
        Ok(storage::same_bits(&self.decode()?, compact))
    }
}

/// A packed tensor that was unpacked to be gone back to.
pub(crate) struct Leaf {
    caught: Caught,
    arrangement: Arrangement,
}

impl Leaf {
    /// The gradient of the tensor, with each repetition once, if backward came here.
    pub(crate) fn gradient(&self) -> Result<Option<Gradient>> {
        match self.caught.take() {
            Some(gradient) if !self.arrangement.is_contiguous() => {
                Ok(Some(self.arrangement.restore_order(&gradient.into_tensor())?.into()))
            }
            gradient => Ok(gradient),
        }
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packed")
            .field("encoding", &self.encoding())
            .field("shape", self.arrangement.shape())
            .field("dtype", &self.dtype)
            .field("bytes", &self.bytes())
            .field("fallback", &self.fallback)
            .finish()
    }
}
