//! Buckets of gradients, parameters and plans of a group.

use super::super::{
    agreement, broadcast_parameters, Agreement, Buckets, Communicator, Gradient, GroupError, Single, Threads,
};
use super::{group_error, on_ranks};
use candle_core::{DType, Device, Tensor, Var};
use half::{bf16, f16};
use proptest::prelude::*;
use std::sync::Arc;

const TYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// A gradient of some size on some ranks, of rank-dependent values.
fn made(seed: usize, rank: usize, len: usize, dtype: DType) -> Tensor {
    let value = |i: usize| ((seed * 31 + rank * 17 + i * 7) % 23) as f64 / 3. - 3.7;
    let values: Vec<f64> = (0..len).map(value).collect();
    Tensor::from_vec(values, len, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

/// The sum in rank order, rounded once, by a plain loop.
fn plain_sum(all: &[Option<Tensor>]) -> Vec<f64> {
    let mut all = all.iter().map(|g| g.as_ref().unwrap());
    let first = all.next().unwrap();
    macro_rules! sum {
        ($ty:ty, $wide:ty, $round:expr) => {{
            let mut sum: Vec<$wide> =
                first.to_vec1::<$ty>().unwrap().into_iter().map(<$wide>::from).collect();
            for gradient in all {
                for (a, b) in sum.iter_mut().zip(gradient.to_vec1::<$ty>().unwrap()) {
                    *a += <$wide>::from(b);
                }
            }
            sum.into_iter().map(|x| f64::from($round(x))).collect()
        }};
    }
    match first.dtype() {
        DType::F32 => sum!(f32, f32, |x| x),
        DType::F64 => sum!(f64, f64, |x| x),
        DType::F16 => sum!(f16, f32, f16::from_f32),
        _ => sum!(bf16, f32, bf16::from_f32),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn buckets_of_any_size_give_the_plain_sums(
        ranks in 1..=4usize,
        shapes in prop::collection::vec((0..9usize, 0..4usize, 0..16u8), 0..7),
        bytes in 0..120usize,
    ) {
        // Which ranks have a gradient: the bits of a number.
        let has = |mask: u8, rank: usize| mask >> rank & 1 == 1;
        let parameters: Vec<Tensor> =
            shapes.iter().map(|&(len, ty, _)| Tensor::zeros(len, TYPES[ty], &Device::Cpu).unwrap()).collect();
        let reduced = on_ranks(Threads::group(ranks), |rank| {
            let gradients: Vec<_> = shapes.iter().enumerate().map(|(i, &(len, ty, mask))| {
                has(mask, rank.rank()).then(|| made(i, rank.rank(), len, TYPES[ty]))
            }).collect();
            let names: Vec<_> = (0..shapes.len()).map(|i| format!("p{i}")).collect();
            let list: Vec<_> = (0..shapes.len()).map(|i| Gradient {
                name: &names[i], parameter: &parameters[i], gradient: gradients[i].as_ref(),
            }).collect();
            let before = rank.bytes_sent();
            let reduced = Buckets::new(bytes).reduce(&rank, &list).unwrap();
            assert_eq!(reduced.bytes_sent, rank.bytes_sent() - before);
            reduced
        });
        for (i, &(len, ty, mask)) in shapes.iter().enumerate() {
            let any = (0..ranks).any(|rank| has(mask, rank));
            let zeros = |rank| has(mask, rank).then(|| made(i, rank, len, TYPES[ty]))
                .or_else(|| Some(parameters[i].clone()));
            let expected: Vec<_> = (0..ranks).map(zeros).collect();
            for rank in &reduced {
                let Some(sum) = &rank.gradients[i] else { prop_assert!(!any); continue };
                prop_assert!(any);
                prop_assert_eq!((sum.dims(), sum.dtype()), (&[len][..], TYPES[ty]));
                let sum = sum.to_dtype(DType::F64)?.to_vec1::<f64>()?;
                let same = sum.iter().zip(plain_sum(&expected)).all(|(a, b)| a.to_bits() == b.to_bits());
                prop_assert!(same, "{:?}", sum);
            }
        }
        for (r, rank) in reduced.iter().enumerate() {
            let lacking = shapes.iter().filter(|&&(_, _, mask)| !has(mask, r) && (0..ranks).any(|r| has(mask, r)));
            prop_assert_eq!(rank.zeros, lacking.count());
        }
    }
}

#[test]
fn small_gradients_share_a_bucket_and_large_ones_have_their_own() {
    let parameters: Vec<_> = [10, 10, 100, 5, 5, 20]
        .map(|len| Tensor::ones(len, DType::F32, &Device::Cpu).unwrap())
        .into_iter()
        .collect();
    let list: Vec<_> =
        parameters.iter().map(|p| Gradient { name: "p", parameter: p, gradient: Some(p) }).collect();
    let buckets = |bytes| Buckets::new(bytes).reduce(&Single::new(), &list).unwrap().buckets;
    assert_eq!([buckets(0), buckets(80), buckets(120), buckets(1 << 20)], [6, 4, 3, 1]);
}

#[test]
fn different_lists_are_one_error_on_all_ranks_and_the_group_goes_on() {
    let tensor = |len: usize, dtype| Tensor::zeros(len, dtype, &Device::Cpu).unwrap();
    let (three, four) = (tensor(3, DType::F32), tensor(4, DType::F32));
    let double = tensor(3, DType::F64);
    let gradient = |name, parameter| Gradient { name, parameter, gradient: Some(parameter) };
    let right = vec![gradient("a", &three), gradient("b", &four)];
    let wrong = [
        (vec![gradient("a", &three), gradient("c", &four)], "`c` (f32 [4]) where rank 0 has `b` (f32 [4])"),
        (vec![gradient("a", &four), gradient("b", &four)], "`a` (f32 [4]) where rank 0 has `a` (f32 [3])"),
        (vec![gradient("a", &double), gradient("b", &four)], "`a` (f64 [3]) where rank 0 has `a` (f32 [3])"),
        (vec![gradient("a", &three)], "nothing any more where rank 0 has `b`"),
        (vec![], "nothing any more where rank 0 has `a`"),
        (
            vec![Gradient { name: "a", parameter: &three, gradient: Some(&four) }, gradient("b", &four)],
            "the gradient `a` (f32 [4]) is not of its parameter's shape, dtype and device, `a` (f32 [3])",
        ),
    ];
    on_ranks(Threads::group(3), |rank| {
        for (other, message) in &wrong {
            let list = if rank.rank() == 1 { other } else { &right };
            match group_error(Buckets::default().reduce(&rank, list)) {
                GroupError::Refused { rank: 1, what } => assert!(what.contains(message), "{what}"),
                other => panic!("{other}"),
            }
        }
        assert_eq!(Buckets::default().reduce(&rank, &right).unwrap().buckets, 1);
    });
}

#[test]
fn all_ranks_get_the_first_ones_parameters_to_the_bit() {
    for dtype in TYPES.into_iter().chain([DType::U32, DType::I64, DType::U8]) {
        let values = on_ranks(Threads::group(3), |rank| {
            let var = |seed, len| {
                let mine = made(seed, rank.rank(), len, DType::F64).abs().unwrap();
                Var::from_tensor(&mine.to_dtype(dtype).unwrap()).unwrap()
            };
            let mut list =
                vec![("b".to_owned(), var(1, 4)), ("a".to_owned(), var(2, 3)), ("c".to_owned(), var(3, 0))];
            list.rotate_left(rank.rank());
            broadcast_parameters(&rank, &list).unwrap();
            list.sort_by(|(a, _), (b, _)| a.cmp(b));
            let read = |(_, var): &(String, Var)| {
                let mut bytes = Vec::new();
                var.write_bytes(&mut bytes).unwrap();
                bytes
            };
            list.iter().map(read).collect::<Vec<_>>()
        });
        assert_eq!(values[0], values[1], "{dtype:?}");
        assert_eq!(values[0], values[2], "{dtype:?}");
        let first = made(2, 0, 3, DType::F64).abs().unwrap().to_dtype(dtype).unwrap();
        let mut bytes = Vec::new();
        first.write_bytes(&mut bytes).unwrap();
        assert_eq!(values[0][0], bytes);
    }
}

#[test]
fn other_names_and_shapes_of_parameters_are_an_error_on_all_ranks() {
    on_ranks(Threads::group(2), |rank| {
        let var = |len: usize| Var::ones(len, DType::F32, &Device::Cpu).unwrap();
        let own = if rank.rank() == 1 { "other" } else { "name" };
        let message = broadcast_parameters(&rank, &[(own.into(), var(3))]).unwrap_err().to_string();
        assert!(message.contains("rank 1: it has `other`"), "{message}");
        let message =
            broadcast_parameters(&rank, &[("p".into(), var(3 + rank.rank()))]).unwrap_err().to_string();
        assert!(message.contains("rank 1: it has `p` (f32 [4]) where rank 0 has `p` (f32 [3])"), "{message}");
        broadcast_parameters(&rank, &[("p".into(), var(3))]).unwrap();
    });
}

#[test]
fn ranks_agree_on_the_first_ones_text_and_the_largest_numbers() {
    on_ranks(Threads::group(3), |rank| {
        let number = rank.rank() as u64;
        let rank: Arc<dyn Communicator> = Arc::new(rank);
        let agreement = agreement(rank);
        assert_eq!(agreement.largest(&[number, 10 - number, 5]).unwrap(), [2, 10, 5]);
        assert_eq!(agreement.of_first(&format!("plan {number} \u{e9}")).unwrap(), "plan 0 \u{e9}");
        assert!(agreement.largest(&vec![0; 1 + number as usize]).is_err());
        assert!(agreement.largest(&[]).unwrap().is_empty());
    });
}
