//! The compressor that takes the smallest exact encoding.

use super::codecs::{encode, Typed};
use super::compressor::{Encoding, SpikeCompressor};
use super::kernels::{Bits, Bytes, SimdLevel, Sparse};
use crate::Result;
use candle_core::Tensor;

/// The smallest of bit, byte, sparse and as it is, chosen for each tensor by its values.
///
/// Spikes cost one pass. Other values are found out where the first of them stands, and cost up to two passes more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Auto;

impl SpikeCompressor for Auto {
    fn name(&self) -> &str {
        "auto"
    }

    fn encode(&self, x: &Tensor) -> Result<Encoding> {
        if let Some(bits) = encode::<Bits>(x) {
            let ones = bits.packed.count_ones();
            if Sparse::bytes_for_ones(ones, bits.packed.len()) < bits.packed.bytes() {
                let packed = Sparse::from_bits(SimdLevel::detected(), &bits.packed);
                return Ok(Encoding::Encoded(Box::new(Typed { packed, dtype: bits.dtype })));
            }
            return Ok(Encoding::Encoded(Box::new(bits)));
        }
        // u8 is as small as a byte already.
        let byte = if x.dtype().size_in_bytes() > 1 { encode::<Bytes>(x) } else { None };
        let sparse = encode::<Sparse>(x);
        Ok(match (byte, sparse) {
            (Some(byte), Some(sparse)) if sparse.packed.bytes() < byte.packed.bytes() => {
                Encoding::Encoded(Box::new(sparse))
            }
            (Some(byte), _) => Encoding::Encoded(Box::new(byte)),
            (None, Some(sparse)) => Encoding::Encoded(Box::new(sparse)),
            (None, None) => Encoding::AsIs,
        })
    }

    fn checks_itself(&self) -> bool {
        true
    }

    fn keeps_anything(&self) -> bool {
        true
    }
}
