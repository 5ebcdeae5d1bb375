//! The compressors Null, Bit, Byte and Sparse, on top of the kernels.

use super::compressor::{Encoded, Encoding, SpikeCompressor};
use super::kernels::{self, Bits, Bytes, Element, SimdLevel};
use crate::{storage, Result};
use candle_core::{CpuStorage, DType, Tensor};
use std::ops::Range;

/// Keeps every tensor as it is, shared with whoever else has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

/// One bit an element; keeps 0 and 1, and nothing else, exactly.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bit;

/// One byte an element; keeps the integers 0 to 255 exactly.
#[derive(Debug, Clone, Copy, Default)]
pub struct Byte;

/// Two bytes for each element that is not 0, plus its value if some is neither 0 nor 1; keeps anything exactly.
///
/// A tensor that would not get smaller is kept as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sparse;

impl SpikeCompressor for Null {
    fn name(&self) -> &str {
        "null"
    }

    fn encode(&self, _: &Tensor) -> Result<Encoding> {
        Ok(Encoding::AsIs)
    }

    fn checks_itself(&self) -> bool {
        true
    }

    fn keeps_anything(&self) -> bool {
        true
    }
}

/// The three compressors that differ in their kernel only.
macro_rules! compressor {
    ($compressor:ident, $name:literal, $kernel:ty, $pack:path, $unpack:expr, $otherwise:ident) => {
        impl SpikeCompressor for $compressor {
            fn name(&self) -> &str {
                $name
            }

            fn encode(&self, x: &Tensor) -> Result<Encoding> {
                Ok(match encode::<$kernel>(x) {
                    Some(encoded) => Encoding::Encoded(Box::new(encoded)),
                    None => Encoding::$otherwise,
                })
            }

            fn checks_itself(&self) -> bool {
                true
            }

            fn keeps_anything(&self) -> bool {
                matches!(Encoding::$otherwise, Encoding::AsIs)
            }
        }

        impl Kernel for $kernel {
            const NAME: &'static str = $name;

            fn pack<E: Element>(elements: &[E]) -> Option<Self> {
                $pack(SimdLevel::detected(), elements)
            }

            fn unpack<E: Element>(&self) -> Option<Vec<E>> {
                let unpack: fn(&$kernel) -> Option<Vec<E>> = $unpack;
                unpack(self)
            }

            fn bytes(&self) -> usize {
                self.bytes()
            }
        }
    };
}
compressor!(Bit, "bit", Bits, Bits::pack, |p| Some(p.unpack(SimdLevel::detected())), DoesNotFit);
compressor!(Byte, "byte", Bytes, Bytes::pack, |p| Some(p.unpack(SimdLevel::detected())), DoesNotFit);
compressor!(Sparse, "sparse", kernels::Sparse, kernels::Sparse::pack, kernels::Sparse::unpack, AsIs);

/// A kernel's packed form, whatever the element type.
pub trait Kernel: Send + Sync + Sized + 'static {
    /// Name of the encoding.
    const NAME: &'static str;
    /// `None` if the elements do not fit, or would not get smaller.
    fn pack<E: Element>(elements: &[E]) -> Option<Self>;
    /// `None` if it was packed from elements of another width.
    fn unpack<E: Element>(&self) -> Option<Vec<E>>;
    /// Heap bytes kept.
    fn bytes(&self) -> usize;
}

/// A kernel's packed form with its element type: what [`Packed::encoded`](super::Packed::encoded) finds in a packed tensor.
pub struct Typed<K> {
    pub(super) packed: K,
    pub(super) dtype: DType,
}

/// What [`Bit`] makes.
pub type EncodedBits = Typed<Bits>;
/// What [`Byte`] makes.
pub type EncodedBytes = Typed<Bytes>;
/// What [`Sparse`] makes.
pub type EncodedSparse = Typed<kernels::Sparse>;

impl<K> Typed<K> {
    /// The packed elements, in the order of the memory.
    pub fn packed(&self) -> &K {
        &self.packed
    }

    /// The element type that they were packed from.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl EncodedBits {
    /// Some of the elements, in the order of the memory.
    pub(super) fn decode_range(&self, range: Range<usize>) -> Option<CpuStorage> {
        let level = SimdLevel::detected();
        Some(match self.dtype {
            DType::F32 => CpuStorage::F32(self.packed.unpack_range(level, range)),
            DType::F64 => CpuStorage::F64(self.packed.unpack_range(level, range)),
            DType::BF16 => CpuStorage::BF16(self.packed.unpack_range(level, range)),
            DType::F16 => CpuStorage::F16(self.packed.unpack_range(level, range)),
            DType::U8 => CpuStorage::U8(self.packed.unpack_range(level, range)),
            _ => return None,
        })
    }
}

/// Packs a contiguous CPU tensor; `None` if the kernel cannot keep it (smaller), or not this element type.
pub(super) fn encode<K: Kernel>(x: &Tensor) -> Option<Typed<K>> {
    let packed = storage::with_cpu(x, |elements, layout| {
        let range = storage::range(layout)?;
        match elements {
            CpuStorage::F32(v) => K::pack(&v[range]),
            CpuStorage::F64(v) => K::pack(&v[range]),
            CpuStorage::BF16(v) => K::pack(&v[range]),
            CpuStorage::F16(v) => K::pack(&v[range]),
            CpuStorage::U8(v) => K::pack(&v[range]),
            _ => None,
        }
    })??;
    Some(Typed { packed, dtype: x.dtype() })
}

impl<K: Kernel> Encoded for Typed<K> {
    fn encoding(&self) -> &str {
        K::NAME
    }

    fn decode(&self) -> Result<CpuStorage> {
        let elements = match self.dtype {
            DType::F32 => self.packed.unpack().map(CpuStorage::F32),
            DType::F64 => self.packed.unpack().map(CpuStorage::F64),
            DType::BF16 => self.packed.unpack().map(CpuStorage::BF16),
            DType::F16 => self.packed.unpack().map(CpuStorage::F16),
            DType::U8 => self.packed.unpack().map(CpuStorage::U8),
            _ => None,
        };
        elements.ok_or_else(|| candle_core::Error::UnsupportedDTypeForOp(self.dtype, K::NAME).into())
    }

    fn bytes(&self) -> usize {
        self.packed.bytes()
    }
}
