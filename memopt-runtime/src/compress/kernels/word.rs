//! The unsigned integers that hold the bits of an element.

use bytemuck::Pod;

#[cfg(target_arch = "x86_64")]
use super::bits_loops::Lanes;
use super::values::Values;

/// Keeps [`Word`] and [`Element`](super::Element) to the types that are listed here.
pub trait Sealed {}

/// An unsigned integer that holds the bits of an [`Element`](super::Element).
pub trait Word: Sealed + Pod + Eq + Send + Sync {
    /// The bits of `+0`.
    const ZERO: Self;

    /// The AVX2 vector unit for this width.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Lanes<Self>;

    /// The AVX-512 vector unit for this width.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Lanes<Self>;

    /// Keeps values of this width.
    fn store(values: Vec<Self>) -> Values;

    /// The values, if they have this width.
    fn load(values: &Values) -> Option<&[Self]>;
}

macro_rules! words {
    ($($word:ty => $store:ident),*) => {$(
        impl Sealed for $word {}

        impl Word for $word {
            const ZERO: Self = 0;

            #[cfg(target_arch = "x86_64")]
            type Avx2 = super::bits_avx2::Avx2;

            #[cfg(target_arch = "x86_64")]
            type Avx512 = super::bits_avx512::Avx512;

            fn store(values: Vec<Self>) -> Values {
                Values::$store(values)
            }

            fn load(values: &Values) -> Option<&[Self]> {
                match values {
                    Values::$store(values) => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}

words!(u8 => Width8, u16 => Width16, u32 => Width32, u64 => Width64);
