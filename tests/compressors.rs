//! Compressors by behaviour: everything comes back exactly, or is kept as it is and counted.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{CpuStorage, DType, Device, Tensor, Var};
use common::{assert_same, Values};
use memopt::checkpoint::{checkpoint, Options};
use memopt::compress::{
    self, Auto, Bit, Byte, Encoded, Encoding, Null, Pack, Packed, Sparse, SpikeCompressor,
};
use memopt::Error;
use proptest::prelude::*;

const CPU: &Device = &Device::Cpu;
const DTYPES: [DType; 5] = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U8];

fn all() -> [Box<dyn SpikeCompressor>; 5] {
    [Box::new(Null), Box::new(Bit), Box::new(Byte), Box::new(Sparse), Box::new(Auto)]
}

fn of(values: &[f64], dtype: DType) -> Tensor {
    Tensor::new(values, CPU).unwrap().to_dtype(dtype).unwrap()
}

/// NaN, -0.0, 2, 0.5 and -1 at every position of a block of spikes.
#[test]
fn other_values_at_every_position_of_a_block_are_kept_exactly() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for odd in [f64::NAN, -0.0, 2., 0.5, -1.] {
            for position in 0..130 {
                let mut values: Vec<f64> = (0..130).map(|i| f64::from(i % 3 == 0)).collect();
                values[position] = odd;
                let x = of(&values, dtype);
                for compressor in all() {
                    let packed = compressor.pack(&x).unwrap();
                    assert_same(&packed.unpack().unwrap(), &x);
                    if compressor.name() == "bit" {
                        assert!(packed.is_fallback(), "{odd} at {position}");
                    }
                }
                assert_eq!(Byte.pack(&x).unwrap().is_fallback(), odd != 2., "{odd} at {position}");
            }
        }
    }
}

/// Handles on packed bits are parts of the tensor; what is kept in another way or order gives none.
#[test]
fn packed_spikes_are_parts_of_their_tensor() {
    let mut values = Values::new(3);
    for dtype in DTYPES {
        for shape in [vec![5, 3, 13], vec![4], vec![3, 0, 2], vec![0, 2], vec![2, 64]] {
            let x = values.spikes(&shape, 0.3, dtype).unwrap();
            for packed in [Bit.pack(&x).unwrap(), Auto.pack(&x).unwrap()] {
                let Some(spikes) = packed.spikes() else {
                    assert_ne!(packed.encoding(), "bit", "{shape:?}");
                    continue;
                };
                drop(packed);
                assert_eq!((spikes.dims(), spikes.dtype()), (x.dims(), dtype));
                assert_same(&spikes.unpack().unwrap(), &x);
                for (start, end) in (0..=shape[0]).flat_map(|end| (0..=end).map(move |start| (start, end))) {
                    let part = spikes.steps(start..end).unwrap();
                    assert_same(&part.unpack().unwrap(), &x.narrow(0, start, end - start).unwrap());
                    if end > start {
                        let last = part.steps(end - start - 1..end - start).unwrap();
                        assert_same(&last.unpack().unwrap(), &x.narrow(0, end - 1, 1).unwrap());
                    }
                    assert!(part.steps(0..end - start + 1).is_none());
                }
                #[allow(clippy::reversed_empty_ranges)]
                let reversed = 1..0;
                assert!(spikes.steps(0..shape[0] + 1).is_none() && spikes.steps(reversed).is_none());
            }
        }
    }
    let x = values.spikes(&[4, 6], 0.3, DType::F32).unwrap();
    assert!(Bit.pack(&x).unwrap().spikes().is_some());
    assert!(Bit.pack(&x.t().unwrap()).unwrap().spikes().is_none());
    assert!(Bit.pack(&(x.clone() * 2.).unwrap()).unwrap().spikes().is_none());
    assert!(Byte.pack(&x).unwrap().spikes().is_none() && Null.pack(&x).unwrap().spikes().is_none());
}

