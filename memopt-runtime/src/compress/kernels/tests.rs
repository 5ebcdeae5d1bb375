//! Round trips, exactness and refusals, for every element type and every level of this machine.

use half::{bf16, f16};
use proptest::prelude::*;

use super::element::Element;
use super::parallel::{PARALLEL_BYTES, TASK_ELEMENTS};
use super::word::Word;
use super::{unpack_to, Bits, Bytes, SimdLevel, Sparse};

/// An element type with values that are easily mistaken for zero or one.
trait Sample: Element<Word: std::fmt::Debug> {
    /// Bit patterns that are neither `+0` nor one.
    fn others() -> Vec<Self>;
}

macro_rules! sample_float {
    ($element:ty, $infinity:expr) => {
        impl Sample for $element {
            fn others() -> Vec<Self> {
                let one = <Self as Element>::ONE;
                let sign = 1 << (8 * size_of::<Self>() - 1);
                let infinity = $infinity;
                // One below and above in the exponent field halves and doubles.
                let exponent = infinity & infinity.wrapping_neg();
                let words = vec![
                    sign,
                    sign | one,
                    one + exponent,
                    one - exponent,
                    one + 1,
                    one - 1,
                    1,
                    sign | 1,
                    infinity,
                    sign | infinity,
                    infinity | 1,
                    infinity | one,
                    infinity | exponent >> 1,
                    sign | infinity | exponent >> 1 | 5,
                    !0,
                ];
                Self::from_words(words)
            }
        }
    };
}

sample_float!(f32, f32::INFINITY.to_bits());
sample_float!(f64, f64::INFINITY.to_bits());
sample_float!(f16, f16::INFINITY.to_bits());
sample_float!(bf16, bf16::INFINITY.to_bits());

impl Sample for u8 {
    fn others() -> Vec<Self> {
        vec![2, 3, 127, 128, 129, 254, 255]
    }
}

/// Runs a generic check for each element type, each as a test of its own.
macro_rules! for_each_element {
    ($($check:ident),* $(,)?) => {$(
        mod $check {
            use half::{bf16, f16};

            #[test]
            fn of_f32() {
                super::checks::$check::<f32>();
            }

            #[test]
            fn of_f64() {
                super::checks::$check::<f64>();
            }

            #[test]
            fn of_f16() {
                super::checks::$check::<f16>();
            }

            #[test]
            fn of_bf16() {
                super::checks::$check::<bf16>();
            }

            #[test]
            fn of_u8() {
                super::checks::$check::<u8>();
            }
        }
    )*};
}

for_each_element!(
    random_tensors_round_trip,
    every_position_is_checked,
    task_borders_are_checked,
    threads_change_nothing,
    all_bytes_are_exact,
    sparse_never_exceeds_raw,
    parts_are_unpacked_from_any_bit_on,
);

/// Zeros and ones, and some of the `others` if `mixed`.
fn tensor<E: Sample>(length: usize, seed: u64, percent: u64, mixed: bool) -> Vec<E> {
    let others = E::others();
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let mut element = || match (next() % 100 < percent, mixed) {
        (false, _) => E::from_byte(0),
        (true, false) => E::from_byte(1),
        (true, true) => others[next() as usize % others.len()],
    };
    (0..length).map(|_| element()).collect()
}

/// The bits by definition.
fn reference_words<E: Element>(elements: &[E]) -> Vec<u64> {
    let mut words = vec![0; elements.len().div_ceil(64)];
    for (index, &word) in E::words(elements).iter().enumerate() {
        words[index / 64] |= u64::from(word == E::ONE) << (index % 64);
    }
    words
}

