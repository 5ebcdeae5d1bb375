//! The vector unit that every machine has: loops that the compiler vectorizes for the target's baseline.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::bits_loops::{Lanes, Masks, BLOCK};
use super::word::Word;

/// Multiplying eight bytes of 0 or 1 by this gathers them in the top byte, the first in its lowest bit.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// No special instructions.
pub struct Portable;

impl<W: Word> Lanes<W> for Portable {
    #[inline(always)]
    unsafe fn compare(block: &[W; BLOCK], one: W) -> Masks {
        // Two steps, because a loop that shifts by its index does not vectorize well without variable shifts.
        let mut ones = [0u8; BLOCK];
        let mut nonzero = [0u8; BLOCK];
        for index in 0..BLOCK {
            ones[index] = u8::from(block[index] == one);
            nonzero[index] = u8::from(block[index] != W::ZERO);
        }
        Masks { ones: gather(&ones), nonzero: gather(&nonzero) }
    }

    #[inline(always)]
    unsafe fn ones(block: &[W; BLOCK], one: W) -> (u64, u64) {
        let mut ones = [0u8; BLOCK];
        let mut others = 0;
        for index in 0..BLOCK {
            ones[index] = u8::from(block[index] == one);
            others |= u8::from((block[index] != one) & (block[index] != W::ZERO));
        }
        (gather(&ones), u64::from(others))
    }

    #[inline(always)]
    unsafe fn expand(mask: u64, one: W, block: &mut [MaybeUninit<W>; BLOCK]) {
        // Two loops that do the same: measured, each is twice to four times as fast as the other for its widths.
        if size_of::<W>() > 2 {
            for (byte, elements) in mask.to_le_bytes().into_iter().zip(block.as_chunks_mut::<8>().0) {
                for (index, element) in elements.iter_mut().enumerate() {
                    element.write(if byte & (1 << index) != 0 { one } else { W::ZERO });
                }
            }
            return;
        }
        // Each byte of the mask goes to the eight elements of which it holds the bits.
        let mut spread = [0u8; BLOCK];
        for (spread, byte) in spread.as_chunks_mut::<8>().0.iter_mut().zip(mask.to_le_bytes()) {
            *spread = [byte; 8];
        }
        for index in 0..BLOCK {
            let selected = spread[index] & (1 << (index % 8)) != 0;
            block[index].write(if selected { one } else { W::ZERO });
        }
    }
}

/// One bit for each byte of 0 or 1.
#[inline(always)]
fn gather(bytes: &[u8; BLOCK]) -> u64 {
    let mut mask = [0; 8];
    for (output, &bytes) in mask.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *output = (u64::from_le_bytes(bytes).wrapping_mul(GATHER) >> 56) as u8;
    }
    u64::from_le_bytes(mask)
}