#[test]
fn what_each_encoding_costs() {
    let mut values = Values::new(1);
    let spikes = values.spikes(&[64, 100], 0.2, DType::F32).unwrap();
    let rare = values.spikes(&[64, 100], 0.005, DType::F32).unwrap();
    let counts = of(&(0..6400).map(|i| f64::from(i % 7)).collect::<Vec<_>>(), DType::F32);
    let floats = values.tensor(&[64, 100], DType::F32).unwrap();
    let found = |c: &dyn SpikeCompressor, x: &Tensor| {
        let p = c.pack(x).unwrap();
        (p.encoding().to_owned(), p.bytes(), p.is_fallback())
    };
    assert_eq!(found(&Bit, &spikes), ("bit".into(), 800, false));
    assert_eq!(found(&Byte, &counts), ("byte".into(), 6400, false));
    assert_eq!(found(&Null, &floats), ("none".into(), 25600, false));
    assert_eq!(found(&Bit, &floats), ("none".into(), 25600, true));
    assert_eq!(found(&Sparse, &floats), ("none".into(), 25600, false));
    assert_eq!(found(&Auto, &spikes).0, "bit");
    assert_eq!(found(&Auto, &rare).0, "sparse");
    assert!(found(&Auto, &rare).1 < 200);
    assert_eq!(found(&Auto, &counts).0, "byte");
    assert_eq!(found(&Auto, &floats), ("none".into(), 25600, false));
}

#[test]
fn the_packed_bits_can_be_read() {
    let x = of(&[0., 1., 1., 0.], DType::F32);
    let packed = Bit.pack(&x).unwrap();
    let bits: &compress::EncodedBits = packed.encoded().unwrap();
    assert_eq!(bits.packed().words(), [0b0110]);
    assert!(packed.encoded::<compress::EncodedBytes>().is_none());
}