/// Everything that must hold for any tensor at any level.
fn check<E: Sample>(level: SimdLevel, elements: &[E]) {
    let words = E::words(elements);
    let nonzero = words.iter().filter(|&&word| word != E::Word::ZERO).count();
    let spikes = words.iter().all(|&word| word == E::Word::ZERO || word == E::ONE);

    let bits = Bits::pack(level, elements);
    assert_eq!(bits.is_some(), spikes);
    if let Some(bits) = &bits {
        assert_eq!(bits.words(), reference_words(elements));
        assert_eq!((bits.len(), bits.count_ones()), (elements.len(), nonzero));
        assert_eq!(bits.bytes(), elements.len().div_ceil(64) * 8);
        assert!(E::words(&bits.unpack::<E>(level)) == words);
    }

    let bytes = Bytes::pack(level, elements);
    assert_eq!(bytes.is_some(), elements.iter().all(|element| element.to_byte().is_some()));
    if let Some(bytes) = &bytes {
        assert_eq!((bytes.len(), bytes.bytes()), (elements.len(), elements.len()));
        assert!(E::words(&bytes.unpack::<E>(level)) == words);
    }

    let sparse = Sparse::pack(level, elements);
    let values = if spikes { 0 } else { nonzero * size_of::<E>() };
    let predicted = Sparse::bytes_for_ones(nonzero, elements.len()) + values;
    assert_eq!(sparse.is_some(), predicted < size_of_val(elements));
    if let Some(sparse) = &sparse {
        assert_eq!((sparse.len(), sparse.count(), sparse.bytes()), (elements.len(), nonzero, predicted));
        assert!(E::words(&sparse.unpack::<E>().unwrap()) == words);
    }
    if let Some(bits) = &bits {
        let found = Sparse::from_bits(level, bits);
        assert!(E::words(&found.unpack::<E>().unwrap()) == words);
        assert!(sparse.is_none_or(|sparse| sparse == found));
    }
}

/// A tensor that is large enough for threads, of a length that is no multiple of anything.
fn large<E: Sample>(percent: u64, mixed: bool) -> Vec<E> {
    tensor(PARALLEL_BYTES / size_of::<E>() + 2 * TASK_ELEMENTS + 71, 7, percent, mixed)
}

mod checks {
    use super::*;

    pub fn random_tensors_round_trip<E: Sample>() {
        for length in
            (0..=200).chain([255, 256, 257, 2047, 2048, 2049, 65_535, 65_536, 65_537, 131_072, 131_199])
        {
            for &level in SimdLevel::available() {
                check::<E>(level, &tensor(length, length as u64 + 1, 20, false));
                check::<E>(level, &tensor(length, length as u64 + 1, 10, true));
            }
        }
        for &level in SimdLevel::available() {
            for percent in [0, 15, 100] {
                check::<E>(level, &large(percent, false));
            }
            check::<E>(level, &large(5, true));
        }
        let lengths = prop_oneof![0..=700usize, 65_400..=65_700usize, 130_900..=131_300usize];
        proptest!(ProptestConfig::with_cases(48), |(length in lengths, seed: u64, percent in 0..=100u64, mixed: bool)| {
            let elements = tensor::<E>(length, seed, percent, mixed);
            for &level in SimdLevel::available() {
                check(level, &elements);
            }
        });
    }

    pub fn every_position_is_checked<E: Sample>() {
        for &level in SimdLevel::available() {
            let mut elements = tensor::<E>(201, 3, 15, false);
            for position in 0..elements.len() {
                let spike = elements[position];
                for other in E::others() {
                    elements[position] = other;
                    assert!(Bits::pack(level, &elements).is_none());
                    check(level, &elements);
                }
                elements[position] = spike;
            }
        }
    }

    pub fn task_borders_are_checked<E: Sample>() {
        let mut elements = large::<E>(15, false);
        let last = elements.len() - 1;
        let positions = [0, TASK_ELEMENTS - 1, TASK_ELEMENTS, 2 * TASK_ELEMENTS - 1, last - 71, last];
        for &level in SimdLevel::available() {
            for position in positions {
                let spike = elements[position];
                for other in E::others() {
                    elements[position] = other;
                    assert!(Bits::pack(level, &elements).is_none());
                    assert_eq!(Bytes::pack(level, &elements).is_some(), other.to_byte().is_some());
                }
                check(level, &elements);
                elements[position] = spike;
            }
        }
    }

