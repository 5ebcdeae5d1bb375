//! The loops of [`Bytes`](super::Bytes) over one task: plain code, compiled once for each level.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::element::Element;
use super::level::SimdLevel;

/// Elements between two checks for ones that are no bytes.
const GROUP: usize = 1024;

/// Writes each element as a byte to `output`, which is as long. Returns `false`, and may leave some of `output`
/// unwritten, if an element is not exactly an integer in `0..=255`.
pub fn pack<E: Element>(level: SimdLevel, elements: &[E], output: &mut [MaybeUninit<u8>]) -> bool {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { pack_avx512(elements, output) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { pack_avx2(elements, output) },
        _ => pack_groups(elements, output),
    }
}

/// Writes each byte as an element to `output`, which is as long.
pub fn unpack<E: Element>(level: SimdLevel, bytes: &[u8], output: &mut [MaybeUninit<E>]) {
    match level.clamped() {
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512 => unsafe { unpack_avx512(bytes, output) },
        // SAFETY: the level is clamped to what the machine has.
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 => unsafe { unpack_avx2(bytes, output) },
        _ => unpack_all(bytes, output),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn pack_avx512<E: Element>(elements: &[E], output: &mut [MaybeUninit<u8>]) -> bool {
    pack_groups(elements, output)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn pack_avx2<E: Element>(elements: &[E], output: &mut [MaybeUninit<u8>]) -> bool {
    pack_groups(elements, output)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn unpack_avx512<E: Element>(bytes: &[u8], output: &mut [MaybeUninit<E>]) {
    unpack_all(bytes, output);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn unpack_avx2<E: Element>(bytes: &[u8], output: &mut [MaybeUninit<E>]) {
    unpack_all(bytes, output);
}

#[inline(always)]
fn pack_groups<E: Element>(elements: &[E], output: &mut [MaybeUninit<u8>]) -> bool {
    for (elements, output) in elements.chunks(GROUP).zip(output.chunks_mut(GROUP)) {
        let mut errors = 0;
        for (element, output) in elements.iter().zip(output) {
            let (byte, error) = element.byte_and_error();
            output.write(byte);
            errors |= error;
        }
        if errors != 0 {
            return false;
        }
    }
    true
}

#[inline(always)]
fn unpack_all<E: Element>(bytes: &[u8], output: &mut [MaybeUninit<E>]) {
    for (&byte, output) in bytes.iter().zip(output) {
        output.write(E::from_byte(byte));
    }
}
