//! Reductions against a plain loop over the ranks, to the bit.

use super::super::{Communicator, Reduce, Single, Threads, Values};
use super::{number, on_ranks};
use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;

/// Every rank's values.
fn worlds<T: std::fmt::Debug>(
    element: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Vec<Vec<T>>> {
    (1..=5usize, 0..40usize).prop_flat_map(move |(ranks, len)| {
        prop::collection::vec(prop::collection::vec(element.clone(), len), ranks)
    })
}

macro_rules! reduction {
    ($name:ident, $ty:ty, $values:ident, $element:expr, $bits:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(100))]
            #[test]
            fn $name(world in worlds($element), sum: bool, piece in 1..200usize) {
                let reduce = if sum { Reduce::Sum } else { Reduce::Max };
                let mut expected = world[0].clone();
                for rank in &world[1..] {
                    for (a, &b) in expected.iter_mut().zip(rank) {
                        *a = plain::$values(*a, b, reduce);
                    }
                }
                let ranks = Threads::with_piece(world.len(), Threads::TIMEOUT, piece);
                let got = on_ranks(ranks, |rank| {
                    let mut mine = world[rank.rank()].clone();
                    rank.all_reduce(Values::$values(&mut mine), reduce).map(|()| mine)
                });
                let bits = $bits;
                let got: Vec<Vec<$ty>> = got.into_iter().collect::<Result<_, _>>()?;
                for rank in &got {
                    prop_assert!(rank.iter().map(|&x| x.to_ne_bytes()).eq(got[0].iter().map(|&x| x.to_ne_bytes())));
                    prop_assert!(rank.iter().map(|&x| bits(x)).eq(expected.iter().map(|&x| bits(x))), "{rank:?} {expected:?}");
                }
            }
        }
    };
}

/// What two values become, written down another way than in `combine`.
mod plain {
    #![allow(non_snake_case)]
    use super::Reduce;

    macro_rules! float {
        ($name:ident, $ty:ty) => {
            pub(super) fn $name(a: $ty, b: $ty, reduce: Reduce) -> $ty {
                match reduce {
                    Reduce::Sum => a + b,
                    Reduce::Max if a.is_nan() => a,
                    Reduce::Max if b.is_nan() || b > a => b,
                    Reduce::Max => a,
                }
            }
        };
    }
    float!(F32, f32);
    float!(F64, f64);

    pub(super) fn U64(a: u64, b: u64, reduce: Reduce) -> u64 {
        match reduce {
            Reduce::Sum => u64::try_from(u128::from(a) + u128::from(b)).unwrap_or(u64::MAX),
            Reduce::Max => std::cmp::max(a, b),
        }
    }
}

// Any bits, and often those where an order or a rule shows. Which NaN comes of one is the processor's choice.
reduction!(
    f32_are_combined_in_rank_order,
    f32,
    F32,
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        -2f32..2.,
        prop::sample::select(vec![
            0.,
            -0.,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            1e38,
            1e-45,
            16777216.,
            1.
        ])
    ],
    |x: f32| if x.is_nan() { None } else { Some(x.to_bits()) }
);
reduction!(
    f64_are_combined_in_rank_order,
    f64,
    F64,
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        -2f64..2.,
        prop::sample::select(vec![0., -0., f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 1e16, 1.])
    ],
    |x: f64| if x.is_nan() { None } else { Some(x.to_bits()) }
);
reduction!(
    counts_are_combined_and_stop_at_the_largest,
    u64,
    U64,
    prop_oneof![any::<u64>(), 0..9u64, Just(u64::MAX)],
    |x: u64| x
);

#[test]
fn the_order_of_the_ranks_shows_in_the_sum_and_is_kept() {
    // (1e8 + 1) + -1e8 is 0 in f32, and 1 in another order.
    let given = [1e8f32, 1., -1e8];
    let sums = on_ranks(Threads::group(3), |rank| {
        let mut mine = [given[rank.rank()]];
        rank.all_reduce(Values::F32(&mut mine), Reduce::Sum).unwrap();
        mine[0]
    });
    assert_eq!(sums, [0., 0., 0.]);
}