    pub fn threads_change_nothing<E: Sample>() {
        let level = SimdLevel::detected();
        for mixed in [false, true] {
            let elements = large::<E>(15, mixed);
            let results = [1, 2, 5].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    check(level, &elements);
                    let bits = Bits::pack(level, &elements);
                    (bits, Bytes::pack(level, &elements), Sparse::pack(level, &elements))
                })
            });
            assert!(results[0] == results[1] && results[0] == results[2]);
        }
    }

    pub fn all_bytes_are_exact<E: Sample>() {
        let elements: Vec<E> = (0..=255).map(E::from_byte).collect();
        for (byte, element) in (0..=255).zip(&elements) {
            assert_eq!(element.to_byte(), Some(byte));
        }
        assert_eq!(E::words(&elements)[..2], [E::Word::ZERO, E::ONE]);
        for &level in SimdLevel::available() {
            check(level, &elements);
            let bytes = Bytes::pack(level, &elements).unwrap();
            assert_eq!(bytes.integers(), (0..=255).collect::<Vec<u8>>());
        }
    }

    pub fn parts_are_unpacked_from_any_bit_on<E: Sample>() {
        let elements = tensor::<E>(5000, 5, 30, false);
        let bits = Bits::pack(SimdLevel::Portable, &elements).unwrap();
        for (start, length) in
            [(0, 5000), (1, 4999), (63, 65), (64, 2048), (65, 2049), (127, 1), (4990, 10), (70, 0)]
        {
            for &level in SimdLevel::available() {
                // What was there before goes.
                let mut to = vec![E::from_byte(7); length + 1];
                unpack_to(level, bits.words(), start, &mut to[..length]);
                assert!(E::words(&to[..length]) == E::words(&elements[start..start + length]));
                assert_eq!(to[length].to_byte(), Some(7));
                let part = bits.unpack_range::<E>(level, start..start + length);
                assert!(E::words(&part) == E::words(&elements[start..start + length]));
            }
        }
        let mut behind = [E::from_byte(7); 3];
        unpack_to(SimdLevel::detected(), bits.words(), 5120, &mut behind);
        assert!(behind.iter().all(|element| element.to_byte() == Some(0)));
    }

    pub fn sparse_never_exceeds_raw<E: Sample>() {
        for &level in SimdLevel::available() {
            assert!(Sparse::pack::<E>(level, &[]).is_none());
            for percent in 0..=100 {
                check::<E>(level, &tensor(70_000, 11, percent, true));
            }
        }
    }
}

#[test]
fn half_precision_to_bytes_agrees_with_conversion() {
    for word in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(word), bf16::from_bits(word));
        assert_eq!(half.to_byte(), f64::from(half).to_byte(), "{word:#x}");
        assert_eq!(brain.to_byte(), f64::from(brain).to_byte(), "{word:#x}");
    }
}

#[test]
fn only_exact_integers_are_bytes() {
    for integer in 0..=255u8 {
        let double = f64::from(integer);
        assert_eq!((double.next_down().to_byte(), double.next_up().to_byte()), (None, None));
        let single = f32::from(integer);
        assert_eq!((single.next_down().to_byte(), single.next_up().to_byte()), (None, None));
        assert_eq!(single.to_byte(), Some(integer));
        assert_eq!((single + 0.5).to_byte(), None);
        assert_eq!((-single - 1.0).to_byte(), None);
        assert_eq!((single + 256.0).to_byte(), None);
    }
    assert_eq!((-0.0f32).to_byte(), None);
    assert_eq!((-0.0f64).to_byte(), None);
    assert_eq!(1e300f64.to_byte(), None);
}

#[test]
fn values_keep_their_width() {
    let sparse = Sparse::pack(SimdLevel::detected(), &[0.0f32, 0.0, 0.0, 0.0, 2.5]).unwrap();
    assert_eq!(sparse.unpack::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 2.5]);
    assert!(sparse.unpack::<f64>().is_none());
    let ones = Sparse::pack(SimdLevel::detected(), &[0.0f32, 0.0, 1.0]).unwrap();
    assert_eq!(ones.unpack::<f64>().unwrap(), [0.0, 0.0, 1.0]);
}

#[test]
fn levels_are_ordered_and_clamped() {
    let available = SimdLevel::available();
    assert_eq!(available.first(), Some(&SimdLevel::Portable));
    assert_eq!(available.last(), Some(&SimdLevel::detected()));
    assert!(SimdLevel::Avx512.clamped() <= SimdLevel::detected());
}
