//! Lossless compression of what a segment keeps for backward.
//!
//! Most inputs of a spiking layer are 0 or 1 in floats: [`Bit`] keeps 1 bit of 32. Losslessness is checked, not assumed:
//! the packing pass tests every value, and a tensor with any other value (2, 0.5, NaN, also -0.0) is kept as it is and
//! counted ([`counts`]). Shape, dtype, device and the order in memory come back as they were.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use memopt_runtime::compress::{Bit, Pack};
//!
//! let spikes = Tensor::new(&[0f32, 1., 1., 0.], &Device::Cpu)?;
//! let packed = Bit.pack(&spikes)?;
//! assert_eq!((packed.encoding(), packed.bytes()), ("bit", 8));
//! assert_eq!(packed.unpack()?.to_vec1::<f32>()?, [0., 1., 1., 0.]);
//!
//! let counts = Tensor::new(&[0f32, 1., 2., 0.], &Device::Cpu)?;
//! let packed = Bit.pack(&counts)?;                    // a 2 does not fit in a bit
//! assert!(packed.is_fallback());
//! assert_eq!(packed.unpack()?.to_vec1::<f32>()?, [0., 1., 2., 0.]);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! | compressor | keeps exactly | bytes for n elements |
//! |---|---|---|
//! | [`Null`] | anything | as the tensor; shared with it, not copied |
//! | [`Bit`] | 0 and 1 | n / 8 |
//! | [`Byte`] | integers 0 to 255 | n |
//! | [`Sparse`] | anything | 2 a nonzero, plus its value if some is not 1 |
//! | [`Auto`] | anything | the least of the above |
//!
//! Element types: f32, f64, f16, bf16, u8. Tensors of other types, or on other devices than the CPU, are kept as they are.
//! A compressor of one's own implements [`SpikeCompressor`]; what it encodes is decoded and compared at once, unless
//! it says that it checks itself.
//!
//! This module knows tensors; [`kernels`] work on slices.

mod auto;
mod codecs;
mod compressor;
mod counts;
pub mod kernels;
mod packed;
mod spikes;

pub use auto::Auto;
pub use codecs::{Bit, Byte, EncodedBits, EncodedBytes, EncodedSparse, Null, Sparse};
pub use compressor::{Encoded, Encoding, Pack, SpikeCompressor};
pub(crate) use counts::record;
pub use counts::{counts, reset_counts, SegmentCounts};
pub use packed::Packed;
pub use spikes::PackedSpikes;

pub(crate) use packed::Leaf;
