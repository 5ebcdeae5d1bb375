//! Masks from floats and from packed bits.

use super::Random;
use crate::compress::kernels::{Bits, SimdLevel};
use crate::nn::conv::spikes::SpikeMasks;
use half::bf16;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A bit for each one, from floats, and from an image among others that are packed.
    #[test]
    fn masks_have_a_bit_for_each_one(
        (width, rows, before) in (1..200usize, 0..7usize, 0..300usize),
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let all: Vec<f32> =
            (0..before + rows * width + 70).map(|_| f32::from(u8::from(random.unit() < 0.3))).collect();
        let image = &all[before..][..rows * width];
        let packed = Bits::pack(SimdLevel::Portable, &all).unwrap();
        let masks = SpikeMasks::from_bits(packed.words(), before, image.len(), width);
        for &level in SimdLevel::available() {
            let from_floats = SpikeMasks::from_floats(level, image, width);
            prop_assert_eq!(from_floats.as_ref(), Some(&masks));
        }
        let half: Vec<bf16> = image.iter().map(|&x| bf16::from_f32(x)).collect();
        let from_half = SpikeMasks::from_floats(SimdLevel::detected(), &half, width);
        prop_assert_eq!(from_half.as_ref(), Some(&masks));
        let words = SpikeMasks::words_of(width);
        for (row, values) in image.chunks(width).enumerate() {
            let mask = masks.rows(row..row + 1);
            prop_assert_eq!(mask.len(), words);
            for column in 0..64 * words {
                let set = mask[column / 64] >> (column % 64) & 1 == 1;
                prop_assert_eq!(set, values.get(column) == Some(&1.));
            }
        }
        prop_assert_eq!(masks.ones(), image.iter().filter(|&&x| x == 1.).count());
    }
}

#[test]
fn other_values_have_no_masks() {
    for other in [-0., 2., 0.5, -1., f32::NAN, f32::INFINITY, f32::MIN_POSITIVE] {
        let mut image = [0.; 70];
        image[66] = other;
        assert!(SpikeMasks::from_floats(SimdLevel::detected(), &image, 7).is_none());
    }
}