#[test]
fn one_element_and_none_go_over_five_ranks() {
    let results = on_ranks(Threads::group(5), |rank| {
        let mut one = [number(&rank)];
        rank.all_reduce(Values::F32(&mut one), Reduce::Sum).unwrap();
        rank.all_reduce(Values::F32(&mut []), Reduce::Max).unwrap();
        (one[0], rank.bytes_sent())
    });
    assert_eq!(results.iter().map(|(sum, _)| *sum).collect::<Vec<_>>(), [10.; 5]);
    // Rank 0 combines the element and gives it to four; the others send theirs to it.
    assert_eq!(results.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [16, 4, 4, 4, 4]);
}

#[test]
fn a_group_is_used_many_times_and_groups_do_not_mix() {
    let groups = [Threads::group(3), Threads::group(3), Threads::group(2)];
    std::thread::scope(|scope| {
        for (g, group) in groups.into_iter().enumerate() {
            scope.spawn(move || {
                on_ranks(group, |rank| {
                    for round in 0..300u64 {
                        let mut mine = [round, g as u64];
                        rank.all_reduce(Values::U64(&mut mine), Reduce::Sum).unwrap();
                        let n = rank.size() as u64;
                        assert_eq!(mine, [n * round, n * g as u64]);
                        let root = round as usize % rank.size();
                        let mut bytes = vec![rank.rank() as u8; rank.rank() + round as usize % 7];
                        rank.broadcast(root, &mut bytes).unwrap();
                        assert_eq!(bytes, vec![root as u8; root + round as usize % 7]);
                        rank.barrier().unwrap();
                    }
                });
            });
        }
    });
}

#[test]
fn two_threads_of_a_rank_take_turns() {
    on_ranks(Threads::group(3), |rank| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut ones = [1f32; 5];
                        rank.all_reduce(Values::F32(&mut ones), Reduce::Sum).unwrap();
                        assert_eq!(ones, [3.; 5]);
                    }
                });
            }
        });
    });
}

#[test]
fn broadcasts_of_any_length_go_in_pieces_from_any_root() {
    for len in [0, 1, 6, 7, 8, 100] {
        let ranks = Threads::with_piece(3, Threads::TIMEOUT, 7);
        on_ranks(ranks, |rank| {
            let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut bytes = if rank.rank() == 2 { sent.clone() } else { vec![9; 3] };
            rank.broadcast(2, &mut bytes).unwrap();
            assert_eq!(bytes, sent);
            assert_eq!(rank.bytes_sent(), if rank.rank() == 2 { 2 * len } else { 0 });
        });
    }
}

#[test]
fn tensors_keep_shape_and_dtype_and_other_types_are_refused() {
    on_ranks(Threads::group(2), |rank| {
        for dtype in [DType::F32, DType::F64] {
            let mine = Tensor::arange(0f32, 6., &Device::Cpu).unwrap().reshape((2, 3)).unwrap();
            // Out of order in memory.
            let mine = mine.t().unwrap().to_dtype(dtype).unwrap();
            let sum = rank.all_reduce_tensor(&mine, Reduce::Sum).unwrap();
            assert_eq!((sum.dims(), sum.dtype()), (&[3, 2][..], dtype));
            let twice = (mine * 2.).unwrap().to_dtype(DType::F64).unwrap();
            assert_eq!(
                sum.to_dtype(DType::F64).unwrap().to_vec2::<f64>().unwrap(),
                twice.to_vec2::<f64>().unwrap()
            );
        }
        let bytes = Tensor::zeros(2, DType::U8, &Device::Cpu).unwrap();
        let error = rank.all_reduce_tensor(&bytes, Reduce::Sum).unwrap_err().to_string();
        assert!(error.contains("U8"), "{error}");
        rank.barrier().unwrap();
    });
}

#[test]
fn a_world_of_one_runs_the_same_code() {
    let single = Single::new();
    let mut values = [1f32, f32::NAN];
    single.all_reduce(Values::F32(&mut values), Reduce::Sum).unwrap();
    assert!(values[0] == 1. && values[1].is_nan());
    let mut bytes = vec![1, 2];
    single.broadcast(0, &mut bytes).unwrap();
    single.barrier().unwrap();
    assert_eq!((bytes, single.bytes_sent()), (vec![1, 2], 0));
    assert!(single.broadcast(1, &mut vec![]).is_err());
    single.abort("enough");
    assert!(single.barrier().unwrap_err().to_string().contains("enough"));
}