#[test]
fn integers_of_other_types_are_kept_as_they_are() {
    let x = Tensor::new(&[0u32, 1, 70_000], CPU).unwrap();
    for compressor in all() {
        assert_same(&compressor.pack(&x).unwrap().unpack().unwrap(), &x);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_comes_back(
        shape in prop::collection::vec(0usize..9, 0..5),
        kind in 0..4,
        dtype in 0usize..5,
        transpose in any::<bool>(),
        narrow in any::<bool>(),
        repeat in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[dtype];
        let mut values = Values::new(seed);
        let n: usize = shape.iter().product();
        let elements: Vec<f64> = (0..n).map(|_| {
            let v = values.next();
            match kind {
                0 => f64::from(v > 0.6),
                1 => (v.abs() * 20.).floor(),
                2 => if v > 0.9 { v } else { 0. },
                _ => v,
            }
        }).collect();
        let mut x = Tensor::from_vec(elements, shape.as_slice(), CPU).unwrap().to_dtype(dtype).unwrap();
        if transpose && x.rank() > 1 {
            x = x.transpose(0, x.rank() - 1).unwrap();
        }
        if narrow && x.rank() > 1 && x.dim(1).unwrap() > 1 {
            x = x.narrow(1, 1, x.dim(1).unwrap() - 1).unwrap();
        }
        if repeat {
            let mut dims = x.dims().to_vec();
            dims.insert(0, 3);
            x = x.broadcast_as(dims).unwrap();
        }
        for compressor in all() {
            let packed: Packed = compressor.pack(&x).unwrap();
            let y = packed.unpack().unwrap();
            assert_same(&y, &x);
            prop_assert!(y.device().is_cpu());
            prop_assert!(x.elem_count() == 0 || y.is_contiguous() == x.is_contiguous());
        }
    }
}

/// A compressor that claims to keep anything as its signs.
#[derive(Debug)]
struct Signs;

struct SignBits(Vec<bool>, DType);

impl SpikeCompressor for Signs {
    fn name(&self) -> &str {
        "signs"
    }

    fn encode(&self, x: &Tensor) -> memopt::Result<Encoding> {
        let values = x.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        Ok(Encoding::Encoded(Box::new(SignBits(values.iter().map(|v| *v < 0.).collect(), x.dtype()))))
    }
}

impl Encoded for SignBits {
    fn encoding(&self) -> &str {
        "signs"
    }

    fn decode(&self) -> memopt::Result<CpuStorage> {
        let values = self.0.iter().map(|negative| if *negative { -1. } else { 1. });
        Ok(match self.1 {
            // as a mistake would: the dtype is lost
            DType::F64 => CpuStorage::F32(values.collect()),
            _ => CpuStorage::F32(values.collect()),
        })
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_users_compressor_is_held_to_losslessness() {
    let fits = of(&[1., -1., -1.], DType::F32);
    let packed = Signs.pack(&fits).unwrap();
    assert_eq!((packed.encoding(), packed.is_fallback()), ("signs", false));
    assert_same(&packed.unpack().unwrap(), &fits);
    let other = of(&[1., -2., 0.], DType::F32);
    let packed = Signs.pack(&other).unwrap();
    assert_eq!((packed.encoding(), packed.is_fallback()), ("none", true));
    assert_same(&packed.unpack().unwrap(), &other);
    let error = Signs.pack(&of(&[1.], DType::F64)).unwrap_err();
    assert!(matches!(error, Error::Decoded { compressor, .. } if compressor == "signs"));
}

/// A user's encoding may ask for the counts, and may say nonsense.
#[test]
fn an_encoding_may_look_at_the_counts_and_claim_any_size() {
    #[derive(Debug)]
    struct Curious;
    struct Claims(Vec<f32>);
    impl SpikeCompressor for Curious {
        fn name(&self) -> &str {
            "curious"
        }
        fn encode(&self, x: &Tensor) -> memopt::Result<Encoding> {
            Ok(Encoding::Encoded(Box::new(Claims(x.flatten_all()?.to_vec1()?))))
        }
    }
    impl Encoded for Claims {
        fn encoding(&self) -> &str {
            compress::counts();
            "curious"
        }
        fn decode(&self) -> memopt::Result<CpuStorage> {
            Ok(CpuStorage::F32(self.0.clone()))
        }
        fn bytes(&self) -> usize {
            compress::counts();
            usize::MAX
        }
    }
    let w = Var::new(&[1f32, 2.], CPU).unwrap();
    let outputs: Vec<Tensor> = (0..2)
        .map(|_| checkpoint(|x| x[0].sqr(), &[&w], Options::new("curious").compressor(Curious)).unwrap())
        .collect();
    assert_eq!(memopt::memory::held().total, usize::MAX);
    outputs.iter().for_each(|y| drop(y.sum_all().unwrap().backward().unwrap()));
}

#[test]
fn fallbacks_are_counted_by_segment() {
    let w = Var::new(&[1f32, 2., 3.], CPU).unwrap();
    let pass = |values: &[f64]| {
        let w = w.clone();
        let options = Options::new("counted").compressor(Bit);
        let y: Tensor = checkpoint(move |x| x[0].mul(&w), &[&of(values, DType::F32)], options).unwrap();
        y.sum_all().unwrap().backward().unwrap().get(&w_of(&y)).cloned()
    };
    // the variable is reached through the function only
    fn w_of(y: &Tensor) -> Tensor {
        memopt::autograd::variables_reached(std::slice::from_ref(y)).remove(0)
    }
    assert_eq!(pass(&[1., 0., 1.]).unwrap().to_vec1::<f32>().unwrap(), [1., 0., 1.]);
    assert_eq!(pass(&[1., 0.5, -1.]).unwrap().to_vec1::<f32>().unwrap(), [1., 0.5, -1.]);
    let counts = compress::counts().into_iter().find(|c| c.segment == "counted").unwrap();
    assert_eq!((counts.encodings["bit"], counts.encodings["none"], counts.fallbacks), (1, 1, 1));
    assert_eq!((counts.raw_bytes, counts.kept_bytes), (24, 8 + 12));
}
