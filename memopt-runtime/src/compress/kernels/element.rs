//! The element types of tensors, seen as bit patterns and as small integers.

use half::slice::HalfFloatSliceExt;
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};

use super::word::{Sealed, Word};

/// An element type that the codecs take: `f32`, `f64`, `f16`, `bf16` and `u8`.
pub trait Element: Sealed + Copy + Send + Sync + 'static {
    /// The unsigned integer of the same width.
    type Word: Word;

    /// The bits of one.
    const ONE: Self::Word;

    /// The bits of each element; no copy.
    fn words(elements: &[Self]) -> &[Self::Word];

    /// The bits of each element, to be written; no copy.
    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word];

    /// The elements with these bits; no copy.
    fn from_words(words: Vec<Self::Word>) -> Vec<Self>;

    /// The element as a byte, and a number that is zero if it is exactly that integer: nonzero for fractions, `-0.0`,
    /// NaN and everything outside `0..=255`. Without branches, so that loops over it vectorize.
    fn byte_and_error(self) -> (u8, u32);

    /// The integer `byte`; every type here represents it exactly.
    fn from_byte(byte: u8) -> Self;

    /// The element as a byte if it is exactly an integer in `0..=255`; `-0.0` is not.
    fn to_byte(self) -> Option<u8> {
        match self.byte_and_error() {
            (byte, 0) => Some(byte),
            _ => None,
        }
    }
}

/// `2^23`: adding it to an integer in `0..=255` leaves that integer in the lowest bits of the sum, and no other bit
/// differs. Unlike a conversion, this vectorizes on every target.
const SINGLE_SHIFTER: f32 = (1u32 << 23) as f32;

/// `2^52`, which does the same for `f64`.
const DOUBLE_SHIFTER: f64 = (1u64 << 52) as f64;

/// [`Element::byte_and_error`] of a value. The sum has other high bits for NaN and everything out of range;
/// subtracting again does not give back fractions and `-0.0`.
#[inline(always)]
fn single_to_byte(value: f32) -> (u8, u32) {
    let sum = value + SINGLE_SHIFTER;
    let high = (sum.to_bits() ^ SINGLE_SHIFTER.to_bits()) & !255;
    (sum.to_bits() as u8, high | (sum - SINGLE_SHIFTER).to_bits() ^ value.to_bits())
}

/// `2^112`: what the exponent biases of `f32` and `f16` differ by.
const HALF_SCALE: f32 = f32::from_bits((127 + 112) << 23);

/// `2^-112`.
const HALF_SCALE_INVERSE: f32 = f32::from_bits((127 - 112) << 23);

impl Sealed for f32 {}

impl Element for f32 {
    type Word = u32;

    const ONE: u32 = 1f32.to_bits();

    fn words(elements: &[Self]) -> &[u32] {
        bytemuck::cast_slice(elements)
    }

    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word] {
        bytemuck::cast_slice_mut(elements)
    }

    fn from_words(words: Vec<u32>) -> Vec<Self> {
        bytemuck::cast_vec(words)
    }

    #[inline(always)]
    fn byte_and_error(self) -> (u8, u32) {
        single_to_byte(self)
    }

    #[inline(always)]
    fn from_byte(byte: u8) -> Self {
        Self::from(byte)
    }
}

impl Sealed for f64 {}

impl Element for f64 {
    type Word = u64;

    const ONE: u64 = 1f64.to_bits();

    fn words(elements: &[Self]) -> &[u64] {
        bytemuck::cast_slice(elements)
    }

    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word] {
        bytemuck::cast_slice_mut(elements)
    }

    fn from_words(words: Vec<u64>) -> Vec<Self> {
        bytemuck::cast_vec(words)
    }

    #[inline(always)]
    fn byte_and_error(self) -> (u8, u32) {
        let sum = self + DOUBLE_SHIFTER;
        let high = (sum.to_bits() ^ DOUBLE_SHIFTER.to_bits()) & !255;
        let error = high | (sum - DOUBLE_SHIFTER).to_bits() ^ self.to_bits();
        (sum.to_bits() as u8, (error >> 32) as u32 | error as u32)
    }

    #[inline(always)]
    fn from_byte(byte: u8) -> Self {
        Self::from(byte)
    }
}

impl Sealed for bf16 {}

impl Element for bf16 {
    type Word = u16;

    const ONE: u16 = bf16::ONE.to_bits();

    fn words(elements: &[Self]) -> &[u16] {
        elements.reinterpret_cast()
    }

    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word] {
        elements.reinterpret_cast_mut()
    }

    fn from_words(words: Vec<u16>) -> Vec<Self> {
        words.reinterpret_into()
    }

    /// A `bf16` is the upper half of an `f32`.
    #[inline(always)]
    fn byte_and_error(self) -> (u8, u32) {
        single_to_byte(f32::from_bits(u32::from(self.to_bits()) << 16))
    }

    #[inline(always)]
    fn from_byte(byte: u8) -> Self {
        Self::from_bits((f32::from(byte).to_bits() >> 16) as u16)
    }
}

impl Sealed for f16 {}

impl Element for f16 {
    type Word = u16;

    const ONE: u16 = f16::ONE.to_bits();

    fn words(elements: &[Self]) -> &[u16] {
        elements.reinterpret_cast()
    }

    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word] {
        elements.reinterpret_cast_mut()
    }

    fn from_words(words: Vec<u16>) -> Vec<Self> {
        words.reinterpret_into()
    }

    /// Moves exponent and mantissa to their places in an `f32`, then corrects the bias. Infinity and NaN become
    /// finite there, and a sign bit lands in the exponent: all of these exceed 255 then.
    #[inline(always)]
    fn byte_and_error(self) -> (u8, u32) {
        let (byte, error) = single_to_byte(f32::from_bits(u32::from(self.to_bits()) << 13) * HALF_SCALE);
        // The product is zero for subnormal numbers where the processor is set to flush them.
        (byte, error | u32::from(Self::from_byte(byte).to_bits() ^ self.to_bits()))
    }

    #[inline(always)]
    fn from_byte(byte: u8) -> Self {
        Self::from_bits(((f32::from(byte) * HALF_SCALE_INVERSE).to_bits() >> 13) as u16)
    }
}

impl Element for u8 {
    type Word = u8;

    const ONE: u8 = 1;

    fn words(elements: &[Self]) -> &[u8] {
        elements
    }

    fn words_mut(elements: &mut [Self]) -> &mut [Self::Word] {
        elements
    }

    fn from_words(words: Vec<u8>) -> Vec<Self> {
        words
    }

    #[inline(always)]
    fn byte_and_error(self) -> (u8, u32) {
        (self, 0)
    }

    #[inline(always)]
    fn from_byte(byte: u8) -> Self {
        byte
    }
}
