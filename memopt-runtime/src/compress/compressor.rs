//! What a compressor is.

use super::packed::Packed;
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A way to keep a tensor of spikes in fewer bytes, exactly.
///
/// ```
/// use candle_core::{CpuStorage, Device, Result, Tensor};
/// use memopt_runtime::compress::{Encoded, Encoding, Pack, SpikeCompressor};
///
/// /// Keeps tensors of equal values as one value.
/// #[derive(Debug)]
/// struct Constant;
///
/// struct One(f32, usize);
///
/// impl SpikeCompressor for Constant {
///     fn name(&self) -> &str {
///         "constant"
///     }
///     fn encode(&self, x: &Tensor) -> memopt_runtime::Result<Encoding> {
///         let values = x.flatten_all()?.to_vec1::<f32>()?;
///         match values.first() {
///             Some(first) if values.iter().all(|v| v.to_bits() == first.to_bits()) => {
///                 Ok(Encoding::Encoded(Box::new(One(*first, values.len()))))
///             }
///             _ => Ok(Encoding::DoesNotFit),
///         }
///     }
/// }
///
/// impl Encoded for One {
///     fn encoding(&self) -> &str {
///         "constant"
///     }
///     fn decode(&self) -> memopt_runtime::Result<CpuStorage> {
///         Ok(CpuStorage::F32(vec![self.0; self.1]))
///     }
///     fn bytes(&self) -> usize {
///         std::mem::size_of::<Self>()
///     }
/// }
///
/// let x = Tensor::full(7f32, (2, 3), &Device::Cpu)?;
/// let packed = Constant.pack(&x)?;
/// assert_eq!(packed.unpack()?.to_vec2::<f32>()?, x.to_vec2::<f32>()?);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub trait SpikeCompressor: Debug + Send + Sync {
    /// Its name in reports and errors.
    fn name(&self) -> &str;

    /// Encodes a tensor, which is on the CPU, contiguous and not tracked.
    ///
    /// The dimensions are in the order of the memory, so those of a transposed tensor are transposed.
    ///
    /// # Errors
    /// Whatever the compressor meets; values that do not fit are no error but [`Encoding::DoesNotFit`].
    fn encode(&self, x: &Tensor) -> Result<Encoding>;

    /// Whether `encode` itself makes sure that decoding gives the same bits.
    ///
    /// If not (the default), what it encodes is decoded and compared each time, and kept as it is where it differs.
    fn checks_itself(&self) -> bool {
        false
    }

    /// Whether it keeps every tensor exactly, if need be as it is, so that keeping one as it is is no fallback.
    fn keeps_anything(&self) -> bool {
        false
    }
}

impl<C: SpikeCompressor + ?Sized> SpikeCompressor for Arc<C> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn encode(&self, x: &Tensor) -> Result<Encoding> {
        (**self).encode(x)
    }

    fn checks_itself(&self) -> bool {
        (**self).checks_itself()
    }

    fn keeps_anything(&self) -> bool {
        (**self).keeps_anything()
    }
}

/// What a compressor made of a tensor.
pub enum Encoding {
    /// Encoded.
    Encoded(Box<dyn Encoded>),
    /// To be kept as it is, because that is what the compressor does or because nothing smaller is exact.
    AsIs,
    /// It holds values that this compressor cannot keep exactly: kept as it is and counted as a fallback.
    DoesNotFit,
}

impl Debug for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Encoding::Encoded(e) => write!(f, "Encoded({}, {} bytes)", e.encoding(), e.bytes()),
            Encoding::AsIs => f.write_str("AsIs"),
            Encoding::DoesNotFit => f.write_str("DoesNotFit"),
        }
    }
}

/// An encoded tensor.
pub trait Encoded: Any + Send + Sync {
    /// Name of the encoding, for reports.
    fn encoding(&self) -> &str;

    /// The elements, in the order in which they were encoded.
    ///
    /// # Errors
    /// If they cannot be restored.
    fn decode(&self) -> Result<CpuStorage>;

    /// Bytes kept.
    fn bytes(&self) -> usize;
}

/// Packing with any compressor.
pub trait Pack {
    /// Packs a tensor; what does not fit the compressor is kept as it is ([`Packed::is_fallback`]).
    ///
    /// # Errors
    /// If the compressor fails.
    fn pack(&self, x: &Tensor) -> Result<Packed>;
}

impl<C: SpikeCompressor + ?Sized> Pack for C {
    fn pack(&self, x: &Tensor) -> Result<Packed> {
        Packed::new(self, x)
    }
}
